/* The memory of a shard and the names of what lies in it. */
#include "state/shard.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

/* --- memory */

static size_t w_bytes_of(const struct layout *l, struct extent param, struct extent stat)
{
	return (extent_len(param) + extent_len(stat)) * l->unit;
}

static size_t opt_bytes_of(const struct layout *l, struct extent param, size_t w)
{
	return layout_opt_bytes(w, l->nopt * extent_len(param) * l->unit, layout_clock(l));
}

size_t shard_bytes(const struct layout *l, struct extent param, struct extent stat)
{
	size_t w = w_bytes_of(l, param, stat);

	return w + opt_bytes_of(l, param, w) + l->nextra * w;
}

void *shard_clock(const struct shard *s)
{
	return (char *)s->block + s->w_bytes + s->opt_bytes - shard_clock_bytes(s);
}

double shard_scale(const struct shard *s)
{
	double c[STATE_CLOCK_MAX] = { 0 };

	memcpy(c, shard_clock(s), shard_clock_bytes(s));
	return c[STATE_CLOCK];
}

void *shard_extra(const struct shard *s, uint32_t k)
{
	return (char *)s->block + s->w_bytes + s->opt_bytes + k * s->w_bytes;
}

void shard_clock_reset(struct shard *s)
{
	const double none[STATE_CLOCK_MAX] = { 0, 1, 1, s->l->scale, 0 };       /* kernels/optim.h, kernels/scale.h */

	memcpy(shard_clock(s), none, shard_clock_bytes(s));
}

void shard_begin(struct shard *s)
{
	for (uint32_t k = 0; k < s->l->nbegin; k++)
		memcpy(shard_extra(s, k), s->block, s->w_bytes);
}

/* --- names */

bool shard_may_cut(const struct layout *l, uint64_t at)
{
	if (!at || at == l->params || !(at % STATE_CUT))
		return true;
	for (size_t i = 0; i < l->ntensors; i++)
		if (l->tensor[i].at == at)
			return true;
	return false;
}

/* Those of elements x, at the beginning of which base lies. */
static int add(struct shard *s, const char *prefix, struct extent x, char *base, struct err *e)
{
	const struct layout *l = s->l;
	enum ckpt_dtype type = l->unit == sizeof(double) ? CKPT_F64 : CKPT_F32;

	for (size_t i = 0; i < l->ntensors; i++) {
		const struct layout_tensor *t = &l->tensor[i];
		uint64_t lo = t->at > x.lo ? t->at : x.lo, hi = t->at + t->n < x.hi ? t->at + t->n : x.hi, n;
		bool whole = lo == t->at && hi == t->at + t->n;
		char name[CKPT_NAME];

		if (lo >= hi)
			continue;
		n = hi - lo;
		s->of[s->ntensors] = t;
		if (whole)
			(void)snprintf(name, sizeof(name), "%s%s", prefix, t->name);
		else
			(void)snprintf(name, sizeof(name), "%s%s@%" PRIu64, prefix, t->name, lo - t->at);
		if (ckpt_tensor(&s->tensor[s->ntensors++], name, type, whole ? (unsigned)t->nd : 1, whole ? t->shape : &n,
		    base + (lo - x.lo) * l->unit, e) < 0)
			return -1;
		assert(s->tensor[s->ntensors - 1].bytes == n * l->unit);
	}
	return 0;
}

static int add_all(struct shard *s, const char *prefix, char *base, struct err *e)
{
	struct extent stat = { s->l->params + s->stat.lo, s->l->params + s->stat.hi };

	return add(s, prefix, s->param, base, e) < 0 ? -1 :
		add(s, prefix, stat, base + extent_len(s->param) * s->l->unit, e);
}

/* The order is that of checkpoints: parameters, optimizer, running statistics, the strategy's, clock. */
static int name_tensors(struct shard *s, struct err *e)
{
	const struct layout *l = s->l;
	struct extent stat = { l->params + s->stat.lo, l->params + s->stat.hi };
	size_t one = extent_len(s->param) * l->unit;
	char prefix[STATE_VECTOR_NAME + 16];

	s->tensor = xcalloc(l->ntensors * (1 + l->nopt + l->nextra) + 1, sizeof(*s->tensor));
	s->of = xcalloc(l->ntensors * (1 + l->nopt + l->nextra) + 1, sizeof(*s->of));
	if (add(s, "", s->param, s->block, e) < 0)
		return -1;
	for (uint32_t k = 0; k < l->nopt; k++) {
		(void)snprintf(prefix, sizeof(prefix), "optimizer.%s.", l->opt[k].name);
		if (add(s, prefix, s->param, (char *)shard_opt(s) + k * one, e) < 0)
			return -1;
	}
	if (add(s, "", stat, (char *)s->block + one, e) < 0)
		return -1;
	for (uint32_t k = 0; k < l->nextra; k++) {
		(void)snprintf(prefix, sizeof(prefix), "averaging.%s.", l->extra[k].name);
		if (add_all(s, prefix, shard_extra(s, k), e) < 0)
			return -1;
	}
	return ckpt_tensor(&s->tensor[s->ntensors++], "optimizer.clock", CKPT_F64, 1, &(uint64_t){ layout_clock(s->l) },
		shard_clock(s), e);
}

int shard_new(struct shard *ret, const struct layout *l, struct extent param, struct extent stat, struct err *e)
{
	struct shard *s = ret;

	assert(param.lo <= param.hi && param.hi <= l->params && stat.lo <= stat.hi && stat.hi <= l->stats);
	assert(shard_may_cut(l, param.lo) && shard_may_cut(l, param.hi));
	*s = (struct shard){ .l = l, .param = param, .stat = stat };
	s->w_bytes = w_bytes_of(l, param, stat);
	s->opt_bytes = opt_bytes_of(l, param, s->w_bytes);
	s->bytes = shard_bytes(l, param, stat);
	s->block = big_alloc(s->bytes);
	if (!s->block) {
		(void)err_set(e, ERR_NOMEM, "no memory for the state of %" PRIu64 " parameters (%zu bytes)", extent_len(param),
			s->bytes);
		*s = (struct shard){ 0 };
		return -1;
	}
	shard_clock_reset(s);
	if (name_tensors(s, e) < 0) {
		shard_free(s);
		return -1;
	}
	return 0;
}

void shard_free(struct shard *s)
{
	big_free(s->block, s->bytes);
	free(s->tensor);
	free(s->of);
	*s = (struct shard){ 0 };
}

/* --- looking */

static bool power_of_two(double x)
{
	int exponent;

	return x >= 1 && isfinite(x) && frexp(x, &exponent) == 0.5;
}

/* scaled: it has the last two. */
static int clock_look(const double c[STATE_CLOCK_MAX], bool scaled, struct err *e)
{
	if (!(c[0] >= 0 && c[0] < 9007199254740992.0 && c[0] == floor(c[0])) || !isfinite(c[1]) || !isfinite(c[2]))
		return err_set(e, ERR_CORRUPT, "state: optimizer.clock is no clock (step %g)", c[0]);
	if (scaled && !(power_of_two(c[3]) && c[4] >= 0 && c[4] < 9007199254740992.0 && c[4] == floor(c[4])))
		return err_set(e, ERR_CORRUPT, "state: optimizer.clock has no scale of a loss (%g, for %g steps)", c[3], c[4]);
	return 0;
}

int shard_clock_look(const struct shard *s, struct err *e)
{
	double c[STATE_CLOCK_MAX];

	memcpy(c, shard_clock(s), shard_clock_bytes(s));
	return clock_look(c, s->l->scale > 0, e);
}

static int name_bad(const struct shard *s, size_t byte, struct err *e)
{
	for (size_t i = 0; i < s->ntensors; i++) {
		size_t at = (size_t)((const char *)s->tensor[i].data - (const char *)s->block);

		if (byte >= at && byte < at + s->tensor[i].bytes)
			return err_set(e, ERR_NONFINITE, "state: %s has a value that is not finite (element %zu)",
				s->tensor[i].name, (byte - at) / s->l->unit);
	}
	return err_set(e, ERR_NONFINITE, "state: a value that is not finite (byte %zu)", byte);
}

/* Numbers in bytes from .. to of the block, of which those from off on lie at p, len bytes. */
static int look_range(const struct shard *s, size_t from, size_t to, size_t off, const char *p, size_t len,
	shard_bad_fn *bad, void *arg, struct err *e)
{
	size_t unit = s->l->unit, n, first;

	from = from > off ? from : off;
	to = to < off + len ? to : off + len;
	if (from >= to)
		return 0;
	n = (to - from) / unit;
	first = bad(arg, n, p + (from - off));
	return first < n ? name_bad(s, from + first * unit, e) : 0;
}

static const void *in_block(void *arg, size_t off, size_t *ret_len)
{
	const struct shard *s = arg;

	*ret_len = s->bytes - off;
	return (const char *)s->block + off;
}

int shard_look(const struct shard *s, shard_bad_fn *bad, void *bad_arg, shard_at_fn *at, void *at_arg, struct err *e)
{
	size_t extra = s->w_bytes + s->opt_bytes, ticks = shard_clock_bytes(s), tick = extra - ticks, len;
	size_t numbers = s->w_bytes + s->l->nopt * extent_len(s->param) * s->l->unit;
	double c[STATE_CLOCK_MAX];

	for (size_t off = 0; off < s->bytes; off += len) {
		const char *p = at ? at(at_arg, off, &len) : in_block((void *)s, off, &len);

		if (look_range(s, 0, numbers, off, p, len, bad, bad_arg, e) < 0 ||
		    look_range(s, extra, s->bytes, off, p, len, bad, bad_arg, e) < 0)
			return -1;
		for (size_t i = 0; i < ticks; i++)
			if (tick + i >= off && tick + i < off + len)
				((char *)c)[i] = p[tick + i - off];
	}
	return clock_look(c, s->l->scale > 0, e);
}

/* --- one from another */

/* Elements x lie at to, elements y at from. */
static bool copy_common(struct extent x, char *to, struct extent y, const char *from, uint32_t unit)
{
	uint64_t lo = x.lo > y.lo ? x.lo : y.lo, hi = x.hi < y.hi ? x.hi : y.hi;

	if (lo >= hi)
		return false;
	memcpy(to + (lo - x.lo) * unit, from + (lo - y.lo) * unit, (hi - lo) * unit);
	return true;
}

/* Parameters and running statistics of a vector that is as long as w. */
static bool copy_all(const struct shard *to, char *x, const struct shard *from, const char *y)
{
	uint32_t unit = to->l->unit;
	bool some = copy_common(to->param, x, from->param, y, unit);

	return copy_common(to->stat, x + extent_len(to->param) * unit, from->stat, y + extent_len(from->param) * unit,
		unit) || some;
}

bool shard_copy(struct shard *to, const struct shard *from)
{
	size_t x = extent_len(to->param) * to->l->unit, y = extent_len(from->param) * to->l->unit;
	bool some = copy_all(to, to->block, from, from->block);

	for (uint32_t k = 0; k < to->l->nopt; k++)
		(void)copy_common(to->param, (char *)shard_opt(to) + k * x, from->param, (char *)shard_opt(from) + k * y,
			to->l->unit);
	for (uint32_t k = 0; k < to->l->nextra; k++)
		(void)copy_all(to, shard_extra(to, k), from, shard_extra(from, k));
	if (extent_len(from->param))
		memcpy(shard_clock(to), shard_clock(from), shard_clock_bytes(to));
	return some;
}

/* --- the digest of w */

void shard_digest_parts(const struct shard *s, struct buf *ret_params, struct buf *ret_stats)
{
	uint64_t all = layout_elements(s->l);

	digest_part(s->block, s->param.lo, extent_len(s->param), all, s->l->unit, ret_params);
	digest_part((const char *)s->block + extent_len(s->param) * s->l->unit, s->l->params + s->stat.lo,
		extent_len(s->stat), all, s->l->unit, ret_stats);
}

bool shard_is_whole(const struct shard *s)
{
	return extent_len(s->param) == s->l->params && extent_len(s->stat) == s->l->stats;
}
