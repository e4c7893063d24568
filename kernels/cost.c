/* Operations of layers and pieces, from their shapes. */
#include <assert.h>
#include <stdlib.h>
#include "kernels/cost.h"

static uint64_t macs(const struct layer *l)
{
	return l->ops->macs ? l->ops->macs(l) : 0;
}

static uint64_t other(const struct layer *l)
{
	return l->ops->other ? l->ops->other(l) : (uint64_t)l->ops->each * shape_count(&l->out);
}

void cost_forward(const struct layer *l, size_t batch, struct cost *add)
{
	add->macs += batch * macs(l);
	add->other += batch * other(l);
}

void cost_backward(const struct layer *l, size_t batch, bool dparam, bool dx, struct cost *add)
{
	unsigned times = l->nparam ? (unsigned)dparam + (unsigned)dx : 2;

	add->macs += batch * macs(l) * times;
	if (l->ops->inner && !dx)
		add->macs += batch * l->ops->inner(l);
	add->other += batch * other(l) * 2;
}

/* Adds op i's to v[i - a], or everything to v[0]. */
static void walk(const struct model *m, int a, int b, size_t batch, bool backward, bool want_dx, bool each,
	struct cost *v)
{
	bool *want = calloc((size_t)m->nops + 1, 1);    /* tensors whose gradient is wanted */

	assert(want && a >= 0 && a <= b && b <= m->nops);
	for (int t = 0; t <= a; t++)
		want[t] = want_dx;
	for (int i = a; i < b; i++) {
		const struct model_node *n = &m->node[i];
		bool dx = false;

		for (int k = 0; k < n->nin; k++)
			dx |= want[n->from[k]];
		want[i + 1] = dx || m->op[i].nparam;
		if (!backward)
			cost_forward(&m->op[i], batch, v);
		else if (want[i + 1])
			cost_backward(&m->op[i], batch, true, dx, v);
		v += each;
	}
	free(want);
}

struct cost cost_of(const struct model *m, int a, int b, size_t batch, bool backward, bool want_dx)
{
	struct cost c = { 0 };

	walk(m, a, b, batch, backward, want_dx, false, &c);
	return c;
}

void cost_each(const struct model *m, int a, int b, size_t batch, bool backward, bool want_dx, struct cost *add)
{
	walk(m, a, b, batch, backward, want_dx, true, add);
}
