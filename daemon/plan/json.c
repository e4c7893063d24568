/* A plan as JSON, and its digest. What has its usual value is left out; the reader puts it back (json_read.c). */
#include <string.h>
#include <stdlib.h>
#include "common/hash.h"
#include "common/mem.h"
#include "plan/names.h"
#include "plan/refs.h"

static void put_u(json_t *o, const char *key, uint64_t v, uint64_t usual)
{
	if (v != usual)
		json_object_set_new(o, key, json_integer((json_int_t)v));
}

static void put_i(json_t *o, const char *key, int64_t v)
{
	if (v != 0)
		json_object_set_new(o, key, json_integer(v));
}

static void put_s(json_t *o, const char *key, const char *v)
{
	if (v[0])
		json_object_set_new(o, key, json_string(v));
}

static void put_b(json_t *o, const char *key, bool v)
{
	if (v)
		json_object_set_new(o, key, json_true());
}

static json_t *buf_json(const struct plan *p, const struct plan_buf *b)
{
	static const char *const dtype[] = NAMES_DTYPE, *const kind[] = NAMES_EXTENT;
	json_t *o = json_object();
	put_s(o, "name", b->name);
	put_s(o, "class", plan_class_name(b->class));
	put_s(o, "dtype", b->dtype == PLAN_F32 ? "" : dtype[b->dtype]);
	put_u(o, "bytes", b->bytes, 0);
	put_b(o, "bounded", b->bounded);
	put_s(o, "tier", b->tier == 0 ? "" : p->tier[b->tier].name);
	put_u(o, "slot", b->slot, 0);
	put_u(o, "depth", plan_depth(b), 1);
	put_u(o, "per", b->per > 0 ? b->per : 1, 1);
	put_b(o, "initial", b->initial);
	put_b(o, "shared", b->shared);
	put_b(o, "journal", b->journal);
	if (b->offset >= 0)
		json_object_set_new(o, "offset", json_integer(b->offset));
	if (b->nextents > 0) {
		json_t *v = json_array();
		for (uint32_t i = 0; i < b->nextents; i++) {
			json_t *x = json_array();
			json_array_append_new(x, json_string(kind[b->extent[i].kind]));
			json_array_append_new(x, json_string(b->extent[i].name));
			json_array_append_new(x, json_integer((json_int_t)b->extent[i].lo));
			json_array_append_new(x, json_integer((json_int_t)b->extent[i].hi));
			json_array_append_new(v, x);
		}
		json_object_set_new(o, "extents", v);
	}
	if (b->nholders > 0) {
		json_t *v = json_array();
		for (uint32_t i = 0; i < b->nholders; i++)
			json_array_append_new(v, json_integer(b->holder[i]));
		json_object_set_new(o, "holders", v);
	}
	return o;
}

static json_t *group_json(const struct plan_group *g)
{
	static const char *const op[] = NAMES_OP;
	json_t *o = json_object(), *v = json_array();
	put_s(o, "name", g->name);
	put_b(o, "elastic", g->elastic);
	put_b(o, "strict", g->strict);
	put_s(o, "op", op[g->op]);
	for (uint32_t i = 0; i < g->n; i++) {
		json_t *m = json_array();
		json_array_append_new(m, json_integer(g->member[i].peer));
		json_array_append_new(m, json_integer(g->member[i].slot));
		json_array_append_new(v, m);
	}
	json_object_set_new(o, "members", v);
	return o;
}

static json_t *refs_json(const struct plan *p, const struct plan_ref *r, uint32_t n, bool out)
{
	json_t *v = json_array();
	struct buf b = {0};
	for (uint32_t i = 0; i < n; i++) {
		buf_clear(&b);
		refs_print(p, &r[i], out, &b);
		json_array_append_new(v, json_stringn((const char *)b.p, b.len));
	}
	buf_free(&b);
	return v;
}

static json_t *instr_json(const struct plan *p, const struct plan_instr *i)
{
	static const char *const keep[] = NAMES_KEEP, *const missing[] = NAMES_MISSING, *const scope[] = NAMES_SCOPE,
		*const with[] = NAMES_WITH;
	json_t *o = json_object();
	put_s(o, "do", plan_kind_name(i->kind));
	put_s(o, "fn", i->fn);
	if (i->npiece > 0) {
		json_t *v = json_array();
		for (uint32_t k = 0; k < i->npiece; k++) {
			json_t *x = json_array();
			json_array_append_new(x, json_integer(i->piece[k].a));
			json_array_append_new(x, json_integer(i->piece[k].b));
			json_array_append_new(v, x);
		}
		json_object_set_new(o, "ops", v);
	}
	put_s(o, "keep", i->keep == PLAN_KEEP_NONE ? "" : keep[i->keep]);
	put_b(o, "replay", i->replay);
	put_s(o, "variant", i->variant);
	put_s(o, "lane", p->lane[i->lane].name);
	put_i(o, "mb", i->mb);
	json_object_set_new(o, "in", refs_json(p, i->in, i->nin, false));
	json_object_set_new(o, "out", refs_json(p, i->out, i->nout, true));
	put_s(o, "with", i->with == PLAN_ALONE ? "" : with[i->with]);
	put_u(o, "peer", i->peer, PLAN_NONE);
	put_s(o, "group", i->group == PLAN_NONE ? "" : p->group[i->group].name);
	put_u(o, "quorum", i->quorum, 0);
	put_u(o, "most", i->most, 0);
	put_u(o, "within_us", i->within_us, 0);
	put_b(o, "unique", i->unique);
	put_u(o, "every", i->every, 0);
	put_u(o, "at", i->at, 0);
	put_u(o, "stream_lo", i->stream_lo, 0);
	put_u(o, "stream_hi", i->stream_hi, 0);
	put_i(o, "priority", i->priority);
	put_u(o, "deadline_us", i->deadline_us, 0);
	put_s(o, "on_missing", i->on_missing == PLAN_FAIL ? "" : missing[i->on_missing]);
	put_s(o, "scope", i->scope == PLAN_SELF ? "" : scope[i->scope]);
	put_u(o, "work_bytes", i->work_bytes, 0);
	put_b(o, "inplace", i->inplace);
	if (i->scale != 0)
		json_object_set_new(o, "scale", json_real(i->scale));
	return o;
}

static void tables(const struct plan *p, json_t *o)
{
	json_t *lanes = json_array(), *tiers = json_array(), *bufs = json_array(), *groups = json_array();
	for (uint32_t i = 0; i < p->nlanes; i++) {
		json_t *x = json_object();
		put_s(x, "name", p->lane[i].name);
		put_u(x, "width", p->lane[i].width, 0);
		put_u(x, "window", p->lane[i].window, 1);
		json_array_append_new(lanes, x);
	}
	for (uint32_t i = 0; i < p->ntiers; i++) {
		json_t *x = json_object();
		put_s(x, "name", p->tier[i].name);
		put_u(x, "budget", p->tier[i].budget, 0);
		json_array_append_new(tiers, x);
	}
	for (uint32_t i = 0; i < p->nbufs; i++)
		json_array_append_new(bufs, buf_json(p, &p->buf[i]));
	for (uint32_t i = 0; i < p->ngroups; i++)
		json_array_append_new(groups, group_json(&p->group[i]));
	json_object_set_new(o, "lanes", lanes);
	json_object_set_new(o, "tiers", tiers);
	json_object_set_new(o, "buffers", bufs);
	json_object_set_new(o, "groups", groups);
}

json_t *plan_to_json(const struct plan *p)
{
	static const char *const section[] = NAMES_SECTION;
	json_t *o = json_object(), *members = json_array(), *list[PLAN_SECTIONS_COUNT];
	char hex[ID_HEX];
	put_s(o, "strategy", p->strategy);
	put_u(o, "generation", p->generation, 0);
	if (!id_zero(&p->author)) {
		id_hex(&p->author, hex);
		put_s(o, "author", hex);
	}
	for (uint32_t i = 0; i < p->nmembers; i++) {
		id_hex(&p->member[i], hex);
		json_array_append_new(members, json_string(hex));
	}
	json_object_set_new(o, "members", members);
	put_u(o, "me", p->me, 0);
	put_u(o, "redundancy", p->redundancy > 0 ? p->redundancy : 1, 1);
	put_u(o, "streams", p->streams > 0 ? p->streams : 1, 1);
	put_u(o, "first", p->first, 0);
	put_u(o, "iterations", p->iterations, 0);
	put_u(o, "step", p->step > 0 ? p->step : 1, 1);
	tables(p, o);
	for (int s = 0; s < PLAN_SECTIONS_COUNT; s++)
		list[s] = json_array();
	for (uint32_t i = 0; i < p->ninstrs; i++)
		json_array_append_new(list[p->instr[i].section], instr_json(p, &p->instr[i]));
	for (int s = 0; s < PLAN_SECTIONS_COUNT; s++)
		json_object_set_new(o, section[s], list[s]);
	return o;
}

static char *canonical(const struct plan *p)
{
	json_t *j = plan_to_json(p);
	char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
	json_decref(j);
	return text;
}

void plan_digest(const struct plan *p, uint8_t out[32])
{
	char *text = canonical(p);
	sha256_of(text, strlen(text), out);
	free(text);
}

void plan_digest_all(const struct plan *const *v, size_t n, uint8_t out[32])
{
	struct sha256 h;
	sha256_init(&h);
	for (size_t i = 0; i < n; i++) {
		uint8_t d[32];
		plan_digest(v[i], d);
		sha256_add(&h, d, sizeof d);
	}
	sha256_end(&h, out);
}

bool plan_equal(const struct plan *a, const struct plan *b)
{
	char *s = canonical(a), *t = canonical(b);
	bool same = strcmp(s, t) == 0;
	free(s);
	free(t);
	return same;
}
