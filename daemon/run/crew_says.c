/* What the crew, the averager and the trainer say of a run whose plans have many members, and how its part in all of
 * that begins. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/crew_int.h"
#include "train/strategy.h"

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
	run_crew_tell(s);
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
	if (r->state == RUN_FINISH && r->validating)    /* others go as they have ended it */
		return;
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

static void on_holds(void *arg, uint64_t until_us)
{
	avg_stay(((struct run *)arg)->avg, until_us);
}

static bool on_commits(void *arg)
{
	return avg_commits(((struct run *)arg)->avg);
}

static const struct crew_cb crew_cb = { .begin = on_begin, .others = on_others, .stop = on_stop, .waits = on_waits,
	.holds = on_holds, .commits = on_commits, .event = on_event };

/* ---- what the others say ---- */

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
	if (x->in && r->state == RUN_ENTER && !s->follows)
		run_event(r, EV_GRANTED);       /* nobody grants positions to it: it is in */
	run_crew_ready(r);
}

void run_crew_commit(struct run *r, uint64_t generation)
{
	crew_commit(r->crew->crew, generation, r->point.epoch);
	mover_forget(r->crew->mover);           /* its members hold all of it now */
	run_crew_grant(r);
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

/* ---- what members ask ---- */

static void on_shard(void *mover, struct request *req)
{
	struct mover *m = mover;
	const json_t *validated = json_object_get(req->f.json, "validated");
	if (validated && !req->wants_reply)
		run_crew_hear_result(m->r, &req->f.from, validated);
	else if (!req->wants_reply || !json_object_get(req->f.json, "epoch") || json_object_get(req->f.json, "point"))
		rally_hand(m->r->crew->finds, req);
	else
		mover_hand(m, req);
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
	bool stops = s->stop_accuracy > 0;
	const char *bad = s->robust != ROBUST_NONE ? "a robust mean: members bring parts of the vector" :
		s->topology && s->topology->apart ? "a grid: members bring parts of the vector" :
		s->independent ? "an order of each member's own: all work on the same samples" :
		s->has_weights ? "weights from a file: nobody takes its part out of them yet" :
		s->clip_norm > 0 ? "clip_norm: nobody has the whole gradient" :
		stops && !data_count(r->data, DATA_VALIDATION) ? "stop.accuracy where the data hold nothing out to measure it "
		"with: validation.split holds out a share" :
		stops && !s->loss->counts ? "stop.accuracy and a loss that knows no right answers" :
		stops && !s->validation_every ? "stop.accuracy and validation.every 0: nobody would look before the end" :
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
	x->mover = mover_new(r, on_shard, e);
	env_after(c->env, &x->lost, CREW_LOST_US);
	return x->mover && !avg_units(r->avg, 0, NULL, 0, e) ? 0 : -1; /* no round before a generation says of what */
}
