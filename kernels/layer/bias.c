/* Adds a vector to the last dimension: the bias of a layer whose weight is shared. */
#include "kernels/vec.h"
#include "kernels/layer.h"

static size_t width(const struct layer *l) { return l->in.d[l->in.nd - 1]; }

static int shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	layer_param_add(l, "bias", 1, (size_t[]){ width(l) });
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	for (size_t i = 0; i < l->nparam; i++)
		param[i] = 0;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	size_t n = width(c->l), rows = c->batch * (shape_count(&c->l->in) / n);

	for (size_t r = 0; r < rows; r++)
		for (size_t i = 0; i < n; i++)
			c->y[r * n + i] = c->x[r * n + i] + c->param[i];
}

static void backward(const struct par *par, const struct layer_call *c)
{
	size_t n = width(c->l), rows = c->batch * (shape_count(&c->l->in) / n);

	for (size_t r = 0; r < rows && c->dparam; r++)
		vec_axpy(par, n, 1, c->dy + r * n, c->dparam);
	if (c->dx && c->dx != c->dy)
		vec_copy(par, rows * n, c->dy, c->dx);
}

const struct layer_ops layer_bias = {
	.name = "bias", .help = "adds a vector to the last dimension", .in_place = true,
	.each = 1, .shape = shape, .init = init, .forward = forward, .backward = backward,
};
