/* Plans of all members (plans.h). Whatever they depend on comes with the offer or is the same on all peers, so that all
 * find the same plans and the same verdict. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "crew/plans.h"
#include "plan/check.h"

#define RATE_USUAL 125000000ull         /* bytes/s, where no link has been measured */
/* What a member says of its links is its own word: slower than this is taken for this, so that no sum overflows. */
#define RATE_LEAST 1000ull
#define DELAY_MOST_US (60ull * 1000000)

/* ---- links ---- */

static double rate_of(uint8_t code)
{
	uint64_t rate = scale_value(code);
	return (double)(rate > RATE_LEAST ? rate : RATE_LEAST);
}

static uint64_t delay_of(uint8_t code)
{
	uint64_t us = scale_value(code);
	return us < DELAY_MOST_US ? us : DELAY_MOST_US;
}

static int by_code(const void *a, const void *b)
{
	return *(const uint8_t *)a - *(const uint8_t *)b;
}

/* Links that were never measured are taken for the median of the others. */
static double rate_usual(const struct offer *o)
{
	uint8_t *code = xmalloc((size_t)o->n * o->n + 1);
	size_t known = 0;
	for (size_t i = 0; i < (size_t)o->n * o->n; i++)
		if (o->link[i].rate)
			code[known++] = o->link[i].rate;
	qsort(code, known, 1, by_code);
	double rate = known ? rate_of(code[known / 2]) : (double)RATE_USUAL;
	free(code);
	return rate;
}

/* Of the slowest one that has been measured; 0: none has. */
static double us_per_byte(const struct offer *o)
{
	uint8_t least = 0;
	for (size_t i = 0; i < (size_t)o->n * o->n; i++)
		if (o->link[i].rate && (!least || o->link[i].rate < least))
			least = o->link[i].rate;
	return least ? 1e6 / rate_of(least) : 0;
}

/* The longest that has been measured. */
static uint64_t latency_us(const struct offer *o)
{
	uint64_t most = 0;
	for (size_t i = 0; i < (size_t)o->n * o->n; i++)
		if (o->link[i].rate && delay_of(o->link[i].delay) > most)
			most = delay_of(o->link[i].delay);
	return most;
}

/* ---- making and checking ---- */

struct view_member *view_members(const struct offer *o)
{
	struct view_member *m = xcalloc(o->n + 1, sizeof *m);
	for (uint32_t i = 0; i < o->n; i++)
		m[i] = (struct view_member){ .id = o->m[i].id, .speed = o->m[i].speed,
			.memory_bytes = o->m[i].memory_bytes };
	return m;
}

struct view view_of(const struct view *usual, const struct offer *o, const struct view_member *m, uint32_t me)
{
	struct view v = *usual;
	v.nmembers = o->n;
	v.member = m;
	v.me = me;
	v.generation = o->generation;
	v.base = o->base;
	v.first = 0;
	v.redundancy = o->redundancy;
	v.epoch = o->epoch;
	v.target_batch = o->target ? o->target : v.target_batch;
	v.us_per_byte = us_per_byte(o);
	v.latency_us = latency_us(o);
	v.samples = 0;
	v.begun = v.sent = v.agreed = v.gave = false;
	v.granted = v.fresh = true;
	return v;
}

void plans_free(struct plans *p)
{
	for (uint32_t i = 0; i < p->nlist; i++)
		plan_free(&p->v[i]);
	free(p->v);
	free(p->list);
	json_decref(p->values);
	*p = (struct plans){ 0 };
}

int plans_make(struct plans *ret, const struct planner_ops *s, const struct view *usual, const struct offer *o,
	struct err *e)
{
	struct view_member *m = view_members(o);
	struct view v = view_of(usual, o, m, 0);
	uint32_t all = v.held ? 2 * o->n : o->n;
	*ret = (struct plans){ .v = xcalloc(all, sizeof *ret->v), .list = xcalloc(all, sizeof *ret->list) };
	int rc = plan_members(s, &v, ret->v, &ret->values, e);
	if (!rc)
		ret->n = ret->nlist = o->n;
	if (!rc && v.held) {
		v.values = ret->values ? ret->values : v.values;
		v.validates = v.held;
		rc = plan_members(s, &v, ret->v + o->n, NULL, e);
		ret->nlist = rc ? o->n : all;
	}
	free(m);
	if (rc) {
		plans_free(ret);
		return rc;
	}
	for (uint32_t i = 0; i < ret->nlist; i++) {
		ret->list[i] = &ret->v[i];
		if (!ret->v[i].redundancy)
			ret->v[i].redundancy = o->redundancy;
	}
	return 0;
}

/* What links and members are like, for the predictor. */
struct world { struct predict_link *link; double *speed; struct predict_conf conf; };

static void world_of(struct world *w, const struct view *usual, const struct offer *o)
{
	double rate = rate_usual(o);
	*w = (struct world){ .link = xcalloc((size_t)o->n * o->n, sizeof *w->link),
		.speed = xcalloc(o->n, sizeof *w->speed) };
	for (uint32_t i = 0; i < o->n; i++)
		w->speed[i] = o->m[i].speed;
	for (size_t i = 0; i < (size_t)o->n * o->n; i++) {
		double r = o->link[i].rate ? rate_of(o->link[i].rate) : rate;
		w->link[i] = (struct predict_link){ delay_of(o->link[i].delay), 1e6 / r };
	}
	w->conf = (struct predict_conf){ .profile = usual->profile, .speed = w->speed, .links = w->link };
}

static void world_done(struct world *w)
{
	free(w->link);
	free(w->speed);
}

int plans_check(const struct plans *p, const struct view *usual, const struct offer *o, struct err *e)
{
	struct world w;
	world_of(&w, usual, o);
	struct check_conf conf = { .predict = w.conf };
	int rc = plan_check(p->list, p->n, &conf, NULL, e);
	if (!rc && p->nlist > p->n && plan_check(p->list + p->n, p->n, &conf, NULL, e))
		rc = err_wrap(e, "validation");
	world_done(&w);
	return rc;
}

/* ---- who holds what ---- */

void shards_free(struct shards *s)
{
	free(s->v);
	*s = (struct shards){ 0 };
}

uint64_t shards_missing(const struct shards *s, const bool *there)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		bool held = false;
		for (uint32_t r = 0; r < CREW_MEMBERS_MAX && !held; r++)
			held = shard_holds(&s->v[i], r) && there[r];
		bytes += held ? 0 : s->v[i].bytes;
	}
	return bytes;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

static void hold(struct shard *s, uint32_t rank)
{
	if (rank < CREW_MEMBERS_MAX)
		s->holder[rank / 8] |= (uint8_t)(1u << rank % 8);
}

void plans_shards(const struct plans *p, struct shards *ret)
{
	size_t all = 0, n = 0;
	for (uint32_t r = 0; r < p->n; r++)
		all += p->v[r].nbufs;
	*ret = (struct shards){ .v = xcalloc(all + 1, sizeof *ret->v) };
	for (uint32_t r = 0; r < p->n; r++)
		for (uint32_t i = 0; i < p->v[r].nbufs; i++) {
			const struct plan_buf *b = &p->v[r].buf[i];
			if (!plan_is_state(b))
				continue;
			struct shard *s = &ret->v[n++];
			memcpy(s->name, b->name, sizeof s->name);
			s->bytes = b->bytes;
			hold(s, r);
			for (uint32_t k = 0; k < b->nholders; k++)
				hold(s, b->holder[k]);
		}
	qsort(ret->v, n, sizeof *ret->v, by_name);
	for (size_t i = 0; i < n; i++) {
		struct shard *last = ret->n ? &ret->v[ret->n - 1] : NULL;
		if (!last || strcmp(last->name, ret->v[i].name)) {
			ret->v[ret->n++] = ret->v[i];
			continue;
		}
		for (size_t k = 0; k < sizeof last->holder; k++)
			last->holder[k] |= ret->v[i].holder[k];
	}
}

/* ---- what they come to ---- */

void plans_units(const struct planner_ops *s, const struct view *usual, const struct offer *o, const json_t *values,
	uint32_t *ret)
{
	struct view_member *m = view_members(o);
	struct err e;
	for (uint32_t i = 0; i < o->n; i++) {
		struct view v = view_of(usual, o, m, i);
		struct planner_unit x = { 0 };
		v.values = values ? values : v.values;
		ret[i] = s->unit && s->unit(&v, i, &x, &e) ? PLAN_NO_UNIT : x.unit;
	}
	free(m);
}

void plans_find(const struct plans *p, const struct planner_ops *s, const struct view *usual, const struct offer *o,
	struct found *ret)
{
	*ret = (struct found){ .unit = xcalloc(o->n + 1, sizeof *ret->unit), .values = json_incref(p->values) };
	plans_shards(p, &ret->shards);
	plan_digest_all(p->list, p->nlist, ret->digest);
	plans_units(s, usual, o, p->values, ret->unit);
}

void found_free(struct found *f)
{
	shards_free(&f->shards);
	json_decref(f->values);
	free(f->unit);
	*f = (struct found){ 0 };
}

/* ---- what they take ---- */

/* How often an instruction runs in its program. */
static double times_of(const struct plan *p, const struct plan_instr *i)
{
	double n = i->section == PLAN_BODY ? (double)p->iterations : 1;
	uint32_t streams = p->streams ? p->streams : 1;
	if (i->stream_hi)
		streams = i->stream_hi < streams ? i->stream_hi - i->stream_lo : streams - i->stream_lo;
	return (i->every ? n / i->every : n) * streams;
}

static double work_of(const struct plans *p, const struct profile *m)
{
	double us = 0;
	for (uint32_t r = 0; r < p->n; r++)
		for (uint32_t k = 0; k < p->v[r].ninstrs; k++) {
			const struct plan_instr *i = &p->v[r].instr[k];
			if (i->kind == PLAN_FWD && !i->replay && strcmp(i->variant, "eval"))
				us += (double)profile_fwd_us(m, i) * times_of(&p->v[r], i);
		}
	return us;
}

int plans_pace(const struct plans *p, const struct view *usual, const struct offer *o, struct pace *ret, struct err *e)
{
	struct prediction x;
	struct world w;
	world_of(&w, usual, o);
	int rc = predict(p->list, p->n, &w.conf, &x, e);
	world_done(&w);
	if (rc)
		return -1;
	*ret = (struct pace){ (double)x.us, work_of(p, usual->profile) };
	prediction_free(&x);
	return 0;
}

static bool same_extents(const struct plan_buf *a, const struct plan_buf *b)
{
	if (a->bytes != b->bytes || a->nextents != b->nextents)
		return false;
	for (uint32_t i = 0; i < a->nextents; i++) {
		const struct plan_extent *x = &a->extent[i], *y = &b->extent[i];
		if (x->kind != y->kind || strcmp(x->name, y->name) || x->lo != y->lo || x->hi != y->hi)
			return false;
	}
	return true;
}

static uint64_t bytes_new(const struct plan *had, const struct plan *gets)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < gets->nbufs; i++) {
		const struct plan_buf *b = &gets->buf[i];
		uint32_t at = had ? plan_find(had, b->name) : PLAN_NONE;
		if (plan_is_state(b) && (at == PLAN_NONE || !same_extents(&had->buf[at], b)))
			bytes += b->bytes;
	}
	return bytes;
}

double plans_move_us(const struct plans *from, const struct offer *of, const struct plans *to, const struct offer *ot)
{
	double usual = rate_usual(ot), most = 0;
	for (uint32_t r = 0; r < to->n && from->n; r++) {
		int was = offer_find(of, &ot->m[r].id);
		uint64_t bytes = bytes_new(was < 0 ? NULL : &from->v[was], &to->v[r]);
		double rate = 0;                /* of the slowest link by which it may come */
		for (uint32_t k = 0; k < ot->n; k++) {
			uint8_t code = ot->link[k * ot->n + r].rate;
			double x = code ? rate_of(code) : usual;
			if (k != r && offer_find(of, &ot->m[k].id) >= 0 && (rate <= 0 || x < rate))
				rate = x;
		}
		double us = (double)bytes * 1e6 / (rate > 0 ? rate : usual);
		most = us > most ? us : most;
	}
	return most;
}
