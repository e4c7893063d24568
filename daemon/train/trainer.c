/* The trainer: the owner's side of the executor. The tour: trainer_new builds state, loader and executors
 * (trainer_life.c); make_plan asks the strategy with what is known now (the view); on_commit and on_scalar hear what
 * came of it; rounds are in trainer_round.c. There is no strategy here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/trainer_int.h"

#define RATE_BATCHES 16

/* --- plans */

static void counted(struct trainer *t, uint32_t n);
static void tell_progress(struct trainer *t, uint32_t batch, double loss);

/* A commit is what all members have agreed on, their list too: so each begins a generation, and who was left behind has
 * another number than those who were not. Epoch e is worked for in generation e + 1. */
uint64_t trainer_generation(const struct trainer *t)
{
	return t->strategy->crew ? t->seat.v.generation : t->epoch + 1;
}

struct view trainer_plan_view(struct trainer *t, const struct view_member *me, uint64_t first)
{
	struct view v = { .profile = &t->profile, .nmembers = 1, .member = me, .first = first, .epoch = t->epoch,
		.generation = trainer_generation(t),
		.redundancy = t->s->redundancy, .memory = &t->pass, .samples = t->samples,
		.target_batch = t->s->mode.grows ? trainer_goal(t) : t->target, .held = eval_most(t),
		.settings = { t->s->nsettings, t->s->setting }, .values = t->s->plan };

	if (t->seat.is)
		seat_view(t, &v);
	return v;
}

/* Before a program is planned: what has become of the one before. */
static bool seated(struct trainer *t, uint64_t first)
{
	uint32_t n;

	if (eval_due(t))
		return true;
	n = seat_flushed(t);
	if (n)
		counted(t, n);
	return seat_ask(t, first);
}

static int make_plan(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret, struct err *e)
{
	struct trainer *t = arg;
	struct view_member me = { .id = t->c.self, .speed = 1 };
	bool cut = !eval_ended(t, &first) && seat_cut(t);
	bool sits = !cut && (!t->strategy->crew || seated(t, first)), still;
	bool validates = sits && eval_due(t), undone = grow_undo(t);
	struct view v = trainer_plan_view(t, &me, first);

	if (undone)
		tell_progress(t, 0, t->batch_loss);
	round_view(t, &v);
	if (validates)
		eval_view(t, &v);
	if (!t->seat.is)
		v.target_batch = t->hold_at;
	still = t->broken || t->quiet || t->lent || t->resting;
	if (still || trainer_copies(t) || !sits ||
	    (!v.begun && !v.sent && !v.agreed && !validates && (!t->started || t->paused))) {
		plan_init(ret, t->strategy->name, 0, 1, &t->c.self);
		return 0;
	}
	if (!load_left(t) && !v.begun && !validates)
		load_told_idle(t);
	if (t->strategy->plan(&v, results, ret, e) < 0)
		return -1;
	round_planned(t, &v, ret);
	if (validates)
		eval_planned(t, ret, first);
	else
		eval_passed(t, ret);
	if (t->seat.is && !validates)
		seat_planned(t, ret);
	t->last_us = env_now(t->env);
	return 0;
}

static void vec_env(void *arg, struct vec_env *ret)
{
	struct trainer *t = arg;
	const struct commit *c = t->applying;

	ret->loss = t->s->loss;
	ret->objective = &t->s->objective;
	ret->optim = t->s->optim;
	ret->decay_all = t->s->decay_all;
	memcpy(ret->hyper, c ? c->hyper : t->hyper, sizeof(ret->hyper));
	ret->hyper[0] = round_lr(t);
	ret->clip_norm = c ? c->clip_norm : t->clip_norm;
	memcpy(ret->state, t->used, sizeof(t->used));
	ret->counts = t->counts;
	ret->loss_scale = t->loss_scale;
	ret->scale_interval = t->loss_scale > 0 ? t->s->scale_interval : 0;
	/* nothing counts yet, whatever a stopped round has left; in a flush samples count at its end */
	ret->unit = t->samples || t->seat.is ? t->unit : 0;
	ret->samples = t->samples;
	ret->settings = (struct plan_results){ t->s->nsettings, t->s->setting };
	round_part(t, &ret->part_lo, &ret->part_n);
}

static void on_scalar(void *arg, const char *name, int64_t index, const void *p, size_t bytes)
{
	struct trainer *t = arg;

	if (!strncmp(name, "told", 4)) {
		eval_told(t, name + 4, p, bytes);
	} else if (!strcmp(name, "loss")) {
		t->batch_loss = *(const double *)p;
		if (t->seat.is && isfinite(t->batch_loss))
			t->loss_sum += t->batch_loss;
		check_batch(t, t->batch_loss);
	} else if (!strcmp(name, "correct")) {
		t->batch_correct = *(const double *)p;
		t->seat.correct += t->batch_correct;
		t->seat.corrects++;
	} else if (!strcmp(name, "unit")) {
		t->unit = *(const double *)p;
	} else if (!strcmp(name, "parcel")) {
		round_parcel(t);
	} else if (!strcmp(name, "renewed")) {
		round_renewed(t);
	} else if (!strcmp(name, "skipped")) {
		t->skipped = *(const double *)p;
		check_scale(t);
	} else if (!strcmp(name, "digest")) {
		round_applied(t, p);
	}
}

static void measure(struct trainer *t, uint32_t n)
{
	uint64_t now = env_now(t->env), took = now > t->last_us ? now - t->last_us : 1;
	double rate = (double)n * 1e6 / (double)took;

	t->rate = t->rate > 0 ? t->rate + (rate - t->rate) / RATE_BATCHES : rate;
	t->took[t->ntook++ % EXEC_TIMES_KEPT] = took;
	t->last_us = now;
}

/* Of what has just been counted; negative: this peer is not told. */
static double correct_of(const struct trainer *t)
{
	const struct seat *s = &t->seat;
	double n = !s->is ? t->batch_correct : s->corrects ? s->correct * s->flush / s->corrects : -1;

	return n > 0 || s->is ? n : 0;
}

/* Of the first micro-batch that counts before backward nothing is known but what forward took, which is a third. */
static double rate_of(const struct trainer *t)
{
	uint64_t now = env_now(t->env);

	return t->rate > 0 || !t->grow.on ? t->rate : t->grow.n * 1e6 / (3 * (double)(now - t->last_us + 1));
}

/* What the averager does not know to be decided: this epoch's samples, and those that fly. */
static void tell_progress(struct trainer *t, uint32_t batch, double loss)
{
	bool flies = round_carries(t);
	struct ranges all = { 0 };
	const struct ranges none = { 0 };
	struct trainer_progress p = { .epoch = t->epoch, .samples = t->samples + (flies ? t->flight.samples : 0),
		.claimed = &t->claimed, .loss = loss, .correct = correct_of(t), .batch = batch,
		.rate = rate_of(t), .grows = t->s->mode.grows };

	if (flies) {
		ranges_copy(&all, &t->claimed);
		ranges_add_all(&all, &t->flight.claimed);
		p.claimed = &all;
	} else if (t->s->mode.any) {    /* a round that begins for it must find it ready */
		p.claimed = &none;
		p.samples = 0;
	}
	if (t->cb.progress)
		t->cb.progress(t->arg, &p);
	ranges_free(&all);
}

/* n samples more count now. */
static void counted(struct trainer *t, uint32_t n)
{
	measure(t, n);
	tell_progress(t, n, t->batch_loss / t->profile.batch);
}

/* The samples of b count from now on. */
static void count_batch(struct trainer *t, struct batch *b)
{
	if (!t->samples)
		t->oldest = t->renewed ? t->work_epoch : t->epoch;
	b->counted = true;
	for (uint32_t i = 0; i < b->n; i++)
		ranges_add(&t->claimed, b->position[i], b->position[i] + 1);
	t->samples += b->n;
	t->batches++;
	if (isfinite(t->batch_loss))
		t->loss_sum += t->batch_loss;
	if (t->grow.planned)
		grow_counted(t, b);             /* measured when it is made */
	else
		measure(t, b->n);
	if (t->s->mode.overlap && !list_empty(&t->commits))
		trainer_later(t);               /* it may be due now */
	tell_progress(t, b->n, t->batch_loss / b->n);
}

static void on_commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *b)
{
	struct trainer *t = arg;

	if (t->seat.is && !b && i->scope == PLAN_GROUP) {
		t->seat.late.steps = t->applying != NULL;
		round_go_on(t);
	} else if (t->seat.is && !b && i->scope == PLAN_SHARD) {
		round_parcel(t);
	} else if (t->seat.is)                    /* a flush counts at its end, a step when it is applied */
		return;
	else if (b)
		count_batch(t, (struct batch *)b);
	else if (i->scope == PLAN_SELF)
		round_own_commit(t);
}

static void on_broken(void *arg, const struct err *e)
{
	trainer_break(arg, e);
}

static void on_log(void *arg, const char *line, size_t len)
{
	struct trainer *t = arg;

	t->cb.log(t->arg, line, len);
}

static void net_op(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	struct trainer *t = arg;
	struct err e;

	if (n->instr->kind == PLAN_SUM && n->group && n->group->elastic) {
		struct sum s = { .w = w };

		if (sum_of(t, n, in, nin, out, nout, &s, &e) < 0)
			exec_done(w, NULL, &e);
		else
			round_sum(t, &s);
		if (t->grow.on && sums_wait(&t->sums))
			measure(t, t->grow.n);
		return;
	}
	if (t->c.ops && t->c.ops->net) {
		t->c.ops->net(t->c.ops_arg, w, n, in, nin, out, nout);
		return;
	}
	(void)err_set(&e, ERR_INVALID, "plan %s: %s of %s leaves this peer, and nobody carries it", n->plan->strategy,
		plan_kind_name(n->instr->kind), n->tag);
	exec_done(w, NULL, &e);
}

static void cancel_op(void *arg, struct exec_wait *w)
{
	struct trainer *t = arg;

	if (load_cancel(t, w) || valid_cancel(t, w))
		return;
	if (!round_cancel(t, w) && t->c.ops && t->c.ops->cancel)
		t->c.ops->cancel(t->c.ops_arg, w);
}

static bool busy_op(void *arg, struct exec_wait *w)
{
	struct trainer *t = arg;

	return t->c.ops && t->c.ops->busy && t->c.ops->busy(t->c.ops_arg, w);
}

/* --- later, from the loop */

void trainer_now(struct timer *tm)
{
	struct trainer *t = container_of(tm, struct trainer, later);
	struct trainer_validated v = { .epoch = t->epoch, .loss = NAN, .accuracy = NAN };

	round_again(t);
	if (t->tell && (t->samples || round_carries(t)))
		tell_progress(t, 0, t->batch_loss);
	t->tell = false;
	if (t->v.lost || (t->v.wanted && !t->v.count)) {        /* nothing is held out, or came of it: say so */
		t->v.wanted = t->v.lost = false;
		if (t->cb.validated)
			t->cb.validated(t->arg, &v);
	}
}

/* --- the executor behind it */

struct exec *trainer_exec(struct trainer *t, struct exec_conf *conf)
{
	static const struct exec_ops ops = { .load = load_op, .unload = load_back, .net = net_op, .cancel = cancel_op,
		.busy = busy_op, .lends = true };
	const struct exec_cb cb = { .plan = make_plan, .commit = on_commit, .scalar = on_scalar, .env = vec_env,
		.failed = trainer_failing, .broken = on_broken, .log = t->cb.log ? on_log : NULL };

	conf->ops = &ops;
	conf->ops_arg = t;
	return exec_new(conf, &cb, t);
}

/* --- what the owner says */

void trainer_start(struct trainer *t)
{
	t->started = true;
	t->paused = t->lent = false;
	load_resume(t);
	check_resume(t);
	if (t->splits && sums_wait(&t->sums) && t->round_prog)
		exec_interrupt(t->x);   /* its SUM goes on, with micro-batches beside it */
	exec_wake(t->x);
}

void trainer_pause(struct trainer *t)
{
	t->paused = true;
	if (t->s->mode.overlap)
		trainer_later(t);
	round_boundary(t);
}

int trainer_set_live(struct trainer *t, const json_t *live, struct err *e)
{
	if (spec_live_apply(t->s, live, t->hyper, &t->clip_norm, e) < 0)
		return -1;
	t->target = spec_live_target(t->s, live);
	t->hold_at = trainer_goal(t);
	return 0;
}
