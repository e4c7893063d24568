/* What takes long is done in a lane, one thing at a time: the signatures of a go, the plans of an offer, a leader's
 * choice, what a base holds. Of each kind the newest waits; a go that the leader has sent waits apart from what others
 * send, who could keep it out with theirs. A job sees nothing of the crew but what stays as it is. */
#include <stdlib.h>
#include "crew/int.h"

#define LANE "serve"
#define VERIFY_COST_US 120                      /* of a signature; these are what the simulator's clock is told */
#define PLAN_COST_US 20                         /* of an op in a member's plan */

static void run(struct job *j)
{
	struct work *w = container_of(j, struct work, job);
	struct plans p;
	switch (w->kind) {
	case WORK_VERIFY: case WORK_VERIFY_OTHERS:
		w->rc = deal_signed(w->d) && (PLANTED(CREW_GO_UNSIGNED) || deal_all_signed(w->d)) ? 0 :
			err_set(&w->why, ERR_AUTH, "a go that not all its members have promised");
		break;
	case WORK_CHOOSE:
		crew_choose(&w->choice);
		break;
	case WORK_ANSWER: case WORK_KNOW: default:
		w->rc = plans_make(&p, w->strategy, &w->usual, &w->d->o, &w->why);
		if (w->rc)
			break;
		w->rc = plans_check(&p, &w->usual, &w->d->o, &w->why);
		if (!w->rc)
			plans_find(&p, w->strategy, &w->usual, &w->d->o, &w->found);
		plans_free(&p);
	}
}

static void work_free(struct work *w)
{
	deal_drop(&w->d);
	choice_free(&w->choice);
	found_free(&w->found);
	free(w);
}

struct crew *crew_work_over(struct work *w)
{
	struct crew *c = w->c;
	if (!c) {
		void (*gone)(void *arg) = w->gone;
		void *arg = w->gone_arg;
		work_free(w);
		if (gone)
			gone(arg);
		return NULL;
	}
	c->busy = NULL;
	if (w->kind == WORK_ANSWER)
		c->plan_us = now_of(c) - w->begun_us;
	return c;
}

static void next(struct crew *c)
{
	for (int k = 0; k < WORKS && !c->busy; k++) {
		struct work *w = c->waiting[k];
		c->waiting[k] = NULL;
		if (!w)
			continue;
		uint64_t n = w->d ? w->d->o.n : w->choice.all.n, ops = w->usual.profile->nops;
		w->job = (struct job){ .name = "crew.plans", .lane = env_lane(c->env, LANE), .run = run, .done = c->worked,
			.cost_us = w->kind <= WORK_VERIFY_OTHERS ? (n + 1) * VERIFY_COST_US : n * ops * PLAN_COST_US };
		w->begun_us = now_of(c);
		c->busy = w;
		env_work(c->env, &w->job);
	}
}

void crew_work_next(struct crew *c, struct work *w)
{
	work_free(w);
	next(c);
}

struct work *crew_work_new(struct crew *c, enum work_kind kind, struct deal *d)
{
	struct work *w = xcalloc(1, sizeof *w);
	w->c = c;
	w->kind = kind;
	w->d = deal_hold(d);
	w->strategy = w->choice.strategy = c->conf.strategy;
	w->usual = w->choice.usual = c->conf.view;
	return w;
}

void crew_work_start(struct crew *c, struct work *w)
{
	if (c->waiting[w->kind])
		work_free(c->waiting[w->kind]);
	c->waiting[w->kind] = w;
	next(c);
}

bool crew_work_under_way(const struct crew *c, enum work_kind kind)
{
	return c->waiting[kind] || (c->busy && c->busy->kind == kind);
}

void crew_work_leave(struct crew *c, void (*gone)(void *arg), void *arg)
{
	for (int k = 0; k < WORKS; k++)
		if (c->waiting[k])
			work_free(c->waiting[k]);
	if (!c->busy) {
		if (gone)
			gone(arg);
		return;
	}
	c->busy->c = NULL;
	c->busy->gone = gone;
	c->busy->gone_arg = arg;
}
