/* A run whose plans have many members: between the crew (who is in a generation), the averager (rounds of units) and
 * the trainer (what of it is this peer's). The averager's roster and COMMITs go to the crew. When it begins a
 * generation the averager is told its units, what was decided before is applied, the trainer gets quiet, takes its
 * seat, its part of the state is filled, and it starts. When the crew stops it, or the trainer is cut short, nothing
 * more of it runs.
 *
 * Positions are those behind what is committed, the same for all members, so that nobody deals them out. */
#include <stdlib.h>
#include "common/mem.h"
#include "run/crew_int.h"

#define STILL_US 2000000                /* no instruction has ended for so long: a drained peer waits no longer */
#define VALID_TRIES 8                   /* generations of an epoch that begin with its validation */

/* ---- positions ---- */

void run_crew_grant(struct run *r)
{
	struct ranges grant = { 0 };
	uint64_t epochs = r->spec->mode.runs_on ? AHEAD_LATE : AHEAD_EPOCHS;
	uint64_t n = epochs * spec_epoch_samples(r->spec, run_target(r)) + r->spec->local.batch;
	uint64_t end = r->point.done.n ? r->point.done.v[r->point.done.n - 1].hi : 0;
	struct ranges all = { 0 };
	ranges_add(&all, 0, end + n);
	ranges_sub_all(&all, &r->point.done);
	ranges_take(&all, n, &grant);
	trainer_grant(r->trainer, &grant);
	ranges_free(&all);
	ranges_free(&grant);
}

/* ---- a generation begins ---- */

static int tell_units(struct run_crew *s, struct err *e)
{
	uint32_t n = s->v.nmembers;
	struct trainer_part *part = xcalloc(n + 1, sizeof *part);
	struct avg_holder *h = xcalloc(n + 1, sizeof *h);
	int rc = trainer_parts(s->r->trainer, &s->v, part, e);
	s->headed = false;
	for (uint32_t k = 0; k < n && !rc; k++) {
		h[k].id = s->v.member[k].id;
		h[k].holds = (struct holding){ .unit = NO_UNIT, .keep_lo = part[k].keep_lo, .keep_hi = part[k].keep_hi };
		if (part[k].brings && part[k].hi > part[k].lo) {
			h[k].holds.unit = (uint16_t)part[k].unit;
			h[k].holds.lo = part[k].lo;
			h[k].holds.hi = part[k].hi;
		} else if (part[k].nheld && part[k].unit != PLAN_NO_UNIT) {
			h[k].with = (uint16_t)(part[k].unit + 1);
		}
		if (h[k].holds.unit != NO_UNIT && !part[k].lo && part[k].unit == part[s->v.me].unit) {
			s->head = h[k].id;
			s->headed = true;
		}
	}
	if (!rc)
		rc = avg_units(s->r->avg, s->generation, h, n, e);
	trainer_parts_free(part, n);
	free(part);
	free(h);
	s->told = !rc;
	return rc;
}

void run_crew_tell(struct run_crew *s)
{
	struct err e;
	if (s->r->trainer && s->r->avg && !run_over(s->r))
		(void)tell_units(s, &e);        /* if not, the next step says why */
}

static void runs(struct run_crew *s)
{
	struct run *r = s->r;
	s->step = SEAT_RUNS;
	s->whole = true;
	run_crew_grant(r);
	/* again, if somebody has died meanwhile; but nothing stands still for ever because of it */
	if (r->state == RUN_TRAIN && run_crew_validates(r, r->point.epoch) &&
	    CREW_COUNT(s->v.generation) - CREW_COUNT(s->v.base) <= VALID_TRIES) {
		r->validating = true;
		r->val_epoch = r->point.epoch;
		trainer_validate(r->trainer, false);
	}
	run_effective_pause(r);
	if (s->drains)
		trainer_pause(r->trainer);
	run_tell(r, true);
}

/* ---- values for its part of the state ---- */

static void keep(struct run_crew *s, struct state *was)
{
	if (s->whole && !s->follows)
		mover_keep(s->mover, was, s->r->point.epoch);
	else
		state_free(was, NULL, NULL);
}

static void filled(void *arg, const struct err *e)
{
	struct run *r = arg;
	struct run_crew *s = r->crew;
	if (!s || s->step != SEAT_FILLS)
		return;
	if (e)
		run_fail(r, e);
	else
		runs(s);
}

static void brought(void *arg, const struct err *e)
{
	struct run *r = arg;
	if (mover_filled(run_crew_mover(r)))
		filled(r, e);
}

/* Before the first COMMIT they are fresh. */
static void fill(struct run_crew *s)
{
	struct run *r = s->r;
	struct trainer_fill how = { .live = r->point.params, .values.fresh = true };
	s->step = SEAT_FILLS;
	s->whole = false;
	if (r->point.epoch)
		mover_fill(s->mover, brought);
	else
		trainer_fill(r->trainer, &how, filled, r);
}

void run_crew_is_quiet(void *arg)
{
	struct run *r = arg;
	struct run_crew *s = r->crew;
	struct state *was = NULL;
	struct err e;
	bool fresh;
	if (!s || s->step != SEAT_QUIET || s->saves)
		return;
	if (!s->in) {                           /* others have gone on without it, or it is over meanwhile */
		s->step = SEAT_NONE;
		if (!s->out && s->whole)
			trainer_stay(r->trainer);
		if (s->out && trainer_stand_up(r->trainer, &was, &e)) {
			run_fail(r, &e);
		} else if (s->out) {
			keep(s, was);           /* who takes its place may need it */
			s->whole = false;
		}
		return;
	}
	if (trainer_join(r->trainer, &s->v, &fresh, &was, &e)) {
		run_fail(r, &e);
		return;
	}
	if (was)
		keep(s, was);
	if (fresh || !s->whole)
		fill(s);
	else
		runs(s);
}

static bool applied(const struct run *r)
{
	struct trainer_view t;
	struct avg_view a;
	trainer_view(r->trainer, &t);
	avg_view(r->avg, &a);
	return !a.in_round && t.epoch == r->point.epoch;
}

/* What the others commit with its part in it must be in its checkpoint: together they are the state. A part that has no
 * values yet is not waited for: who would give it may be about to end, too. true: it has left, and s is gone. */
static bool drain(struct run_crew *s)
{
	struct run *r = s->r;
	bool unfilled = trainer_unfilled(r->trainer), rests = !trainer_seated(r->trainer) || trainer_at_rest(r->trainer);
	if (!rests && run_crew_still_us(s) > STILL_US)  /* its members wait for somebody */
		trainer_part_ways(r->trainer);
	if (!s->saves && (r->saving || s->step == SEAT_QUIET || (!unfilled && (!rests || !applied(r))))) {
		env_after(r->rs->ctx.env, &s->timer, LOOK_US);
		return false;
	}
	s->saves = true;
	if (mover_gathers(s->mover)) {
		env_after(r->rs->ctx.env, &s->timer, LOOK_US);
		return false;
	}
	s->drains = false;
	if (!unfilled || mover_kept(s->mover, NULL)) {
		run_save(r, NULL);
		return false;
	}
	run_drain_more(r->rs);
	return true;
}

void run_crew_drain(struct run *r)
{
	r->crew->drains = true;
	r->crew->looked_us = 0;
	trainer_pause(r->trainer);
	run_crew_look(r->crew);
}

void run_crew_step(struct timer *t)
{
	struct run_crew *s = container_of(t, struct run_crew, timer);
	struct run *r = s->r;
	struct err e;
	if (run_over(r) || !r->trainer || !r->avg)
		return;
	if (s->failed) {
		uint64_t number = s->failed;
		s->failed = 0;
		crew_fail(s->crew, number);
	}
	if (s->drains && drain(s))
		return;
	if (!s->told && s->generation && tell_units(s, &e)) {
		run_fail(r, &e);
		return;
	}
	if (s->step != SEAT_WAITS || s->saves)
		return;
	if (!applied(r) || (s->in && s->v.epoch != r->point.epoch)) {
		env_after(r->rs->ctx.env, t, LOOK_US);
		return;
	}
	s->step = SEAT_QUIET;
	trainer_quiet(r->trainer, run_crew_is_quiet, r);
}
