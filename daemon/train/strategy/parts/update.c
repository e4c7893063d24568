/* The update of synchronous training. The sum of an epoch stays what it is until the COMMIT: a round that fails goes on
 * from there. */
#include "train/strategy/parts/update.h"

/* The mean of replicas that have seen different micro-batches, times their number, is the sum over all. */
static void together(struct plan *p, const struct update *u, uint32_t reduce)
{
	struct plan_instr *i;

	plan_coll(p, PLAN_SUM, 0, u->replicas.group, "acc%s -> sum%s", u->tag, u->tag);
	if (!u->replicas.speaks) {
		plan_do(p, PLAN_DROP, 0, "sum%s!", u->tag);
		return;
	}
	i = plan_vec(p, 0, "mean", "sum%s -> sum%s whole", u->tag, u->tag);
	i->scale = u->replicas.n;
	i->lane = reduce;
}

void update_step(struct plan *p, const char *tag, const char *gradient)
{
	plan_vec(p, 0, "opt", "%s%s! w%s opt%s -> w%s opt%s skipped", gradient, tag, tag, tag, tag, tag);
	plan_vec(p, 0, "digest", "w%s -> digest", tag)->lane = plan_lane(p, "reduce", 1, 1);
}

void update_round(struct plan *p, const struct update *u)
{
	uint32_t reduce = plan_lane(p, "reduce", 1, 1);
	bool many = u->replicas.n > 1;
	const char *sum = many ? "sum" : "acc";

	if (u->some && many)
		together(p, u, reduce);
	else if (u->some)       /* beside the abandoned micro-batch, which may still hold the train lane */
		plan_vec(p, 0, "mean", "acc%s -> acc%s unit", u->tag, u->tag)->lane = reduce;
	if (u->some && (!many || u->replicas.speaks))
		plan_coll(p, PLAN_SUM, 0, u->group, "%s%s -> %s%s", sum, u->tag, sum, u->tag);
	else
		plan_coll(p, PLAN_SUM, 0, u->group, "-> %s%s", sum, u->tag);
	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	if (u->some && many)
		plan_do(p, PLAN_DROP, 0, "acc%s!", u->tag);
	update_step(p, u->tag, sum);
}
