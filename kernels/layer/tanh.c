/* Hyperbolic tangent, torch.nn.Tanh. Backward from the output, so that it may work in place. */
#include "kernels/fastmath.h"
#include "kernels/isa.h"
#include "kernels/layer.h"

struct args { const real *x, *y, *dy; real *to; };

ISA_BODY curve_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x;
	real *y = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = fast_tanh(x[i]);
}
ISA_KERNEL(curve);

ISA_BODY slope_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *y = s->y, *dy = s->dy;
	real *dx = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		dx[i] = dy[i] * (1 - y[i] * y[i]);
}
ISA_KERNEL(slope);

static int shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	return 0;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	isa_run(par, &curve, &(struct args){ .x = c->x, .to = c->y }, c->batch * shape_count(&c->l->in), 1024, 8192);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dx)
		isa_run(par, &slope, &(struct args){ .y = c->y, .dy = c->dy, .to = c->dx },
			c->batch * shape_count(&c->l->in), 1024, 32768);
}

const struct layer_ops layer_tanh = {
	.name = "tanh", .help = "hyperbolic tangent", .needs_y = true, .in_place = true,
	.each = 1, .shape = shape, .forward = forward, .backward = backward,
};
