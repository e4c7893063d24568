/* What an epoch has gathered here, and what waits of rounds: commits that are to be applied, SUMs that one of them
 * ends. Both are begun anew, or let go, from here. */
#include <stdlib.h>
#include "train/trainer_int.h"

uint64_t trainer_goal(const struct trainer *t)
{
	const struct planner_mode *m = &t->s->mode;

	if (t->seat.is)
		return seat_goal(t);
	if (m->any)
		return UINT64_MAX / 2;
	return m->steps ? (uint64_t)m->steps * t->s->local.batch : spec_epoch_samples(t->s, t->target);
}

void trainer_reset_epoch(struct trainer *t)
{
	t->samples = t->batches = 0;
	t->loss_sum = 0;
	t->skipped = 0;
	t->hold_at = trainer_goal(t);
	if (t->strategy->crew)
		t->unit = 0;
	ranges_clear(&t->claimed);
}

void commit_free(struct commit *c)
{
	if (!c)
		return;
	lease_put(c->lease);
	ranges_free(&c->claimed);
	free(c);
}

void round_cut(struct trainer *t)
{
	t->sums.n = 0;
}

bool round_cancel(struct trainer *t, const struct exec_wait *w)
{
	for (uint32_t k = 0; k < t->sums.n; k++)
		if (t->sums.v[k].w == w) {
			t->sums.v[k] = t->sums.v[--t->sums.n];
			return true;
		}
	return false;
}

/* The executor does not go before what it keeps for them has come back. */
void round_give_back(struct trainer *t)
{
	list_each(it, &t->commits) {
		struct commit *c = list_entry(it, struct commit, link);

		lease_put(c->lease);
		c->lease = NULL;
	}
}

void round_drop(struct trainer *t)
{
	list_each_safe(it, &t->commits)
		commit_free(list_entry(it, struct commit, link));
	list_init(&t->commits);
	commit_free(t->applying);
	t->applying = NULL;
	t->in_begin = t->contribute_again = t->given = t->passed = false;
	t->agreed = t->stepping = t->break_later = t->tell = t->splits = false;
	ranges_clear(&t->flight.claimed);
	t->flight = (struct flight){ .claimed = t->flight.claimed };
	t->grow.on = t->grow.planned = t->grow.told = false;
	t->sums.n = 0;
}
