/* The partition of a model: dynamic programming over contiguous cuts. Plain arithmetic in a fixed order, so that every
 * member finds the same cuts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/strategy/parts/partition.h"

struct table {
	const struct cutting *c;
	uint32_t nops;
	double *us;                             /* of all ops before this one, forward and backward */
	double *bytes;                          /* that cross the cut before this op; none at the ends */
	bool *open;                             /* may be cut before this op: nothing is shared across */
	double *best; uint32_t *from;           /* [stage * (nops + 1) + ops so far] */
	bool *full;                             /* too much for a member when it begins there */
};

static void shape_of(struct table *t, const struct cutting *c)
{
	const struct profile *m = c->v->profile;
	struct piece_need need;

	*t = (struct table){ .c = c, .nops = m->nops };
	t->us = xcalloc(m->nops + 1, sizeof(*t->us));
	t->bytes = xcalloc(m->nops + 1, sizeof(*t->bytes));
	t->open = xcalloc(m->nops + 1, sizeof(*t->open));
	t->best = xcalloc((size_t)c->n * (m->nops + 1), sizeof(*t->best));
	t->from = xcalloc((size_t)c->n * (m->nops + 1), sizeof(*t->from));
	t->full = xcalloc(m->nops + 1, sizeof(*t->full));
	for (uint32_t o = 0; o < m->nops; o++) {
		t->us[o + 1] = t->us[o] + (double)(m->op[o].variant[0].fwd_us + m->op[o].variant[0].bwd_us);
		t->open[o] = o > 0;
		if (o) {
			profile_need(m, o, o, &need);
			t->bytes[o] = (double)need.x;
		}
	}
	for (uint32_t o = 0; o < m->nops; o++)
		for (uint32_t k = m->op[o].shares; k && k <= o; k++)
			t->open[k] = false;
}

static void table_free(struct table *t)
{
	free(t->us);
	free(t->bytes);
	free(t->open);
	free(t->best);
	free(t->from);
	free(t->full);
}

static double speed_of(const struct view *v, const struct stage *x)
{
	double least = INFINITY;

	for (uint32_t k = 0; k < x->replicas; k++) {
		double speed = v->member[x->rank + k].speed;

		least = (speed > 0 ? speed : 1) < least ? (speed > 0 ? speed : 1) : least;
	}
	return least;
}

/* 0: not stated. */
static uint64_t memory_of(const struct view *v, const struct stage *x)
{
	uint64_t least = 0;

	for (uint32_t k = 0; k < x->replicas; k++) {
		uint64_t bytes = v->member[x->rank + k].memory_bytes;

		least = bytes && (!least || bytes < least) ? bytes : least;
	}
	return least;
}

/* Bytes that are missing when stage s holds ops i..j-1; 0: it fits. */
static uint64_t missing(const struct table *t, uint32_t s, uint32_t i, uint32_t j)
{
	uint64_t has = memory_of(t->c->v, &t->c->stage[s]), needs;

	if (!has)
		return 0;
	needs = t->c->bytes(t->c->arg, s, i, j - 1);
	return needs > has ? needs - has : 0;
}

static double time_of(const struct table *t, uint32_t s, uint32_t i, uint32_t j)
{
	const struct stage *x = &t->c->stage[s];
	double us = (t->us[j] - t->us[i]) / speed_of(t->c->v, x);
	double sends = (t->bytes[i] + t->bytes[j]) * t->c->v->us_per_byte;

	return (us > sends ? us : sends) / x->replicas;
}

/* What a solution is judged by: the slowest stage, the bytes over all cuts when none is slower than limit, or the
 * stage that lacks most. */
enum aim { AIM_TIME, AIM_BYTES, AIM_MEMORY };

static double cost_of(const struct table *t, enum aim aim, double limit, double before, uint32_t s, uint32_t i,
	uint32_t j)
{
	double x = aim == AIM_MEMORY ? (double)missing(t, s, i, j) : time_of(t, s, i, j);

	if (aim != AIM_BYTES)
		return x > before ? x : before;
	return x > limit ? INFINITY : before + t->bytes[i];
}

/* The best way to put the first j ops on the stages 0..s. What a piece needs is asked of the best ones only. */
static void cell(struct table *t, enum aim aim, double limit, uint32_t s, uint32_t j)
{
	size_t row = t->nops + 1, at = s * row + j;
	uint32_t best;

	memset(t->full, 0, t->nops * sizeof(*t->full));
	do {
		best = j;
		t->best[at] = INFINITY;
		for (uint32_t i = j; i-- > s; ) {
			double before = s ? t->best[at - row - j + i] : i ? INFINITY : 0, x;

			if (t->full[i] || !isfinite(before) || (i && !t->open[i]))
				continue;
			x = cost_of(t, aim, limit, before, s, i, j);
			if (x < t->best[at]) {
				t->best[at] = x;
				best = i;
			}
		}
		if (best < j)
			t->full[best] = aim != AIM_MEMORY && missing(t, s, best, j);
	} while (best < j && t->full[best]);
	t->from[at] = best;
}

/* The cost of the best solution, whose cuts are in the stages then; INFINITY: there is none. */
static double solve(struct table *t, enum aim aim, double limit)
{
	size_t row = t->nops + 1;
	uint32_t n = t->c->n, j = t->nops;

	if (n > j)
		return INFINITY;
	for (uint32_t s = 0; s < n; s++)
		for (uint32_t k = s + 1; k <= t->nops; k++)
			cell(t, aim, limit, s, k);
	if (!isfinite(t->best[(n - 1) * row + j]))
		return INFINITY;
	for (uint32_t s = n; s-- > 0; ) {
		t->c->stage[s].a = t->from[s * row + j];
		t->c->stage[s].b = j - 1;
		j = t->c->stage[s].a;
	}
	return t->best[(n - 1) * row + t->nops];
}

static int too_full(const struct table *t, uint32_t s, struct err *e)
{
	const struct stage *x = &t->c->stage[s];
	const struct profile *m = t->c->v->profile;
	uint64_t lacks = missing(t, s, x->a, x->b + 1), has = memory_of(t->c->v, x);
	char a[32], b[32], c[32];

	return err_set(e, ERR_LIMIT, "stage %u of %u (layers %s to %s) needs %s, a member that would hold it has %s: "
		"%s are missing; more stages, a smaller local.batch or schedule 1f1b would help", s, t->c->n, m->op[x->a].name,
		m->op[x->b].name, text_print_size(lacks + has, a, sizeof(a)), text_print_size(has, b, sizeof(b)),
		text_print_size(lacks, c, sizeof(c)));
}

/* Why there is none. */
static int no_way(struct table *t, struct err *e)
{
	const struct profile *m = t->c->v->profile;
	uint32_t pieces = 1, fullest = 0;

	for (uint32_t o = 1; o < m->nops; o++)
		pieces += t->open[o];
	if (t->c->n > m->nops)
		return err_set(e, ERR_INVALID, "%u stages, and the model has %u layers: a stage has one at least; at most %u "
			"stages", t->c->n, m->nops, pieces);
	for (uint32_t o = 0; t->c->n > pieces && o < m->nops; o++)
		if (m->op[o].shares)
			return err_set(e, ERR_INVALID, "%u stages, and the model can be cut into %u: %s and %s share "
				"parameters, so they and all between them are on one member; give %s parameters of its own (no "
				"\"share\"), or at most %u stages", t->c->n, pieces, m->op[m->op[o].shares - 1].name, m->op[o].name,
				m->op[o].name, pieces);
	(void)solve(t, AIM_MEMORY, 0);
	for (uint32_t s = 1; s < t->c->n; s++)
		if (missing(t, s, t->c->stage[s].a, t->c->stage[s].b + 1) > missing(t, fullest, t->c->stage[fullest].a,
		    t->c->stage[fullest].b + 1))
			fullest = s;
	return too_full(t, fullest, e);
}

int partition(const struct cutting *c, struct err *e)
{
	struct table t;
	double us;
	int rc = 0;

	shape_of(&t, c);
	us = solve(&t, AIM_TIME, 0);
	if (isfinite(us))
		(void)solve(&t, AIM_BYTES, us);
	else
		rc = no_way(&t, e);
	table_free(&t);
	return rc;
}

int partition_fits(const struct cutting *c, struct err *e)
{
	const struct profile *m = c->v->profile;
	struct table t;
	int rc = 0;

	shape_of(&t, c);
	for (uint32_t s = 0; s < c->n && rc == 0; s++) {
		const struct stage *x = &c->stage[s];

		for (uint32_t o = x->a; s && !t.open[x->a] && o < m->nops; o++)
			if (m->op[o].shares && m->op[o].shares <= x->a) {
				rc = err_set(e, ERR_INVALID, "stage %u begins between %s and %s, which share parameters: cut "
					"elsewhere, or give %s parameters of its own (no \"share\")", s,
					m->op[m->op[o].shares - 1].name, m->op[o].name, m->op[o].name);
				break;
			}
		if (rc == 0 && missing(&t, s, x->a, x->b + 1))
			rc = too_full(&t, s, e);
	}
	table_free(&t);
	return rc;
}
