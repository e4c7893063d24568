/* The daemon is to end: all runs leave, each with a checkpoint on the disk (drained.c says who may, and who has). */
#include "run/int.h"

static void drain_late(struct timer *t)
{
	struct runs *rs = container_of(t, struct runs, drain_timer);
	void (*done)(void *arg) = rs->drained;
	if (!done)
		return;
	log_write(rs->ctx.env->log, LOG_WARN_, "runs", "draining takes too long: the rest is left to the checkpoints");
	rs->drained = NULL;
	rs->draining = false;
	done(rs->drained_arg);
}

static void drain_check(struct timer *t)
{
	struct runs *rs = container_of(t, struct runs, drain_timer);
	rs->drain_timer.fire = drain_late;
	env_timer(rs->ctx.env, &rs->drain_timer, rs->drain_deadline_us);
	run_drain_more(rs);
}

void runs_drain(struct runs *rs, uint64_t deadline_us, void (*done)(void *arg), void *arg)
{
	void (*before)(void *arg) = rs->drained;
	if (before)                             /* a second one takes over: the first is answered now */
		before(rs->drained_arg);
	rs->draining = true;
	rs->drained = done;
	rs->drained_arg = arg;
	runs_profiles_wake(rs);
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (run_over(r))
			continue;
		r->drain = true;
		run_wake(r);
		if (r->state == RUN_TRAIN && r->crew && rs->ctx.state_dir)
			run_crew_drain(r);
		else if (r->state == RUN_TRAIN && r->trainer && rs->ctx.state_dir)
			run_save(r, NULL);
		else
			run_event(r, EV_LEAVE);
	}
	rs->drain_deadline_us = deadline_us;
	rs->drain_timer = (struct timer){ .fire = drain_check, .name = "runs.drain" };
	env_after(rs->ctx.env, &rs->drain_timer, 1);
}
