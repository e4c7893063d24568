/* hivemind: everybody has the whole model and works at its own pace until the swarm has processed the target batch;
 * then the mean gradient, weighted by samples, is agreed in a round, and everybody takes the same step behind the
 * commit.
 *
 * local_updates: every micro-batch is a step; the round averages the parameters (and, average_optimizer, the
 * optimizer's state). */
#include "train/strategy/replica.h"

#define AHEAD 16                        /* micro-batches planned at once; a round interrupts them */

/* Samples may be none: then this peer only takes the mean. */
static void round_(struct plan *p, const struct view *v, bool local)
{
	uint32_t all = plan_group(p, "peers", PLAN_OP_MEAN, false, true);
	bool some = v->samples > 0, both = replica_flag(v, "average_optimizer");

	for (uint32_t i = 0; i < v->nmembers; i++)
		plan_join(p, all, i, 0);
	if (local) {
		plan_coll(p, PLAN_SUM, 0, all, "%s", both ? "w opt -> w opt" : "w -> w");
		plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
		plan_vec(p, 0, "digest", "w -> digest")->lane = plan_lane(p, "reduce", 1, 1);
		return;
	}
	if (some)       /* beside the abandoned micro-batch, which may still hold the train lane */
		plan_vec(p, 0, "mean", "acc -> acc unit")->lane = plan_lane(p, "reduce", 1, 1);
	plan_coll(p, PLAN_SUM, 0, all, "%s", some ? "acc -> acc" : "-> acc");
	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	replica_step(p);
}

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	bool local = replica_flag(v, "local_updates");
	uint64_t left = v->samples < v->target_batch ? v->target_batch - v->samples : 0;
	uint64_t n = (left + v->profile->batch - 1) / v->profile->batch;

	plan_init(ret, "hivemind", v->me, v->nmembers, &v->member[0].id);
	ret->first = v->first;
	ret->generation = v->generation;
	if (!v->begun && (!left || !v->granted))
		return 0;               /* the target is reached or there is nothing to do: wait */
	replica_buffers(ret, v, !local);
	if (v->begun)
		round_(ret, v, local);
	else
		replica_micro_batches(ret, v, n < AHEAD ? n : AHEAD, local);
	return 0;
}

static const struct planner_key keys[] = {
	{ "local_updates", PLANNER_FLAG, 0, 1, 0 }, { "average_optimizer", PLANNER_FLAG, 0, 1, 0 },
};

static int mode(const struct plan_results *settings, struct planner_mode *ret, struct err *e)
{
	ret->local = plan_result(settings, "local_updates", 0) != 0;
	ret->both = plan_result(settings, "average_optimizer", 0) != 0;
	ret->equality = ret->local ? "equal right after each averaging of parameters" :
		"parameters, optimizer state and buffers are equal after every commit";
	if (ret->both && !ret->local)
		return err_set(e, ERR_INVALID,
			"average_optimizer needs local_updates: without it every peer has the same optimizer state");
	return 0;
}

const struct planner_ops strategy_hivemind = { .name = "hivemind", .help = "target batch of a swarm, elastic rounds",
	.needs_swarm = true, .nkeys = sizeof(keys) / sizeof(*keys), .key = keys, .mode = mode, .plan = plan };
