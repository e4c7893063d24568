/* A run begins anew in place, from its own checkpoint, when it was built with what no longer holds: the swarm has
 * changed its way of averaging (all do so behind the same commit), or an operator the size of this peer's
 * micro-batches.
 *
 *   TRAIN  ->  LEAVE (out of the round, positions are handed back)  ->  AGAIN: every commit is applied, checkpoint
 *          ->  OPEN ... TRAIN
 * SYNC, when nobody is left to give the state: likewise, with what it has saved before; half of this is theirs. */
#include "run/int.h"

static bool fits(const struct run *r)
{
	return !r->point.params || spec_mode_fits(r->spec, r->point.params);
}

static enum run_event begin(struct run *r)
{
	r->again = true;
	if (r->avg)
		avg_hold(r->avg, true);
	return EV_AGAIN;
}

/* From the loop, where nothing of the trainer's is going on. */
enum run_event run_again_check(struct run *r)
{
	if (r->again || fits(r))
		return EV_NONE;
	if (r->state == RUN_RESTORE)
		return EV_AGAIN;
	if (r->state != RUN_TRAIN)
		return EV_NONE;
	run_log(r, LOG_INFO_, "run.again", "the way of averaging has changed at epoch %llu: this peer begins anew "
		"with it", (unsigned long long)r->point.epoch);
	return begin(r);
}

enum run_event run_again_saved(struct run *r)
{
	r->again = r->halfway = true;
	return EV_AGAIN;
}

int run_again_batch(struct run *r, uint64_t batch, enum run_event *ret, struct err *e)
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
	*ret = begin(r);
	return 0;
}

/* What was asked for cannot be built (no memory): as it was, then (EV_AGAIN). false: this is not why. */
bool run_again_undo(struct run *r, const struct err *e)
{
	if (!r->batch_was)
		return false;
	run_log(r, LOG_ERROR_, "run.batch", "batch=%u: %s; going on with %u", (unsigned)r->spec->local.batch, e->text,
		(unsigned)r->batch_was);
	r->batch_next = r->batch_was;
	r->batch_was = 0;
	return true;
}

/* Its spec has been read again. */
void run_again_ready(struct run *r)
{
	if (r->batch_next)
		r->spec->local.batch = r->batch_next;
	r->batch_next = 0;
	r->again = r->halfway = r->validating = r->final_saved = r->unsynced = false;
}

enum again_step run_again_step(struct run *r)
{
	struct trainer_view v;
	if (r->state != RUN_AGAIN || !r->again || r->halfway || r->saving)
		return AGAIN_WAITS;
	trainer_view(r->trainer, &v);
	if (r->saved_epoch == r->point.epoch)
		return AGAIN_SAVED;
	if (v.epoch < r->point.epoch)
		return AGAIN_WAITS;
	if (r->final_saved)
		return AGAIN_UNSAVED;
	r->final_saved = true;
	return AGAIN_SAVES;
}
