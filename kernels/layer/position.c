/* Adds row t of a learned table to position t (GPT-2's and BERT's position embedding): [positions, width]. */
#include "kernels/vec.h"
#include "kernels/layer.h"
#include <math.h>

enum { MAX, STD };

static int shape(struct layer *l, struct kerr *e)
{
	size_t max = (size_t)l->attr[MAX];
	char text[64];

	if (l->in.nd != 2)
		return kerr_set(e, "position needs rows [positions, width], not an input of shape %s",
			shape_text(&l->in, text, sizeof text));
	if (l->in.d[0] > max)
		return kerr_set(e, "position: its input of shape %s has more positions than max = %zu",
			shape_text(&l->in, text, sizeof text), max);
	l->out = l->in;
	layer_param_add(l, "weight", 2, (size_t[]){ max, l->in.d[1] });
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	layer_init(l, key, 0, l->attr[STD], param);
}

static void forward(const struct par *par, const struct layer_call *c)
{
	size_t n = shape_count(&c->l->in);

	for (size_t b = 0; b < c->batch; b++)
		for (size_t i = 0; i < n; i++)
			c->y[b * n + i] = c->x[b * n + i] + c->param[i];
}

static void backward(const struct par *par, const struct layer_call *c)
{
	size_t n = shape_count(&c->l->in);

	for (size_t b = 0; b < c->batch && c->dparam; b++)
		vec_axpy(par, n, 1, c->dy + b * n, c->dparam);
	if (c->dx && c->dx != c->dy)
		vec_copy(par, c->batch * n, c->dy, c->dx);
}

const struct layer_ops layer_position = {
	.name = "position", .help = "adds a learned row for each position", .nattrs = 2, .in_place = true,
	.attr = {
		[MAX] = { "max", NAN, 1, 1 << 24, true, "rows of the table" },
		[STD] = { "std", 1, 1e-9, 1e3, false, "deviation of the initial weights" },
	},
	.each = 1, .shape = shape, .init = init, .forward = forward, .backward = backward,
};
