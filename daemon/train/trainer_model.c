/* What the model costs, as planners want to know it: bytes exactly as the kernels state them, times only where they are
 * modelled (sleep layers, a stated speed), because virtual time needs them. And the prediction of a step's memory. */
#include <stdio.h>
#include <string.h>
#include "common/mem.h"
#include "plan/tokens.h"
#include "train/trainer_int.h"

#define PROGRAMS_PLAIN 3                /* micro-batches, the round, micro-batches */
#define PROGRAMS 5                      /* with rounds beside: what follows it, micro-batches and the round again */

static uint64_t attr_us(const struct layer *l, const char *name)
{
	for (int i = 0; i < l->ops->nattrs; i++)
		if (!strcmp(l->ops->attr[i].name, name))
			return (uint64_t)(l->attr[i] * 1000 + 0.5);
	return 0;
}

static void op_profile(struct trainer *t, int i, uint32_t batch)
{
	const struct layer *l = &t->model->op[i];
	struct profile_op *p = &t->profile.op[i];
	struct profile_variant *v = &p->variant[0];
	double macs = (double)model_macs(t->model, i, i + 1) * batch;
	struct model_need need;

	model_need(t->model, i, i + 1, batch, t->par.n, &need);
	(void)snprintf(p->name, sizeof(p->name), "%.47s", l->name);
	p->out_bytes = batch * shape_count(&l->out) * sizeof(real);
	p->saved_bytes = need.saved;
	p->param_bytes = model_param_count(t->model, i, i + 1) * sizeof(real);
	p->param_lo = t->model->offset[i];
	p->nvariants = 1;
	v->fwd_us = attr_us(l, "fwd_ms");
	v->bwd_us = attr_us(l, "bwd_ms");
	if (t->c.macs_per_us > 0) {
		v->fwd_us += (uint64_t)(macs / t->c.macs_per_us + 0.5);
		v->bwd_us += (uint64_t)(2 * macs / t->c.macs_per_us + 0.5);
	}
	v->work_bytes = need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd;
	for (int k = 0; k < t->model->node[i].nin && p->npreds < PROFILE_PREDS; k++)
		if (t->model->node[i].from[k] > 0)
			p->pred[p->npreds++] = (uint32_t)t->model->node[i].from[k] - 1;
}

/* A strategy asks for the same piece each time it plans. */
static void need_of(void *arg, uint32_t batch, uint32_t a, uint32_t b, struct piece_need *ret)
{
	struct trainer *t = arg;
	struct model_need need;

	if (t->asked.batch != batch || t->asked.a != a || t->asked.b != b) {
		model_need(t->model, (int)a, (int)b + 1, batch, t->par.n, &need);
		t->asked.batch = batch;
		t->asked.a = a;
		t->asked.b = b;
		t->asked.need = (struct piece_need){ need.x, need.y, need.saved, need.work_fwd, need.work_bwd };
	}
	*ret = t->asked.need;
}

static void profile_at(struct trainer *t, uint32_t batch)
{
	t->profile = (struct profile){ .batch = batch, .nops = (uint32_t)t->model->nops, .params = t->model->nparam,
		.batch_bytes = batch * (data_x_bytes(t->c.data) + data_y_bytes(t->c.data)),
		.state_bytes = trainer_shard(t)->opt_bytes,
		.stats_bytes = t->stats_bytes, .need = need_of, .need_arg = t };
	t->profile.op = xcalloc((size_t)t->model->nops, sizeof(*t->profile.op));
	for (int i = 0; i < t->model->nops; i++)
		op_profile(t, i, batch);
}

void model_profile(struct trainer *t)
{
	profile_at(t, t->s->local.batch);
}

/* The tokens of one program, run in order: what is held at once is their count. */
static struct tokens *rehearse(const struct plan *p, const struct tokens *before, size_t *peak)
{
	struct tokens *k = tokens_new(p, NULL, before);
	struct token_run *r;

	while ((r = tokens_start(k)))
		tokens_end(k, r, NULL);
	*peak = tokens_peak(k, 0) > *peak ? (size_t)tokens_peak(k, 0) : *peak;
	return k;
}

struct tokens *model_rehearse(const struct plan *p, const struct tokens *before)
{
	size_t peak = 0;

	return rehearse(p, before, &peak);
}

size_t predict_bytes(struct trainer *t, struct err *e)
{
	struct view_member me = { .id = t->c.self, .speed = 1 };
	const struct plan_results none = { 0, NULL };
	struct tokens *before = NULL;
	struct plan p[PROGRAMS];
	size_t peak = 0;
	int n = 0, programs = t->s->mode.under_way ? PROGRAMS : PROGRAMS_PLAIN;

	for (; n < programs; n++) {     /* each with what those before have left */
		struct view v = trainer_plan_view(t, &me, before ? (uint64_t)tokens_next_index(before) : 0);
		struct tokens *k;

		v.granted = true;
		v.samples = n % 3 == 1 ? t->target : 0;
		v.begun = n % 3 == 1 && t->strategy->needs_swarm;
		v.agreed = n == 2;
		v.gave = n > 0;
		v.fresh = n == 0;
		if (t->strategy->plan(&v, &none, &p[n], e) < 0)
			break;
		k = rehearse(&p[n], before, &peak);
		tokens_free(before);
		before = k;
	}
	tokens_free(before);
	if (n < programs)
		peak = 0;
	for (int i = 0; i < n; i++)
		plan_free(&p[i]);
	return peak;
}

/* The prediction grows with the batch. Afterwards everything is as it was. */
uint32_t trainer_fits(struct trainer *t, uint64_t bytes)
{
	uint32_t lo = 0, hi = t->s->local.batch;        /* lo fits, hi does not */
	struct err e;

	while (hi - lo > 1) {
		uint32_t batch = lo + (hi - lo) / 2;
		size_t need;

		profile_free(&t->profile);
		profile_at(t, batch);
		need = predict_bytes(t, &e);
		if (need && need + loader_bytes(t->c.data, batch, load_depth(t, batch)) <= bytes)
			lo = batch;
		else
			hi = batch;
	}
	profile_free(&t->profile);
	model_profile(t);
	return lo;
}

/* "--batch 4 would fit", for errors. */
const char *trainer_fits_text(struct trainer *t, uint64_t bytes, char *out, size_t cap)
{
	uint32_t n = trainer_fits(t, bytes);

	if (n)
		(void)snprintf(out, cap, "--batch %u would fit", n);
	else
		(void)snprintf(out, cap, "not even a batch of 1 would fit: a smaller model is needed");
	return out;
}
