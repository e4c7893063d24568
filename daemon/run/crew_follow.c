/* A member that stands where nobody else is: it holds nothing of the others' state, follows until it knows where they
 * are, and enters there. And one that comes from a checkpoint, whose parts it holds. */
#include "common/planted.h"
#include "run/crew_int.h"

#define CALM_US 1000000
#define STUCK_US 3000000                /* nothing goes on: is the state still there? */

/* It stands at no point that others are at. It follows until the next COMMIT says where they are, and holds nothing.
 * They may wait for it themselves: when there is no COMMIT they are asked. */
void run_crew_behind(struct run *r)
{
	struct run_crew *s = r->crew;
	struct err e;
	s->follows = true;
	rally_anew(s->finds);
	s->in = false;
	s->out = true;
	run_crew_ready(r);
	crew_live_on(s->crew, 0);
	mover_stop(s->mover);
	mover_forget(s->mover);
	trainer_part_ways(r->trainer);
	s->step = SEAT_QUIET;
	trainer_quiet(r->trainer, run_crew_is_quiet, r);
	env_after(r->rs->ctx.env, &s->lost, CREW_LOST_US);
	if (avg_enter(r->avg, &r->point, true, &e))
		run_fail(r, &e);
}

static void unread(struct run *r, const struct err *e)
{
	run_log(r, LOG_WARN_, "crew.parts", "%s: this peer holds nothing of the state any more", e->text);
	rally_bad(r->crew->finds, r->crew->loads);
	crew_live_on(r->crew->crew, 0);
}

static void loaded(void *arg, const struct err *e)
{
	struct run *r = mover_loaded(arg, e);
	if (r && e && r->crew)
		unread(r, e);
}

/* What its checkpoint of that point holds it holds again. */
static void hold_again(struct run_crew *s, const struct avg_point *p)
{
	const struct kept *k = rally_file(s->finds, p->epoch, p->prev);
	struct err e;
	if (!k)
		return;
	crew_live_on(s->crew, k->life);
	s->loads = p->epoch;
	if (k->is.n && mover_load(s->mover, k->path, p->epoch, k->is.v, k->is.n, loaded, &e))
		unread(s->r, &e);
}

static void enter_again(struct timer *t)
{
	struct run_crew *s = container_of(t, struct run_crew, timer);
	struct err e;
	s->timer.fire = run_crew_step;
	s->follows = false;
	if (s->r->reached)                      /* there the run ends */
		return;
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
	crew_commit(s->crew, generation, p->epoch);
	mover_forget(s->mover);
	hold_again(s, p);
	rally_since(s->finds);
	s->calm_us = env_now(r->rs->ctx.env);
	env_after(r->rs->ctx.env, &s->lost, CALM_US);
	s->timer.fire = enter_again;
	run_crew_look(s);
	return 0;
}

/* What this peer has made beyond it is made anew. */
static void undo(struct run *r, uint64_t epoch)
{
	if (r->point.epoch <= epoch)
		return;
	r->lost_from = epoch + 1;
	if (r->rs->ctx.store) {
		store_epoch_discard(r->rs->ctx.store, r->hex, epoch + 1, INT64_MAX);
		store_param_discard(r->rs->ctx.store, r->hex, epoch + 1, INT64_MAX, "the state was lost with its holders");
	}
}

/* NULL: not yet. */
static void judged(struct run *r, const struct rally_verdict *v)
{
	struct run_crew *s = r->crew;
	struct err e;
	if (!v)
		return;
	env_after(r->rs->ctx.env, &s->lost, s->follows ? CREW_LOST_US : STUCK_US);
	if (run_over(r) || s->timer.fire == enter_again)
		return;
	if (v->way == RALLY_BACK && !s->follows) {
		if (r->state == RUN_TRAIN)      /* anew, as if it came from the disk like the others */
			run_event(r, run_again_saved(r));
	} else if (v->way == RALLY_THERE && s->follows && s->step == SEAT_NONE) {
		uint64_t was = r->point.epoch;
		undo(r, v->point->epoch);
		if (stand_at(s, v->point, v->generation, &e)) {
			run_fail(r, &e);
			return;
		}
		run_log(r, LOG_INFO_, "crew.enters", "all go on from epoch %llu%s: entering there",
			(unsigned long long)v->point->epoch, was > v->point->epoch ? ", the newest that is whole" : "");
		run_take_point(r, v->point);
		run_reach(r);
	}
}

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct said *x = arg;
	struct run *r = x->w->r;
	judged(r, rally_answered(x, f, e));
}

static void fetched(void *arg, const struct frame *f, const struct err *e)
{
	struct rally *w = arg;
	judged(w->r, rally_fetched(w, f, e));
}

/* It stands, and has not gone on for long. */
static bool stuck(struct run_crew *s)
{
	struct run *r = s->r;
	uint64_t now = env_now(r->rs->ctx.env);
	if (r->state != RUN_TRAIN || s->step == SEAT_RUNS || s->calm_epoch != r->point.epoch || !r->point.epoch) {
		s->calm_us = now;
		s->calm_epoch = r->point.epoch;
	}
	return now - s->calm_us >= STUCK_US;
}

void run_crew_lost(struct timer *t)
{
	struct run_crew *s = container_of(t, struct run_crew, lost);
	struct run *r = s->r;
	if (run_over(r) || !r->avg)
		return;
	env_after(r->rs->ctx.env, t, s->follows ? CREW_LOST_US : CALM_US);
	bool is_stuck = stuck(s), comes = s->follows && s->step == SEAT_NONE && s->timer.fire != enter_again;
	if ((comes || is_stuck) && (r->state == RUN_TRAIN || r->state == RUN_ENTER))
		judged(r, rally_ask(s->finds, answered, fetched));
	else if (s->step == SEAT_RUNS)
		rally_calm(s->finds);
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
