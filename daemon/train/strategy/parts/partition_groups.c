/* The partition where stages keep each other's state: what a member holds depends on where its neighbours are cut. Such
 * stages are a group; groups are laid out one behind the other as stages are (partition.c), and of each, for the ops
 * that it is to have, the best cuts inside are looked for. Groups that promise most come first, and a group whose state
 * alone is too much is not looked into, so that few are: two groups of GPT-2 medium (293 ops) take some 50 ms. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/strategy/parts/partition_int.h"

#define ALL_CUTS 3                      /* of a group of so many stages all cuts are tried, of a larger one rows */

/* has: memory of those of its members that hold all of it; 0: nobody says, or nobody does. speed: all together. */
struct group { uint32_t first, n; uint64_t has; double speed; };
struct groups {
	struct table *t;
	double limit;
	uint32_t n; struct group group[STAGES_MAX];
	bool *tried;                            /* by the op that a group begins with */
	double *row; uint32_t *row_from;        /* of a large group, as best and from of the table */
};
/* A group that is to have the ops from..end-1; at[k]: where its k-th stage begins, and the one behind them all. */
struct inside { struct groups *g; const struct group *group; uint32_t from, end, at[ALL_CUTS + 1], found[ALL_CUTS];
	double best; };

static void groups_of(struct groups *g, const struct cutting *c)
{
	for (uint32_t s = 0, end = 0; s < c->n; s++) {
		if (s >= end)
			g->group[g->n++] = (struct group){ .first = s };
		end = c->keep[s].b + 1 > end ? c->keep[s].b + 1 : end;
		for (uint32_t t = s + 1; t < c->n; t++) /* somebody behind it may hold it, who is not held by it */
			end = c->keep[t].a <= s && t + 1 > end ? t + 1 : end;
		g->group[g->n - 1].n++;
		g->group[g->n - 1].speed += partition_speed(c, &c->stage[s]) * c->stage[s].replicas;
	}
	for (uint32_t k = 0; k < g->n; k++) {
		struct group *x = &g->group[k];

		for (uint32_t s = x->first; s < x->first + x->n; s++) {
			uint64_t has = partition_memory(c, &c->stage[s]);

			if (c->keep[s].a <= x->first && c->keep[s].b + 1 >= x->first + x->n && has && (!x->has || has < x->has))
				x->has = has;
		}
	}
}

static bool may(const struct groups *g, uint32_t s, uint32_t a, uint32_t b)
{
	return ties_allow(&g->t->ties, s, g->t->c->n, a, b);
}

/* --- all cuts of a small group */

static bool fits(const struct inside *x)
{
	bool surely, fit = true;

	for (uint32_t k = 0; k < x->group->n && fit; k++) {
		uint32_t s = x->group->first + k, a = x->g->t->c->keep[s].a - x->group->first;

		fit = !partition_missing(x->g->t, s, x->at[k], x->at[k + 1], &x->at[a], &surely);
	}
	return fit;
}

/* Its stages from the k-th on, behind those that cost `before`. */
static void try_all(struct inside *x, uint32_t k, double before)
{
	uint32_t i = x->at[k], s = x->group->first + k, left = x->group->n - k - 1;

	if (k >= ALL_CUTS)                      /* a larger group is for by_rows */
		return;
	for (uint32_t j = left ? i + 1 : x->end; j + left <= x->end; j++) {
		double cost = may(x->g, s, i, j - 1) ? partition_cost(x->g->t, x->g->limit, before, s, i, j) : INFINITY;

		if (!(cost < x->best))
			continue;
		if (left) {
			x->at[k + 1] = j;
			try_all(x, k + 1, cost);
		} else if (fits(x)) {
			x->best = cost;
			memcpy(x->found, x->at, sizeof(x->found));
		}
	}
}

/* --- a large one: each of its members is thought to hold all of it */

/* With ops i..j-1 on its k-th stage. Where the others are cut says little: one op each, the nearest has the rest. */
static uint64_t lacks(struct table *t, const struct line *l, uint32_t k, uint32_t i, uint32_t j, bool *ret_surely)
{
	const struct inside *x = l->arg;
	uint32_t s = l->first + k, first = t->c->keep[s].a - l->first, at[STAGES_MAX + 1];

	for (uint32_t n = 0; n <= x->group->n; n++)
		at[n] = n < k ? x->from + n : n == k ? i : n == k + 1 ? j : x->end - (x->group->n - n);
	if (first < k)
		at[first] = x->from;
	if (t->c->keep[s].b > s)
		at[t->c->keep[s].b - l->first + 1] = x->end;
	return partition_missing(t, s, i, j, &at[first], ret_surely);
}

static double by_rows(const struct inside *x, double before, uint32_t *at)
{
	struct groups *g = x->g;
	const struct line l = { x->group->first, x->from, before, g->row, g->row_from, lacks, x };
	size_t row = g->t->nops + 1;
	uint32_t n = x->group->n, j = x->end;

	for (uint32_t k = 0; k < n; k++)
		for (uint32_t m = k + 1 < n ? x->from + k + 1 : j, lo = x->from + k; m + n - k - 1 <= j; m++)
			lo = partition_cell(g->t, g->limit, &l, k, m, lo);
	if (!isfinite(g->row[(n - 1) * row + j]))
		return INFINITY;
	for (uint32_t k = n; k-- > 0; j = at[k])
		at[k] = g->row_from[k * row + j];
	return g->row[(n - 1) * row + x->end];
}

/* What the first groups cost when this one, behind those that cost `before`, has the ops from..end-1, as long as that
 * is less than `below`; at: where its stages begin then. */
static double inside(struct groups *g, const struct group *group, double before, double below, uint32_t from,
	uint32_t end, uint32_t *at)
{
	struct inside x = { .g = g, .group = group, .from = from, .end = end, .best = below };

	if (end - from < group->n)
		return INFINITY;
	x.at[0] = from;
	if (group->n > ALL_CUTS)
		return by_rows(&x, before, at);
	x.at[group->n] = end;
	try_all(&x, 0, before);
	if (!(x.best < below))
		return INFINITY;
	memcpy(at, x.found, group->n * sizeof(*at));
	return x.best;
}

/* --- one group behind the other */

/* No more than that is to be had of a group that begins there; INFINITY: nothing. */
static double promise(const struct groups *g, const struct group *x, double before, uint32_t from, uint32_t end)
{
	const struct table *t = g->t;
	double us = (t->us[end] - t->us[from]) / x->speed;

	if (!isfinite(before) || end - from < x->n)
		return INFINITY;
	if (g->limit > 0)
		return us > g->limit * (1 + 1e-9) ? INFINITY : before + (from ? (double)t->bytes[from] : 0);
	return us * (1 - 1e-9) > before ? us * (1 - 1e-9) : before;
}

/* The best way to put the first `end` ops on the groups 0..k. */
static void lay(struct groups *g, uint32_t k, uint32_t end)
{
	const struct group *x = &g->group[k];
	struct table *t = g->t;
	size_t row = t->nops + 1, at = k * row + end;
	uint32_t lo = x->first, hi = k ? end : 1, cuts[STAGES_MAX];     /* where it may begin: each has one op */

	while (lo < hi && x->has && t->c->least(t->c->arg, lo, end - 1) > x->has + t->more)
		lo++;                   /* its state alone is too much */
	memset(g->tried, 0, t->nops * sizeof(*g->tried));
	t->best[at] = INFINITY;
	for (;;) {
		double most = t->best[at], cost;
		uint32_t best = end;

		for (uint32_t i = lo; i < hi; i++) {
			double p = g->tried[i] ? INFINITY : promise(g, x, k ? t->best[at - row - end + i] : 0, i, end);

			if (p < most) {
				most = p;
				best = i;
			}
		}
		if (best == end)
			return;
		g->tried[best] = true;
		cost = inside(g, x, k ? t->best[at - row - end + best] : 0, t->best[at], best, end, cuts);
		if (cost < t->best[at]) {
			t->best[at] = cost;
			t->from[at] = best;
		}
	}
}

static void take(struct groups *g)
{
	struct table *t = g->t;
	size_t row = t->nops + 1;
	uint32_t end = t->nops, cuts[STAGES_MAX];

	for (uint32_t k = g->n; k-- > 0; ) {
		const struct group *x = &g->group[k];
		uint32_t from = t->from[k * row + end];

		(void)inside(g, x, k ? t->best[(k - 1) * row + from] : 0, INFINITY, from, end, cuts);
		for (uint32_t s = 0; s < x->n; s++) {
			t->c->stage[x->first + s].a = cuts[s];
			t->c->stage[x->first + s].b = (s + 1 < x->n ? cuts[s + 1] : end) - 1;
		}
		end = from;
	}
}

double partition_groups(struct table *t, double limit)
{
	struct groups *g = xcalloc(1, sizeof(*g));
	size_t row = t->nops + 1;
	double cost = INFINITY;

	*g = (struct groups){ .t = t, .limit = limit, .tried = xcalloc(row, sizeof(*g->tried)),
		.row = xcalloc(t->c->n * row, sizeof(*g->row)), .row_from = xcalloc(t->c->n * row, sizeof(*g->row_from)) };
	groups_of(g, t->c);
	for (uint32_t k = 0; k < g->n && t->c->n <= t->nops; k++)
		for (uint32_t end = k + 1 < g->n ? 1 : t->nops; end <= t->nops; end++)
			lay(g, k, end);
	if (t->c->n <= t->nops)
		cost = t->best[(g->n - 1) * row + t->nops];
	if (isfinite(cost))
		take(g);
	free(g->tried);
	free(g->row);
	free(g->row_from);
	free(g);
	return cost;
}
