/* How much memory training takes: the prediction of its programs, the memory pass that the spec asks for, and what
 * would fit when it does not. */
#include <stdio.h>
#include "common/text.h"
#include "train/memory.h"
#include "train/trainer_int.h"

static size_t predict_bytes(struct trainer *t, struct err *e)
{
	struct view_member me = { .id = t->c.self, .speed = 1 };
	struct view v = trainer_plan_view(t, &me, 0);

	return (size_t)memory_programs(t->strategy, &v, t->s->mode.under_way, e);
}

uint64_t trainer_kept_bytes(const struct trainer *t)
{
	uint64_t kept;

	(void)memory_peak(&t->profile, &t->pass, &kept);
	return kept;
}

/* --- what fits */

/* Of the trainer as it is now, with the batches ahead; SIZE_MAX: it cannot be planned. */
static uint64_t whole(struct trainer *t)
{
	uint32_t batch = t->profile.batch;
	struct err e;
	size_t need = predict_bytes(t, &e);

	return need ? need + loader_bytes(t->c.data, batch, load_depth(t, batch)) : SIZE_MAX;
}

static uint64_t taken(void *arg)
{
	return whole(arg);
}

/* What every plan has besides passes: so much is there in any case. */
static uint64_t least(struct trainer *t)
{
	return trainer_shard(t)->bytes + trainer_shard(t)->w_bytes;
}

int memory_settle(struct trainer *t, struct err *e)
{
	uint64_t most = t->s->local.remat.memory_bytes, found;
	char have[32], need[32], fits[TRAINER_FITS];

	if (most)
		t->pass.segments = memory_fewest(&t->profile, &t->pass, most, least(t), taken, t, &found);
	if (!most || t->pass.segments) {
		t->predicted_bytes = predict_bytes(t, e);
		return t->predicted_bytes ? 0 : -1;
	}
	return err_set(e, ERR_LIMIT, "local.remat.memory: %s are allowed, and policy %s comes down to %s with a "
		"micro-batch of %u, which is %llu bytes more; %s", text_print_size(most, have, sizeof(have)), t->pass.ops->name,
		text_print_size(found, need, sizeof(need)), t->s->local.batch, (unsigned long long)(found - most),
		trainer_fits_text(t, most, fits, sizeof(fits)));
}

static void batch_now(struct trainer *t, uint32_t batch)
{
	profile_free(&t->profile);
	model_profile_at(t, batch);
}

/* With the batch as it is; settle: with as many segments as the spec's memory makes of it. */
static bool fits(struct trainer *t, uint64_t bytes, bool settle)
{
	uint64_t most = t->s->local.remat.memory_bytes, found;

	if (!settle || !most)
		return whole(t) <= bytes;
	return memory_fewest(&t->profile, &t->pass, most, least(t), taken, t, &found) && found <= bytes;
}

/* What is taken grows with the batch. Afterwards everything is as it was. */
static uint32_t largest(struct trainer *t, uint64_t bytes, bool settle)
{
	uint32_t lo = 0, hi = t->s->local.batch;        /* lo fits, hi does not */

	while (hi - lo > 1) {
		uint32_t batch = lo + (hi - lo) / 2;

		batch_now(t, batch);
		if (fits(t, bytes, settle))
			lo = batch;
		else
			hi = batch;
	}
	batch_now(t, t->s->local.batch);
	return lo;
}

uint32_t trainer_fits(struct trainer *t, uint64_t bytes)
{
	return largest(t, bytes, true);
}

/* The fewest segments with which the batch as it is would fit, with the policy that there is when it has any to choose,
 * else with periodic; 0: none, and *ret_least are the bytes that it comes down to. */
static uint32_t segments_that_fit(struct trainer *t, uint64_t bytes, const char **ret_policy, uint64_t *ret_least)
{
	const struct memory_pass was = t->pass;
	uint32_t k;

	t->pass = (struct memory_pass){ .ops = was.ops->counts ? was.ops : memory_find("periodic") };
	*ret_policy = t->pass.ops->name;
	k = memory_fewest(&t->profile, &t->pass, bytes, least(t), taken, t, ret_least);
	t->pass = was;
	return k;
}

/* The largest batch with the square root of all segments. */
static uint32_t smaller_twice(struct trainer *t, uint64_t bytes)
{
	const struct memory_pass was = t->pass;
	uint32_t n;

	t->pass = (struct memory_pass){ .ops = memory_find("periodic") };
	n = largest(t, bytes, false);
	t->pass = was;
	return n;
}

/* Nothing that is easy fits: one sample at a time, in as many segments as it takes. */
static const char *one_sample(struct trainer *t, uint64_t bytes, char *out, size_t cap)
{
	const char *policy;
	uint64_t lowest;
	uint32_t k;

	batch_now(t, 1);
	k = segments_that_fit(t, bytes, &policy, &lowest);
	batch_now(t, t->s->local.batch);
	if (k)
		(void)snprintf(out, cap, "--batch 1 with --remat %s:%u would fit", policy, k);
	else
		(void)snprintf(out, cap, "not even a batch of 1 would fit, with --remat either (%llu bytes are missing): a "
			"smaller model is needed", (unsigned long long)(lowest - bytes));
	return out;
}

const char *trainer_fits_text(struct trainer *t, uint64_t bytes, char *out, size_t cap)
{
	const char *policy;
	uint64_t lowest;
	uint32_t n, k = segments_that_fit(t, bytes, &policy, &lowest);
	char with[100] = "";

	if (k == 1)                             /* the policy that there is cuts too often, or in bad places */
		(void)snprintf(with, sizeof(with), "without --remat it would fit");
	else if (k)
		(void)snprintf(with, sizeof(with), "--remat %s:%u would fit with this batch (forward is computed twice)",
			policy, k);
	n = trainer_fits(t, bytes);
	if (n)
		(void)snprintf(out, cap, "--batch %u would fit%s%s", n, k ? ", or " : "", with);
	else if (k)
		(void)snprintf(out, cap, "%s", with);
	else if ((n = smaller_twice(t, bytes)))
		(void)snprintf(out, cap, "--batch %u with --remat periodic would fit", n);
	else
		return one_sample(t, bytes, out, cap);
	return out;
}
