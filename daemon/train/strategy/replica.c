/* Buffers and instructions of a whole model on one peer. */
#include "kernels/real.h"
#include "train/memory.h"
#include "train/strategy/replica.h"
#include "train/strategy/parts/update.h"

#define EXACT 16
#define MOST 65536                      /* micro-batches of a program */

bool replica_flag(const struct view *v, const char *setting)
{
	return plan_result(&v->settings, setting, 0) != 0;
}

/* Through the whole model and back. */
static struct passes passes_of(const struct view *v)
{
	struct passes s;

	memory_passes(v->profile, 0, v->profile->nops - 1, v->memory, &s);
	return s;
}

uint64_t replica_bytes(const struct view *v)
{
	return v->profile->params * sizeof(real) + v->profile->stats_bytes;
}

uint64_t replica_part_bytes(const struct view *v, uint64_t parts)
{
	uint64_t n = v->profile->params;

	return (parts > 1 ? (n + parts - 1) / parts : n) * sizeof(real) + v->profile->stats_bytes;
}

static void add(struct plan *p, const char *name, enum plan_class class, uint64_t bytes, bool state)
{
	plan_buf(p, &(struct plan_buf){ .class = class, .dtype = PLAN_F32, .bytes = bytes, .depth = 1,
		.per = state ? UINT32_MAX : 1, .initial = class == PLAN_WEIGHT || class == PLAN_OPTIMIZER }, "%s", name);
}

void replica_buffers(struct plan *p, const struct view *v, bool accumulate)
{
	const struct profile *m = v->profile;
	struct passes s = passes_of(v);
	uint64_t w = replica_bytes(v);

	add(p, "w", PLAN_WEIGHT, w, true);
	add(p, "opt", PLAN_OPTIMIZER, m->state_bytes, true);
	if (accumulate)
		add(p, "acc", PLAN_WEIGHT_GRAD, w, true);
	add(p, "g", PLAN_WEIGHT_GRAD, w, false);
	if (m->stats_bytes)
		replica_buffer(p, "stats", PLAN_WEIGHT, m->stats_bytes, false);
	add(p, "batch", PLAN_BATCH, m->batch_bytes, false);
	passes_buffers(p, &s);
	passes_free(&s);
	add(p, "loss", PLAN_SCALAR, 8, false);
	add(p, "correct", PLAN_SCALAR, 8, false);
	add(p, "unit", PLAN_SCALAR, 8, false);
	add(p, "skipped", PLAN_SCALAR, 8, false);
	if (m->scaled)
		add(p, "loss_scale", PLAN_SCALAR, 8, false);
	add(p, "digest", PLAN_SCALAR, 16, false);
	add(p, "parcel", PLAN_SCALAR, 8, false);
	add(p, "renewed", PLAN_SCALAR, 8, false);
}

/* Running statistics go on from what the sum (or the weights) say: an abandoned micro-batch leaves no trace. */
static void micro_batches(struct plan *p, const struct view *v, uint64_t n, bool local, const char *w)
{
	struct passes s = passes_of(v);
	const char *stats = v->profile->stats_bytes ? " stats" : "", *scale = v->profile->scaled ? " loss_scale" : "";
	struct plan_instr *i;

	if (*stats)
		plan_vec(p, 0, "tail", "%s -> stats", !local && v->samples && !v->begun ? "acc" : w);
	plan_section(p, PLAN_BODY);
	p->iterations = n;
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	passes_forward(p, &s, w);
	plan_vec(p, 0, "loss", "y! batch -> dy loss correct%s", scale)->inplace = true;
	passes_backward(p, &s, w);
	if (local)
		plan_vec(p, 0, "opt", "g! w opt loss%s%s -> w opt skipped", stats, scale);
	else
		plan_vec(p, 0, "accumulate", "g! batch loss%s%s -> acc+ unit", stats, scale)->inplace = true;
	/* a step of one's own reads no batch: without a word of it a mark would count one that was never made */
	i = plan_do(p, PLAN_COMMIT, 0, "batch!%s", local ? " skipped" : "");
	i->priority = 1;        /* samples count the moment they are in the sum */
	passes_free(&s);
}

void replica_micro_batches(struct plan *p, const struct view *v, uint64_t n, bool local)
{
	micro_batches(p, v, n, local, "w");
}

void replica_beside(struct plan *p, const struct view *v, uint64_t n)
{
	micro_batches(p, v, n, false, "work");
}

uint64_t replica_left(const struct view *v, uint64_t most)
{
	uint64_t left = v->samples < v->target_batch ? v->target_batch - v->samples : 0;
	uint64_t n = (left + v->profile->batch - 1) / v->profile->batch;

	return !v->granted ? 0 : n < most ? n : most;
}

uint64_t replica_beside_round(const struct view *v)
{
	uint64_t samples = v->begun ? 0 : v->samples, left = samples < v->target_batch ? v->target_batch - samples : 0;
	uint64_t n = !v->granted ? 0 : (left + v->profile->batch - 1) / v->profile->batch, even = EXACT;

	if (n <= EXACT)
		return n;
	while (even < n && even < MOST)
		even *= 2;
	return even;
}

uint32_t replica_group(struct plan *p, const struct view *v)
{
	uint32_t all = plan_group(p, "peers", PLAN_OP_MEAN, false, true);

	for (uint32_t i = 0; i < v->nmembers; i++)
		plan_join(p, all, i, 0);
	return all;
}

void replica_buffer(struct plan *p, const char *name, enum plan_class class, uint64_t bytes, bool initial)
{
	plan_buf(p, &(struct plan_buf){ .class = class, .dtype = PLAN_F32, .bytes = bytes, .depth = 1, .per = UINT32_MAX,
		.initial = initial }, "%s", name);
}

void replica_round(struct plan *p, const struct view *v, bool local, bool both)
{
	uint32_t all = replica_group(p, v);

	if (local) {
		plan_coll(p, PLAN_SUM, 0, all, "%s", both ? "w opt -> w opt" : "w -> w");
		plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
		plan_vec(p, 0, "digest", "w -> digest")->lane = plan_lane(p, "reduce", 1, 1);
		return;
	}
	replica_buffer(p, "mean", PLAN_WEIGHT_GRAD, replica_bytes(v), false);
	update_round(p, &(struct update){ .tag = "", .group = all, .some = v->samples > 0 });
}

void replica_step(struct plan *p)
{
	update_step(p, "", "acc");
}
