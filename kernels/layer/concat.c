/* Inputs side by side along one axis (torch.cat; axis 0 is the first after the batch). */
#include <string.h>
#include "kernels/layer.h"

enum { AXIS };

static int shape(struct layer *l, struct kerr *e)
{
	int axis = (int)l->attr[AXIS];
	char a[64], b[64];

	if (axis >= l->in.nd)
		return kerr_set(e, "concat: axis = %d, but its input of shape %s has axes 0 to %d", axis,
			shape_text(&l->in, a, sizeof a), l->in.nd - 1);
	l->out = l->in;
	for (int k = 1; k < l->nin; k++) {
		const struct shape *s = &l->ins[k];
		bool same = s->nd == l->in.nd;

		for (int i = 0; same && i < s->nd; i++)
			same = i == axis || s->d[i] == l->in.d[i];
		if (!same)
			return kerr_set(e, "concat: input %d has shape %s, which does not go beside input 0 of %s on axis %d", k,
				shape_text(s, b, sizeof b), shape_text(&l->in, a, sizeof a), axis);
		l->out.d[axis] += s->d[axis];
	}
	return 0;
}

/* Elements of one run of input k, and how many runs a sample has: what lies outside of the axis. */
static size_t run_of(const struct layer *l, const struct shape *s)
{
	size_t n = 1;

	for (int i = (int)l->attr[AXIS]; i < s->nd; i++)
		n *= s->d[i];
	return n;
}

static void move(const struct layer_call *c, bool back)
{
	const struct layer *l = c->l;
	size_t wide = run_of(l, &l->out), runs = c->batch * (shape_count(&l->out) / wide), at = 0;

	for (int k = 0; k < l->nin; k++) {
		size_t n = run_of(l, &l->ins[k]);

		for (size_t r = 0; r < runs && (!back || c->dxs[k]); r++) {
			if (back)
				memcpy(c->dxs[k] + r * n, c->dy + r * wide + at, n * sizeof(real));
			else
				memcpy(c->y + r * wide + at, c->xs[k] + r * n, n * sizeof(real));
		}
		at += n;
	}
}

static void forward(const struct par *par, const struct layer_call *c) { move(c, false); }
static void backward(const struct par *par, const struct layer_call *c) { move(c, true); }

const struct layer_ops layer_concat = {
	.name = "concat", .help = "inputs side by side along one axis", .inputs_min = 2, .inputs_max = LAYER_INPUTS_MAX,
	.nattrs = 1, .attr = { [AXIS] = { "axis", 0, 0, SHAPE_MAX - 1, true, "0: channels of an image" } },
	.shape = shape, .forward = forward, .backward = backward,
};
