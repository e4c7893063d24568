/* NaN and infinity: counts micro-batches and steps in a row, and when there are too many finds out which layer was
 * first, by running the last batch through the model op by op. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/mem.h"
#include "kernels/vec.h"
#include "train/trainer_int.h"

struct check {
	struct job job;
	struct trainer *t;
	const struct model *model; const struct par *par; struct data *data;
	const real *w; real *buffers; uint64_t seed;
	uint64_t *position; size_t n;
	struct err error;               /* what was found */
};

static bool bad_params(struct check *k)
{
	for (int i = 0; i < k->model->nparams; i++) {
		const struct model_param *p = &k->model->param[i];
		size_t at = vec_nonfinite(k->par, p->count, k->w + p->offset);

		if (at < p->count) {
			(void)err_set(&k->error, ERR_NONFINITE, "parameters of %s are not finite (element %zu); lower lr or set "
				"clip_norm", p->name, at);
			return true;
		}
	}
	return false;
}

/* Training waits for somebody who has looked; nothing is lost by that. Who cannot be told that stops for good. */
static void halt(struct trainer *t, const struct err *e)
{
	if (!t->cb.halted) {
		t->cb.broken(t->arg, e);
		return;
	}
	t->halt_error = *e;
	env_after(t->env, &t->halt, 0);
}

void check_resume(struct trainer *t)
{
	if (t->check)                   /* the search is not over: it will halt once more */
		return;
	t->sick = false;
	t->bad_in_row = t->bad_steps = 0;
}

/* Two buffers of the widest cut take turns. What passes an op by is finite already, so a cut that is not finite
 * blames the op before it. Running statistics stay as they are, as in a replay. */
static bool bad_layer(struct check *k, real *a, real *b, void *y, size_t widest)
{
	struct err e;

	if (data_read(k->data, DATA_TRAIN, k->position, k->n, a, y, &e) < 0)
		return false;
	if (vec_nonfinite(k->par, k->n * shape_count(&k->model->in), a) < k->n * shape_count(&k->model->in)) {
		(void)err_set(&k->error, ERR_NONFINITE, "the data itself is not finite (position %llu and on)",
			(unsigned long long)k->position[0]);
		return true;
	}
	for (int i = 0; i < k->model->nops; i++) {
		const struct layer *l = &k->model->op[i];
		struct model_need need;
		struct model_call call = { .batch = k->n, .param = k->w, .buffer = k->buffers, .train = true, .replay = true,
			.key = rand_key(k->seed, k->position[0]) };
		real *swap = a;
		size_t n;

		model_need(k->model, i, i + 1, k->n, k->par->n, &need);
		n = need.y / sizeof(real);
		call.work = big_alloc(need.work_eval + 64);
		if (!call.work)
			return false;
		model_forward(k->par, k->model, i, i + 1, &call, a, b);
		big_free(call.work, need.work_eval + 64);
		if (vec_nonfinite(k->par, n, b) < n) {
			(void)err_set(&k->error, ERR_NONFINITE, "layer %s (%s) is the first whose output is not finite; lower lr "
				"or set clip_norm", l->name, l->ops->name);
			return true;
		}
		a = b;
		b = swap;
	}
	return false;
}

static void check_run(struct job *j)
{
	struct check *k = container_of(j, struct check, job);
	size_t widest = 0;
	real *a, *b;
	void *y;

	if (bad_params(k) || !k->n)
		return;
	for (int i = 0; i < k->model->nops; i++) {
		struct model_need need;

		model_need(k->model, i, i + 1, k->n, k->par->n, &need);
		widest = need.x > widest ? need.x : widest;
		widest = need.y > widest ? need.y : widest;
	}
	a = big_alloc(widest);
	b = big_alloc(widest);
	y = big_alloc(k->n * data_y_bytes(k->data));
	if (!a || !b || !y || !bad_layer(k, a, b, y, widest))
		(void)err_set(&k->error, ERR_NONFINITE, "the loss is not finite although every layer's output is; lower lr or "
			"set clip_norm");
	big_free(a, widest);
	big_free(b, widest);
	big_free(y, k->n * data_y_bytes(k->data));
}

static void check_done(struct job *j)
{
	struct check *k = container_of(j, struct check, job);
	struct trainer *t = k->t;
	struct err e;

	t->check = NULL;
	if (!t->dying) {
		(void)err_set(&e, ERR_NONFINITE, "the loss of %u micro-batches in a row was not finite: %s", t->bad_in_row,
			k->error.text);
		halt(t, &e);
	}
	free(k->position);
	free(k);
	if (t->dying)
		trainer_part_gone(t);
}

/* Training stops now; the search tells why, later. */
static void search(struct trainer *t)
{
	struct check *k = xcalloc(1, sizeof(*k));

	t->broken = !t->cb.halted;
	t->sick = t->paused = true;
	t->check = k;
	if (t->stepping)
		exec_wind_down(t->x);   /* the step of a commit is not parted */
	else
		exec_stop(t->x);
	k->t = t;
	k->model = t->model;
	k->par = &t->par;
	k->data = t->c.data;
	k->w = trainer_w(t);
	k->buffers = t->model->nbuffer ? t->stats : NULL;
	k->seed = t->s->seed;
	k->n = ranges_count(&t->last);
	k->position = xcalloc(k->n + 1, sizeof(*k->position));
	for (size_t i = 0, n = 0; i < t->last.n; i++)
		for (uint64_t p = t->last.v[i].lo; p < t->last.v[i].hi; p++)
			k->position[n++] = p;
	k->job = (struct job){ .name = "check", .lane = env_lane(t->env, "train"), .run = check_run, .done = check_done };
	env_work(t->env, &k->job);
}

void check_batch(struct trainer *t, double loss)
{
	struct err e;

	if (isfinite(loss)) {
		t->bad_in_row = 0;
		return;
	}
	t->bad_in_row++;
	trainer_event(t, LOG_WARN_, "nonfinite",
		"epoch %llu: the loss of a micro-batch is not finite, it is left out of the "
		"gradient (%u in a row; the run halts at %u)", (unsigned long long)t->epoch, t->bad_in_row,
		t->s->nonfinite_max);
	if (t->bad_in_row < t->s->nonfinite_max || t->check || t->broken || t->sick)
		return;
	if (!t->strategy->crew) {
		search(t);
		return;
	}
	t->sick = t->paused = true;             /* nobody here has the whole model to look through */
	(void)err_set(&e, ERR_NONFINITE, "the loss of %u micro-batches in a row was not finite; lower lr", t->bad_in_row);
	halt(t, &e);
}

bool trainer_overflows(const struct trainer *t)
{
	return t->loss_scale > 1 && !t->s->mode.local;
}

void check_scale(struct trainer *t)
{
	double was = t->loss_scale;

	t->loss_scale = shard_scale(trainer_shard(t));
	if (t->loss_scale == was)
		return;
	if (t->loss_scale > was) {
		trainer_event(t, LOG_INFO_, "loss_scale", "epoch %llu: %u steps in a row were made, the loss is scaled by %.0f "
			"from now on", (unsigned long long)t->epoch, t->s->scale_interval, t->loss_scale);
		return;
	}
	t->skipped_steps++;
	t->skipped = 0;
	trainer_event(t, LOG_INFO_, "loss_scale", "epoch %llu: a gradient overflowed, the step was left out; the loss is "
		"scaled by %.0f from now on, %.0f before", (unsigned long long)t->epoch, t->loss_scale, was);
}

void check_step(struct trainer *t, double skipped)
{
	const struct model *m = t->model;
	const char *name = "";
	double from = t->seat.is ? (double)t->seat.part.own.param.lo : 0;   /* where its vector begins */
	struct err e;

	if (!(skipped > 0)) {
		t->bad_steps = 0;
		return;
	}
	t->skipped_steps++;
	t->bad_steps++;
	for (int i = 0; i < m->nparams + m->nbuffers; i++) {
		const struct model_param *p = i < m->nparams ? &m->param[i] : &m->buffer[i - m->nparams];
		double at = skipped - 1 + from - (double)(i < m->nparams ? 0 : m->nparam) - (double)p->offset;

		if (at >= 0 && at < (double)p->count)
			name = p->name;
	}
	trainer_event(t, LOG_WARN_, "nonfinite", "epoch %llu: the mean gradient of %s is not finite, the step was skipped "
		"(%u in a row; the run halts at %u)", (unsigned long long)t->epoch, name, t->bad_steps, t->s->nonfinite_max);
	if (t->bad_steps < t->s->nonfinite_max)
		return;
	(void)err_set(&e, ERR_NONFINITE,
		"the mean gradient was not finite for %u steps in a row, first in %s; lower lr or set "
		"clip_norm", t->bad_steps, name);
	if (!t->cb.halted) {
		trainer_break(t, &e);
		return;
	}
	t->sick = t->paused = true;
	halt(t, &e);
}
