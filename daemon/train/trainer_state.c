/* The state of a run in one block: parameters, optimizer vectors in use, the optimizer's clock; the names of what
 * lies in it; and copies of it, made on the train lane between two programs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "kernels/vec.h"
#include "train/trainer_int.h"

#define CLOCK 3                                 /* doubles: step, powers */

static void *clock_at(const struct trainer *t)
{
	return (char *)t->state + t->w_bytes + t->opt_bytes - CLOCK * sizeof(double);
}

static size_t add_params_of(struct trainer *t, size_t n, const struct model_param *p, int np, const char *prefix,
	real *base)
{
	for (int i = 0; i < np; i++, n++, p++) {
		struct trainer_tensor *v = &t->tensor[n];

		(void)snprintf(v->name, sizeof(v->name), "%s%s", prefix, p->name);
		v->nd = p->shape.nd;
		for (int d = 0; d < v->nd; d++)
			v->shape[d] = p->shape.d[d];
		v->f64 = sizeof(real) == sizeof(double);
		v->data = base + p->offset;
		v->bytes = p->count * sizeof(real);
	}
	return n;
}

static size_t add_params(struct trainer *t, size_t n, const char *prefix, real *base)
{
	return add_params_of(t, n, t->model->param, t->model->nparams, prefix, base);
}

/* Behind everything else: [parameters | running statistics | optimizer vectors | clock | these]. */
void *state_extra(const struct trainer *t)
{
	return (char *)t->state + t->w_bytes + t->opt_bytes;
}

/* Fresh parameters: the strategy's vectors begin with them. */
void state_begin(struct trainer *t)
{
	for (uint32_t k = 0; k < t->s->mode.nparams; k++)
		memcpy((char *)state_extra(t) + k * t->w_bytes, t->state, t->w_bytes);
}

/* Running statistics end every vector of weights: those of the latest commit, or of a step of one's own. What
 * micro-batches move is t->stats, which each program sets anew. */
real *state_buffers(const struct trainer *t)
{
	return t->model->nbuffer ? (real *)t->state + t->model->nparam : NULL;
}

static void name_tensors(struct trainer *t)
{
	size_t n = 0, np = t->model->nparam, w = np + t->model->nbuffer;
	struct trainer_tensor *clock;

	t->ntensors = (size_t)t->model->nparams * (1 + (size_t)t->nused + t->s->mode.nstate) +
		(size_t)t->model->nbuffers * (1 + t->s->mode.nstate) + 1;
	t->tensor = xcalloc(t->ntensors, sizeof(*t->tensor));
	n = add_params(t, n, "", t->state);
	for (int i = 0, k = 0; i < t->s->optim->nstates; i++) {
		char prefix[64];

		if (!t->used[i])
			continue;
		(void)snprintf(prefix, sizeof(prefix), "optimizer.%s.", t->s->optim->state[i]);
		n = add_params(t, n, prefix, (real *)t->state + w + (size_t)k++ * np);
	}
	n = add_params_of(t, n, t->model->buffer, t->model->nbuffers, "", state_buffers(t));
	for (uint32_t k = 0; k < t->s->mode.nstate; k++) {
		char prefix[64];

		(void)snprintf(prefix, sizeof(prefix), "averaging.%s.", t->s->mode.state[k]);
		n = add_params(t, n, prefix, (real *)state_extra(t) + k * w);
		n = add_params_of(t, n, t->model->buffer, t->model->nbuffers, prefix, (real *)state_extra(t) + k * w + np);
	}
	clock = &t->tensor[n];
	(void)snprintf(clock->name, sizeof(clock->name), "optimizer.clock");
	clock->nd = 1;
	clock->shape[0] = CLOCK;
	clock->f64 = true;
	clock->bytes = CLOCK * sizeof(double);
	clock->data = clock_at(t);
}

static int clock_check(const double clock[CLOCK], struct err *e)
{
	if (!(clock[0] >= 0 && clock[0] < 9007199254740992.0 && clock[0] == floor(clock[0])) || !isfinite(clock[1]) ||
	    !isfinite(clock[2]))
		return err_set(e, ERR_CORRUPT, "state: optimizer.clock is no clock (step %g)", clock[0]);
	return 0;
}

static void clock_reset(struct trainer *t)
{
	struct optim_clock c;
	double v[CLOCK];

	optim_clock_init(&c);
	v[0] = (double)c.step;
	v[1] = c.power[0];
	v[2] = c.power[1];
	memcpy(clock_at(t), v, sizeof(v));
}

int state_new(struct trainer *t, struct err *e)
{
	size_t np = t->model->nparam;

	for (int i = 0; i < t->s->optim->nstates; i++)
		if ((t->used[i] = optim_uses_state(t->s->optim, t->s->hyper, i)))
			t->nused++;
	t->stats_bytes = t->model->nbuffer * sizeof(real);
	t->w_bytes = np * sizeof(real) + t->stats_bytes;
	t->opt_bytes = (t->w_bytes + (size_t)t->nused * np * sizeof(real) + 7) / 8 * 8 + CLOCK * sizeof(double) -
		t->w_bytes;
	t->state_bytes = t->w_bytes + t->opt_bytes + t->s->mode.nstate * t->w_bytes;
	t->state = big_alloc(t->state_bytes);
	t->stats = big_alloc(t->stats_bytes + 1);
	if (!t->state || !t->stats)
		return err_set(e, ERR_NOMEM, "no memory for the state of %zu parameters (%zu bytes)", np, t->state_bytes);
	clock_reset(t);
	name_tensors(t);
	return 0;
}

void state_free(struct trainer *t)
{
	big_free(t->state, t->state_bytes);
	big_free(t->stats, t->stats_bytes + 1);
	free(t->tensor);
}

void trainer_init_params(struct trainer *t)
{
	memset(t->state, 0, t->state_bytes);
	model_init(t->model, t->s->seed, t->state);
	model_init_buffers(t->model, state_buffers(t));
	clock_reset(t);
	state_begin(t);
}

void *trainer_state(struct trainer *t, size_t *ret_bytes)
{
	*ret_bytes = t->state_bytes;
	return t->state;
}

size_t trainer_tensors(struct trainer *t, const struct trainer_tensor **ret_v)
{
	*ret_v = t->tensor;
	return t->ntensors;
}

/* Numbers from .. to of the state, of which those from the off-th byte on lie at p, len bytes. */
static int range_finite(struct trainer *t, size_t from, size_t to, size_t off, const void *p, size_t len, struct err *e)
{
	size_t first = off / sizeof(real), end = first + len / sizeof(real);

	from = from > first ? from : first;
	to = to < end ? to : end;
	if (from >= to)
		return 0;
	size_t bad = from + vec_nonfinite(&t->par, to - from, (const real *)p + (from - first));
	for (size_t i = 0; bad < to && i < t->ntensors; i++) {
		size_t at = (size_t)((real *)t->tensor[i].data - (real *)t->state);

		if (bad >= at && bad < at + t->tensor[i].bytes / sizeof(real))
			return err_set(e, ERR_NONFINITE, "state: %s has a value that is not finite (element %zu)",
				t->tensor[i].name, bad - at);
	}
	return 0;
}

int state_finite(struct trainer *t, size_t off, const void *p, size_t len, struct err *e)
{
	size_t n = t->model->nparam * (size_t)(1 + t->nused) + t->model->nbuffer;
	size_t extra = (size_t)((real *)state_extra(t) - (real *)t->state);

	if (range_finite(t, 0, n, off, p, len, e) < 0)
		return -1;
	return range_finite(t, extra, extra + t->w_bytes / sizeof(real) * t->s->mode.nstate, off, p, len, e);
}

int state_look(struct trainer *t, const void *(*at)(void *arg, size_t off, size_t *ret_len), void *arg, struct err *e)
{
	double clock[CLOCK];
	size_t tick = (size_t)((char *)clock_at(t) - (char *)t->state), len;

	for (size_t off = 0; off < t->state_bytes; off += len) {
		const char *p = at(arg, off, &len);
		if (state_finite(t, off, p, len, e) < 0)
			return -1;
		for (size_t i = 0; i < sizeof(clock); i++)
			if (tick + i >= off && tick + i < off + len)
				((char *)clock)[i] = p[tick + i - off];
	}
	return clock_check(clock, e);
}

int state_adopt(struct trainer *t, uint64_t epoch, const json_t *live, struct err *e)
{
	double clock[CLOCK];

	memcpy(clock, clock_at(t), sizeof(clock));
	if (clock_check(clock, e) < 0)
		return -1;
	if (live && spec_live_apply(t->s, live, t->hyper, &t->clip_norm, e) < 0)
		return -1;
	t->target = spec_live_target(t->s, live);
	t->epoch = epoch;
	t->lent = t->renewed = false;
	trainer_reset_epoch(t);
	if (!list_empty(&t->copies))
		exec_wake(t->x);
	return 0;
}

int trainer_loaded(struct trainer *t, uint64_t epoch, const json_t *live, struct err *e)
{
	return state_finite(t, 0, t->state, t->state_bytes, e) < 0 ? -1 : state_adopt(t, epoch, live, e);
}

/* --- copies */

void snapshot_unref(struct snapshot *s)
{
	if (!s || --s->refs)
		return;
	big_free(s->data, s->bytes);
	free(s->tensor);
	free(s);
}

static struct snapshot *snapshot_new(struct trainer *t, bool weights, struct err *e)
{
	size_t bytes = weights ? t->w_bytes + 1 : t->state_bytes;
	struct snapshot *s = xcalloc(1, sizeof(*s));

	s->data = big_alloc(bytes);
	if (!s->data) {
		(void)err_set(e, ERR_NOMEM, "no memory for a copy of the %s (%zu bytes)", weights ? "parameters" : "state",
			bytes);
		free(s);
		return NULL;
	}
	s->refs = 1;
	s->bytes = bytes;
	if (weights)
		return s;
	s->ntensors = t->ntensors;
	s->tensor = xmemdup(t->tensor, t->ntensors * sizeof(*t->tensor));
	for (size_t i = 0; i < s->ntensors; i++)
		s->tensor[i].data = (char *)s->data + ((char *)t->tensor[i].data - (char *)t->state);
	return s;
}

static void copy_run(struct job *j)
{
	struct copying *c = container_of(j, struct copying, job);

	memcpy(c->to, c->from, c->bytes);
	if (c->s && !c->weights)
		xxh128_of(c->to, c->w_bytes, c->s->digest);
}

/* The trainer goes. Whoever wanted a checkpoint goes with it; whoever wanted weights is told. */
static void copy_lost(struct copying *c)
{
	struct err e;

	snapshot_unref(c->s);
	(void)err_set(&e, ERR_CANCELLED, "the run has ended");
	if (c->weights)
		c->done(c->arg, NULL, &e);
}

static void copy_done(struct job *j)
{
	struct copying *c = container_of(j, struct copying, job);
	struct trainer *t = c->t;

	t->copies_running--;
	if (c->s && !t->dying)
		c->done(c->arg, c->s, NULL);
	else if (c->s)
		copy_lost(c);
	else if (!t->dying)
		valid_run(t);
	free(c);
	if (t->dying)
		trainer_part_gone(t);
	else if (!t->copies_running)
		trainer_copied(t);
}

static bool copy_launch(struct trainer *t, struct copying *c)
{
	struct err e;

	c->from = t->state;
	if (c->done) {
		c->s = snapshot_new(t, c->weights, &e);
		if (!c->s) {
			c->done(c->arg, NULL, &e);
			free(c);
			return false;
		}
		c->s->epoch = t->epoch;
		c->to = c->s->data;
		c->bytes = c->weights ? t->w_bytes : t->state_bytes;
		c->w_bytes = t->w_bytes;
	} else {
		c->to = t->v.w;
		c->bytes = t->w_bytes;
		t->v.epoch = t->epoch;
	}
	c->job = (struct job){ .name = "copy", .lane = env_lane(t->env, "train"), .run = copy_run, .done = copy_done };
	t->copies_running++;
	env_work(t->env, &c->job);
	return true;
}

bool copies_start(struct trainer *t)
{
	if (t->copies_running)
		return true;
	while (!list_empty(&t->copies))
		(void)copy_launch(t, list_entry(list_pop(&t->copies), struct copying, link));
	return t->copies_running > 0;
}

static void want_copy(struct trainer *t, trainer_snapshot_fn *done, void *arg, bool weights)
{
	struct copying *c = xcalloc(1, sizeof(*c));

	c->t = t;
	c->done = done;
	c->arg = arg;
	c->weights = weights;
	list_push(&t->copies, &c->link);
	round_boundary(t);
	exec_wake(t->x);
}

void trainer_snapshot(struct trainer *t, trainer_snapshot_fn *done, void *arg)
{
	want_copy(t, done, arg, false);
}

void trainer_weights(struct trainer *t, trainer_snapshot_fn *done, void *arg)
{
	want_copy(t, done, arg, true);
}

void trainer_validate(struct trainer *t)
{
	if (t->v.wanted)
		return;
	t->v.wanted = true;
	if (t->v.count)
		want_copy(t, NULL, NULL, false);
	else
		trainer_later(t);
}

void copies_drop(struct trainer *t)
{
	struct err e;

	(void)err_set(&e, ERR_CANCELLED, "the run has ended");
	while (!list_empty(&t->copies)) {
		struct copying *c = list_entry(list_pop(&t->copies), struct copying, link);

		if (c->done)
			c->done(c->arg, NULL, &e);
		free(c);
	}
}
