/* A run that has ended, as the record says that its author has left behind. Nobody joins it: alone with it a newcomer
 * would begin from nothing, and call the outcome by the same name; or wait for ever for members that do not come.
 * Whoever was about to, or comes back from an older checkpoint, waits some seconds for those who may still hand over
 * how it ended, and then says so instead of going on alone. */
#include "common/jrpc.h"
#include "run/crew_int.h"


json_t *ended_of(const struct run *r)
{
	return json_pack("{s:s,s:I}", "state", run_state_word(r->state), "epoch", (json_int_t)r->point.epoch);
}

/* Each peer measures its own accuracy, but in plans with many members; and one that has what it wants goes alone. */
bool ended_for_all(const struct run *r)
{
	const struct spec *s = r->spec;
	bool far = (s->stop_epochs && r->point.epoch >= s->stop_epochs) || (s->stop_samples && r->point.samples >=
		s->stop_samples);
	return r->state == RUN_STOPPED || r->crew || far;
}

bool ended_says(const struct record *rec, const char *name, uint64_t *ret_epoch, struct err *e)
{
	const json_t *j = json_object_get(rec->value, "ended");
	const char *state;
	struct err bad;
	char who[9];
	if (!record_own(rec) || !json_is_object(j) || json_get_str(j, "state", &state, &bad) ||
			json_get_u64(j, "epoch", ret_epoch, &bad))
		return false;
	err_set(e, ERR_STATE, "run %.63s has ended: %s at epoch %llu, as its author (%s) says; what it has learned is in "
		"the checkpoints of those who were in it, and hivectl run start FILE begins a run of your own", name,
		!strcmp(state, run_state_word(RUN_STOPPED)) ? "stopped" : "done", (unsigned long long)*ret_epoch,
		id_short(&rec->owner, who));
	return true;
}

bool run_has_others(const struct run *r)
{
	struct avg_view v;
	avg_view(r->avg, &v);
	return !v.alone;
}

/* Three and more who commit together are its swarm, wherever its author has come to. */
bool ended_given(const struct run *r)
{
	bool comes = r->state == RUN_SYNC || (r->crew && r->crew->follows) || r->made_last > 2;
	return (comes && run_has_others(r)) || avg_commits(r->avg);
}

bool ended_asks(const struct run *r, bool young)
{
	return r->avg && !r->mine && (r->ended_us || ((young || !run_has_others(r)) && !ended_given(r)));
}
