/* Entering the swarm, with what the run has learned before, or with fresh parameters; and the positions of whom nobody
 * else needs. Which strategy runs is not known here: one that needs no swarm simply has no averager. */
#include "run/int.h"

#define LOCAL_AHEAD_BATCHES 64          /* positions granted ahead when nobody else needs them */

/* The lowest positions not processed yet, a stretch ahead of what was. */
void run_grant_local(struct run *r, bool renew)
{
	if (r->spec->local.aux)                 /* it processes nothing */
		return;
	const struct ranges *done = r->avg ? &r->walked : &r->point.done;
	struct ranges grant = { 0 };
	uint64_t ahead = (uint64_t)r->spec->local.batch * LOCAL_AHEAD_BATCHES;
	if (ahead < 2 * run_target(r))
		ahead = 2 * run_target(r);
	uint64_t end = done->n ? done->v[done->n - 1].hi : 0;
	ranges_add(&grant, 0, end + ahead);
	ranges_sub_all(&grant, done);
	struct trainer_view v;
	trainer_view(r->trainer, &v);
	if (renew || v.left < ahead / 2)
		trainer_grant(r->trainer, &grant);
	ranges_free(&grant);
}

enum run_event run_enter_ready(struct run *r)
{
	struct err e;
	run_applied_point(r);
	if (run_goal(r)) {
		r->reached = true;
		return EV_REACHED;
	}
	if (r->fetch && !r->avg) {
		err_set(&e, ERR_NOT_FOUND, "the run begins with weights from a file, and this strategy has no members to ask: "
			"give it with --weights=/PATH");
		return run_broken(r, &e);
	}
	if (!r->avg) {
		run_grant_local(r, false);
		return EV_GRANTED;
	}
	ctl_watch(r);
	run_remember(r);
	run_settle(r);
	if (r->fetch) {
		run_log(r, LOG_INFO_, "run.weights", "the weights that the run begins with come from another member");
		r->sync_whole = false;
		return EV_BEHIND;
	}
	if (r->crew && r->point.epoch)
		return run_crew_comes(r, &e) ? run_broken(r, &e) : EV_NONE;
	if (avg_enter(r->avg, &r->point, false, &e))
		return run_broken(r, &e);
	/* without its checkpoint it is fresh, but others may have theirs */
	avg_expect(r->avg, r->point.epoch ? r->was_members : r->was_epoch ? 2 : 0);
	return EV_NONE;
}

static int origin_put(void *arg, struct shard *s, struct err *e)
{
	origin_apply(arg, s);
	return 0;
}

static void origin_drop(void *arg) { origin_free(arg); }

/* Without a checkpoint: fresh parameters, the same bytes on every peer, or those of a file, which others may have. */
enum run_event run_enter(struct run *r, void (*filled)(void *run, const struct err *e))
{
	struct trainer_fill how = { .values.fresh = true };
	if (r->mine && !run_goal(r))            /* it goes on, though its record may say that it has ended */
		ctl_publish(r);
	if (r->point.params) {
		origin_free(r->weights);        /* a checkpoint needs none */
		r->weights = NULL;
		return run_enter_ready(r);
	}
	r->fetch = r->spec->has_weights && !r->weights;
	r->point.params = spec_live(r->spec);
	how.live = r->point.params;
	if (r->weights) {
		how.values.fill = origin_put;
		how.values.drop = origin_drop;
		how.values.arg = r->weights;
		r->weights = NULL;
	}
	trainer_fill(r->trainer, &how, filled, r);
	return EV_NONE;
}
