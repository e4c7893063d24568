/* What the tests of shards share: a model with running statistics, its layout, cuts at random, fresh values. */
#ifndef TESTS_UNIT_SHARD_KIT_H
#define TESTS_UNIT_SHARD_KIT_H
#include <inttypes.h>
#include "common/mem.h"
#include "common/rng.h"
#include "kernels/model.h"
#include "state/shard.h"
#include "t.h"

#define PARTS 6

static inline struct model *any_model(void)
{
	static const char *const out[] = { "out" };
	const struct layer_desc desc[] = {
		{ .type = "linear", .name = "a", .attr = out, .value = (const double[]){ 70 }, .nattrs = 1 },
		{ .type = "relu", .name = "r" }, { .type = "batchnorm", .name = "n" },
		{ .type = "linear", .name = "b", .attr = out, .value = (const double[]){ 50 }, .nattrs = 1 },
		{ .type = "linear", .name = "c", .attr = out, .value = (const double[]){ 10 }, .nattrs = 1 } };
	struct kerr e = { 0 };
	struct model *m = model_new(&(struct shape){ 1, { 100 } }, desc, sizeof(desc) / sizeof(*desc), NULL, &e);

	if (!m)
		fail_msg("%s", e.text);
	return m;
}

static inline struct layout layout_of(const struct model *m)
{
	struct layout l = { .unit = sizeof(real), .params = m->nparam, .stats = m->nbuffer, .nopt = 2, .nextra = 2,
		.nbegin = 1, .opt = { { "m" }, { "v" } }, .extra = { { "anchor" }, { "momentum" } } };

	for (int i = 0; i < m->nparams; i++)
		assert_true(layout_add(&l, m->param[i].name, m->param[i].shape.nd, (uint64_t[]){ m->param[i].shape.d[0],
			m->param[i].shape.d[1] }, m->param[i].count));
	for (int i = 0; i < m->nbuffers; i++)
		assert_true(layout_add(&l, m->buffer[i].name, 1, (uint64_t[]){ m->buffer[i].count }, m->buffer[i].count));
	assert_false(layout_add(&l, "more", 1, (uint64_t[]){ 1 }, 1));
	return l;
}

/* Somewhere that a shard may end: at a tensor, or at a multiple of STATE_CUT. */
static inline uint64_t cut(struct rng *g, const struct layout *l)
{
	uint64_t n = l->params / STATE_CUT, tensors = 0;

	while (tensors < l->ntensors && l->tensor[tensors].at < l->params)
		tensors++;
	return rng_u64(g) % 2 ? rng_u64(g) % (n + 1) * STATE_CUT : l->tensor[rng_u64(g) % tensors].at;
}

static inline int by_value(const void *x, const void *y)
{
	uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

	return a < b ? -1 : a > b;
}

/* All of it, in up to PARTS shards of which some may be empty. */
static inline size_t cuts(struct rng *g, const struct layout *l, struct extent param[PARTS], struct extent stat[PARTS])
{
	size_t n = 1 + rng_u64(g) % PARTS;
	uint64_t p[PARTS + 1] = { 0 }, s[PARTS + 1] = { 0 };

	for (size_t i = 1; i < n; i++) {
		p[i] = cut(g, l);
		s[i] = rng_u64(g) % (l->stats + 1);
	}
	p[n] = l->params;
	s[n] = l->stats;
	qsort(p, n, sizeof(*p), by_value);
	qsort(s, n, sizeof(*s), by_value);
	for (size_t i = 0; i < n; i++) {
		param[i] = (struct extent){ p[i], p[i + 1] };
		stat[i] = (struct extent){ s[i], s[i + 1] };
	}
	return n;
}

static inline void fresh(const struct model *m, struct shard *s)
{
	real *stats = xcalloc(m->nbuffer, sizeof(*stats));

	memset(s->block, 0, s->bytes);
	assert_int_equal(model_init_part(m, 7, s->param.lo, s->param.hi, shard_w(s)), 0);
	model_init_buffers(m, stats);
	if (shard_stats(s))
		memcpy(shard_stats(s), stats + s->stat.lo, extent_len(s->stat) * sizeof(real));
	shard_clock_reset(s);
	shard_begin(s);
	free(stats);
}

#endif
