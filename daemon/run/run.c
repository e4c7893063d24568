/* One run, from its specification to its last checkpoint. Read the two tables first: they are the life of a run.
 *
 *   OPEN     the data set is opened and checked on the data lane; the author's run gets its id then
 *   RESTORE  the newest whole checkpoint, if there is one
 *   ENTER    the averager looks for the swarm; alone is fine
 *   SYNC     the others are ahead: state is downloaded, commits that come meanwhile are replayed
 *   TRAIN    micro-batches and rounds
 *   FINISH   the goal is reached: last validation, last checkpoint; who downloads the state gets it
 *   LEAVE    out of the round, ranges handed back, goodbye
 *   AGAIN    what it was built with holds no longer: anew, from its checkpoint (again.c) */
#include "run/int.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"

#define LOOK_US 200000                  /* between looks whether anybody still fetches the state of a finished run */

static void enter_finish(struct run *r);
static void enter_leave(struct run *r);
static void enter_over(struct run *r);
static void enter_train(struct run *r);

static void (*const entertab[RUN_STATES])(struct run *r) = {
	[RUN_OPEN] = run_open, [RUN_RESTORE] = ckpt_restore, [RUN_ENTER] = run_enter, [RUN_TRAIN] = enter_train,
	[RUN_FINISH] = enter_finish, [RUN_LEAVE] = enter_leave, [RUN_AGAIN] = run_again_enter, [RUN_DONE] = enter_over,
	[RUN_LEFT] = enter_over, [RUN_STOPPED] = enter_over, [RUN_FAILED] = enter_over,
};

static const struct { enum run_event ev; enum run_state from, to; } nexttab[] = {
	{ EV_OPENED, RUN_OPEN, RUN_RESTORE },
	{ EV_RESTORED, RUN_RESTORE, RUN_ENTER },
	{ EV_GRANTED, RUN_ENTER, RUN_TRAIN },
	{ EV_BEHIND, RUN_ENTER, RUN_SYNC },
	{ EV_BEHIND, RUN_TRAIN, RUN_SYNC },
	{ EV_SYNCED, RUN_SYNC, RUN_TRAIN },
	{ EV_REACHED, RUN_TRAIN, RUN_FINISH },
	{ EV_REACHED, RUN_ENTER, RUN_FINISH },
	{ EV_REACHED, RUN_SYNC, RUN_FINISH },
	{ EV_FINISHED, RUN_FINISH, RUN_LEAVE },
	{ EV_AGAIN, RUN_OPEN, RUN_AGAIN },
	{ EV_AGAIN, RUN_RESTORE, RUN_AGAIN },
	{ EV_AGAIN, RUN_TRAIN, RUN_LEAVE },
	{ EV_AGAIN, RUN_SYNC, RUN_LEAVE },
	{ EV_AGAIN, RUN_AGAIN, RUN_OPEN },
	{ EV_LEAVE, RUN_OPEN, RUN_LEFT },
	{ EV_LEAVE, RUN_RESTORE, RUN_LEFT },
	{ EV_LEAVE, RUN_ENTER, RUN_LEAVE },
	{ EV_LEAVE, RUN_SYNC, RUN_LEAVE },
	{ EV_LEAVE, RUN_TRAIN, RUN_LEAVE },
	{ EV_LEAVE, RUN_FINISH, RUN_LEAVE },
	{ EV_LEAVE, RUN_AGAIN, RUN_LEFT },
};

static void go(struct run *r, enum run_state to)
{
	if (r->state == to)
		return;
	r->state = to;
	log_write(r->rs->ctx.env->log, LOG_DEBUG_, r->name, "state %s", run_state_word(to));
	run_record(r);
	run_tell(r, true);
	trace_state(r);
	if (entertab[to])
		entertab[to](r);
}

void run_event(struct run *r, enum run_event ev)
{
	if (ev == EV_LEAVE)                     /* and not to come back */
		r->again = false;
	for (size_t i = 0; i < sizeof nexttab / sizeof *nexttab; i++)
		if (nexttab[i].ev == ev && nexttab[i].from == r->state) {
			go(r, nexttab[i].to);
			return;
		}
	if (run_over(r))
		return;
	if (ev == EV_STOP)
		go(r, RUN_STOPPED);
	else if (ev == EV_BROKEN)
		go(r, RUN_FAILED);
	else if (ev == EV_GONE && r->state == RUN_LEAVE)
		go(r, r->again ? RUN_AGAIN : r->reached ? RUN_DONE : RUN_LEFT);
}

void run_fail(struct run *r, const struct err *e)
{
	if (run_over(r))
		return;
	r->error = *e;
	run_log(r, LOG_ERROR_, "run.failed", "%s", e->text);
	if (r->start_reply) {
		reply_fail(r->start_reply, e);
		r->start_reply = NULL;
	}
	run_event(r, EV_BROKEN);
}

struct run *run_new(struct runs *rs, struct spec *spec, const struct id *author, const struct id *id,
	struct reply *start_reply)
{
	struct run *r = xcalloc(1, sizeof *r);
	r->rs = rs;
	r->spec = spec;
	r->author = *author;
	r->held = spec->local.hold;
	r->mine = id_eq(author, net_self(rs->ctx.net));
	r->start_reply = start_reply;
	r->created_ms = env_wall(rs->ctx.env);
	r->loss = r->accuracy = r->epoch_loss = r->val_loss = r->val_accuracy = r->best_accuracy = NAN;
	r->started_us = env_now(rs->ctx.env);
	list_init(&r->ckpt_waiters);
	avg_point_init(&r->point);
	snprintf(r->name, sizeof r->name, "%s", spec->name);
	id_hex(author, r->author_hex);
	if (id) {
		r->id = *id;
		id_hex(id, r->hex);
	}
	r->tell.name = "run.tell";
	list_push(&rs->list, &r->link);
	run_open(r);
	return r;
}

/* ---- TRAIN ---- */

void run_effective_pause(struct run *r)
{
	bool off = r->paused || r->held || r->again;
	if (r->avg)
		avg_hold(r->avg, off);
	if (r->state == RUN_TRAIN && r->trainer) {
		if (off)
			trainer_pause(r->trainer);
		else
			trainer_start(r->trainer);
	}
	run_record(r);
	run_tell(r, true);
}

static void enter_train(struct run *r)
{
	if (!r->train_us)
		r->train_us = env_now(r->rs->ctx.env);
	r->epoch_started_us = env_now(r->rs->ctx.env);
	run_effective_pause(r);
	run_again_check(r);
	run_crew_ready(r);
}

/* ---- FINISH, LEAVE, the end ---- */

static void finish_later(struct timer *t)
{
	run_finish_more(container_of(t, struct run, leave_timer));
}

static void enter_finish(struct run *r)
{
	if (r->validating || r->saving)
		return;                         /* their callbacks come back here */
	if (r->val_epoch != r->point.epoch && data_count(r->data, DATA_VALIDATION)) {
		r->val_epoch = r->point.epoch;
		r->validating = true;
		trainer_validate(r->trainer);
		return;
	}
	if (!r->final_saved && r->rs->ctx.state_dir) {
		r->final_saved = true;
		ckpt_now(r, NULL);
		return;
	}
	if (!donors_stay(r)) {
		run_event(r, EV_FINISHED);
		return;
	}
	r->leave_timer.fire = finish_later;
	r->leave_timer.name = "run.finish";
	env_after(r->rs->ctx.env, &r->leave_timer, LOOK_US);
}

void run_finish_more(struct run *r)
{
	if (r->state == RUN_FINISH)
		enter_finish(r);
}

static void gone(void *arg)
{
	run_event(arg, EV_GONE);
}

static void gone_later(struct timer *t)
{
	gone(container_of(t, struct run, leave_timer));
}

void run_wake(struct run *r)
{
	if (r->rest)
		r->rest->stop(r->rest);
}

static void enter_leave(struct run *r)
{
	run_wake(r);
	sync_free(r->sync);
	r->sync = NULL;
	if (r->trainer)
		trainer_pause(r->trainer);
	if (r->avg) {
		avg_leave(r->avg, gone, r);
		return;
	}
	r->leave_timer = (struct timer){ .fire = gone_later, .name = "run.leave" };
	env_after(r->rs->ctx.env, &r->leave_timer, 1);
}

/* What a trainer's jobs may still touch goes with it. */
struct grave { struct list link; struct data *data; struct spec *spec; struct rest *rest;
	struct carry *carry; };

static void buried(void *arg)
{
	struct grave *g = arg;
	list_del(&g->link);
	data_free(g->data);
	spec_free(g->spec);
	carry_free(g->carry);
	if (g->rest)
		g->rest->free(g->rest);
	free(g);
}

static void contribution_back(void *trainer)
{
	if (trainer)
		trainer_returned(trainer);
}

static void release(struct run *r, bool keep_spec)
{
	sync_free(r->sync);
	r->sync = NULL;
	differ_free(r->differ);
	r->differ = NULL;
	origin_free(r->weights);
	r->weights = NULL;
	env_timer(r->rs->ctx.env, &r->leave_timer, 0);
	run_crew_close(r);
	if (r->avg && r->trainer)
		trainer_lend(r->trainer);       /* a sum may be reading what it contributed */
	if (r->avg)
		avg_free(r->avg, contribution_back, r->trainer);
	r->avg = NULL;
	struct grave *g = xcalloc(1, sizeof *g);
	run_wake(r);
	g->carry = r->carry;
	r->carry = NULL;
	g->rest = r->rest;
	r->rest = NULL;
	g->data = r->data;
	g->spec = r->spec;
	r->data = NULL;
	r->spec = NULL;
	list_push(&r->rs->graves, &g->link);
	if (keep_spec) {
		json_t *local = spec_local_json(g->spec);
		r->spec = spec_of(r->name, g->spec->shared, local, NULL);
		json_decref(local);
	}
	if (r->trainer) {
		trainer_free(r->trainer, buried, g);
		donors_forget(r->rs->donors, &r->id);
	} else if (r->opening) {                /* its job still reads the spec */
		run_open_orphan(r);
		g->spec = NULL;
		buried(g);
	} else
		buried(g);
	r->trainer = NULL;
	r->opening = NULL;
	trace_close(r->trace);
	r->trace = NULL;
}

void run_release(struct run *r)
{
	release(r, true);
}

static void release_later(struct timer *t)
{
	struct run *r = container_of(t, struct run, release_timer);
	release(r, true);
	runs_check_drained(r->rs);
}

/* The trainer may be the caller: its memory goes from the loop, later. */
static void enter_over(struct run *r)
{
	if (!r->drain || r->state != RUN_LEFT)
		run_log(r, r->state == RUN_FAILED ? LOG_ERROR_ : LOG_INFO_, "run.end", "%s at epoch %llu%s%s",
		run_state_word(r->state),
			(unsigned long long)r->point.epoch, r->error.code ? ": " : "", r->error.code ? r->error.text : "");
	if (r->state == RUN_STOPPED || r->state == RUN_DONE)
		ctl_unpublish(r);
	struct list *it;
	while ((it = list_pop(&r->ckpt_waiters)))
		ckpt_waiter_end(it, &r->error);
	env_timer(r->rs->ctx.env, &r->release_timer, 0);
	r->release_timer = (struct timer){ .fire = release_later, .name = "run.release" };
	env_after(r->rs->ctx.env, &r->release_timer, 1);
	run_tell(r, true);
}

void run_free(struct run *r)
{
	struct env *env = r->rs->ctx.env;
	if (r->start_reply) {
		struct err e;
		err_set(&e, ERR_CANCELLED, "the daemon is stopping");
		reply_fail(r->start_reply, &e);
	}
	env_timer(env, &r->tell, 0);
	env_timer(env, &r->release_timer, 0);
	env_timer(env, &r->ctl_timer, 0);
	ctl_unexpect(r);
	list_del(&r->link);
	struct list *it;
	while ((it = list_pop(&r->ckpt_waiters)))
		ckpt_waiter_end(it, &r->error);
	release(r, false);
	avg_point_done(&r->point);
	ranges_free(&r->walked);
	for (unsigned i = 0; i < RUN_POINTS; i++)
		avg_point_done(&r->recent[i]);
	free(r->restored_from);
	free(r);
}
