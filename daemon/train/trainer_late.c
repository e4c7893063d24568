/* A seat whose epochs run on into each other (planner_mode.runs_on): gradients are one step late. What is under way
 * when one epoch ends belongs to the next one, so positions are laid down ahead: those of epoch e are found when e - 3
 * is committed, in the ledger as it is then, less what is laid down already; all members of all units find the same,
 * also when one of these was left out. Nothing that is under way is in the state: what goes otherwise than planned is
 * dropped, and the epoch begins anew with what is committed, which is all it needs (strategy/parts/round.c). */
#include "train/trainer_int.h"

void late_free(struct late *l)
{
	for (int k = 0; k < AHEAD_LATE; k++)
		ranges_free(&l->set[k]);
	*l = (struct late){ 0 };
}

void late_grant(struct trainer *t)
{
	struct late *l = &t->seat.late;
	uint64_t all = seat_batches(t) * t->profile.batch;
	struct ranges left = { 0 };

	if (!runs_on(t) || !t->seat.is)
		return;
	if (!l->laid)
		l->of = t->epoch;
	l->laid = true;
	ranges_copy(&left, &t->grant);
	for (int k = 0; k < AHEAD_LATE; k++)
		ranges_sub_all(&left, &l->set[k]);
	for (int k = 0; k < AHEAD_LATE; k++) {
		if (!l->set[k].n)
			ranges_take(&left, all, &l->set[k]);
		ranges_sub_all(&left, &l->set[k]);
	}
	ranges_free(&left);
}

/* The epoch that is committed needs no positions any more. */
void late_committed(struct late *l, uint64_t epoch)
{
	for (; l->laid && l->of < epoch; l->of++) {
		struct ranges first = l->set[0];

		for (int k = 1; k < AHEAD_LATE; k++)
			l->set[k - 1] = l->set[k];
		ranges_clear(&first);
		l->set[AHEAD_LATE - 1] = first;
	}
}

const struct ranges *late_set(const struct trainer *t, uint64_t epoch)
{
	static const struct ranges none;
	const struct late *l = &t->seat.late;

	return epoch >= l->of && epoch - l->of < AHEAD_LATE ? &l->set[epoch - l->of] : &none;
}

void late_counted(struct seat *s)
{
	s->late.ahead = true;
	s->late.next = s->first + s->flush;
}

/* All members of a unit that was left out begin where its indices are new. */
bool late_applied(struct seat *s, bool mine)
{
	struct late *l = &s->late;
	bool cuts = l->cuts;

	l->steps = l->cuts = false;
	if (!mine) {
		l->ahead = false;
		l->next = s->start;
	}
	return cuts;
}
