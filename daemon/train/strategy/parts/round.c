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
	if (s == 0 && x->tied && !stage_learns(x, s))
		u.state = TIED_TAG;
	if (stage_gives(x, s))
		u.group = units(p, u.state ? STAGE_TIED : s);
	return u;
}

/* What it takes from the round beside what comes of its own gradient; how many. */
static uint32_t others(const struct pipe *x, uint32_t s, uint32_t *ret)
{
	uint32_t n = keep_list(x, s, ret);

	return n && s == 0 && ret[n - 1] == STAGE_TIED && !stage_learns(x, s) ? n - 1 : n;
}

static void take_others(struct plan *p, const struct pipe *x, uint32_t s)
{
	uint32_t other[KEPT_MAX], n = others(x, s, other);
	char tag[12];

	for (uint32_t k = 0; k < n; k++)
		plan_coll(p, PLAN_SUM, 0, units(p, other[k]), "-> mean%s", stage_tag(other[k], tag));
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
	uint32_t s = (uint32_t)(at - x->stage), other[KEPT_MAX], n = others(x, s, other);
	bool own = stage_gives(x, s);
	char tag[12], kept[12];
	struct update u = update_of(p, x, at, tag, x->v->samples > 0);

	if (own) {
		agree(p, x, at, &u);
		update_sum(p, &u);
	}
	take_others(p, x, s);
	update_commit(p, own ? &u : NULL);
	for (uint32_t k = 0; k < n; k++)
		update_optimizer(p, stage_tag(other[k], kept), "mean", kept);
	if (own)
		update_own(p, &u);
	else if (n)
		update_digest(p, stage_tag(other[n - 1], kept));
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

	if (moves && stage_gives(x, s)) {
		agree(p, x, at, &u);
		update_gather(p, &u);
	}
	if (moves)
		plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_SHARD;
	if (stage_gives(x, s))
		update_give(p, &u);
	take_others(p, x, s);
}

static void step_of(struct plan *p, uint32_t t, bool own)
{
	char tag[12];

	(void)stage_tag(t, tag);
	plan_vec(p, 0, "copy", "w%s -> " STAGE_BEFORE "%s", tag, tag);
	update_optimizer(p, tag, "mean", own ? "" : tag);
}

/* All that stands before has ended when the COMMIT is made: nothing can part what follows it. */
static void step(struct plan *p, const struct pipe *x)
{
	uint32_t s = (uint32_t)(stage_of(x, p->me) - x->stage), last = PLAN_NONE, kept[KEPT_MAX], n = keep_list(x, s, kept);
	char tag[12];

	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	for (uint32_t k = 0; k < n; k++)
		step_of(p, last = kept[k], false);
	if (stage_learns(x, s))
		step_of(p, last = s, true);
	if (last != PLAN_NONE)
		update_digest(p, stage_tag(last, tag));
}

static bool holds_some(const struct pipe *x, uint32_t s)
{
	uint32_t kept[KEPT_MAX];

	return stage_learns(x, s) || keep_list(x, s, kept);
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
