/* diloco (arXiv 2311.08105): every peer makes inner_steps steps of its own with the run's optimizer (AdamW in the
 * paper), then the mean of how far the peers have gone from the anchor is a gradient for the outer optimizer,
 * Nesterov's momentum; all go on from the new anchor. A round for inner_steps steps: bytes fall by that factor. Inner
 * optimizer states stay each peer's own; anchor and outer momentum are state, equal everywhere after a commit. */
#include "train/strategy/replica.h"

#define AHEAD 16

static void round_(struct plan *p, const struct view *v)
{
	uint32_t all = replica_group(p, v);

	if (v->samples)
		plan_vec(p, 0, "away", "anchor w -> sent");
	plan_coll(p, PLAN_SUM, 0, all, "%s", v->samples ? "sent -> sent" : "-> sent");
	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	plan_vec(p, 0, "outer", "sent! anchor momentum -> anchor momentum w skipped");
	plan_vec(p, 0, "digest", "w -> digest")->lane = plan_lane(p, "reduce", 1, 1);
}

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	uint64_t n = replica_left(v, AHEAD), bytes = replica_bytes(v);

	plan_init(ret, "diloco", v->me, v->nmembers, &v->member[0].id);
	ret->first = v->first;
	ret->generation = v->generation;
	if (!v->begun && !n)
		return 0;
	replica_buffers(ret, v, false);
	replica_buffer(ret, "anchor", PLAN_WEIGHT, bytes, true);
	replica_buffer(ret, "momentum", PLAN_OPTIMIZER, bytes, true);
	replica_buffer(ret, "sent", PLAN_WEIGHT_GRAD, bytes, false);
	if (v->begun)
		round_(ret, v);
	else
		replica_micro_batches(ret, v, n, true);
	return 0;
}

static bool lost(const struct view *v, uint32_t rank)
{
	return false;
}

static const struct planner_key keys[] = {
	{ "inner_steps", PLANNER_COUNT, 1, 1000000, 100 }, { "outer_lr", PLANNER_NUMBER, 0, 100, 0.7 },
	{ "outer_momentum", PLANNER_NUMBER, 0, 0.999999, 0.9 },
};

static int mode(const struct plan_results *settings, struct planner_mode *ret, struct err *e)
{
	ret->local = true;
	ret->steps = (uint32_t)plan_result(settings, "inner_steps", 100);
	ret->nstate = 2;
	ret->nparams = 1;
	ret->state[0] = "anchor";
	ret->state[1] = "momentum";
	ret->equality = "anchor, outer momentum and parameters are equal right after each outer step; inner optimizer "
		"states are each peer's own";
	return 0;
}

const struct planner_ops strategy_diloco = { .name = "diloco",
	.help = "many steps of each peer's own, then an outer step on the mean of what they moved", .needs_swarm = true,
	.nkeys = sizeof(keys) / sizeof(*keys), .key = keys, .mode = mode, .plan = plan, .lost = lost };
