/* What a member of a pipeline does about the round in which the epoch's gradient of its stage, and of those that it
 * keeps, becomes a mean: at the end of an epoch, or beside the next one. */
#include <stdio.h>
#include "train/strategy/parts/keep.h"
#include "train/strategy/parts/round.h"
#include "train/strategy/parts/update.h"

static uint32_t units(struct plan *p, uint32_t s)
{
	char tag[12], name[PLAN_NAME];
	uint32_t group;

	(void)snprintf(name, sizeof(name), "units%s", stage_tag(s, tag));
	group = plan_group(p, name, PLAN_OP_MEAN, false, true);
	plan_join(p, group, p->me, 0);
	return group;
}

/* What the member of stage `at` gives to the round, tag being room for its name; some: it has a gradient. Without
 * anything to learn it has nothing to agree on, and goes on with the others. */
static struct update update_of(struct plan *p, const struct pipe *x, const struct stage *at, char tag[12], bool some)
{
	uint32_t s = (uint32_t)(at - x->stage);
	struct update u = { .some = some, .tag = stage_tag(s, tag), .apart = x->schedule->runs_on };

	u.replicas.n = at->replicas;
	u.replicas.speaks = x->base + at->rank == p->me;
	if (stage_learns(x, s))
		u.group = units(p, s);
	return u;
}

/* The replicas of a stage agree before one of them speaks. */
static void agree(struct plan *p, const struct pipe *x, const struct stage *at, struct update *u)
{
	char name[PLAN_NAME];

	if (at->replicas < 2)
		return;
	if (x->units > 1)
		(void)snprintf(name, sizeof(name), "unit%u-stage%s", x->base / x->members, u->tag);
	else
		(void)snprintf(name, sizeof(name), "stage%s", u->tag);
	u->replicas.group = plan_group(p, name, PLAN_OP_MEAN, true, false);
	for (uint32_t k = 0; k < at->replicas; k++)
		plan_join(p, u->replicas.group, x->base + at->rank + k, 0);
}

/* Its own part in the round, and what others say of the stages that it keeps; one COMMIT for all. Then it steps them,
 * in one lane, its own last: the digest says that all is done. */
void pipe_update(struct plan *p, const struct pipe *x)
{
	const struct stage *at = stage_of(x, p->me);
	uint32_t s = (uint32_t)(at - x->stage), last = PLAN_NONE;
	bool own = stage_learns(x, s);
	char tag[12], kept[12];
	struct update u = update_of(p, x, at, tag, x->v->samples > 0);

	if (own) {
		agree(p, x, at, &u);
		update_sum(p, &u);
	}
	for (uint32_t t = 0; t < x->n; t++)
		if (keeps(x, s, t))
			plan_coll(p, PLAN_SUM, 0, units(p, t), "-> mean%u", t);
	update_commit(p, own ? &u : NULL);
	for (uint32_t t = 0; t < x->n; t++)
		if (keeps(x, s, t)) {
			last = t;
			update_optimizer(p, stage_tag(t, kept), "mean", kept);
		}
	if (own)
		update_own(p, &u);
	else if (last != PLAN_NONE)
		update_digest(p, stage_tag(last, kept));
}

/* --- schedules that run on. At the end of every program w holds the weights of the epoch that begins next but one, and
 * `before` those of the one that begins next, which are its micro-batches' under way, too: so a run goes on from its
 * state alone as if nothing had been (arXiv 2006.09503: W(t+1) = W(t) - lr * gradient at W(t-1)). */

/* What the epoch before has summed up goes to the round, apart from what follows; moves: it is not there yet. */
static void give(struct plan *p, const struct pipe *x, bool some, bool moves)
{
	const struct stage *at = stage_of(x, p->me);
	uint32_t s = (uint32_t)(at - x->stage);
	char tag[12];
	struct update u = update_of(p, x, at, tag, some);

	if (moves && stage_learns(x, s)) {
		agree(p, x, at, &u);
		update_gather(p, &u);
	}
	if (moves)
		plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_SHARD;
	if (stage_learns(x, s))
		update_give(p, &u);
	for (uint32_t t = 0; t < x->n; t++)
		if (keeps(x, s, t))
			plan_coll(p, PLAN_SUM, 0, units(p, t), "-> mean%u", t);
}

static void step_of(struct plan *p, uint32_t t, bool own)
{
	char tag[12];

	plan_vec(p, 0, "copy", "w%u -> " STAGE_BEFORE "%u", t, t);
	update_optimizer(p, stage_tag(t, tag), "mean", own ? "" : tag);
}

/* All that stands before has ended when the COMMIT is made: nothing can part what follows it. */
static void step(struct plan *p, const struct pipe *x)
{
	uint32_t s = (uint32_t)(stage_of(x, p->me) - x->stage), last = PLAN_NONE;
	char tag[12];

	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	for (uint32_t t = 0; t < x->n; t++)
		if (keeps(x, s, t))
			step_of(p, last = t, false);
	if (stage_learns(x, s))
		step_of(p, last = s, true);
	if (last != PLAN_NONE)
		update_digest(p, stage_tag(last, tag));
}

static bool holds_some(const struct pipe *x, uint32_t s)
{
	bool some = stage_learns(x, s);

	for (uint32_t t = 0; t < x->n; t++)
		some = some || keeps(x, s, t);
	return some;
}

void pipe_run_on(struct plan *p, const struct pipe *x, uint64_t made, uint64_t share)
{
	const struct view *v = x->v;
	uint32_t s = (uint32_t)(stage_of(x, p->me) - x->stage);
	bool full = made >= share, holds = holds_some(x, s);
	struct run_on how = { .fresh = v->fresh, .step = full && holds ? step : NULL };

	if (v->sent && !holds)
		return;
	if (v->agreed) {
		step(p, x);
	} else if (v->granted && !v->sent && (full || !v->begun)) {
		if (full)
			give(p, x, true, true);
		stage_run_on(p, x, p->me, (uint32_t)share, &how);
	} else if (v->begun || v->sent) {
		give(p, x, v->sent || full, full && !v->sent);
		step(p, x);
	}
}
