/* How long instructions really take: the last durations of each kind and function, and their median. A duration is from
 * the start to the end that the loop has seen, so it holds the lane's queue; the median does not mind a few of them. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "exec/int.h"

#define BRIEF_NS 5000u                  /* sooner than a thread is awake, and with little to move to another cache */

static struct exec_time *time_of(struct exec *x, enum plan_kind kind, const char *fn, bool make)
{
	for (uint32_t k = 0; k < x->ntimes; k++)
		if (x->time[k].kind == kind && !strcmp(x->time[k].fn, fn))
			return &x->time[k];
	if (!make || x->ntimes == EXEC_TIMES)
		return NULL;
	x->time[x->ntimes] = (struct exec_time){ .kind = kind };
	memcpy(x->time[x->ntimes].fn, fn, strlen(fn) + 1);
	return &x->time[x->ntimes++];
}

static void layers_took(struct op *o)
{
	struct exec *x = o->x;

	if (!x->layer)
		x->layer = xcalloc((size_t)o->model->nops, sizeof(*x->layer));
	for (int k = 0; k < o->nns; k++) {
		struct exec_layer *l = &x->layer[o->i->piece[0].a + (uint32_t)k];

		if (o->i->kind == PLAN_FWD) {
			l->fwd.ns += o->ns[k];
			l->fwd.samples += o->batch;
		} else {
			l->bwd.ns += o->ns[k];
			l->bwd.samples += o->batch;
		}
	}
}

const struct exec_layer *exec_layers(const struct exec *x)
{
	return x->layer;
}

void op_took(struct op *o)
{
	struct exec *x = o->x;
	uint64_t us = env_now(x->c.env) - o->begin_us;
	struct exec_time *t;

	if (o->is_job)
		x->v.busy_us += us;
	if (o->trains)
		x->v.train_ns += o->ran_ns;
	if (o->trains && o->eval)
		x->v.eval_ns += o->ran_ns;
	if (o->trains && !x->v.begun_us)
		x->v.begun_us = o->begin_us;
	if (o->ns)
		layers_took(o);
	if (!o->run || !(t = time_of(x, o->i->kind, o->i->kind == PLAN_VEC ? o->i->fn : "", true)))
		return;
	t->us[t->n++ % EXEC_TIMES_KEPT] = us;
	t->ran_ns += o->ran_ns;
	t->train_ns += o->trains ? o->ran_ns : 0;
	t->ran++;
}

/* Behind what was abandoned the lane's order counts: a pass that goes on there moves the running statistics, too. */
bool op_is_brief(const struct op *o)
{
	const struct exec_time *t = time_of(o->x, PLAN_VEC, o->i->fn, false);

	return t && list_empty(&o->x->abandoned) && t->ran >= EXEC_TIMES_FEWEST && t->ran_ns < BRIEF_NS * t->ran;
}

double exec_ran_us(struct exec *x, enum plan_kind kind, const char *fn)
{
	const struct exec_time *t = time_of(x, kind, fn, false);

	return t && t->ran ? (double)t->ran_ns / (double)t->ran / 1e3 : 0;
}

uint64_t exec_train_ns(struct exec *x, enum plan_kind kind, const char *fn)
{
	const struct exec_time *t = time_of(x, kind, fn, false);

	return t ? t->train_ns : 0;
}

static int order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t exec_median(uint64_t n, const uint64_t *us)
{
	uint64_t v[EXEC_TIMES_KEPT], k = n < EXEC_TIMES_KEPT ? n : EXEC_TIMES_KEPT;

	if (n < EXEC_TIMES_FEWEST)
		return UINT64_MAX;
	memcpy(v, us, k * sizeof(*v));
	qsort(v, k, sizeof(*v), order);
	return v[k / 2];
}

uint64_t exec_took_us(struct exec *x, enum plan_kind kind, const char *fn)
{
	const struct exec_time *t = time_of(x, kind, fn, false);

	return t ? exec_median(t->n, t->us) : UINT64_MAX;
}
