/* A plan from JSON, perhaps from another peer: every name, range and limit is checked, unknown keys are refused
 * because a plan with a part that this peer does not understand means something else. */
#include <string.h>
#include "common/mem.h"
#include "plan/json_get.h"
#include "plan/names.h"
#include "plan/refs.h"

static void read_extents(struct plan *p, struct get *g, uint32_t buf)
{
	static const char *const kind[] = NAMES_EXTENT;
	const json_t *v = get_array(g, "extents", PLAN_REFS_MAX), *x;
	size_t at;
	if (!v)
		return;
	json_array_foreach(v, at, x) {
		const char *k = json_string_value(json_array_get(x, 0)), *name = json_string_value(json_array_get(x, 1));
		uint64_t lo = get_at(g, "extents", x, 2, GET_BIG), hi = get_at(g, "extents", x, 3, GET_BIG);
		unsigned n = 0;
		while (k && n < COUNT(kind) && strcmp(k, kind[n]) != 0)
			n++;
		if (!k || n == COUNT(kind) || !name || lo > hi || (name[0] && !refs_name_ok(name, strlen(name))))
			get_fail(g, ERR_INVALID, "extents", "[\"flat\"|\"tensor\"|\"op\", name, low, high] is expected");
		if (g->bad)
			return;
		plan_extent(p, buf, (enum plan_extent_kind)n, name, lo, hi);
	}
}

static uint32_t get_tier(const struct plan *p, struct get *g)
{
	char name[PLAN_NAME];
	get_name(g, "tier", false, name);
	for (uint32_t k = 0; k < p->ntiers; k++)
		if (!name[0] || strcmp(p->tier[k].name, name) == 0)
			return k;
	get_fail(g, ERR_NOT_FOUND, "tier", "the plan has no tier %s", name);
	return 0;
}

static int read_buf(struct plan *p, const json_t *o, size_t at, struct err *e)
{
	static const char *const dtype[] = NAMES_DTYPE;
	const char *class[PLAN_CLASSES_COUNT];
	struct get g = get_of(o, e, "buffers", at);
	struct plan_buf b = {0};
	for (int c = 0; c < PLAN_CLASSES_COUNT; c++)
		class[c] = plan_class_name((enum plan_class)c);
	get_name(&g, "name", true, b.name);
	b.class = (enum plan_class)get_enum(&g, "class", class, PLAN_CLASSES_COUNT);
	b.dtype = (enum plan_dtype)get_enum(&g, "dtype", dtype, COUNT(dtype));
	b.bytes = get_u(&g, "bytes", 0, PLAN_BYTES_MAX);
	b.bounded = get_b(&g, "bounded");
	b.tier = get_tier(p, &g);
	b.slot = (uint32_t)get_u(&g, "slot", 0, UINT16_MAX);
	b.depth = (uint32_t)get_u(&g, "depth", 1, PLAN_DEPTH_MAX);
	b.per = (uint32_t)get_u(&g, "per", 1, UINT32_MAX);
	b.initial = get_b(&g, "initial");
	b.shared = get_b(&g, "shared");
	b.journal = get_b(&g, "journal");
	uint64_t offset = get_u(&g, "offset", GET_BIG, GET_BIG);
	if (!g.bad && plan_find(p, b.name) != PLAN_NONE)
		get_fail(&g, ERR_EXISTS, "name", "there are two buffers %s", b.name);
	if (g.bad)
		return -1;
	uint32_t id = plan_buf(p, &b, NULL);
	p->buf[id].offset = offset == GET_BIG ? -1 : (int64_t)offset;
	read_extents(p, &g, id);
	const json_t *v = get_array(&g, "holders", PLAN_MEMBERS_MAX);
	for (size_t i = 0; v && !g.bad && i < json_array_size(v); i++) {
		uint64_t rank = get_at(&g, "holders", v, i, p->nmembers - 1);
		if (!g.bad)
			plan_holder(p, id, (uint32_t)rank);
	}
	return get_end(&g);
}

static int read_group(struct plan *p, const json_t *o, size_t at, struct err *e)
{
	static const char *const op[] = NAMES_OP;
	struct get g = get_of(o, e, "groups", at);
	char name[PLAN_NAME];
	get_name(&g, "name", true, name);
	bool elastic = get_b(&g, "elastic"), strict = get_b(&g, "strict");
	enum plan_op k = (enum plan_op)get_enum(&g, "op", op, COUNT(op));
	const json_t *v = get_array(&g, "members", PLAN_MEMBERS_MAX), *x;
	size_t i;
	if (!g.bad && elastic && strict)
		get_fail(&g, ERR_INVALID, "strict", "an elastic group cannot be strict");
	if (!g.bad && plan_find_group(p, name) != PLAN_NONE)
		get_fail(&g, ERR_EXISTS, "name", "there are two groups %s", name);
	if (g.bad)
		return -1;
	uint32_t id = plan_group(p, name, k, strict, elastic);
	if (v)
		json_array_foreach(v, i, x) {
			uint64_t peer = get_at(&g, "members", x, 0, p->nmembers - 1);
			uint64_t slot = get_at(&g, "members", x, 1, UINT16_MAX);
			if (g.bad)
				return -1;
			plan_join(p, id, (uint32_t)peer, (uint32_t)slot);
		}
	return get_end(&g);
}

static int read_lanes(struct plan *p, const json_t *v, struct err *e)
{
	for (size_t i = 0; i < json_array_size(v); i++) {
		char name[PLAN_NAME];
		struct get g = get_of(json_array_get(v, i), e, "lanes", i);
		get_name(&g, "name", true, name);
		uint32_t width = (uint32_t)get_u(&g, "width", 0, 1024), window = (uint32_t)get_u(&g, "window", 1, 65536);
		if (!g.bad && plan_find_lane(p, name) != PLAN_NONE)
			get_fail(&g, ERR_EXISTS, "name", "there are two lanes %s", name);
		if (get_end(&g) < 0)
			return -1;
		plan_lane(p, name, width, window);
	}
	return 0;
}

static int read_tiers(struct plan *p, const json_t *v, struct err *e)
{
	for (size_t i = 0; i < json_array_size(v); i++) {
		char name[PLAN_NAME];
		struct get g = get_of(json_array_get(v, i), e, "tiers", i);
		get_name(&g, "name", true, name);
		uint64_t budget = get_u(&g, "budget", 0, GET_BIG);
		if (get_end(&g) < 0)
			return -1;
		if (plan_tier(p, name, budget) != i)
			return err_set(e, ERR_EXISTS, "tiers[%zu]: there are two tiers %s", i, name);
	}
	if (p->ntiers == 0)
		return err_set(e, ERR_INVALID, "tiers: at least one is expected");
	return 0;
}

static int read_members(struct plan *p, const json_t *v, struct err *e)
{
	size_t n = json_array_size(v);
	if (n == 0)
		return err_set(e, ERR_INVALID, "members: at least one id is expected");
	p->member = xcalloc(n, sizeof *p->member);
	p->nmembers = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(v, i));
		if (!s || id_parse(&p->member[i], s, e) < 0)
			return err_set(e, ERR_INVALID, "members[%zu]: 64 hex digits are expected", i);
	}
	return 0;
}

static uint64_t slots(const struct plan *p)
{
	uint64_t n = 0;
	for (uint32_t b = 0; b < p->nbufs; b++)
		n += plan_depth(&p->buf[b]) * (uint64_t)(p->buf[b].shared ? 1 : p->streams);
	return n;
}

static int read_all(struct plan *p, const json_t *j, struct err *e)
{
	static const char *const section[] = NAMES_SECTION;
	struct get g = get_of(j, e, NULL, 0);
	get_name(&g, "strategy", true, p->strategy);
	p->generation = get_u(&g, "generation", 0, GET_BIG);
	const json_t *author = get_key(&g, "author");
	if (author && (!json_is_string(author) || id_parse(&p->author, json_string_value(author), NULL) < 0))
		get_fail(&g, ERR_INVALID, "author", "64 hex digits are expected");
	const json_t *members = get_array(&g, "members", PLAN_MEMBERS_MAX);
	p->redundancy = (uint32_t)get_u(&g, "redundancy", 1, PLAN_MEMBERS_MAX);
	p->streams = (uint32_t)get_u(&g, "streams", 1, 1024);
	p->first = get_u(&g, "first", 0, GET_BIG >> 2);
	p->iterations = get_u(&g, "iterations", 0, GET_BIG >> 24);
	p->step = (uint32_t)get_u(&g, "step", 1, 1u << 20);
	const json_t *lanes = get_array(&g, "lanes", PLAN_LANES_MAX), *tiers = get_array(&g, "tiers", PLAN_TIERS_MAX);
	const json_t *bufs = get_array(&g, "buffers", PLAN_BUFS_MAX), *groups = get_array(&g, "groups", PLAN_MEMBERS_MAX);
	const json_t *list[PLAN_SECTIONS_COUNT];
	for (int s = 0; s < PLAN_SECTIONS_COUNT; s++)
		list[s] = get_array(&g, section[s], PLAN_INSTRS_MAX);
	p->me = (uint32_t)get_u(&g, "me", 0, UINT32_MAX);
	if (get_end(&g) < 0 || read_members(p, members, e) < 0 || read_lanes(p, lanes, e) < 0 ||
		read_tiers(p, tiers, e) < 0)
		return -1;
	if (p->me >= p->nmembers)
		return err_set(e, ERR_INVALID, "me: %u is not the rank of one of %u members", p->me, p->nmembers);
	for (size_t i = 0; i < json_array_size(bufs); i++)
		if (read_buf(p, json_array_get(bufs, i), i, e) < 0)
			return -1;
	if (slots(p) > PLAN_SLOTS_MAX)
		return err_set(e, ERR_LIMIT, "buffers: their rings have %llu slots in %u streams, at most %d are taken",
			(unsigned long long)slots(p), p->streams, PLAN_SLOTS_MAX);
	for (size_t i = 0; i < json_array_size(groups); i++)
		if (read_group(p, json_array_get(groups, i), i, e) < 0)
			return -1;
	for (int s = 0; s < PLAN_SECTIONS_COUNT; s++)
		for (size_t i = 0; i < json_array_size(list[s]); i++)
			if (plan_read_instr(p, json_array_get(list[s], i), (enum plan_section)s, i, e) < 0)
				return -1;
	return 0;
}

int plan_from_json(struct plan *ret, const json_t *j, struct err *e)
{
	*ret = (struct plan){0};
	if (read_all(ret, j, e) == 0)
		return 0;
	plan_free(ret);
	return -1;
}
