/* A member that stands where nobody else is: it holds nothing of the others' state, follows until it knows where they
 * are, and enters there. And one that comes from a checkpoint, whose parts it holds. */
#include "common/planted.h"
#include "run/crew_int.h"

#define LOST_US 500000                  /* without a COMMIT; then others are asked where they are */

/* It stands at no point that others are at. It follows until the next COMMIT says where they are, and holds nothing.
 * They may wait for it themselves: when there is no COMMIT they are asked. */
void run_crew_behind(struct run *r)
{
	struct run_crew *s = r->crew;
	struct err e;
	s->follows = true;
	s->in = false;
	s->out = true;
	run_crew_ready(r);
	crew_live_on(s->crew, 0);
	mover_stop(s->mover);
	mover_forget(s->mover);
	trainer_part_ways(r->trainer);
	s->step = SEAT_QUIET;
	trainer_quiet(r->trainer, run_crew_is_quiet, r);
	env_after(r->rs->ctx.env, &s->lost, LOST_US);
	if (avg_enter(r->avg, &r->point, true, &e))
		run_fail(r, &e);
}

static void enter_again(struct timer *t)
{
	struct run_crew *s = container_of(t, struct run_crew, timer);
	struct err e;
	s->timer.fire = run_crew_step;
	s->follows = false;
	env_after(s->r->rs->ctx.env, &s->timer, LOOK_US);
	if (avg_enter(s->r->avg, &s->r->point, false, &e))
		run_fail(s->r, &e);
	run_crew_ready(s->r);
}

/* There is where the others are, and it enters: soon, since the averager may be the caller. */
static int stand_at(struct run_crew *s, const struct avg_point *p, uint64_t generation, struct err *e)
{
	struct run *r = s->r;
	if (trainer_loaded(r->trainer, p->epoch, p->params, e))
		return -1;
	run_given(r, p);
	crew_commit(s->crew, generation);
	mover_forget(s->mover);
	env_timer(r->rs->ctx.env, &s->lost, 0);
	s->timer.fire = enter_again;
	run_crew_look(s);
	return 0;
}

static void on_where(struct run *r, const struct avg_point *p, uint64_t generation)
{
	struct run_crew *s = r->crew;
	struct err e;
	if (!s || !s->follows || run_over(r) || s->timer.fire == enter_again)
		return;
	if (!p || s->step != SEAT_NONE) {
		env_after(r->rs->ctx.env, &s->lost, LOST_US);
	} else if (stand_at(s, p, generation, &e)) {
		run_fail(r, &e);
	} else {
		run_log(r, LOG_INFO_, "crew.enters", "the others wait at epoch %llu: entering there",
			(unsigned long long)p->epoch);
		run_take_point(r, p);
	}
}

void run_crew_lost(struct timer *t)
{
	struct run_crew *s = container_of(t, struct run_crew, lost);
	if (s->follows && !run_over(s->r))
		mover_where(s->mover, on_where);
}

/* true: it was followed, and this peer enters where it leads. */
bool run_crew_followed(struct run *r, const struct avg_commit *c)
{
	struct run_crew *s = r->crew;
	struct err e;
	if (!s || !s->follows)
		return false;
	if (stand_at(s, c->point, c->generation, &e))
		run_fail(r, &e);
	return true;
}

/* What it takes the mean to must have the values of the point before. */
static bool has_part(const struct run *r, const struct avg_commit *c)
{
	bool filled = r->crew->whole || !trainer_round_len(r->trainer);
	return PLANTED(COMMIT_OF_OTHERS) || (filled && trainer_takes(r->trainer, c->generation, c->lo, c->hi));
}

bool run_crew_passed(struct run *r, const struct avg_commit *c)
{
	if (!r->crew || has_part(r, c))
		return false;
	run_log(r, LOG_INFO_, "crew.passed", "epoch %llu was made by a generation that this peer had no part in, or not "
		"all of it yet: what it holds is history", (unsigned long long)c->epoch);
	run_crew_behind(r);
	return true;
}

/* ---- what it holds ---- */

struct mover *run_crew_mover(const struct run *r) { return r->crew ? r->crew->mover : NULL; }
uint64_t run_crew_base(const struct run *r) { return crew_base(r->crew->crew); }

size_t run_crew_holders(const struct run *r, struct id *ret, size_t max)
{
	return crew_base_members(r->crew->crew, ret, max);
}

bool run_crew_names(const struct run *r, const struct id *id) { return crew_names(r->crew->crew, id); }

bool run_crew_stands(const struct run *r) { return r->state == RUN_TRAIN && !r->crew->follows; }

bool run_crew_whole(const struct run *r)
{
	struct trainer_view t;
	trainer_view(r->trainer, &t);
	return r->crew->whole && t.epoch == r->point.epoch;
}

static void loaded(struct run *r, const struct err *e)
{
	if (!e || !r->crew)
		return;
	run_log(r, LOG_WARN_, "crew.parts", "%s: this peer holds nothing of the state any more", e->text);
	crew_live_on(r->crew->crew, 0);
}

void run_crew_restored(struct run *r, uint64_t life, const char *path, const json_t *parts)
{
	struct err e;
	crew_live_on(r->crew->crew, life);
	if (mover_load(r->crew->mover, path, r->point.epoch, parts, loaded, &e))
		loaded(r, &e);
}
