/* For test_partition.c: who holds which stage of a pipeline, written anew from what the pages say, and whether plans
 * are like that. */
#ifndef TESTS_KEEP_KIT_H
#define TESTS_KEEP_KIT_H
#include "pipe_any.h"

/* held[s][t]: do the members of stage s hold stage t? */
struct copies { uint32_t k, of[24]; bool learns[8], held[8][8]; uint64_t bytes[8]; };

static inline void name_of(const char *what, uint32_t t, char out[16]) { (void)snprintf(out, 16, "%s%u", what, t); }

static inline const struct plan_buf *buf_of(const struct plan *p, const char *what, uint32_t t)
{
	char name[16];
	uint32_t at;

	name_of(what, t, name);
	at = plan_find(p, name);
	return at == PLAN_NONE ? NULL : &p->buf[at];
}

/* From plans without copies: which stages learn, and their bytes of state. */
static inline void copies_of(struct copies *c, const struct any *a)
{
	*c = (struct copies){ .k = a->x.v.redundancy };
	for (uint32_t s = 0, rank = 0; s < a->stages; s++) {
		const struct plan_buf *w = buf_of(&a->k.plan[rank], "w", s);

		c->learns[s] = w != NULL;
		c->bytes[s] = w ? w->bytes + buf_of(&a->k.plan[rank], "opt", s)->bytes : 0;
		for (uint32_t q = 0; q < a->replicas[s]; q++)
			c->of[rank++] = s;
	}
}

/* false: no holders can be found. */
static inline bool hold(struct copies *c, const struct any *a)
{
	uint32_t n = a->stages, lo[8], hi[8];

	for (uint32_t s = 0; s < n; s++)
		lo[s] = hi[s] = s;
	for (uint32_t t = 0; t < n; t++) {
		if (!c->learns[t] || a->replicas[t] >= c->k)
			continue;
		if (n < c->k)
			return false;
		for (uint32_t s = 0; s < n; s++) {
			uint32_t first = (t - t % c->k) + c->k <= n ? t - t % c->k : n - c->k;

			if (s < first || s >= first + c->k)
				continue;
			lo[s] = t < lo[s] ? t : lo[s];
			hi[s] = t > hi[s] ? t : hi[s];
		}
	}
	for (uint32_t s = 0; s < n; s++)
		for (uint32_t t = lo[s]; t <= hi[s]; t++)
			c->held[s][t] = c->learns[t];
	return true;
}

static inline void same_as_owner(const struct plan_buf *b, const struct plan_buf *own)
{
	assert_int_equal(b->bytes, own->bytes);
	assert_int_equal(b->nextents, own->nextents);
	for (uint32_t i = 0; i < b->nextents; i++)
		assert_true(b->extent[i].kind == PLAN_FLAT && b->extent[i].lo == own->extent[i].lo &&
			b->extent[i].hi == own->extent[i].hi);
}

/* All who hold stage t, k at least, and nobody else; named by everybody who has it. */
static inline void holders_are(const struct copies *c, const struct any *a, const struct plan_buf *b, uint32_t t)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < a->members; r++)
		if (c->held[c->of[r]][t]) {
			assert_true(n < b->nholders);
			assert_int_equal(b->holder[n++], r);
		}
	assert_int_equal(b->nholders, n);
	assert_true(n >= c->k);
}

/* What member r has in this program, and that what it has of the model is in one piece. */
static inline uint64_t has_its_stages(const struct copies *c, const struct any *a, uint32_t r)
{
	const struct plan *p = &a->k.plan[r];
	uint64_t bytes = 0, end = UINT64_MAX;

	assert_int_equal(p->redundancy, c->k);
	for (uint32_t t = 0, owner = 0; t < a->stages; owner += a->replicas[t++]) {
		const struct plan_buf *w = buf_of(p, "w", t), *opt = buf_of(p, "opt", t), *mean = buf_of(p, "mean", t);
		const struct plan_buf *sum = buf_of(p, "sum", t);

		assert_int_equal(w != NULL, c->held[c->of[r]][t]);
		assert_int_equal(opt != NULL, c->held[c->of[r]][t]);
		if (!w)
			continue;
		same_as_owner(w, buf_of(&a->k.plan[owner], "w", t));
		same_as_owner(opt, buf_of(&a->k.plan[owner], "opt", t));
		holders_are(c, a, w, t);
		holders_are(c, a, opt, t);
		assert_non_null(mean);
		assert_int_equal(sum != NULL, c->of[r] == t && a->replicas[t] > 1);
		same_as_owner(mean, w);
		assert_true(mean->class == PLAN_WEIGHT_GRAD && mean->per == UINT32_MAX && !mean->initial);
		assert_true(end == UINT64_MAX || w->extent[0].lo == end);
		end = w->extent[0].hi;
		bytes += w->bytes + opt->bytes;
	}
	return bytes;
}

/* The round of member r: a SUM for each stage that it holds, its own first, then one COMMIT, then a step for each, its
 * own last, and one digest of that. */
static inline void round_of(const struct copies *c, const struct any *a, uint32_t r)
{
	const struct plan *p = &a->k.plan[r];
	uint32_t sums = 0, steps = 0, commits = 0, digests = 0, all = 0, s = c->of[r];
	uint32_t last = PLAN_NONE;

	for (uint32_t t = 0; t < a->stages; t++) {
		all += c->held[s][t];
		last = c->held[s][t] ? t : last;
	}
	last = c->held[s][s] ? s : last;
	for (uint32_t k = 0; k < p->ninstrs; k++) {
		const struct plan_instr *i = &p->instr[k];
		const struct plan_buf *o = i->nout ? &p->buf[i->out[0].buf] : NULL;
		char name[16];

		if (i->kind == PLAN_SUM && p->group[i->group].elastic) {
			uint32_t t = (uint32_t)strtoul(o->name + 4, NULL, 10);

			assert_true(!commits && c->held[s][t] && (sums || t == s || !c->held[s][s]));
			name_of("units", t, name);
			assert_string_equal(p->group[i->group].name, name);
			assert_true(t == s || (!i->nin && !strncmp(o->name, "mean", 4)));
			sums++;
		}
		if (i->kind == PLAN_COMMIT)
			assert_true(i->scope == PLAN_GROUP && !i->nin && sums == all && !commits++);
		if (i->kind == PLAN_VEC && !strcmp(i->fn, "opt")) {
			const char *skipped = p->buf[i->out[2].buf].name;
			uint32_t t = (uint32_t)strtoul(o->name + 1, NULL, 10);

			assert_true(commits && i->lane == plan_find_lane(p, "train") && c->held[s][t]);
			assert_int_equal(++steps == all, t == last);
			name_of("skipped", t, name);
			assert_string_equal(skipped, t == s ? "skipped" : name);
		}
		if (i->kind == PLAN_VEC && !strcmp(i->fn, "digest")) {
			name_of("w", last, name);
			assert_string_equal(p->buf[i->in[0].buf].name, name);
			assert_true(steps == all && !digests++);
		}
	}
	assert_int_equal(sums, all);
	assert_int_equal(steps, all);
	assert_int_equal(commits, 1);
	assert_int_equal(digests, all > 0);
}

/* The plans of the round. What the flushes have left is not here: the sums come from nowhere. */
static inline void begin_round(struct any *a)
{
	a->x.v.samples = a->x.v.target_batch;
	a->x.v.begun = true;
	all_plans(&a->k, &a->x);
	for (uint32_t s = 0, rank = 0; s < a->stages; s++)
		for (uint32_t q = 0; q < a->replicas[s]; q++, rank++) {
			char name[16];
			uint32_t acc;

			name_of("acc", s, name);
			acc = plan_find(&a->k.plan[rank], name);
			if (acc != PLAN_NONE)
				a->k.plan[rank].buf[acc].initial = true;
		}
}

static inline void keep_open(struct any *a, uint64_t seed, bool memory)
{
	char stages[200] = "";
	uint32_t widest = 1;
	bool alone;

	*a = (struct any){ .members = 0 };
	rng_seed(&a->r, seed);
	alone = up_to(&a->r, 1);
	a->stages = 1 + (uint32_t)up_to(&a->r, 7);
	for (uint32_t s = 0; s < a->stages; s++) {
		a->replicas[s] = alone || up_to(&a->r, 1) ? 1 : 1 + (uint32_t)up_to(&a->r, 2);
		a->members += a->replicas[s];
		widest = a->replicas[s] > widest ? a->replicas[s] : widest;
		(void)snprintf(stages + strlen(stages), sizeof(stages) - strlen(stages), "%s{'replicas':%u}", s ? "," : "",
			a->replicas[s]);
	}
	a->m = widest + (uint32_t)up_to(&a->r, 6);
	kit_open(&a->k, a->members);
	any_model(a, a->stages + (uint32_t)up_to(&a->r, 8));
	pipe_open(&a->x, &a->k.profile, a->members, (uint64_t)a->m * a->k.profile.batch);
	for (uint32_t r = 0; memory && r < a->members; r++)
		a->x.member[r].memory_bytes = 10000 + up_to(&a->r, 90000);
	pipe_values(&a->x, "{'stages':[%s],'micro_batches':%u}", stages, a->m);
}

/* Bytes of state of all members: those of a stage as often as it has holders, and without replicas k times all. */
static inline void bytes_are(const struct copies *c, const struct any *a, uint64_t bytes)
{
	const struct profile *m = &a->k.profile;
	uint64_t all = 0, whole = 0;

	for (uint32_t r = 0; r < a->members; r++)
		for (uint32_t t = 0; t < a->stages; t++)
			all += c->held[c->of[r]][t] ? c->bytes[t] : 0;
	assert_int_equal(bytes, all);
	if (a->members > a->stages)
		return;
	for (uint32_t t = 0; t < a->stages; t++)
		whole += c->bytes[t];
	assert_int_equal(bytes, c->k * whole);
	/* the optimizer's vectors, and a clock for each stage, which lies where doubles lie */
	all = (1 + m->state_vectors) * m->params * 4 + m->stats_bytes;
	assert_true(whole >= all && whole <= all + a->stages * (3 * sizeof(double) + 7));
}

#endif
