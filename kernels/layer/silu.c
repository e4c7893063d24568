/* x sigmoid(x), torch.nn.SiLU. */
#include "kernels/fastmath.h"
#include "kernels/isa.h"
#include "kernels/layer.h"

struct args { const real *x, *dy; real *to; };

static inline __attribute__((always_inline)) real silu_slope(real x)
{
	real s = fast_sigmoid(x);

	return s * (1 + x * (1 - s));
}

ISA_BODY curve_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x;
	real *y = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = x[i] * fast_sigmoid(x[i]);
}
ISA_KERNEL(curve);

ISA_BODY curve_slope_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x, *dy = s->dy;
	real *dx = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		dx[i] = dy[i] * silu_slope(x[i]);
}
ISA_KERNEL(curve_slope);

static int shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	return 0;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	isa_run(par, &curve, &(struct args){ .x = c->x, .to = c->y },
		c->batch * shape_count(&c->l->in), 1024, 8192);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dx)
		isa_run(par, &curve_slope, &(struct args){ .x = c->x, .dy = c->dy, .to = c->dx },
			c->batch * shape_count(&c->l->in), 1024, 8192);
}

const struct layer_ops layer_silu = {
	.name = "silu", .help = "x sigmoid(x)", .needs_x = true,
	.each = 5, .shape = shape, .forward = forward, .backward = backward,
};
