/* What the state of a run is made of: the model's parameters and running statistics, the optimizer's vectors in use,
 * the strategy's. It is kept, copied and filled by state/state.h, and handed out when nothing is under way at it
 * (trainer_quiet). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "kernels/vec.h"
#include "train/trainer_int.h"

static bool add_params(struct layout *l, const struct model_param *p, int n)
{
	for (int i = 0; i < n; i++, p++) {
		uint64_t shape[SHAPE_MAX];

		for (int d = 0; d < p->shape.nd; d++)
			shape[d] = p->shape.d[d];
		if (!layout_add(l, p->name, p->shape.nd, shape, p->count))
			return false;
	}
	return true;
}

static void add_vector(struct layout_vector *v, uint32_t *n, const char *name)
{
	(void)snprintf(v[*n].name, sizeof(v[*n].name), "%s", name);
	++*n;
}

int trainer_layout(const struct spec *s, const struct model *m, bool ret_used[OPTIM_STATES_MAX], struct layout *ret,
	struct err *e)
{
	const struct planner_mode *mode = &s->mode;

	*ret = (struct layout){ .unit = sizeof(real), .params = m->nparam, .stats = m->nbuffer, .nbegin = mode->nparams,
		.scale = s->precision == PRECISION_FP16 ? s->scale_init : 0 };
	if (!add_params(ret, m->param, m->nparams) || !add_params(ret, m->buffer, m->nbuffers)) {
		layout_free(ret);
		return err_set(e, ERR_INTERNAL, "the model's tensors do not lie one behind the other");
	}
	for (int i = 0; i < s->optim->nstates; i++)
		if ((ret_used[i] = optim_uses_state(s->optim, s->hyper, i)))
			add_vector(ret->opt, &ret->nopt, s->optim->state[i]);
	for (uint32_t k = 0; k < mode->nstate; k++)
		add_vector(ret->extra, &ret->nextra, mode->state[k]);
	return 0;
}

static void wanted(void *arg)
{
	struct trainer *t = arg;

	round_boundary(t);
	exec_wake(t->x);
}

static void now_quiet(void *arg)
{
	struct trainer *t = arg;
	void (*done)(void *a) = t->quiet;

	if (!done || state_busy(t->state))   /* whose ends come back here */
		return;
	exec_reset(t->x);
	round_drop(t);
	trainer_reset_epoch(t);
	trouble_over(t);
	t->round_prog = t->renewed = false;
	t->quiet = NULL;
	trainer_line(t, "\"ev\":\"quiet\"");   /* nothing is under way any more, and what was is lost */
	t->lent = true;                         /* copies that were asked for wait until it is loaded */
	done(t->quiet_arg);
}

bool trainer_copies(struct trainer *t)
{
	if (state_wants(t->state) && !state_busy(t->state))     /* for the replay: who begins with it begins here */
		trainer_line(t, "\"ev\":\"copied\",\"epoch\":%llu", (unsigned long long)t->epoch);
	return state_copies(t->state, t->epoch);
}

/* No copy of it and no fill runs any more. */
static void copied(void *arg)
{
	struct trainer *t = arg;

	if (t->grow.planned) {          /* no program may begin for long */
		if (state_wants(t->state) && !t->quiet)
			round_boundary(t);
		trainer_later(t);
	}
	if (t->quiet)
		exec_on_quiet(t->x, now_quiet, t);
	else
		exec_wake(t->x);
}

static int init(void *arg, struct shard *s, struct err *e)
{
	const struct trainer *t = arg;
	real *stats = shard_stats(s), *whole;

	if (model_init_part(t->model, t->s->seed, s->param.lo, s->param.hi, shard_w(s)) < 0)
		return err_set(e, ERR_NOMEM, "no memory for a layer's fresh parameters");
	if (!stats)
		return 0;
	whole = xmalloc(t->model->nbuffer * sizeof(*whole));
	model_init_buffers(t->model, whole);
	memcpy(stats, whole + s->stat.lo, extent_len(s->stat) * sizeof(*whole));
	free(whole);
	return 0;
}

static size_t bad(void *arg, size_t n, const void *p)
{
	return vec_nonfinite(&((struct trainer *)arg)->par, n, p);
}

static const struct state_cb state_cb = { .wanted = wanted, .free = copied, .init = init, .bad = bad };

struct state *trainer_state_of(struct trainer *t, const struct shard_part *part, uint32_t n, struct err *e)
{
	const struct shard_part none = { 0 };
	struct layout l;

	if (trainer_layout(t->s, t->model, t->used, &l, e) < 0)
		return NULL;
	t->nused = (int)l.nopt;
	return state_new(t->env, &l, n ? part : &none, n ? n : 1, &state_cb, t, e);
}

int trainer_hold_parts(struct trainer *t, const struct shard_part *part, uint32_t n, struct state **ret_was,
	struct err *e)
{
	struct state *was = t->state, *s = trainer_state_of(t, part, n, e);

	if (!s)
		return -1;
	t->state = s;
	if (was)
		state_hand_over(was, s);        /* whoever waits for a checkpoint gets one of what is held now */
	if (ret_was)
		*ret_was = was;
	else
		state_free(was, NULL, NULL);
	return 0;
}

void trainer_quiet(struct trainer *t, void (*done)(void *arg), void *arg)
{
	t->started = false;
	t->in_begin = false;
	t->quiet = done;
	t->quiet_arg = arg;
	round_cut(t);
	exec_stop(t->x);
	exec_on_quiet(t->x, now_quiet, t);
}

/* All of it; nothing yet where a generation says what is whose. */
int trainer_hold(struct trainer *t, struct err *e)
{
	struct shard_part all = { { 0, t->model->nparam }, { 0, t->model->nbuffer } };

	t->stats_bytes = t->model->nbuffer * sizeof(real);
	t->stats = big_alloc(t->stats_bytes + 1);
	if (!t->stats)
		return err_set(e, ERR_NOMEM, "no memory for running statistics (%zu bytes)", t->stats_bytes);
	return trainer_hold_parts(t, &all, t->strategy->crew ? 0 : 1, NULL, e);
}

void trainer_init_params(struct trainer *t)
{
	struct err e;

	(void)state_init(t->state, &e);         /* nothing is cut: nothing can fail */
}

void *trainer_state(struct trainer *t, size_t *ret_bytes)
{
	*ret_bytes = trainer_shard(t)->bytes;
	return trainer_shard(t)->block;
}

size_t trainer_tensors(struct trainer *t, const struct ckpt_tensor **ret_v)
{
	*ret_v = trainer_shard(t)->tensor;
	return trainer_shard(t)->ntensors;
}

static bool logs_adopted(const struct trainer *t) { return t->cb.log && !t->strategy->crew; }

/* For the replay: the state by its bytes, of which somebody has made a copy, and what else a step is made with. */
static void log_adopted(struct trainer *t, const uint8_t digest[STATE_DIGEST])
{
	char hyper[TRAINER_HYPER], hex[2 * STATE_DIGEST + 1];

	trainer_line(t, "\"ev\":\"adopted\",\"epoch\":%llu,\"state\":\"%s\",\"target\":%llu,\"clip_norm\":\"%a\","
		"\"hyper\":[%s]", (unsigned long long)t->epoch, text_hex(digest, STATE_DIGEST, hex),
		(unsigned long long)t->target, t->clip_norm, trainer_hyper_text(t, t->hyper, hyper));
}

/* It is that of an epoch now, looked at. digest: of the block, when logs_adopted. */
static int adopt(struct trainer *t, uint64_t epoch, const json_t *live, const uint8_t digest[STATE_DIGEST],
	struct err *e)
{
	if (shard_clock_look(trainer_shard(t), e) < 0)
		return -1;
	t->loss_scale = shard_scale(trainer_shard(t));
	if (live && spec_live_apply(t->s, live, t->hyper, &t->clip_norm, e) < 0)
		return -1;
	t->target = spec_live_target(t->s, live);
	t->epoch = epoch;
	t->lent = t->renewed = false;
	trainer_reset_epoch(t);
	if (logs_adopted(t))
		log_adopted(t, digest);
	if (state_wants(t->state))
		exec_wake(t->x);
	return 0;
}

int trainer_loaded(struct trainer *t, uint64_t epoch, const json_t *live, struct err *e)
{
	const struct shard *s = trainer_shard(t);
	uint8_t digest[STATE_DIGEST];

	if (state_look(t->state, e) < 0)
		return -1;
	if (logs_adopted(t))
		digest_of(s->block, s->bytes / sizeof(real), sizeof(real), digest);
	return adopt(t, epoch, live, digest, e);
}

void trainer_snapshot(struct trainer *t, snapshot_fn *done, void *arg)
{
	state_snapshot(t->state, done, arg);
}

void trainer_weights(struct trainer *t, snapshot_fn *done, void *arg)
{
	state_weights(t->state, done, arg);
}

/* --- filling: what comes is followed by the hyperparameters that belong to it */

struct filling { struct trainer *t; uint64_t epoch; json_t *live; uint8_t digest[STATE_DIGEST];
	void (*done)(void *arg, const struct err *e); void *arg; };

static void filled(void *arg, const struct err *error)
{
	struct filling *f = arg;
	struct trainer *t = f->t;
	struct err e;

	if (!t->dying && !t->quiet) {           /* else somebody else's state comes already */
		if (!error && adopt(t, f->epoch, f->live, f->digest, &e) < 0)
			error = &e;
		f->done(f->arg, error);
	}
	json_decref(f->live);
	free(f);
}

void trainer_fill(struct trainer *t, const struct trainer_fill *how, void (*done)(void *arg, const struct err *e),
	void *arg)
{
	struct filling *f = xcalloc(1, sizeof(*f));
	struct state_fill values = how->values;
	struct err e;

	if (values.at && how->live && spec_live_check(t->s, how->live, &e) < 0)
		values.refused = &e;
	*f = (struct filling){ .t = t, .epoch = how->epoch, .live = json_deep_copy(how->live), .done = done, .arg = arg };
	values.digest = logs_adopted(t) ? f->digest : NULL;
	state_fill(t->state, &values, filled, f);
}
