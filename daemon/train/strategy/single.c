/* single: this peer alone. Micro-batches until the target batch is there, then one optimizer step: gradient
 * accumulation, and with target batch = batch the bare optimizer. */
#include "train/strategy/replica.h"

#define AHEAD 64                        /* micro-batches planned at once */

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	uint64_t left = v->samples < v->target_batch ? v->target_batch - v->samples : 0;
	uint64_t n = (left + v->profile->batch - 1) / v->profile->batch;

	plan_begin(ret, "single", v);
	if (left && !v->granted)
		return 0;
	replica_buffers(ret, v, true);
	if (left) {
		replica_micro_batches(ret, v, n < AHEAD ? n : AHEAD, false);
		return 0;
	}
	plan_vec(ret, 0, "mean", "acc -> acc unit");
	plan_do(ret, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_SELF;
	replica_step(ret);
	return 0;
}

const struct planner_ops strategy_single = { .name = "single", .help = "this peer alone", .plan = plan };
