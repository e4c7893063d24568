/* How long an epoch takes: the programs that its pipelines would run, by the predictor. Flushes of one size take the
 * same time each; of a schedule that runs on it is what one micro-batch more takes in the middle of an epoch,
 * as often as there are any. The round is that of all pipelines, with what each gives. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "plan/predict.h"
#include "train/strategy/parts/round.h"
#include "train/strategy/parts/seats.h"
#include "train/strategy/parts/units.h"
#include "train/strategy/parts/ways_int.h"

#define SIZES 4                         /* of flushes: all but the last ones are equal */

struct view ways_begins(const struct view *v)
{
	struct view x = *v;

	x.me = 0;
	x.first = x.samples = 0;
	x.begun = x.sent = x.agreed = x.gave = false;
	x.granted = x.fresh = true;
	return x;
}

double ways_speed(const struct view *v, uint32_t rank)
{
	return v->member[rank].speed > 0 ? v->member[rank].speed : 1;
}

/* Programs of the members from .. from + n - 1. */
struct programs { struct plan *plan; const struct plan **list; uint32_t from, n; struct view v; };

static void programs_open(struct programs *o, const struct pipe *x, uint32_t from, uint32_t n)
{
	*o = (struct programs){ .plan = xcalloc(n, sizeof(*o->plan)), .list = xcalloc(n, sizeof(*o->list)), .from = from,
		.n = n, .v = *x->v };
	o->v.first = 0;
	for (uint32_t k = 0; k < n; k++) {
		o->v.me = from + k;
		plan_begin(&o->plan[k], "pipeline", &o->v);
		o->list[k] = &o->plan[k];
	}
}

static void programs_close(struct programs *o)
{
	for (uint32_t k = 0; k < o->n; k++)
		plan_free(&o->plan[k]);
	free(o->plan);
	free(o->list);
}

/* us: of the whole; busy: of the train lane that has most to do. */
static int programs_us(const struct programs *o, double *ret_us, double *ret_busy, struct err *e)
{
	const struct view *v = &o->v;
	double *speed = xcalloc(v->nmembers, sizeof(*speed));
	struct predict_conf c = { .profile = v->profile, .speed = speed, .link = { v->latency_us, v->us_per_byte } };
	struct prediction out;
	int rc;

	for (uint32_t k = 0; k < v->nmembers; k++)
		speed[k] = ways_speed(v, k);
	rc = predict(o->list, o->n, &c, &out, e);
	free(speed);
	if (rc < 0)
		return -1;
	if (out.stuck)
		rc = err_set(e, ERR_STATE, "%.300s", (const char *)out.why.p);
	*ret_us = (double)out.us;
	*ret_busy = 0;
	for (uint32_t k = 0; k < o->n; k++) {
		double busy = (double)out.peer[k].busy_us[plan_find_lane(&o->plan[k], "train")];

		*ret_busy = busy > *ret_busy ? busy : *ret_busy;
	}
	prediction_free(&out);
	return rc;
}

/* One pipeline makes n micro-batches, from nothing on; ends: they are the last of an epoch. */
static int body_us(const struct pipe *x, uint32_t n, bool ends, double *ret_us, double *ret_busy, struct err *e)
{
	const struct run_on how = { .fresh = true };
	struct programs o;
	int rc;

	programs_open(&o, x, x->base, x->members);
	for (uint32_t k = 0; k < o.n; k++) {
		stage_buffers(&o.plan[k], x, x->base + k);
		if (x->schedule->runs_on)
			stage_run_on(&o.plan[k], x, x->base + k, n, &how);
		else
			stage_flush(&o.plan[k], x, x->base + k, n, ends);
	}
	rc = programs_us(&o, ret_us, ret_busy, e);
	programs_close(&o);
	return rc;
}

static int steady_us(struct pipe *x, uint64_t share, double *ret, struct err *e)
{
	uint32_t more = x->members, was = x->most;
	double a, b, busy_a, busy_b;

	x->most = 3 * more;
	if (body_us(x, 2 * more, true, &a, &busy_a, e) < 0 || body_us(x, 3 * more, true, &b, &busy_b, e) < 0)
		return -1;
	x->most = was;
	*ret = (double)share * (b - a > busy_b - busy_a ? b - a : busy_b - busy_a) / more;
	return 0;
}

static int flushes_us(const struct pipe *x, uint64_t share, double *ret, struct err *e)
{
	struct { uint64_t n; bool ends; double us; } known[SIZES];
	uint64_t left = share, most = seats_flush_size(x, left);
	uint32_t nknown = 0;
	double busy;

	*ret = 0;
	while (left) {
		uint64_t n = seats_flush_size(x, left), times = left / most > 3 ? left / most - 2 : 1;
		bool ends = x->tied && n * times >= left;
		uint32_t k = 0;

		while (k < nknown && (known[k].n != n || known[k].ends != ends))
			k++;
		if (k == SIZES)
			k = nknown = 0;
		if (k == nknown && body_us(x, (uint32_t)n, ends, &known[nknown++].us, &busy, e) < 0)
			return -1;
		known[k].n = n;
		known[k].ends = ends;
		*ret += (double)times * known[k].us;
		left -= n * times < left ? n * times : left;
	}
	return 0;
}

/* Pipelines of members that are as fast, with as much to do, take as long. */
static bool alike(const struct pipe *x, uint32_t u, uint32_t v)
{
	for (uint32_t k = 0; k < x->members; k++)
		if (ways_speed(x->v, u * x->members + k) < ways_speed(x->v, v * x->members + k) ||
		    ways_speed(x->v, u * x->members + k) > ways_speed(x->v, v * x->members + k))
			return false;
	return units_share(x, x->v, u).n == units_share(x, x->v, v).n;
}

/* --- the round */

static const struct plan_instr *gives(const struct plan *p, const char *group)
{
	for (const struct plan_instr *i = p->instr; i < p->instr + p->ninstrs; i++)
		if (i->kind == PLAN_SUM && i->nin && p->group[i->group].elastic && !strcmp(p->group[i->group].name, group))
			return i;
	return NULL;
}

/* Who is in a round is known when it begins; here it is all that give something to it. */
static void meet(struct programs *o, const char *group)
{
	struct plan_group *g = NULL;
	bool *in = xcalloc(o->n, sizeof(*in));

	for (uint32_t k = 0; k < o->n; k++)
		in[k] = gives(&o->plan[k], group) != NULL;
	for (uint32_t k = 0; k < o->n; k++) {
		if (!in[k])
			continue;
		g = &o->plan[k].group[gives(&o->plan[k], group)->group];
		g->elastic = false;
		g->n = 0;
		for (uint32_t r = 0; r < o->n; r++)
			if (in[r])
				plan_join(&o->plan[k], (uint32_t)(g - o->plan[k].group), r, 0);
	}
	free(in);
}

static int round_us(const struct pipe *x, double *ret, struct err *e)
{
	struct pipe y = *x;
	struct programs o;
	char name[PLAN_NAME], tag[12];
	double busy;
	int rc;

	programs_open(&o, x, 0, x->units * x->members);
	o.v.samples = o.v.target_batch;
	o.v.begun = true;
	o.v.granted = o.v.fresh = o.v.sent = o.v.agreed = false;
	y.v = &o.v;
	for (uint32_t k = 0; k < o.n; k++) {
		struct plan *p = &o.plan[k];

		y.base = k / x->members * x->members;
		stage_buffers(p, &y, k);
		if (x->schedule->runs_on)
			pipe_run_on(p, &y, 1, 1);
		else
			pipe_update(p, &y);
		for (uint32_t b = 0; b < p->nbufs; b++) /* what flushes have left is there */
			p->buf[b].initial = p->buf[b].initial || (!strncmp(p->buf[b].name, "acc", 3) &&
				p->buf[b].per == UINT32_MAX);
	}
	for (uint32_t s = 0; s <= x->n; s++) {
		(void)snprintf(name, sizeof(name), "units%s", stage_tag(s < x->n ? s : STAGE_TIED, tag));
		meet(&o, name);
	}
	rc = programs_us(&o, ret, &busy, e);
	programs_close(&o);
	return rc;
}

double ways_epoch(struct pipe *x, struct err *e)
{
	double most = 0, round, us;

	for (uint32_t u = 0; u < x->units; u++) {
		uint64_t share = units_share(x, x->v, u).n;

		if (u && alike(x, u, u - 1))
			continue;
		x->base = u * x->members;
		if (seats_flush(x, share, e) < 0 || (x->schedule->runs_on ? steady_us(x, share, &us, e) :
		    flushes_us(x, share, &us, e)) < 0)
			return -1;
		most = us > most ? us : most;
	}
	if (round_us(x, &round, e) < 0)
		return -1;
	return !x->schedule->runs_on ? most + round : round > most ? round : most;
}
