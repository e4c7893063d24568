/* max(x, 0), torch.nn.ReLU: NaN stays NaN. Backward from the output, so that it may work in place. */
#include "kernels/isa.h"
#include "kernels/layer.h"

struct args { const real *x, *y, *dy; real *to; };

ISA_BODY rect_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x;
	real *y = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = x[i] < 0 ? 0 : x[i];
}
ISA_KERNEL(rect);

ISA_BODY slope_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *y = s->y, *dy = s->dy;
	real *dx = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		dx[i] = y[i] > 0 ? dy[i] : 0;
}
ISA_KERNEL(slope);

static int shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	return 0;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	isa_run(par, &rect, &(struct args){ .x = c->x, .to = c->y }, c->batch * shape_count(&c->l->in), 1024, 32768);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dx)
		isa_run(par, &slope, &(struct args){ .y = c->y, .dy = c->dy, .to = c->dx },
			c->batch * shape_count(&c->l->in), 1024, 32768);
}

const struct layer_ops layer_relu = {
	.name = "relu", .help = "max(x, 0)", .needs_y = true, .in_place = true, .fuse = FUSE_RECTIFY,
	.each = 1, .shape = shape, .forward = forward, .backward = backward,
};
