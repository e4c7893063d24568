/* The partition of a model: dynamic programming over contiguous cuts. Plain arithmetic in a fixed order, so that every
 * member finds the same cuts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "kernels/real.h"
#include "train/strategy/parts/partition_int.h"

static void shape_of(struct table *t, const struct cutting *c)
{
	const struct profile *m = c->v->profile;
	struct piece_need need;

	*t = (struct table){ .c = c, .nops = m->nops, .need = map_new(0x63757473), .more = c->more };
	t->us = xcalloc(m->nops + 1, sizeof(*t->us));
	t->forward = xcalloc(m->nops + 1, sizeof(*t->forward));
	t->bytes = xcalloc(m->nops + 1, sizeof(*t->bytes));
	t->ties = ties_of(m);
	t->best = xcalloc((size_t)c->n * (m->nops + 1), sizeof(*t->best));
	t->from = xcalloc((size_t)c->n * (m->nops + 1), sizeof(*t->from));
	t->full = xcalloc(m->nops + 1, sizeof(*t->full));
	for (uint32_t o = 0; o < m->nops; o++) {
		t->us[o + 1] = t->us[o] + (double)(m->op[o].variant[0].fwd_us + m->op[o].variant[0].bwd_us);
		t->forward[o + 1] = t->forward[o] + (double)m->op[o].variant[0].fwd_us;
		profile_need(m, o, o, &need);
		t->bytes[o] = need.x;
		t->bytes[o + 1] = need.y;
	}
}

static void table_free(struct table *t)
{
	size_t it = 0;

	for (void *need; (need = map_next(t->need, &it, NULL, NULL)); )
		free(need);
	map_free(t->need);
	free(t->us);
	free(t->forward);
	free(t->bytes);
	free(t->ties.v);
	free(t->best);
	free(t->from);
	free(t->full);
}

/* Of ops i..j-1. */
static const struct piece_need *need_of(struct table *t, uint32_t i, uint32_t j)
{
	const uint32_t key[2] = { i, j };
	struct piece_need *need = map_get(t->need, key, sizeof(key));

	if (!need) {
		need = xcalloc(1, sizeof(*need));
		profile_need(t->c->v->profile, i, j - 1, need);
		map_put(t->need, key, sizeof(key), need);
	}
	return need;
}

double partition_speed(const struct cutting *c, const struct stage *x)
{
	double least = INFINITY;

	for (uint32_t u = 0; u < c->units; u++)
		for (uint32_t k = 0; k < x->replicas; k++) {
			double speed = c->v->member[u * c->members + x->rank + k].speed;

			least = (speed > 0 ? speed : 1) < least ? (speed > 0 ? speed : 1) : least;
		}
	return least;
}

uint64_t partition_memory(const struct cutting *c, const struct stage *x)
{
	uint64_t least = 0;

	for (uint32_t u = 0; u < c->units; u++)
		for (uint32_t k = 0; k < x->replicas; k++) {
			uint64_t bytes = c->v->member[u * c->members + x->rank + k].memory_bytes;

			least = bytes && (!least || bytes < least) ? bytes : least;
		}
	return least;
}

uint64_t partition_missing(struct table *t, uint32_t s, uint32_t i, uint32_t j, const uint32_t *at, bool *ret_surely)
{
	static const struct piece_need nothing = { 0 };
	const struct cutting *c = t->c;
	uint64_t has = partition_memory(c, &c->stage[s]), holds;

	*ret_surely = false;
	if (!has || t->endless)
		return 0;
	has += t->more;
	holds = at ? c->holds(c->arg, s, i, j - 1, &nothing, at) : 0;   /* what a piece needs is asked last */
	if (holds <= has)
		holds = c->holds(c->arg, s, i, j - 1, need_of(t, i, j), at);
	*ret_surely = holds > has;
	holds += c->passes(c->arg, s, t->bytes[i], t->bytes[j]);
	return holds > has ? holds - has : 0;
}

/* Where the stages begin that stage s holds, and the one behind them. */
static const uint32_t *held_at(const struct cutting *c, uint32_t s, uint32_t at[STAGES_MAX + 1])
{
	if (!c->keep)
		return NULL;
	for (uint32_t t = c->keep[s].a; t <= c->keep[s].b; t++) {
		at[t - c->keep[s].a] = c->stage[t].a;
		at[t - c->keep[s].a + 1] = c->stage[t].b + 1;
	}
	return at;
}

/* Of stage s, whose cuts are known. */
static uint64_t lacks_of(struct table *t, uint32_t s)
{
	const struct stage *x = &t->c->stage[s];
	uint32_t at[STAGES_MAX + 1];
	bool surely;

	return partition_missing(t, s, x->a, x->b + 1, held_at(t->c, s, at), &surely);
}

/* The gradient of what the first stage and the last one have in common goes from one to the other once in an epoch,
 * when nothing else is left to be done there. */
static double tied_us(const struct table *t, uint32_t s, uint32_t i, uint32_t j)
{
	const struct cutting *c = t->c;
	bool first = s == 0, last = s + 1 == c->n;

	if (!t->ties.n || first == last)
		return 0;
	return (double)(tied_elements(c->v->profile, first ? j : i) * sizeof(real)) * c->v->us_per_byte /
		(double)(c->epoch ? c->epoch : 1);
}

static double time_of(const struct table *t, uint32_t s, uint32_t i, uint32_t j)
{
	const struct stage *x = &t->c->stage[s];
	double work = t->us[j] - t->us[i] + (x->again ? t->forward[j] - t->forward[i] : 0);
	double us = work / partition_speed(t->c, x);
	double bytes = (i ? (double)t->bytes[i] : 0) + (j < t->nops ? (double)t->bytes[j] : 0);
	double sends = bytes * t->c->v->us_per_byte;

	return (us > sends ? us : sends) / x->replicas + tied_us(t, s, i, j);
}

double partition_cost(const struct table *t, double limit, double before, uint32_t s, uint32_t i, uint32_t j)
{
	double x = time_of(t, s, i, j);

	if (!(limit > 0))
		return x > before ? x : before;
	return x > limit ? INFINITY : before + (i ? (double)t->bytes[i] : 0);
}

uint32_t partition_cell(struct table *t, double limit, const struct line *l, uint32_t k, uint32_t j, uint32_t lo)
{
	uint32_t s = l->first + k, best;
	bool surely, tied = t->ties.n && (s == 0 || s + 1 == t->c->n);
	size_t row = t->nops + 1, at = k * row + j;

	memset(t->full, 0, t->nops * sizeof(*t->full));
	do {
		best = j;
		l->best[at] = INFINITY;
		for (uint32_t i = j; i-- > lo; ) {
			double before = k ? l->best[at - row - j + i] : i == l->begin ? l->before : INFINITY, x;

			if (t->full[i] || !isfinite(before) || !ties_allow(&t->ties, s, t->c->n, i, j - 1))
				continue;
			x = partition_cost(t, limit, before, s, i, j);
			if (x < l->best[at]) {
				l->best[at] = x;
				best = i;
			}
		}
		if (best < j && l->lacks(t, l, k, best, j, &surely)) {
			t->full[best] = true;
			lo = surely && !tied ? best + 1 : lo;
		}
	} while (best < j && t->full[best]);
	l->from[at] = best;
	return lo;
}

static uint64_t by_itself(struct table *t, const struct line *l, uint32_t k, uint32_t i, uint32_t j, bool *ret_surely)
{
	return partition_missing(t, l->first + k, i, j, NULL, ret_surely);
}

/* Stages by themselves. */
static double apart(struct table *t, double limit)
{
	const struct line l = { .best = t->best, .from = t->from, .lacks = by_itself };
	size_t row = t->nops + 1;
	uint32_t n = t->c->n, j = t->nops;

	if (n > j)
		return INFINITY;
	for (uint32_t s = 0; s < n; s++)
		for (uint32_t k = s + 1 < n ? s + 1 : j, lo = s; k <= j - (n - 1 - s); k++)
			lo = partition_cell(t, limit, &l, s, k, lo);
	if (!isfinite(t->best[(n - 1) * row + j]))
		return INFINITY;
	for (uint32_t s = n; s-- > 0; ) {
		t->c->stage[s].a = t->from[s * row + j];
		t->c->stage[s].b = j - 1;
		j = t->c->stage[s].a;
	}
	return t->best[(n - 1) * row + t->nops];
}

static bool all_fit(struct table *t)
{
	uint32_t s = 0;

	while (s < t->c->n && !lacks_of(t, s))
		s++;
	return s == t->c->n;
}

/* The cost of the best solution, whose cuts are in the stages then; INFINITY: there is none. With memory enough it is
 * found as if nobody kept anything for others. */
static double solve(struct table *t, double limit)
{
	bool endless = t->endless;
	double cost;

	if (!t->c->keep || endless)
		return apart(t, limit);
	t->endless = true;
	cost = apart(t, limit);
	t->endless = false;
	return !isfinite(cost) || all_fit(t) ? cost : partition_groups(t, limit);
}

static int too_full(struct table *t, uint32_t s, struct err *e)
{
	const struct stage *x = &t->c->stage[s];
	const struct profile *m = t->c->v->profile;
	uint64_t lacks = lacks_of(t, s), has = partition_memory(t->c, x);
	char a[32], b[32], c[32];

	if (t->c->lacks)
		*t->c->lacks = lacks;
	return err_set(e, ERR_LIMIT, "stage %u of %u (layers %s to %s) needs %s, a member that would hold it has %s: "
		"%s are missing; more stages, a smaller local.batch or schedule 1f1b would help", s, t->c->n,
		m->op[x->a].name, m->op[x->b].name, text_print_size(lacks + has, a, sizeof(a)),
		text_print_size(has, b, sizeof(b)), text_print_size(lacks, c, sizeof(c)));
}

/* The cuts with which the fullest stage lacks the least, to a hundredth, and which that is. */
static uint32_t fullest(struct table *t)
{
	uint64_t lo = 0, hi = 1 << 16, most = 0;
	uint32_t found = 0;

	for (t->more = hi; !isfinite(solve(t, 0)); t->more = hi) {
		lo = hi;
		hi *= 2;
	}
	while (hi - lo > hi / 100 + 1) {
		t->more = lo + (hi - lo) / 2;
		if (isfinite(solve(t, 0)))
			hi = t->more;
		else
			lo = t->more;
	}
	t->more = hi;
	(void)solve(t, 0);
	t->more = t->c->more;
	for (uint32_t s = 0; s < t->c->n; s++) {
		uint64_t lacks = lacks_of(t, s);

		found = lacks > most ? s : found;
		most = lacks > most ? lacks : most;
	}
	return found;
}

/* What keeps layers together that could be in stages of their own, if nothing else does. */
static int tied_up(struct table *t, struct err *e)
{
	const struct profile *m = t->c->v->profile;
	const struct tie *x = t->ties.v;

	for (uint32_t k = 1; k < t->ties.n; k++)        /* the one that keeps most together */
		if (t->ties.v[k].user - t->ties.v[k].owner > x->user - x->owner)
			x = &t->ties.v[k];
	return err_set(e, ERR_INVALID, "%u stages, and the model cannot be cut into so many: %s and %s share parameters, "
		"which are in one stage, or in the first and the last one; give %s parameters of its own (no \"share\"), or "
		"take fewer stages", t->c->n, m->op[x->owner].name, m->op[x->user].name, m->op[x->user].name);
}

/* Why there is none. */
static int no_way(struct table *t, struct err *e)
{
	const struct profile *m = t->c->v->profile;

	if (t->c->n > m->nops)
		return err_set(e, ERR_INVALID, "%u stages, and the model has %u layers: a stage has one at least; at most %u "
			"stages", t->c->n, m->nops, m->nops);
	t->endless = true;
	if (!isfinite(solve(t, 0)))
		return tied_up(t, e);
	t->endless = false;
	return t->c->lacks ? too_full(t, fullest(t), e) : err_set(e, ERR_LIMIT, "no cuts fit the members' memory");
}

int partition(const struct cutting *c, struct err *e)
{
	struct table t;
	double us;
	int rc = 0;

	shape_of(&t, c);
	us = solve(&t, 0);
	if (!isfinite(us))
		rc = no_way(&t, e);
	else if (us > 0)
		(void)solve(&t, us);
	table_free(&t);
	return rc;
}

int partition_fits(const struct cutting *c, struct err *e)
{
	const struct profile *m = c->v->profile;
	struct table t;
	const struct tie *broken;
	int rc = 0;

	shape_of(&t, c);
	for (uint32_t s = 0; s < c->n && rc == 0; s++) {
		const struct stage *x = &c->stage[s];

		broken = ties_broken(&t.ties, s, c->n, x->a, x->b);
		if (broken)
			rc = err_set(e, ERR_INVALID, "stage %u begins or ends between %s and %s, which share parameters: that can "
				"be in one stage, or in the first and the last one; cut elsewhere, or give %s parameters of its own "
				"(no \"share\")", s, m->op[broken->owner].name, m->op[broken->user].name, m->op[broken->user].name);
		if (rc == 0 && lacks_of(&t, s))
			rc = too_full(&t, s, e);
	}
	table_free(&t);
	return rc;
}

uint64_t partition_bytes(const struct cutting *c, uint64_t *ret_has)
{
	uint32_t at[STAGES_MAX + 1];
	uint64_t bytes = 0;
	struct table t;

	*ret_has = 0;
	shape_of(&t, c);
	for (uint32_t s = 0; s < c->n; s++) {
		const struct stage *x = &c->stage[s];
		uint64_t has = partition_memory(c, x), takes = c->holds(c->arg, s, x->a, x->b, need_of(&t, x->a, x->b + 1),
			held_at(c, s, at)) +
			c->passes(c->arg, s, t.bytes[x->a], t.bytes[x->b + 1]);
		bool nearer = !*ret_has || has - takes < *ret_has - bytes;

		if (has ? nearer : !*ret_has && takes > bytes) {
			bytes = takes;
			*ret_has = has;
		}
	}
	table_free(&t);
	return bytes;
}
