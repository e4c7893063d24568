/* A run begins anew in place, from its own checkpoint, when it was built with what no longer holds: the swarm has
 * changed its way of averaging (all do so behind the same commit), or an operator the size of this peer's
 * micro-batches.
 *
 *   TRAIN  ->  LEAVE (out of the round, positions are handed back)  ->  AGAIN: every commit is applied, checkpoint
 *          ->  OPEN ... TRAIN
 * SYNC, when nobody is left to give the state: likewise, with what it has saved before; half of this is theirs. */
#include <string.h>
#include "common/mem.h"
#include "run/int.h"

#define SAVE_US 10000000                /* for the last commits and the checkpoint */

static bool fits(const struct run *r)
{
	return !r->point.params || spec_mode_fits(r->spec, r->point.params);
}

static void begin(struct run *r)
{
	r->again = true;
	if (r->avg)
		avg_hold(r->avg, true);
	run_event(r, EV_AGAIN);
}

/* From the loop, where nothing of the trainer's is going on. */
void run_again_check(struct run *r)
{
	if (r->again || fits(r))
		return;
	if (r->state == RUN_RESTORE) {
		run_event(r, EV_AGAIN);
	} else if (r->state == RUN_TRAIN) {
		run_log(r, LOG_INFO_, "run.again", "the way of averaging has changed at epoch %llu: this peer begins anew "
			"with it", (unsigned long long)r->point.epoch);
		begin(r);
	}
}

void run_again_saved(struct run *r)
{
	r->again = r->halfway = true;
	run_event(r, EV_AGAIN);
}

int run_again_batch(struct run *r, uint64_t batch, struct err *e)
{
	json_t *local;
	int rc;
	if (r->state != RUN_TRAIN || r->again)
		return err_set(e, ERR_STATE, "run %s is %s: the size of its micro-batches can be changed while it trains",
			r->name, run_state_name(r));
	if (r->crew)
		return err_set(e, ERR_INVALID, "strategy %s: all members have micro-batches of one size, for the life of "
			"the run", r->spec->strategy);
	if (!r->rs->ctx.state_dir)
		return err_set(e, ERR_STATE, "without a state folder the run could not be taken up again");
	local = spec_local_json(r->spec);
	json_object_set_new(local, "batch", json_integer((json_int_t)batch));
	struct spec *trial = spec_of(r->name, r->spec->shared, local, e);
	rc = trial ? 0 : -1;
	spec_free(trial);
	json_decref(local);
	if (rc)
		return -1;
	r->batch_was = r->spec->local.batch;
	r->batch_next = (uint32_t)batch;
	begin(r);
	return 0;
}

/* What was asked for cannot be built (no memory): as it was, then. false: this is not why. */
bool run_again_undo(struct run *r, const struct err *e)
{
	if (!r->batch_was)
		return false;
	run_log(r, LOG_ERROR_, "run.batch", "batch=%u: %s; going on with %u", (unsigned)r->spec->local.batch, e->text,
		(unsigned)r->batch_was);
	r->batch_next = r->batch_was;
	r->batch_was = 0;
	run_event(r, EV_AGAIN);
	return true;
}

static void later(struct timer *t)
{
	struct run *r = container_of(t, struct run, release_timer);
	struct err e;
	run_release(r);
	if (!r->spec) {
		err_set(&e, ERR_INVALID, "the specification cannot be read again");
		run_fail(r, &e);
		return;
	}
	if (r->batch_next)
		r->spec->local.batch = r->batch_next;
	r->batch_next = 0;
	r->again = r->halfway = r->validating = r->final_saved = false;
	run_event(r, EV_AGAIN);
}

static void release_soon(struct run *r)
{
	struct env *env = r->rs->ctx.env;
	env_timer(env, &r->release_timer, 0);
	r->release_timer = (struct timer){ .fire = later, .name = "run.again" };
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

/* Something has been applied or saved. */
void run_again_step(struct run *r)
{
	struct trainer_view v;
	if (r->state != RUN_AGAIN || !r->again || r->halfway || r->saving)
		return;
	trainer_view(r->trainer, &v);
	if (r->saved_epoch == r->point.epoch)
		release_soon(r);
	else if (v.epoch >= r->point.epoch && !r->final_saved) {
		r->final_saved = true;
		ckpt_now(r, NULL);
	} else if (v.epoch >= r->point.epoch)
		too_long(&r->release_timer);    /* it has been tried */
}

void run_again_enter(struct run *r)
{
	if (!r->again || r->halfway) {          /* it comes from a checkpoint, or has none */
		release_soon(r);
		return;
	}
	env_timer(r->rs->ctx.env, &r->release_timer, 0);
	r->release_timer = (struct timer){ .fire = too_long, .name = "run.again" };
	env_after(r->rs->ctx.env, &r->release_timer, SAVE_US);
	run_again_step(r);
}
