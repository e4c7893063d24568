/* A run whose plans have many members: between the crew (who is in a generation), the averager (rounds of units) and
 * the trainer (what of it is this peer's). The averager's roster and COMMITs go to the crew. When it begins a
 * generation the averager is told its units, what was decided before is applied, the trainer gets quiet, takes its
 * seat, its part of the state is filled, and it starts. When the crew stops it, or the trainer is cut short, nothing
 * more of it runs.
 *
 * Positions are those behind what is committed, the same for all members, so that nobody deals them out. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/crew_int.h"
#include "train/strategy.h"

void run_crew_look(struct run_crew *s)
{
	env_after(s->r->rs->ctx.env, &s->timer, 0);
}

/* ---- positions ---- */

static void grant_next(struct run *r)
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
	for (uint32_t k = 0; k < n && !rc; k++) {
		h[k].id = s->v.member[k].id;
		h[k].holds = (struct holding){ .unit = NO_UNIT, .keep_lo = part[k].keep_lo, .keep_hi = part[k].keep_hi };
		if (part[k].brings && part[k].hi > part[k].lo) {
			h[k].holds.unit = (uint16_t)part[k].unit;
			h[k].holds.lo = part[k].lo;
			h[k].holds.hi = part[k].hi;
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

static void runs(struct run_crew *s)
{
	struct run *r = s->r;
	s->step = SEAT_RUNS;
	s->whole = true;
	grant_next(r);
	run_effective_pause(r);
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

static void brought(struct run *r, const struct err *e)
{
	struct run_crew *s = r->crew;
	if (s->step != SEAT_FILLS)
		return;
	if (e)
		run_fail(r, e);
	else
		runs(s);
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
	if (!s || s->step != SEAT_QUIET)
		return;
	if (!s->in) {                           /* others have gone on without it, or it is over meanwhile */
		s->step = SEAT_NONE;
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

/* What the others commit with its part in it must be in its checkpoint: together they are the state. */
static void drain(struct run_crew *s)
{
	bool seated = trainer_seated(s->r->trainer);
	if ((seated && !trainer_at_rest(s->r->trainer)) || !applied(s->r)) {
		env_after(s->r->rs->ctx.env, &s->timer, LOOK_US);
		return;
	}
	s->drains = false;
	ckpt_now(s->r, NULL);
}

void run_crew_drain(struct run *r)
{
	r->crew->drains = true;
	trainer_pause(r->trainer);
	run_crew_look(r->crew);
}

bool run_crew_drains(const struct run *r) { return r->crew && r->crew->drains; }

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
	if (s->drains)
		drain(s);
	if (!s->told && s->generation && tell_units(s, &e)) {
		run_fail(r, &e);
		return;
	}
	if (s->step != SEAT_WAITS)
		return;
	if (!applied(r) || (s->in && s->v.epoch != r->point.epoch)) {
		env_after(r->rs->ctx.env, t, LOOK_US);
		return;
	}
	s->step = SEAT_QUIET;
	trainer_quiet(r->trainer, run_crew_is_quiet, r);
}

/* ---- what the crew says ---- */

static void take_view(struct run_crew *s, uint64_t generation, const struct view *v)
{
	run_crew_unsettle(s);
	free(s->member);
	s->member = xmemdup(v->member, v->nmembers * sizeof *v->member);
	json_decref(s->values);
	s->values = json_incref((json_t *)v->values);
	s->v = *v;
	s->v.member = s->member;
	s->v.values = s->values;
	s->generation = generation;
	s->told = false;
	if (s->step != SEAT_QUIET)              /* else what comes of that sees what is wanted now */
		s->step = SEAT_WAITS;
	run_crew_look(s);
}

/* What the planner has chosen of what the spec leaves open. */
static void log_choice(struct run *r, const struct view *v)
{
	const char *text = json_string_value(json_object_get(json_object_get(v->values, PLANNER_CHOSEN), "text"));
	if (text)
		run_log(r, LOG_INFO_, "crew.chosen", "%s", text);
}

static void on_begin(void *arg, uint64_t generation, const struct view *v, uint32_t rank)
{
	struct run_crew *s = ((struct run *)arg)->crew;
	take_view(s, generation, v);
	log_choice(s->r, v);
	s->in = true;
	s->out = false;
}

static void on_others(void *arg, uint64_t generation, const struct view *v)
{
	struct run_crew *s = ((struct run *)arg)->crew;
	take_view(s, generation, v);
	s->in = false;
	s->out = true;
	run_crew_settle(s);
}

static void on_stop(void *arg, uint64_t generation)
{
	struct run *r = arg;
	struct run_crew *s = r->crew;
	s->in = false;
	mover_stop(s->mover);
	if (s->step != SEAT_QUIET)
		s->step = SEAT_NONE;
	trainer_part_ways(r->trainer);
	avg_share(r->avg, 0);
	avg_progress(r->avg, 0, 0, &(struct ranges){ 0 });      /* what it had counted is over, for all */
}

static void on_waits(void *arg, const struct err *why)
{
	struct run *r = arg;
	run_log(r, LOG_WARN_, "crew.waits", "%s", why->text);
	run_tell(r, true);
}

static void on_event(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text)
{
	char who[9] = "";
	run_log(arg, level, code, "%s%s%s", text, peer ? " peer " : "", peer ? id_short(peer, who) : "");
}

static const struct crew_cb crew_cb = { .begin = on_begin, .others = on_others, .stop = on_stop, .waits = on_waits,
	.event = on_event };

/* ---- what the others say ---- */

/* Only who trains takes part. */
void run_crew_ready(struct run *r)
{
	struct run_crew *s = r->crew;
	if (!s || !s->crew)
		return;
	bool in = r->state == RUN_TRAIN && !s->follows;
	struct crew_roster to = { .epoch = s->roster.epoch, .target = run_target(r), .term = s->roster.term,
		.n = in ? s->roster.n : 0, .live = s->ids, .ngone = s->roster.ngone, .gone = s->ids + s->roster.n };
	if (in)
		to.leader = s->roster.leader;
	crew_roster(s->crew, &to);
}

void run_crew_roster(void *run, const struct avg_roster *x)
{
	struct run *r = run;
	struct run_crew *s = r->crew;
	size_t bytes = (x->n + x->ngone) * sizeof *x->live;
	free(s->ids);
	s->roster = *x;
	s->ids = xmalloc(bytes + 1);
	memcpy(s->ids, x->live, x->n * sizeof *x->live);
	memcpy(s->ids + x->n, x->gone, x->ngone * sizeof *x->gone);
	bool in = false;
	for (uint32_t i = 0; i < x->n && !in; i++)
		in = id_eq(&x->live[i], net_self(r->rs->ctx.net));
	if (in && r->state == RUN_ENTER && !s->follows)
		run_event(r, EV_GRANTED);       /* nobody grants positions to it: it is in */
	run_crew_ready(r);
}

void run_crew_commit(struct run *r, uint64_t generation)
{
	crew_commit(r->crew->crew, generation);
	mover_forget(r->crew->mover);           /* its members hold all of it now */
	grant_next(r);
	run_crew_ready(r);                      /* the target batch may be another */
}

void run_crew_cut(void *run, const struct err *e)
{
	struct run *r = run;
	if (!r->crew || r->crew->step != SEAT_RUNS)
		return;
	r->crew->failed = r->crew->generation;
	run_crew_look(r->crew);
}

bool run_crew_seated(const struct run *r)
{
	return !r->crew || (r->crew->step == SEAT_RUNS && trainer_seated(r->trainer));
}

uint64_t run_crew_share(const struct run *r) { return r->crew ? trainer_share(r->trainer) : 0; }

/* Does this peer count its unit's samples? */
bool run_crew_head(const struct run *r)
{
	return !r->crew || (run_crew_seated(r) && trainer_part(r->trainer)->brings && !trainer_part(r->trainer)->lo);
}

int run_crew_change(const struct run *r, const json_t *patch, struct err *e)
{
	const char *robust = json_string_value(json_object_get(patch, "robust"));
	if (!r->crew)
		return 0;
	if (json_number_value(json_object_get(patch, "clip_norm")) > 0)
		return err_set(e, ERR_INVALID, "clip_norm: nobody has the whole gradient in strategy %s", r->spec->strategy);
	if (robust && strcmp(robust, "none"))
		return err_set(e, ERR_INVALID, "robust: members bring parts of the vector in strategy %s, and a robust mean is "
			"of whole ones", r->spec->strategy);
	return 0;
}

uint64_t run_crew_life(const struct run *r) { return crew_life(r->crew->crew); }

json_t *run_crew_json(const struct run *r)
{
	json_t *o = r->crew ? crew_json(r->crew->crew) : json_null();
	if (r->crew) {
		const char *lacks = rally_lacks(r->crew->finds);
		json_object_set_new(o, "moved", mover_json(r->crew->mover));
		json_object_set_new(o, "lacks", lacks ? json_string(lacks) : json_null());
	}
	return o;
}

/* ---- life ---- */

/* What its part may take: what the spec says, within what other runs leave. */
static uint64_t memory_of(const struct run *r)
{
	uint64_t said = r->spec->local.memory_bytes, room = run_room(r->rs, r->trainer);
	return !room || (said && said < room) ? said : room;
}

int run_crew_open(struct run *r, struct err *e)
{
	const struct spec *s = r->spec;
	struct runs_ctx *c = &r->rs->ctx;
	struct run_crew *x;
	if (!trainer_has_crew(r->trainer))
		return 0;
	const char *bad = s->robust != ROBUST_NONE ? "a robust mean: members bring parts of the vector" :
		s->topology && s->topology->apart ? "a grid: members bring parts of the vector" :
		s->independent ? "an order of each member's own: all work on the same samples" :
		s->has_weights ? "weights from a file: nobody takes its part out of them yet" :
		s->clip_norm > 0 ? "clip_norm: nobody has the whole gradient" :
		s->stop_accuracy > 0 ? "stop.accuracy: nobody has the whole model to measure it" :
		s->local.aux ? "local.aux: a spare member helps as it is" :
		json_is_string(json_object_get(s->plan, "micro_batch_size")) ? "micro_batch_size auto: it is one for the life "
		"of a run (run plan says which would be best)" : NULL;
	if (bad)
		return err_set(e, ERR_INVALID, "strategy %s does not go together with %s", s->strategy, bad);
	x = r->crew = xcalloc(1, sizeof *x);
	x->r = r;
	x->timer = (struct timer){ .fire = run_crew_step, .name = "run.crew" };
	struct crew_conf conf = { .run = r->id, .strategy = strategy_find(s->strategy),
		.view = trainer_crew_view(r->trainer), .memory_bytes = memory_of(r), .stays = true };
	x->lost = (struct timer){ .fire = run_crew_lost, .name = "run.lost" };
	x->crew = crew_new(c->env, c->net, &conf, &crew_cb, r, e);
	if (!x->crew) {
		trainer_read_over(r->trainer);
		free(x);
		r->crew = NULL;
		return -1;
	}
	x->finds = rally_new(r);
	x->mover = mover_new(r, x->finds, e);
	env_after(c->env, &x->lost, CREW_LOST_US);
	return x->mover && !avg_units(r->avg, 0, NULL, 0, e) ? 0 : -1; /* no round before a generation says of what */
}

void run_crew_close(struct run *r)
{
	struct run_crew *x = r->crew;
	r->crew = NULL;
	if (!x)
		return;
	run_crew_unsettle(x);
	env_timer(r->rs->ctx.env, &x->timer, 0);
	env_timer(r->rs->ctx.env, &x->lost, 0);
	mover_free(x->mover);
	rally_free(x->finds);
	crew_free(x->crew, trainer_read_over, r->trainer);
	free(x->member);
	json_decref(x->values);
	free(x->ids);
	free(x);
}
