/* One step over a vector of tensors: which of them take weight decay, and for optimizers with a rate per tensor the
 * norms first. Norms are sums over fixed chunks of each tensor (tree.h), so that slices give the bits of the whole. */
#include <assert.h>
#include <string.h>
#include "kernels/optim.h"
#include "kernels/tree.h"

static int decays(const struct optim_call *c, const struct model_param *t)
{
	return c->decay_all || t->shape.nd > 1;
}

/* The hyperparameters for a tensor; weight decay is the key of that name, if the optimizer has one. */
static const double *hyper_of(const struct optim_call *c, const struct model_param *t, double *copy)
{
	int i = optim_key_index(c->ops, "weight_decay");

	if (i < 0 || c->hyper[i] == 0 || decays(c, t))
		return c->hyper;
	memcpy(copy, c->hyper, (size_t)c->ops->nkeys * sizeof(*copy));
	copy[i] = 0;
	return copy;
}

static int measured(const struct optim_call *c, const struct model_param *t)
{
	return c->ops->measure && !(c->ops->plain_vectors && t->shape.nd <= 1);
}

/* Chunks of a tensor; *ret_chunk: elements in each. */
static size_t chunks_of(const struct model_param *t, size_t *ret_chunk)
{
	size_t n = tree_cut(t->count, ret_chunk);

	*ret_chunk *= TREE_BLOCK;
	return n;
}

static double ratio_of(const struct optim_call *c, const struct model_param *t, const double *hyper, const double *part)
{
	struct tree a = { .top = 0 }, b = { .top = 0 };
	size_t chunk, n = chunks_of(t, &chunk);
	double sum[2];

	if (!measured(c, t))
		return 1;
	for (size_t i = 0; i < n; i++) {
		tree_push(&a, part[2 * i]);
		tree_push(&b, part[2 * i + 1]);
	}
	sum[0] = tree_total(&a);
	sum[1] = tree_total(&b);
	return c->ops->ratio(hyper, sum);
}

/* What of [lo, hi) lies in tensor t. */
static size_t overlap(const struct model_param *t, size_t lo, size_t hi, size_t *ret_at)
{
	size_t from = lo > t->offset ? lo : t->offset, to = t->offset + t->count < hi ? t->offset + t->count : hi;

	*ret_at = from;
	return to > from ? to - from : 0;
}

/* Neighbours that are treated alike are one call: without weight decay the whole vector is. */
static void apply_elements(const struct optim_call *c, size_t lo, size_t hi)
{
	int key = optim_key_index(c->ops, "weight_decay"), same = key < 0 || c->hyper[key] == 0 || c->decay_all;
	double copy[OPTIM_KEYS_MAX];
	size_t from = lo, at;

	for (int i = 0; i < c->ntensors && from < hi; i++) {
		const struct model_param *t = &c->tensor[i];
		size_t n = overlap(t, from, hi, &at);
		int alike = i + 1 < c->ntensors && t->offset + t->count < hi && (same || decays(c, t) == decays(c, t + 1));

		if (!n || alike)
			continue;
		c->ops->step(c->par, hyper_of(c, t, copy), c->clock, c->state, c->param, c->grad, from, at + n - from);
		from = at + n;
	}
}

size_t optim_cut(const struct optim_call *c, size_t at)
{
	for (int i = 0; i < c->ntensors && c->ops->measure; i++) {
		const struct model_param *t = &c->tensor[i];
		size_t chunk;

		if (at < t->offset || at >= t->offset + t->count)
			continue;
		(void)chunks_of(t, &chunk);
		return t->offset + (at - t->offset) / chunk * chunk;
	}
	return at;
}

size_t optim_parts(const struct optim_call *c)
{
	size_t n = 0, chunk;

	for (int i = 0; i < c->ntensors && c->ops->measure; i++)
		n += 2 * chunks_of(&c->tensor[i], &chunk);
	return n;
}

void optim_measure(const struct optim_call *c, size_t lo, size_t n, double *part)
{
	double copy[OPTIM_KEYS_MAX];
	size_t chunk, at;

	for (int i = 0; i < c->ntensors && c->ops->measure; i++) {
		const struct model_param *t = &c->tensor[i];
		size_t chunks = chunks_of(t, &chunk), len = overlap(t, lo, lo + n, &at);

		if (len && measured(c, t)) {
			assert((at - t->offset) % chunk == 0);
			c->ops->measure(c->par, hyper_of(c, t, copy), c->clock, c->state, c->param, c->grad, at, len, chunk,
				part + 2 * ((at - t->offset) / chunk));
		}
		part += 2 * chunks;
	}
}

void optim_apply(const struct optim_call *c, size_t lo, size_t n, const double *part)
{
	double copy[OPTIM_KEYS_MAX];
	size_t chunk, at;

	if (!c->ops->measure) {
		apply_elements(c, lo, lo + n);
		return;
	}
	for (int i = 0; i < c->ntensors; i++) {
		const struct model_param *t = &c->tensor[i];
		const double *hyper = hyper_of(c, t, copy);
		size_t len = overlap(t, lo, lo + n, &at);

		if (len)
			c->ops->apply(c->par, hyper, c->clock, c->state, c->param, c->grad, at, len, ratio_of(c, t, hyper, part));
		part += 2 * chunks_of(t, &chunk);
	}
}

/* Tensor by tensor: while one is in the cache, and with the parts of one on the stack. */
void optim_step(const struct optim_call *c)
{
	double part[2 * TREE_CHUNKS];
	struct optim_call one = *c;

	if (!c->ops->measure) {
		if (c->ntensors)
			apply_elements(c, 0, c->tensor[c->ntensors - 1].offset + c->tensor[c->ntensors - 1].count);
		return;
	}
	for (one.ntensors = 1; one.tensor < c->tensor + c->ntensors; one.tensor++) {
		optim_measure(&one, one.tensor->offset, one.tensor->count, part);
		optim_apply(&one, one.tensor->offset, one.tensor->count, part);
	}
}
