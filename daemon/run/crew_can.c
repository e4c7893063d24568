/* Which target batches the members of a generation could share out. A planner says so at once when it need not look for
 * the cuts of the model, and members are given those. A spare is not: it finds them, as the members did, in a lane, as
 * soon as it hears of their generation. Only who is asked before that is over looks for them on the loop. */
#include <stdlib.h>
#include "common/mem.h"
#include "run/crew_int.h"
#include "train/strategy.h"

#define LANE "serve"
#define COST_US 20                      /* of an op, for the simulator's clock */

struct settles { struct job job; struct run_crew *s; struct trainer *trainer; const struct planner_ops *strategy;
	struct view v; struct view_member *member; json_t *values, *found; int rc; struct err why; };

static void look(struct job *j)
{
	struct settles *w = container_of(j, struct settles, job);
	w->rc = w->strategy->settle(&w->v, &w->found, &w->why);
}

static void looked(struct job *j)
{
	struct settles *w = container_of(j, struct settles, job);
	struct run_crew *s = w->s;
	if (s)
		s->settles = NULL;
	if (s && !w->rc) {
		json_decref(s->values);
		s->v.values = s->values = json_incref(w->found);
	}
	trainer_read_over(w->trainer);
	json_decref(w->found);
	json_decref(w->values);
	free(w->member);
	free(w);
}

void run_crew_unsettle(struct run_crew *s)
{
	if (s->settles)
		s->settles->s = NULL;
	s->settles = NULL;
}

void run_crew_settle(struct run_crew *s)
{
	struct env *env = s->r->rs->ctx.env;
	const struct planner_ops *o = strategy_find(s->r->spec->strategy);
	if (!o->settle)
		return;
	struct settles *w = xcalloc(1, sizeof *w);
	*w = (struct settles){ .s = s, .trainer = s->r->trainer, .strategy = o, .v = s->v,
		.member = xmemdup(s->member, s->v.nmembers * sizeof *s->member), .values = json_incref(s->values),
		.job = { .name = "crew.cuts", .lane = env_lane(env, LANE), .run = look, .done = looked,
		.cost_us = (uint64_t)s->v.profile->nops * COST_US } };
	w->v.member = w->member;
	run_crew_unsettle(s);
	s->settles = w;
	trainer_read(w->trainer);               /* whose profile it is */
	env_work(env, &w->job);
}

int run_crew_can_make(const struct run *r, uint64_t target, struct err *e)
{
	const struct run_crew *s = r->crew;
	const struct planner_ops *o = strategy_find(r->spec->strategy);
	json_t *values = NULL;
	if (!s || !s->generation || !o->settle)
		return 0;
	struct view v = s->v;
	v.target_batch = spec_epoch_samples(r->spec, target);
	if (o->settle(&v, &values, e))
		return err_wrap(e, "target_batch %llu", (unsigned long long)target);
	json_decref(values);
	return 0;
}
