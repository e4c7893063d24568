/* What a seat says of itself: what its unit makes, where programs begin, what is held; and its memory. */
#include <stdlib.h>
#include "train/trainer_int.h"

/* A member that no planner has anything for makes nothing. */
struct planner_unit seat_share_of(const struct trainer *t, const struct view *v, uint32_t rank)
{
	struct planner_unit ret = { .n = batches_of(t, goal_of(t, v)) };
	struct view x = *v;
	struct err e;

	x.target_batch = goal_of(t, v);
	if (t->strategy->unit && t->strategy->unit(&x, rank, &ret, &e) < 0)
		ret = (struct planner_unit){ .unit = PLAN_NO_UNIT };
	return ret;
}

struct planner_unit seat_share(const struct trainer *t) { return seat_share_of(t, &t->seat.v, t->seat.v.me); }
uint64_t seat_goal(const struct trainer *t) { return seat_share(t).n * t->profile.batch; }

/* For the program of a round (begun), or of a flush from index 0 on. */
struct view seat_view_at(const struct trainer *t, const struct view *v, bool begun)
{
	struct view x = *v;

	x.first = 0;
	x.begun = begun;
	x.sent = x.agreed = x.gave = false;
	x.granted = !begun;
	x.fresh = true;
	x.target_batch = goal_of(t, v);
	x.samples = begun ? x.target_batch : 0;
	return x;
}

void seat_view(const struct trainer *t, struct view *v)
{
	const struct view was = *v;

	*v = t->seat.v;
	v->first = runs_on(t) ? t->seat.late.next : !t->samples && was.first < t->seat.start ? t->seat.start : was.first;
	v->epoch = was.epoch;
	v->samples = was.samples;
	v->settings = was.settings;
	v->target_batch = epoch_goal(t);
}

bool trainer_has_crew(const struct trainer *t) { return t->strategy->crew; }

size_t trainer_round_len(const struct trainer *t)
{
	return t->strategy->crew ? (size_t)(t->seat.part.keep_hi - t->seat.part.keep_lo) : trainer_contribution_len(t);
}

bool trainer_takes(const struct trainer *t, uint64_t generation, uint64_t lo, uint64_t hi)
{
	const struct trainer_part *p = &t->seat.part;

	return trainer_round_len(t) ? t->seat.v.generation == generation && p->keep_lo == lo && p->keep_hi == hi : lo == hi;
}

bool trainer_at_rest(const struct trainer *t)
{
	return !t->seat.flush && !t->v.eval.runs && !t->in_begin && !t->applying && list_empty(&t->commits) &&
		t->samples < t->hold_at;
}

uint64_t trainer_share(const struct trainer *t) { return seat_goal(t); }
bool trainer_share_made(const struct trainer *t) { return t->flight.out || t->samples >= seat_goal(t); }
bool trainer_seated(const struct trainer *t) { return t->seat.is && !t->seat.over; }
const struct trainer_part *trainer_part(const struct trainer *t) { return &t->seat.part; }

void seat_free(struct trainer *t)
{
	json_decref(t->seat.values);
	free(t->seat.member);
	for (int k = 0; k < 2; k++)
		ranges_free(&t->seat.at[k]);
	ranges_free(&t->seat.later);
	late_free(&t->seat.late);
	trainer_parts_free(&t->seat.part, 1);
	t->seat = (struct seat){ 0 };
}

void trainer_parts_free(struct trainer_part *part, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++) {
		free(part[k].held);
		free(part[k].at);
		part[k].held = NULL;
		part[k].at = NULL;
		part[k].nheld = 0;
	}
}
