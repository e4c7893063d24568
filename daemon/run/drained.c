/* How far draining is: who may leave now, and when all have left, whoever waits for that is told. */
#include "run/int.h"

struct run *drain_next(struct runs *rs, const struct run *told)
{
	void (*done)(void *arg) = rs->drained;
	if (!rs->draining || !done)
		return NULL;
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (r != told && !run_over(r) && r->drain && !r->saving && !run_crew_drains(r))
			return r;               /* its checkpoint is on the disk */
		if (!run_over(r) || r->saving)
			return NULL;
	}
	env_timer(rs->ctx.env, &rs->drain_timer, 0);
	rs->drained = NULL;
	rs->draining = false;
	done(rs->drained_arg);
	return NULL;
}
