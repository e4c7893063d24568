/* The list of layers, and the counter-based randomness that initialises them. */
#include "kernels/layer.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/lookup.h"

#define LAYER(name) extern const struct layer_ops layer_##name;
#include "kernels/layer/list.h"
#undef LAYER

static const struct layer_ops *const all[] = {
#define LAYER(name) &layer_##name,
#include "kernels/layer/list.h"
#undef LAYER
};
LOOKUP(layer);

double layer_attr(const struct layer *l, const char *name)
{
	for (int i = 0; i < l->ops->nattrs; i++)
		if (!strcmp(l->ops->attr[i].name, name))
			return l->attr[i];
	assert(!"a layer asked for an attribute that it does not have");
	return 0;
}

static void add(struct layer_param *p, size_t *n, const char *name, int nd, const size_t *d)
{
	p->name = name;
	p->shape.nd = nd;
	memcpy(p->shape.d, d, (size_t)nd * sizeof *d);
	p->offset = *n;
	p->count = shape_count(&p->shape);
	*n += p->count;
}

void layer_param_add(struct layer *l, const char *name, int nd, const size_t *d)
{
	assert(l->nparams < LAYER_PARAMS_MAX);
	add(&l->param[l->nparams++], &l->nparam, name, nd, d);
}

void layer_buffer_add(struct layer *l, const char *name, int nd, const size_t *d)
{
	assert(l->nbuffers < LAYER_PARAMS_MAX);
	add(&l->buffer[l->nbuffers++], &l->nbuffer, name, nd, d);
}

/* SplitMix64's finaliser: a bijection that mixes every bit into every other. */
static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t rand_bits(uint64_t key, uint64_t index)
{
	return mix(key + 0x9e3779b97f4a7c15u * (index + 1));
}

uint64_t rand_key(uint64_t key, uint64_t part)
{
	return mix(mix(key + 0x632be59bd9b4e019u) ^ rand_bits(0xd1342543de82ef95u, part));
}

double rand_unit(uint64_t key, uint64_t index)
{
	return (double)(rand_bits(key, index) >> 11) * 0x1p-53;
}

void rand_uniform(uint64_t key, double bound, size_t n, real *ret_x)
{
	for (size_t i = 0; i < n; i++)
		ret_x[i] = (real)((2 * rand_unit(key, i) - 1) * bound);
}

/* log x for 0 < x <= 1 by + - * / alone, so that it has the same bits on every machine: x = m 2^e with m in
 * [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)) as a series. */
static double log_exact(double x)
{
	double n = 0, t, t2, sum = 0;

	while (x < 0.70710678118654752) {
		x *= 2;
		n -= 1;
	}
	t = (x - 1) / (x + 1);
	t2 = t * t;
	for (int k = 23; k > 0; k -= 2)
		sum = sum * t2 + 1.0 / k;
	return n * 0.69314718055994531 + 2 * t * sum;
}

void rand_normal(uint64_t key, double std, size_t n, real *ret_x)
{
	for (size_t i = 0; i < n; i += 2) {
		uint64_t pair = rand_key(key, i);
		double u = 0, v = 0, s = 0, f;

		for (uint64_t k = 0; s >= 1 || s == 0; k += 2) {
			u = 2 * rand_unit(pair, k) - 1;
			v = 2 * rand_unit(pair, k + 1) - 1;
			s = u * u + v * v;
		}
		f = std * sqrt(-2 * log_exact(s) / s);
		ret_x[i] = (real)(f * u);
		if (i + 1 < n)
			ret_x[i + 1] = (real)(f * v);
	}
}

void layer_init(const struct layer *l, uint64_t key, double bound, double std, real *ret_param)
{
	for (int i = 0; i < l->nparams; i++) {
		const struct layer_param *p = &l->param[i];

		if (std > 0)
			rand_normal(rand_key(key, (uint64_t)i), i ? 0 : std, p->count, ret_param + p->offset);
		else
			rand_uniform(rand_key(key, (uint64_t)i), bound, p->count, ret_param + p->offset);
	}
}
