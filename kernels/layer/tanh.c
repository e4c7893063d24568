/* Hyperbolic tangent, torch.nn.Tanh. Backward from the output, so that it may work in place. */
#include <math.h>
#include "kernels/layer.h"

struct job { const struct layer_call *c; size_t n; };

static int shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	return 0;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	const real *x = j->c->x;
	real *y = j->c->y;
	size_t lo, hi;

	par_slice(j->n, 256, part, parts, &lo, &hi);
	for (size_t i = lo; i < hi; i++)
		y[i] = (real)(tanh((double)x[i]));
}

static void forward(const struct par *par, const struct layer_call *c)
{
	struct job j = { c, c->batch * shape_count(&c->l->in) };

	par_run(par, forward_part, &j);
}

static void backward_part(void *arg, int part, int parts)
{
	const struct job *j = arg;
	const real *y = j->c->y, *dy = j->c->dy;
	real *dx = j->c->dx;
	size_t lo, hi;

	par_slice(j->n, 256, part, parts, &lo, &hi);
	for (size_t i = lo; i < hi; i++)
		dx[i] = dy[i] * (1 - y[i] * y[i]);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	struct job j = { c, c->batch * shape_count(&c->l->in) };

	if (c->dx)
		par_run(par, backward_part, &j);
}

const struct layer_ops layer_tanh = {
	.name = "tanh", .help = "hyperbolic tangent", .needs_y = true, .in_place = true,
	.shape = shape, .forward = forward, .backward = backward,
};
