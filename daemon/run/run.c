/* One run, from its specification to its last checkpoint. Read the two tables first: they are the life of a run. What
 * comes of what a state begins is heard here, too, or by files that stand above this one (struct run_calls).
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
#include "common/mem.h"
#include "common/planted.h"

#define SAVE_US 10000000                /* for the last commits and the checkpoint, before it begins anew */
#define LOOK_US 200000                  /* between looks whether anybody still fetches the state of a finished run */

static enum run_event enter_restore(struct run *r);
static enum run_event enter_swarm(struct run *r);
static enum run_event enter_sync(struct run *r);
static enum run_event enter_train(struct run *r);
static enum run_event enter_finish(struct run *r);
static enum run_event enter_leave(struct run *r);
static enum run_event enter_again(struct run *r);
static enum run_event enter_over(struct run *r);

/* What it begins with; what follows from that at once. */
static enum run_event (*const entertab[RUN_STATES])(struct run *r) = {
	[RUN_OPEN] = run_open, [RUN_RESTORE] = enter_restore, [RUN_ENTER] = enter_swarm, [RUN_SYNC] = enter_sync,
	[RUN_TRAIN] = enter_train, [RUN_FINISH] = enter_finish, [RUN_LEAVE] = enter_leave, [RUN_AGAIN] = enter_again,
	[RUN_DONE] = enter_over, [RUN_LEFT] = enter_over, [RUN_STOPPED] = enter_over, [RUN_FAILED] = enter_over,
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

/* The state that the event leads to; the same one: it does not matter there. */
static enum run_state next(struct run *r, enum run_event ev)
{
	if (ev == EV_LEAVE)                     /* and not to come back */
		r->again = false;
	for (size_t i = 0; i < sizeof nexttab / sizeof *nexttab; i++)
		if (nexttab[i].ev == ev && nexttab[i].from == r->state)
			return nexttab[i].to;
	if (run_over(r))
		return r->state;
	if (ev == EV_STOP)
		return RUN_STOPPED;
	if (ev == EV_BROKEN)
		return RUN_FAILED;
	if (ev == EV_GONE && r->state == RUN_LEAVE)
		return r->again ? RUN_AGAIN : r->reached ? RUN_DONE : RUN_LEFT;
	return r->state;
}

static enum run_event go(struct run *r, enum run_state to)
{
	if (r->state == to)
		return EV_NONE;
	r->state = to;
	log_write(r->rs->ctx.env->log, LOG_DEBUG_, r->name, "state %s", run_state_word(to));
	run_record(r);
	run_tell(r, true);
	trace_state(r);
	return entertab[to](r);
}

void run_event(struct run *r, enum run_event ev)
{
	while (ev != EV_NONE)
		ev = go(r, next(r, ev));
}

void run_fail(struct run *r, const struct err *e)
{
	run_event(r, run_broken(r, e));
}

/* Refused joins and starts leave one row, of the last. */
void run_supersede(const struct run *newer)
{
	list_each_safe(it, &newer->rs->list) {
		struct run *r = list_entry(it, struct run, link);
		bool same = id_eq(&r->id, &newer->id) && (!id_zero(&r->id) || (r->mine && newer->mine && !strcmp(r->name,
			newer->name)));
		if (r != newer && same && run_over(r) && !r->trainer && !r->saving && !r->opening)
			run_free(r);
	}
}

struct run *run_new(struct runs *rs, struct spec *spec, const struct id *author, const struct id *id,
	struct reply *start_reply)
{
	struct run *r = run_bare(rs, spec, author, id);
	r->held = spec->local.hold;
	r->start_reply = start_reply;
	r->created_ms = env_wall(rs->ctx.env);
	r->begun_ms = r->mine && start_reply && !PLANTED(STOPPED_FOR_GOOD) ? r->created_ms : 0;
	r->started_us = env_now(rs->ctx.env);
	list_push(&rs->list, &r->link);
	run_supersede(r);
	run_event(r, run_open(r));
	return r;
}

/* ---- RESTORE, ENTER ---- */

static void loaded(void *restoring, const struct ckpt_result *res);

static void looked(void *run, const struct err *e)
{
	run_event(run, restore_looked(run, e, loaded));
}

static void loaded(void *restoring, const struct ckpt_result *res)
{
	struct run *r = restore_whose(restoring);
	if (r)
		run_event(r, restore_loaded(r, res, loaded, looked));
}

static enum run_event enter_restore(struct run *r) { return restore_begin(r, CKPT_NONE, loaded); }

static void filled(void *run, const struct err *e)
{
	struct run *r = run;
	if (r->state == RUN_ENTER)
		run_event(r, e ? run_broken(r, e) : run_enter_ready(r));
}

static enum run_event enter_swarm(struct run *r) { return run_enter(r, filled); }

/* ---- SYNC, TRAIN ---- */

static enum run_event enter_sync(struct run *r) { return sync_start(r, r->sync_whole); }

void run_effective_pause(struct run *r)
{
	bool off = r->paused || r->held || r->again || r->ended_us;
	if (r->avg)
		avg_hold(r->avg, off);
	if (r->state == RUN_TRAIN && r->trainer) {
		if (off)
			trainer_pause(r->trainer);
		else if (run_crew_placed(r) || PLANTED(STARTS_UNPLACED))      /* else as soon as it is: crew.c */
			trainer_start(r->trainer);
	}
	run_record(r);
	run_tell(r, true);
}

static enum run_event enter_train(struct run *r)
{
	if (!r->train_us)
		r->train_us = env_now(r->rs->ctx.env);
	r->epoch_started_us = env_now(r->rs->ctx.env);
	run_effective_pause(r);
	run_event(r, run_again_check(r));
	run_crew_ready(r);
	return EV_NONE;
}

bool run_reach(struct run *r)
{
	if (!run_goal(r) || r->reached)
		return false;
	r->reached = true;
	trainer_pause(r->trainer);
	run_event(r, EV_REACHED);
	return true;
}

/* ---- checkpoints, and the last one before the daemon ends ---- */

void run_drain_more(struct runs *rs)
{
	for (struct run *r = NULL; (r = drain_next(rs, r));)
		run_event(r, EV_LEAVE);
}

/* Its checkpoint is on the disk, or not to be had: who has waited for it goes on. */
static void saved(struct run *r)
{
	run_finish_more(r);
	run_again_more(r);
	run_drain_more(r->rs);
}

static void written(void *saving, const struct ckpt_result *res)
{
	struct run *r = ckpt_written(saving, res);
	if (r)
		saved(r);
}

static void copied(void *saving, struct snapshot *snap, const struct err *e)
{
	struct run *r = ckpt_copied(saving, snap, e, written);
	if (r)
		saved(r);
}

void run_save(struct run *r, struct reply *reply) { ckpt_begin(r, reply, copied); }

/* ---- FINISH, LEAVE ---- */

static void finish_later(struct timer *t)
{
	run_finish_more(container_of(t, struct run, leave_timer));
}

static void finish_look(struct run *r)
{
	r->leave_timer.fire = finish_later;
	r->leave_timer.name = "run.finish";
	env_after(r->rs->ctx.env, &r->leave_timer, LOOK_US);
}

static enum run_event enter_finish(struct run *r)
{
	if (r->validating && !run_crew_looks(r)) {      /* nobody does it together with this peer any more */
		r->validating = false;
		trainer_part_ways(r->trainer);
	}
	if (r->validating && r->crew)
		finish_look(r);
	if (r->validating || r->saving)
		return EV_NONE;                 /* their callbacks come back here */
	if (r->val_epoch != r->point.epoch && data_count(r->data, DATA_VALIDATION)) {
		r->val_epoch = r->point.epoch;
		r->validating = true;
		trainer_validate(r->trainer, true);
		if (r->crew)
			finish_look(r);
		return EV_NONE;
	}
	if (!r->final_saved && r->rs->ctx.state_dir) {
		r->final_saved = true;
		run_save(r, NULL);
		return EV_NONE;
	}
	if (!run_crew_awaits_result(r) && !donors_stay(r))
		return EV_FINISHED;
	finish_look(r);
	return EV_NONE;
}

void run_finish_more(struct run *r)
{
	if (r->state == RUN_FINISH)
		run_event(r, enter_finish(r));
}

static void gone(void *arg)
{
	run_event(arg, EV_GONE);
}

static void gone_later(struct timer *t)
{
	gone(container_of(t, struct run, leave_timer));
}

static enum run_event enter_leave(struct run *r)
{
	run_wake(r);
	r->unsynced = r->sync != NULL;
	sync_free(r->sync);
	r->sync = NULL;
	if (r->trainer)
		trainer_pause(r->trainer);
	if (r->avg) {
		avg_leave(r->avg, gone, r);
		return EV_NONE;
	}
	r->leave_timer = (struct timer){ .fire = gone_later, .name = "run.leave" };
	env_after(r->rs->ctx.env, &r->leave_timer, 1);
	return EV_NONE;
}

/* ---- AGAIN ---- */

static void again_later(struct timer *t)
{
	struct run *r = container_of(t, struct run, release_timer);
	struct err e;
	run_release(r, true);
	if (r->spec) {
		run_again_ready(r);
		run_event(r, EV_AGAIN);
		return;
	}
	err_set(&e, ERR_INVALID, "the specification cannot be read again");
	run_fail(r, &e);
}

static void release_soon(struct run *r)
{
	struct env *env = r->rs->ctx.env;
	env_timer(env, &r->release_timer, 0);
	r->release_timer = (struct timer){ .fire = again_later, .name = "run.again" };
	env_after(env, &r->release_timer, 1);
}

/* Nothing more comes of what should be applied or written: it comes back with an older checkpoint, and the rest from
 * the members. */
static void too_long(struct timer *t)
{
	struct run *r = container_of(t, struct run, release_timer);
	run_log(r, LOG_WARN_, "run.again", "epoch %llu could not be saved: the run begins anew with what there is",
		(unsigned long long)r->point.epoch);
	release_soon(r);
}

void run_again_more(struct run *r)
{
	enum again_step s = run_again_step(r);
	if (s == AGAIN_SAVES)
		run_save(r, NULL);
	else if (s == AGAIN_SAVED)
		release_soon(r);
	else if (s == AGAIN_UNSAVED)
		too_long(&r->release_timer);    /* it has been tried */
}

static enum run_event enter_again(struct run *r)
{
	if (!r->again || r->halfway) {          /* it comes from a checkpoint, or has none */
		release_soon(r);
		return EV_NONE;
	}
	env_timer(r->rs->ctx.env, &r->release_timer, 0);
	r->release_timer = (struct timer){ .fire = too_long, .name = "run.again" };
	env_after(r->rs->ctx.env, &r->release_timer, SAVE_US);
	run_again_more(r);
	return EV_NONE;
}

/* ---- the end ---- */

static void release_later(struct timer *t)
{
	struct run *r = container_of(t, struct run, release_timer);
	run_release(r, true);
	run_drain_more(r->rs);
}

/* The trainer may be the caller: its memory goes from the loop, later. */
static enum run_event enter_over(struct run *r)
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
	return EV_NONE;
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
	run_release(r, false);
	avg_point_done(&r->point);
	ranges_free(&r->walked);
	for (unsigned i = 0; i < RUN_POINTS; i++)
		avg_point_done(&r->recent[i]);
	free(r->restored_from);
	free(r);
}
