/* Shares of an epoch (units.h). Each unit is as fast as its slowest member, and gets micro-batches in proportion. They
 * are dealt out in turns, one for each replica of the widest stage, so that no flush must go beyond its share into that
 * of the next unit; what is no whole turn is the last one's. Plain arithmetic in a fixed order: every member finds the
 * same shares. */
#include <stdlib.h>
#include "common/mem.h"
#include "common/planted.h"
#include "train/strategy/parts/units.h"

uint32_t units_most(const struct view *v)
{
	const json_t *n = json_object_get(v->values, "replicas");

	return n ? (uint32_t)json_integer_value(n) : UINT32_MAX;
}

uint64_t units_epoch(const struct view *v)
{
	return (v->target_batch + v->profile->batch - 1) / v->profile->batch;
}

void units_find(struct pipe *x, const struct view *v)
{
	uint32_t there = v->nmembers / x->members, most = units_most(v);
	uint64_t busy = units_epoch(v) / x->widest;
	const json_t *settled = json_object_get(v->values, UNITS_SETTLED);

	if (settled) {                          /* then it has been there, too */
		most = (uint32_t)json_integer_value(settled);
		busy = most;
	}
	x->units = there < most ? there : most;
	x->units = x->units > busy ? (uint32_t)busy : x->units;
	x->units = x->units ? x->units : 1;
}

static double speed_of(const struct view *v, uint32_t from, uint32_t n)
{
	double least = 0;

	for (uint32_t k = from; k < from + n && k < v->nmembers; k++) {
		double speed = v->member[k].speed > 0 ? v->member[k].speed : 1;

		least = k == from || speed < least ? speed : least;
	}
	return least > 0 ? least : 1;
}

/* due[u]: turns that unit u would have if they could be cut. */
static void due_of(const struct pipe *x, const struct view *v, uint64_t turns, double *due)
{
	double all = 0;

	for (uint32_t u = 0; u < x->units; u++) {
		due[u] = speed_of(v, u * x->members, x->members);
		all += due[u];
	}
	for (uint32_t u = 0; u < x->units; u++)
		due[u] = due[u] * (double)turns / all;
}

/* Who lacks most of what is due to it; or, the other way round, has most beyond it and can give one. */
static uint32_t pick(const struct pipe *x, const double *due, const uint64_t *n, bool gives)
{
	uint32_t best = x->units;
	double top = 0;

	for (uint32_t u = 0; u < x->units; u++) {
		double lacks = gives ? (double)n[u] - due[u] : due[u] - (double)n[u];

		if ((!gives || n[u] > 1) && (best == x->units || lacks > top)) {
			best = u;
			top = lacks;
		}
	}
	return best;
}

static void share_out(const struct pipe *x, const struct view *v, uint64_t *n)
{
	double *due = xcalloc(x->units, sizeof(*due));
	uint64_t turns = units_epoch(v) / x->widest, have = 0;

	due_of(x, v, turns, due);
	for (uint32_t u = 0; u < x->units; u++) {
		n[u] = due[u] > 1 ? (uint64_t)due[u] : 1;
		have += n[u];
	}
	for (; have < turns; have++)
		n[pick(x, due, n, false)]++;
	for (; have > turns && pick(x, due, n, true) < x->units; have--)
		n[pick(x, due, n, true)]--;
	for (uint32_t u = 0; u < x->units; u++)
		n[u] *= x->widest;
	n[x->units - 1] += units_epoch(v) % x->widest;
	if (x->units == 1)
		n[0] = units_epoch(v);
	free(due);
}

struct planner_unit units_share(const struct pipe *x, const struct view *v, uint32_t u)
{
	uint64_t *n = xcalloc(x->units, sizeof(*n));
	struct planner_unit ret = { .unit = u };

	share_out(x, v, n);
	for (uint32_t k = 0; k < u && !PLANTED(SHARE_TWICE); k++)
		ret.first += n[k];
	ret.n = n[u];
	free(n);
	return ret;
}

void units_range(const struct pipe *x, const struct view *v, uint64_t *ret_least, uint64_t *ret_most)
{
	uint64_t *n = xcalloc(x->units, sizeof(*n));

	share_out(x, v, n);
	*ret_least = *ret_most = n[0];
	for (uint32_t u = 1; u < x->units; u++) {
		*ret_least = n[u] < *ret_least ? n[u] : *ret_least;
		*ret_most = n[u] > *ret_most ? n[u] : *ret_most;
	}
	free(n);
}
