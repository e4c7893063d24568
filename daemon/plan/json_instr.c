/* One instruction from JSON, checked against the tables that were read before it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "plan/json_get.h"
#include "plan/names.h"
#include "plan/refs.h"

static void read_refs(struct plan *p, struct get *g, const char *key, bool out, struct plan_ref **ret, uint32_t *ret_n)
{
	const json_t *v = get_array(g, key, PLAN_REFS_MAX);
	size_t n = v ? json_array_size(v) : 0;
	if (n == 0)
		return;
	*ret = xcalloc(n, sizeof **ret);
	*ret_n = (uint32_t)n;
	for (size_t i = 0; i < n && !g->bad; i++) {
		const json_t *s = json_array_get(v, i);
		struct err e = {0};
		if (!json_is_string(s))
			get_fail(g, ERR_INVALID, key, "strings are expected");
		else if (refs_parse(p, json_string_value(s), json_string_length(s), out, &(*ret)[i], &e) < 0)
			get_fail(g, e.code, key, "%s", e.text);
	}
}

static void read_piece(struct get *g, struct plan_instr *i)
{
	const json_t *v = get_array(g, "ops", PLAN_REFS_MAX);
	for (size_t k = 0; v && !g->bad && k < json_array_size(v); k++) {
		uint32_t a = (uint32_t)get_at(g, "ops", json_array_get(v, k), 0, 1u << 20);
		uint32_t b = (uint32_t)get_at(g, "ops", json_array_get(v, k), 1, 1u << 20);
		if (!g->bad && a > b)
			get_fail(g, ERR_INVALID, "ops", "[first, last] with first <= last is expected");
		if (!g->bad)
			plan_piece(i, a, b);
	}
}

static void read_target(const struct plan *p, struct get *g, struct plan_instr *i)
{
	static const char *const with[] = NAMES_WITH;
	char name[PLAN_NAME];
	i->with = (enum plan_with)get_enum(g, "with", with, COUNT(with));
	i->peer = (uint32_t)get_u(g, "peer", PLAN_NONE, p->nmembers - 1);
	get_name(g, "group", false, name);
	if (name[0] && (i->group = plan_find_group(p, name)) == PLAN_NONE)
		get_fail(g, ERR_NOT_FOUND, "group", "the plan has no group %s", name);
	i->quorum = (uint32_t)get_u(g, "quorum", 0, PLAN_MEMBERS_MAX);
	i->most = (uint32_t)get_u(g, "most", 0, PLAN_MEMBERS_MAX);
	i->within_us = get_u(g, "within_us", 0, GET_BIG);
	i->unique = get_b(g, "unique");
	if (i->with == PLAN_PEER && i->peer == PLAN_NONE)
		get_fail(g, ERR_INVALID, "peer", "is missing");
	if ((i->with == PLAN_IN_GROUP || i->with == PLAN_ANY) && i->group == PLAN_NONE)
		get_fail(g, ERR_INVALID, "group", "is missing");
	if (i->with == PLAN_ANY && (i->quorum == 0 || i->most < i->quorum))
		get_fail(g, ERR_INVALID, "quorum", "1 <= quorum <= most is expected");
}

static void read_options(struct get *g, struct plan_instr *i)
{
	static const char *const keep[] = NAMES_KEEP, *const missing[] = NAMES_MISSING, *const scope[] = NAMES_SCOPE;
	i->keep = (enum plan_keep)get_enum(g, "keep", keep, COUNT(keep));
	i->replay = get_b(g, "replay");
	get_name(g, "variant", false, i->variant);
	i->mb = get_i(g, "mb", 1 << 30);
	i->every = (uint32_t)get_u(g, "every", 0, 1u << 30);
	i->at = (uint32_t)get_u(g, "at", 0, 1u << 30);
	i->stream_lo = (uint32_t)get_u(g, "stream_lo", 0, 1023);
	i->stream_hi = (uint32_t)get_u(g, "stream_hi", 0, 1024);
	if (i->stream_hi > 0 ? i->stream_lo >= i->stream_hi : i->stream_lo > 0)
		get_fail(g, ERR_INVALID, "stream_lo", "less than stream_hi is expected");
	i->priority = (int32_t)get_i(g, "priority", 1 << 30);
	i->deadline_us = get_u(g, "deadline_us", 0, GET_BIG);
	i->on_missing = (enum plan_missing)get_enum(g, "on_missing", missing, COUNT(missing));
	i->scope = (enum plan_scope)get_enum(g, "scope", scope, COUNT(scope));
	i->work_bytes = get_u(g, "work_bytes", 0, PLAN_BYTES_MAX);
	i->inplace = get_b(g, "inplace");
	const json_t *v = get_key(g, "scale");
	i->scale = json_number_value(v);
	if (v && (!json_is_number(v) || !isfinite(i->scale)))
		get_fail(g, ERR_INVALID, "scale", "a number is expected");
	if (i->every > 0 ? i->at >= i->every : i->at > 0)
		get_fail(g, ERR_INVALID, "at", "less than `every` is expected");
}

int plan_read_instr(struct plan *p, const json_t *o, enum plan_section s, size_t at, struct err *e)
{
	static const char *const section[] = NAMES_SECTION;
	const char *kind[PLAN_KINDS_COUNT];
	struct get g = get_of(o, e, section[s], at);
	char lane[PLAN_NAME];
	for (int k = 0; k < PLAN_KINDS_COUNT; k++)
		kind[k] = plan_kind_name((enum plan_kind)k);
	if (p->ninstrs >= PLAN_INSTRS_MAX)
		return err_set(e, ERR_LIMIT, "a plan has at most %d instructions", PLAN_INSTRS_MAX);
	plan_section(p, s);
	if (p->ninstrs == p->cinstrs) {
		p->cinstrs = p->cinstrs > 0 ? p->cinstrs * 2 : 16;
		p->instr = xrealloc(p->instr, p->cinstrs * sizeof *p->instr);
	}
	struct plan_instr *i = &p->instr[p->ninstrs++];
	*i = (struct plan_instr){ .section = s, .peer = PLAN_NONE, .group = PLAN_NONE };
	i->kind = (enum plan_kind)get_enum(&g, "do", kind, PLAN_KINDS_COUNT);
	get_name(&g, "fn", false, i->fn);
	get_name(&g, "lane", true, lane);
	i->lane = plan_find_lane(p, lane);
	if (!g.bad && i->lane == PLAN_NONE)
		get_fail(&g, ERR_NOT_FOUND, "lane", "the plan has no lane %s", lane);
	read_piece(&g, i);
	read_refs(p, &g, "in", false, &i->in, &i->nin);
	read_refs(p, &g, "out", true, &i->out, &i->nout);
	read_target(p, &g, i);
	read_options(&g, i);
	/* after an error its references may lead nowhere */
	const char *wrong = g.bad ? NULL : plan_instr_wrong(p, i);
	if (wrong)
		get_fail(&g, ERR_INVALID, "", "%s", wrong);
	return get_end(&g);
}
