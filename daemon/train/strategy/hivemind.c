/* hivemind: everybody works at its own pace until the swarm has processed the target batch; then the mean gradient,
 * weighted by samples, is agreed in a round, and everybody takes the same step behind the commit.
 * local_updates: every micro-batch is a step; the round averages the parameters (average_optimizer: and the optimizer's
 * state), once in `every` target batches; delay_state: steps go on meanwhile, what they changed is kept (delta rule).
 * delay_grad: the mean of epoch e is agreed while e + 1 accumulates; delay_step: the step is made meanwhile, too.
 * Either way e + 1 works with a copy of the parameters from before the step of e: staleness exactly one. */
#include "train/strategy/replica.h"

#define AHEAD 16                        /* micro-batches planned at once; a round interrupts them */

static void copy_work(struct plan *p)
{
	plan_vec(p, 0, "copy", "w -> work renewed");
}

/* Behind a commit: the step beside micro-batches (delay_step), or before them. */
static bool behind(struct plan *p, bool grad, bool step)
{
	uint32_t reduce = plan_lane(p, "reduce", 1, 1);
	struct plan_instr *i;

	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	if (!grad)
		copy_work(p);
	i = plan_vec(p, 0, "opt", "mean! w opt -> w opt skipped");
	if (step)
		i->lane = reduce;
	plan_vec(p, 0, "digest", "w -> digest")->lane = reduce;
	return !grad;
}

static void delayed(struct plan *p, const struct view *v, bool grad, bool step)
{
	uint32_t all = replica_group(p, v), reduce = plan_lane(p, "reduce", 1, 1);
	bool renewed = false, waits = !grad && (v->begun || v->sent);
	uint64_t n = replica_beside_round(v);

	replica_buffer(p, "work", PLAN_WEIGHT, replica_bytes(v), false);
	replica_buffer(p, "sent", PLAN_WEIGHT_GRAD, replica_bytes(v), false);
	replica_buffer(p, "mean", PLAN_WEIGHT_GRAD, replica_bytes(v), false);
	if (v->begun && v->samples)
		plan_vec(p, 0, "mean", "acc! -> sent parcel")->lane = reduce;
	if (v->begun || v->sent)
		plan_coll(p, PLAN_SUM, 0, all, "%s", v->sent || v->samples ? "sent! -> mean" : "-> mean");
	if (v->begun && grad) {
		copy_work(p);
		renewed = true;
	} else if (v->agreed) {
		renewed = behind(p, grad, step);
	}
	if (v->fresh && !renewed && !waits)
		copy_work(p);
	if (!waits && n)
		replica_beside(p, v, n);
}

/* Local steps go on while parameters are averaged. */
static void delta(struct plan *p, const struct view *v)
{
	uint32_t all = replica_group(p, v);
	uint64_t n = replica_beside_round(v), bytes = replica_bytes(v);

	replica_buffer(p, "sent", PLAN_WEIGHT_GRAD, bytes, false);
	replica_buffer(p, "mean", PLAN_WEIGHT_GRAD, bytes, false);
	if (v->begun && v->samples)
		plan_vec(p, 0, "copy", "w -> sent parcel");
	if (v->begun || v->sent)
		plan_coll(p, PLAN_SUM, 0, all, "%s", v->sent || v->samples ? "sent -> mean" : "-> mean");
	if (v->agreed) {
		plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
		if (v->gave)
			plan_vec(p, 0, "delta", "mean sent! w -> w");
		else
			plan_vec(p, 0, "copy", "mean -> w");
		plan_vec(p, 0, "digest", "mean! -> digest")->lane = plan_lane(p, "reduce", 1, 1);
	}
	if (n)
		replica_micro_batches(p, v, n, true);
}

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	bool local = replica_flag(v, "local_updates"), grad = replica_flag(v, "delay_grad");
	bool step = replica_flag(v, "delay_step"), state = replica_flag(v, "delay_state");
	uint64_t n = replica_left(v, AHEAD);

	plan_begin(ret, "hivemind", v);
	if (!v->begun && !v->sent && !v->agreed && !n)
		return 0;               /* the target is reached or there is nothing to do: wait */
	replica_buffers(ret, v, !local);
	if (grad || step)
		delayed(ret, v, grad, step);
	else if (state)
		delta(ret, v);
	else if (v->begun)
		replica_round(ret, v, local, replica_flag(v, "average_optimizer"));
	else
		replica_micro_batches(ret, v, n, local);
	return 0;
}

static const struct planner_key keys[] = {
	{ "local_updates", PLANNER_FLAG, 0, 1, 0 }, { "average_optimizer", PLANNER_FLAG, 0, 1, 0 },
	{ "every", PLANNER_COUNT, 1, 1000000, 1 }, { "delay_grad", PLANNER_FLAG, 0, 1, 0 },
	{ "delay_step", PLANNER_FLAG, 0, 1, 0 }, { "delay_state", PLANNER_FLAG, 0, 1, 0 },
};

static int mode(const struct plan_results *settings, const json_t *values, struct planner_mode *ret, struct err *e)
{
	bool delay = plan_result(settings, "delay_grad", 0) != 0 || plan_result(settings, "delay_step", 0) != 0;
	bool state = plan_result(settings, "delay_state", 0) != 0;

	ret->local = plan_result(settings, "local_updates", 0) != 0;
	ret->both = plan_result(settings, "average_optimizer", 0) != 0;
	ret->targets = plan_result(settings, "every", 1);
	ret->loose = ret->local && !state;
	if (ret->both && !ret->local)
		return err_set(e, ERR_INVALID,
			"average_optimizer needs local_updates: without it every peer has the same optimizer state");
	if (ret->targets > 1 && !ret->local)
		return err_set(e, ERR_INVALID, "every needs local_updates: without it nobody has parameters of its own that "
			"could be averaged less often; a greater target_batch would do");
	if (delay && ret->local)
		return err_set(e, ERR_INVALID, "delay_grad and delay_step are for gradients, and with local_updates none are "
			"averaged; delay_state is for parameters");
	if (state && !ret->local)
		return err_set(e, ERR_INVALID, "delay_state needs local_updates; for gradients there are delay_grad and "
			"delay_step");
	if (state && ret->both)
		return err_set(e, ERR_INVALID, "average_optimizer and delay_state do not go together: the optimizer's state "
			"moves on while its mean is agreed; one of the two must go");
	ret->equality = delay ? "the committed parameters and optimizer state are equal after every commit; micro-batches "
		"work with those of the epoch before" : state ? "no equality while peers train; every average is equal, and "
		"each peer adds what it learned meanwhile" : ret->local ? "equal right after each averaging of parameters" :
		"parameters, running statistics and optimizer state are equal after every commit";
	if (delay)
		ret->under_way = "a checkpoint and a donor's state hold what is committed; the gradient that is being agreed "
			"is dropped at a death or resync and its samples come again; a newcomer's first epoch has staleness 0";
	else if (state)
		ret->under_way = "a checkpoint and a donor's state hold that peer's parameters; an average that is being "
			"agreed is dropped at a death or resync";
	return 0;
}

const struct planner_ops strategy_hivemind = { .name = "hivemind", .help = "target batch of a swarm, elastic rounds",
	.needs_swarm = true, .nkeys = sizeof(keys) / sizeof(*keys), .key = keys, .mode = mode, .plan = plan };
