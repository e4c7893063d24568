/* The update of synchronous training. The sum of an epoch stays what it is until the COMMIT: a round that fails goes on
 * from there. */
#include "train/strategy/parts/update.h"

/* The mean of replicas that have seen different micro-batches, times their number, is the sum over all. */
static void together(struct plan *p, const struct update *u, uint32_t reduce)
{
	struct plan_instr *i;

	plan_coll(p, PLAN_SUM, 0, u->replicas.group, "acc%s%s -> sum%s", u->tag, u->apart ? "!" : "", u->tag);
	if (!u->replicas.speaks) {
		plan_do(p, PLAN_DROP, 0, "sum%s!", u->tag);
		return;
	}
	i = plan_vec(p, 0, "mean", "sum%s -> sum%s whole", u->tag, u->tag);
	i->scale = u->replicas.n;
	i->lane = reduce;
}

void update_optimizer(struct plan *p, const char *tag, const char *gradient, const char *skipped)
{
	plan_vec(p, 0, "opt", "%s%s! w%s opt%s -> w%s opt%s skipped%s", gradient, tag, tag, tag, tag, tag, skipped);
}

void update_digest(struct plan *p, const char *tag)
{
	plan_vec(p, 0, "digest", "w%s -> digest", tag)->lane = plan_lane(p, "reduce", 1, 1);
}

void update_step(struct plan *p, const char *tag, const char *gradient)
{
	update_optimizer(p, tag, gradient, "");
	update_digest(p, tag);
}

static const char *state_of(const struct update *u)
{
	return u->state ? u->state : u->tag;
}

static bool many(const struct update *u)
{
	return u->replicas.n > 1;
}

void update_gather(struct plan *p, const struct update *u)
{
	uint32_t reduce = plan_lane(p, "reduce", 1, 1);

	if (many(u))
		together(p, u, reduce);
	else if (u->apart)
		plan_vec(p, 0, "mean", "acc%s! -> sum%s whole", u->tag, u->tag)->lane = reduce;
	else                    /* beside the abandoned micro-batch, which may still hold the train lane */
		plan_vec(p, 0, "mean", "acc%s -> acc%s unit", u->tag, u->tag)->lane = reduce;
}

void update_give(struct plan *p, const struct update *u)
{
	if (u->some && (!many(u) || u->replicas.speaks))
		plan_coll(p, PLAN_SUM, 0, u->group, "%s%s! -> mean%s", many(u) || u->apart ? "sum" : "acc", u->tag,
			state_of(u));
	else
		plan_coll(p, PLAN_SUM, 0, u->group, "-> mean%s", state_of(u));
}

void update_commit(struct plan *p, const struct update *u)
{
	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	if (u && u->some && many(u) && !u->apart)
		plan_do(p, PLAN_DROP, 0, "acc%s!", u->tag);
}

void update_own(struct plan *p, const struct update *u)
{
	update_step(p, state_of(u), "mean");
}

void update_sum(struct plan *p, const struct update *u)
{
	if (u->some)
		update_gather(p, u);
	update_give(p, u);
}

void update_round(struct plan *p, const struct update *u)
{
	update_sum(p, u);
	update_commit(p, u);
	update_own(p, u);
}
