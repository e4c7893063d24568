/* One of the parts along the first dimension: [k, ...] becomes [...]. Of several token rows, or of one position. */
#include <math.h>
#include <string.h>
#include "kernels/layer.h"

enum { INDEX };

static int shape(struct layer *l, struct kerr *e)
{
	size_t index = (size_t)l->attr[INDEX];
	char text[64];

	if (l->in.nd < 2 || index >= l->in.d[0])
		return kerr_set(e, "select: an input of shape %s has no part %zu that is a tensor",
			shape_text(&l->in, text, sizeof text), index);
	l->out.nd = l->in.nd - 1;
	for (int i = 0; i < l->out.nd; i++)
		l->out.d[i] = l->in.d[i + 1];
	return 0;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	size_t in = shape_count(&c->l->in), n = shape_count(&c->l->out), at = (size_t)c->l->attr[INDEX] * n;

	for (size_t b = 0; b < c->batch; b++)
		memcpy(c->y + b * n, c->x + b * in + at, n * sizeof(real));
}

static void backward(const struct par *par, const struct layer_call *c)
{
	size_t in = shape_count(&c->l->in), n = shape_count(&c->l->out), at = (size_t)c->l->attr[INDEX] * n;

	for (size_t b = 0; b < c->batch && c->dx; b++) {
		memset(c->dx + b * in, 0, in * sizeof(real));
		memcpy(c->dx + b * in + at, c->dy + b * n, n * sizeof(real));
	}
}

const struct layer_ops layer_select = {
	.name = "select", .help = "one part along the first dimension", .nattrs = 1,
	.attr = { [INDEX] = { "index", NAN, 0, 1 << 24, true, "which, from 0" } },
	.shape = shape, .forward = forward, .backward = backward,
};
