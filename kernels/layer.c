/* The list of layers, and the counter-based randomness that initialises them. */
#include "kernels/layer.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

#define LAYER(name) extern const struct layer_ops layer_##name;
#include "kernels/layer/list.h"
#undef LAYER

static const struct layer_ops *const all[] = {
#define LAYER(name) &layer_##name,
#include "kernels/layer/list.h"
#undef LAYER
};
#define COUNT ((int)(sizeof all / sizeof *all))

const struct layer_ops *layer_at(int i)
{
	return i >= 0 && i < COUNT ? all[i] : NULL;
}

const struct layer_ops *layer_find(const char *type)
{
	for (int i = 0; i < COUNT; i++)
		if (!strcmp(all[i]->name, type))
			return all[i];
	return NULL;
}

const char *layer_names(char *out, size_t cap)
{
	size_t at = 0;

	assert(cap > 0);
	out[0] = 0;
	for (int i = 0; i < COUNT && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%s", i ? " " : "", all[i]->name);
	return out;
}

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
