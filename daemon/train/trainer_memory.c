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
	size_t bytes = (size_t)memory_programs(t->strategy, &v, t->s->mode.under_way, e);

	/* parts of gradients lie in memory that stays when none is there */
	return bytes + (bytes && t->s->mode.grows ? trainer_contribution_len(t) * sizeof(real) : 0);
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

int memory_settle(struct trainer *t, struct err *e)
{
	uint64_t most = t->s->local.remat.memory_bytes;
	struct memory_found found = { t->pass.segments };
	char have[32], fits[TRAINER_FITS];
	bool fit = !most || memory_fewest(&t->profile, &t->pass, most, taken, t, &found);

	t->pass.segments = found.segments;
	t->predicted_bytes = predict_bytes(t, e);
	if (!t->predicted_bytes || fit)
		return t->predicted_bytes ? 0 : -1;
	return err_set(e, ERR_LIMIT, "local.remat.memory: %s are allowed, and the least possible with policy %s and a "
		"micro-batch of %u is %llu, in %u segments, which is %llu bytes more; %s",
		text_print_size(most, have, sizeof(have)), t->pass.ops->name, t->s->local.batch,
		(unsigned long long)found.bytes, found.segments, (unsigned long long)(found.bytes - most),
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
	uint64_t most = t->s->local.remat.memory_bytes;
	struct memory_found found;

	if (!settle || !most)
		return whole(t) <= bytes;
	return memory_fewest(&t->profile, &t->pass, most, taken, t, &found) && found.bytes <= bytes;
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
	const struct memory_ops *periodic = memory_find("periodic"), *ops = was.ops->counts ? was.ops : periodic;
	uint32_t k = 0;

	for (*ret_least = UINT64_MAX; ops && !k; ops = ops == periodic ? NULL : periodic) {
		struct memory_found found;

		t->pass = (struct memory_pass){ .ops = ops };
		*ret_policy = ops->name;
		if (memory_fewest(&t->profile, &t->pass, bytes, taken, t, &found))
			k = found.segments;
		*ret_least = found.bytes < *ret_least ? found.bytes : *ret_least;
	}
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

/* One sample at a time, as it is or in as many segments as it takes: into out. false: nothing fits. */
static bool one_sample(struct trainer *t, uint64_t bytes, char *out, size_t cap)
{
	const char *policy;
	uint64_t lowest;
	uint32_t k;
	bool fit;

	batch_now(t, 1);
	k = segments_that_fit(t, bytes, &policy, &lowest);
	fit = k || whole(t) <= bytes;
	batch_now(t, t->s->local.batch);
	if (k)
		(void)snprintf(out, cap, "--batch 1 with --remat %s:%u would fit", policy, k);
	else if (fit)
		(void)snprintf(out, cap, "--batch 1 would fit");
	else
		(void)snprintf(out, cap, "not even a batch of 1 would fit, with --remat either (%llu bytes are missing): a "
			"smaller model is needed", (unsigned long long)(lowest - bytes));
	return fit;
}

const char *trainer_fits_text(struct trainer *t, uint64_t bytes, char *out, size_t cap)
{
	const char *policy;
	uint64_t lowest;
	uint32_t n, k;
	char with[100] = "";

	if (!one_sample(t, bytes, out, cap))    /* nor does anything else */
		return out;
	k = segments_that_fit(t, bytes, &policy, &lowest);
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
	return out;             /* else what one_sample has said */
}
