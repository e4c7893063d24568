/* diloco (arXiv 2311.08105): every peer makes inner_steps steps of its own (AdamW in the paper), then the mean of how
 * far they have gone from the anchor is a gradient for the outer optimizer, Nesterov's momentum; all go on from the new
 * anchor. A round for inner_steps steps: bytes fall by that factor. Inner optimizer states stay each peer's own; anchor
 * and outer momentum are state, equal everywhere after a commit.
 * Streaming (arXiv 2501.18512): of so many fragments of the vector one, in turn, is averaged and takes its outer step
 * every inner_steps / fragments steps. overlap: steps go on meanwhile, and what was agreed is taken exactly so many
 * steps after it was given, mixed with what the peer has by then. */
#include <math.h>
#include "kernels/real.h"
#include "train/strategy/replica.h"

#define AHEAD 16

static uint64_t setting(const struct view *v, const char *name)
{
	return (uint64_t)plan_result(&v->settings, name, 0);
}

static uint64_t part_bytes(const struct view *v)
{
	return replica_part_bytes(v, setting(v, "fragments"));
}

static void take(struct plan *p, const char *operands)
{
	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	plan_vec(p, 0, "fragment", operands);
	plan_vec(p, 0, "digest", "anchor -> digest")->lane = plan_lane(p, "reduce", 1, 1);
}

static void round_(struct plan *p, const struct view *v)
{
	uint32_t all = replica_group(p, v);

	if (v->samples)
		plan_vec(p, 0, "away", "anchor w -> sent");
	plan_coll(p, PLAN_SUM, 0, all, "%s", v->samples ? "sent! -> mean" : "-> mean");
	if (setting(v, "fragments") > 1) {
		take(p, "mean! anchor momentum w -> anchor momentum w skipped");
		return;
	}
	plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
	plan_vec(p, 0, "outer", "mean! anchor momentum -> anchor momentum w skipped");
	plan_vec(p, 0, "digest", "w -> digest")->lane = plan_lane(p, "reduce", 1, 1);
}

/* Micro-batches beside a round are those up to the overlap; the trainer holds the mean back until they are made. */
static void beside(struct plan *p, const struct view *v, uint64_t left)
{
	uint64_t overlap = setting(v, "overlap"), done = v->begun ? 0 : v->samples / v->profile->batch;
	bool waits = v->begun || v->sent;
	uint64_t n = !waits ? left : !v->granted || done >= overlap ? 0 : overlap - done;
	uint32_t all = replica_group(p, v);

	if (v->begun && v->samples)
		plan_vec(p, 0, "away", "anchor w -> sent parcel");
	if (waits)
		plan_coll(p, PLAN_SUM, 0, all, "%s", v->sent || v->samples ? "sent -> mean" : "-> mean");
	if (v->agreed)
		take(p, "mean! anchor momentum w -> anchor momentum w skipped");
	if (n)
		replica_micro_batches(p, v, n, true);
}

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	uint64_t n = replica_left(v, AHEAD), bytes = replica_bytes(v);
	bool overlaps = setting(v, "overlap") > 0;

	plan_begin(ret, "diloco", v);
	if (!v->begun && !n && !v->sent && !v->agreed)
		return 0;
	replica_buffers(ret, v, false);
	replica_buffer(ret, "anchor", PLAN_WEIGHT, bytes, true);
	replica_buffer(ret, "momentum", PLAN_OPTIMIZER, bytes, true);
	replica_buffer(ret, "sent", PLAN_WEIGHT_GRAD, part_bytes(v), false);
	replica_buffer(ret, "mean", PLAN_WEIGHT_GRAD, part_bytes(v), false);
	if (overlaps)
		beside(ret, v, n);
	else if (v->begun)
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
	{ "outer_momentum", PLANNER_NUMBER, 0, 0.999999, 0.9 }, { "fragments", PLANNER_COUNT, 1, 1024, 1 },
	{ "overlap", PLANNER_COUNT, 0, 999999, 0 }, { "mix", PLANNER_NUMBER, 0, 1, 0.5 },
};

static int check(double inner, double parts, double overlap, struct err *e)
{
	double less = floor(inner / parts) * parts;

	if (less != inner)
		return err_set(e, ERR_INVALID, "inner_steps %g cannot be shared out among %g fragments: a multiple is needed, "
			"such as %g", inner, parts, less > 0 && inner - less < less + parts - inner ? less : less + parts);
	if (overlap >= inner / parts)
		return err_set(e, ERR_INVALID, "overlap %g: a fragment's round must be over before the next one begins, %g "
			"steps later (inner_steps / fragments); less than that is allowed", overlap, inner / parts);
	return 0;
}

static int mode(const struct plan_results *settings, const json_t *values, struct planner_mode *ret, struct err *e)
{
	double inner = plan_result(settings, "inner_steps", 100), parts = plan_result(settings, "fragments", 1);
	double overlap = plan_result(settings, "overlap", 0);

	if (check(inner, parts, overlap, e) < 0)
		return -1;
	ret->local = true;
	ret->steps = (uint32_t)(inner / parts);
	ret->parts = (uint32_t)parts;
	ret->overlap = (uint32_t)overlap;
	ret->nstate = 2;
	ret->nparams = 1;
	ret->state[0] = "anchor";
	ret->state[1] = "momentum";
	ret->equality = overlap > 0 ? "anchor and outer momentum are equal right after each outer step; parameters are "
		"each peer's own, mixed with the anchor fragment by fragment" : parts > 1 ? "anchor and outer momentum are "
		"equal right after each outer step, and so are the parameters of the fragment that took it" :
		"anchor, outer momentum and parameters are equal right after each outer step; inner optimizer states are each "
		"peer's own";
	if (overlap > 0)
		ret->under_way = "a checkpoint and a donor's state hold that peer's parameters, and anchor and momentum as of "
			"the last outer step; what was given to a round is dropped at a death or resync";
	return 0;
}

const struct planner_ops strategy_diloco = { .name = "diloco",
	.help = "many steps of each peer's own, then an outer step on the mean of what they moved", .needs_swarm = true,
	.nkeys = sizeof(keys) / sizeof(*keys), .key = keys, .mode = mode, .plan = plan, .lost = lost };
