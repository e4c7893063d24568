/* The registry of VEC functions. */
#include <string.h>
#include "exec/vec.h"

#define VEC(x) extern const struct vec_ops fn_##x;
#include "exec/vec/list.h"
#undef VEC

static const struct vec_ops *const list[] = {
#define VEC(x) &fn_##x,
#include "exec/vec/list.h"
#undef VEC
	NULL
};

const struct vec_ops *vec_find(const char *name)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

const struct vec_ops *vec_at(int i)
{
	return i >= 0 && i < (int)(sizeof(list) / sizeof(*list)) - 1 ? list[i] : NULL;
}

struct vec_arg *vec_arg_of(struct vec_arg *v, uint32_t n, enum plan_class class)
{
	for (uint32_t k = 0; k < n; k++)
		if (v[k].class == class)
			return &v[k];
	return NULL;
}

double vec_scale_of(const struct vec_arg *v, uint32_t n, uint32_t from)
{
	for (uint32_t k = from; k < n; k++)
		if (v[k].class == PLAN_SCALAR)
			return *vec_scalar(&v[k]);
	return 0;
}

uint32_t vec_joined(const struct vec_arg *v, uint32_t n, struct vec_arg *ret)
{
	uint32_t k = 1;

	*ret = v[0];
	for (; k < n && v[0].class == PLAN_WEIGHT_GRAD && v[k].class == PLAN_WEIGHT_GRAD; k++) {
		if (!v[k].part || v[k].lo != ret->hi || (char *)v[k].p != (char *)ret->p + ret->bytes)
			return 0;
		ret->hi = v[k].hi;
		ret->bytes += v[k].bytes;
		ret->lent = ret->lent || v[k].lent;
		ret->part = false;
	}
	return k;
}

int vec_goes_on(struct vec_call *c, uint32_t k, uint32_t from)
{
	const struct vec_arg *in = &c->in[from], *out = &c->out[k];

	if (in->bytes != out->bytes)
		return kerr_set(c->e, "output %u has %zu bytes, and what it goes on from (input %u) %zu", k, out->bytes, from,
			in->bytes);
	if (in->p != out->p)
		memcpy(out->p, in->p, in->bytes);
	return 0;
}
