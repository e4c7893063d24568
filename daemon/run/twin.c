/* Another daemon runs with this daemon's key (net/twin.c): to the others the two are one member, whose samples, votes
 * and sums would be now the one's and now the other's. So both leave their runs, each with a checkpoint of its own, and
 * take no new ones until one of them has another key. */
#include "run/int.h"

void runs_twin(struct runs *rs)
{
	struct err e;

	err_set(&e, ERR_AUTH, "another daemon runs with this daemon's key, and they would count as one member: this one "
		"has left; give one of the two a key of its own (stop it, delete its key file, start it), then join the run "
		"again");
	list_each_safe(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);

		if (run_over(r))
			continue;
		r->error = e;
		run_log(r, LOG_ERROR_, "run.twin", "%s", e.text);
		run_event(r, EV_LEAVE);
	}
}

bool runs_closed(const struct runs *rs, struct err *e)
{
	if (rs->draining)
		err_set(e, ERR_STATE, "the daemon is draining; it takes no new runs");
	else if (net_twin(rs->ctx.net))
		err_set(e, ERR_AUTH, "another daemon runs with this daemon's key (hivectl events), and they would count as one "
			"member: give one of the two a key of its own (stop it, delete its key file, start it)");
	else
		return false;
	return true;
}
