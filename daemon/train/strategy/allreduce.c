/* allreduce: plain data parallelism. Every peer brings one micro-batch of its own size to every step, the mean weighted
 * by samples is agreed, everybody takes the same step; a step waits for every member that lives, and goes on without
 * those who die: the round is elastic, so the program ends as it is.
 * bucket_bytes: what it brings is given in parts while backward goes on.
 * sync_every k: k steps of its own, then parameters are averaged: k times fewer bytes.
 * async: nobody waits for anybody. What a peer has is given to the next round while it goes on; whatever mean comes is
 * applied between two micro-batches. Gradients may be older than what they change: stale updates are counted. */
#include "train/strategy/replica.h"

/* `sent` lies ready for a round that has not begun yet, so that a BEGIN is answered at once. */
static void async(struct plan *p, const struct view *v)
{
	uint32_t all = replica_group(p, v);
	uint64_t bytes = replica_bytes(v);
	bool give = !v->sent && !v->begun && v->samples > 0;
	struct view rest = *v;

	replica_buffer(p, "sent", PLAN_WEIGHT_GRAD, bytes, false);
	replica_buffer(p, "mean", PLAN_WEIGHT_GRAD, bytes, false);
	if (v->agreed) {
		plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
		plan_vec(p, 0, "opt", "mean! w opt -> w opt skipped");
		plan_vec(p, 0, "digest", "w -> digest")->lane = plan_lane(p, "reduce", 1, 1);
	}
	if (give)
		plan_vec(p, 0, "mean", "acc! -> sent parcel");
	if (give || v->sent)
		plan_coll(p, PLAN_SUM, 0, all, "%s", "sent -> mean");
	else if (v->begun)
		plan_coll(p, PLAN_SUM, 0, all, "%s", "-> mean");
	rest.samples = give ? 0 : v->samples;
	if (v->granted)         /* one, and it is given; beside a round as many as it lasts */
		replica_micro_batches(p, &rest, give || v->sent ? 65536 : 1, false);
}

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	uint64_t n = replica_left(v, 16), bucket = (uint64_t)plan_result(&v->settings, "bucket_bytes", 0);
	bool local = plan_result(&v->settings, "sync_every", 1) > 1, any = replica_flag(v, "async");

	plan_begin(ret, "allreduce", v);
	if (!v->begun && !v->sent && !v->agreed && !n && !(any && v->samples))
		return 0;
	replica_buffers(ret, v, !local);
	if (any)
		async(ret, v);
	else if (v->begun)
		replica_round(ret, v, local, replica_flag(v, "average_optimizer"));
	else if (!bucket || n > 1 || !replica_buckets(ret, v, bucket))
		replica_micro_batches(ret, v, bucket && n > 1 ? n - 1 : n, local);
	return 0;
}

static bool lost(const struct view *v, uint32_t rank)
{
	return false;
}

static const struct planner_key keys[] = {
	{ "sync_every", PLANNER_COUNT, 1, 1000000, 1 }, { "async", PLANNER_FLAG, 0, 1, 0 },
	{ "average_optimizer", PLANNER_FLAG, 0, 1, 0 }, { "bucket_bytes", PLANNER_COUNT, 0, 1ll << 40, 0 },
};

static int mode(const struct plan_results *settings, const json_t *values, struct planner_mode *ret, struct err *e)
{
	double every = plan_result(settings, "sync_every", 1);

	ret->any = ret->patient = plan_result(settings, "async", 0) != 0;
	ret->local = ret->loose = every > 1;
	ret->both = plan_result(settings, "average_optimizer", 0) != 0;
	ret->steps = ret->any ? 0 : (uint32_t)every;
	if (ret->any && ret->local)
		return err_set(e, ERR_INVALID, "async and sync_every %g do not go together: who never waits has no step that "
			"all make together; one of the two must go", every);
	if (ret->both && !ret->local)
		return err_set(e, ERR_INVALID, "average_optimizer needs sync_every of 2 or more: every peer has the same "
			"optimizer state without it");
	ret->grows = plan_result(settings, "bucket_bytes", 0) > 0;
	if (ret->grows && (ret->any || ret->local))
		return err_set(e, ERR_INVALID, "bucket_bytes is for the gradient of the micro-batch that a round waits for, "
			"and with %s no round does; one of the two must go", ret->any ? "async" : "sync_every of 2 or more");
	ret->equality = ret->any ? "equal after the same commit; peers are never at the same one for long, and gradients "
		"may be of older parameters" : ret->local ? "equal right after each averaging of parameters" :
		"parameters, running statistics and optimizer state are equal after every commit";
	if (ret->any)
		ret->under_way = "a checkpoint and a donor's state hold what is committed; a gradient that no round has taken "
			"is dropped at a death or resync and its samples come again";
	return 0;
}

const struct planner_ops strategy_allreduce = { .name = "allreduce",
	.help = "one micro-batch of every peer a step; averaging every k steps; or nobody waits", .needs_swarm = true,
	.nkeys = sizeof(keys) / sizeof(*keys), .key = keys, .mode = mode, .plan = plan, .lost = lost };
