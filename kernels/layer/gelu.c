/* Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415), torch.nn.GELU: x Phi(x) by the error function,
 * or its tanh form, which GPT-2 uses. */
#include "kernels/fastmath.h"
#include "kernels/isa.h"
#include "kernels/layer.h"

enum { TANH };

#define SQRT_HALF ((real)0.70710678118654752)
#define DENSITY ((real)0.39894228040143268)     /* 1 / sqrt(2 pi) */
#define ROOT ((real)0.79788456080286536)        /* sqrt(2 / pi) */
#define CUBE ((real)0.044715)

struct args { const real *x, *dy; real *to; };

#define INLINE static inline __attribute__((always_inline)) real

INLINE phi(real x) { return (real)0.5 * (1 + fast_erf(x * SQRT_HALF)); }
INLINE bell_at(real x) { return phi(x) + x * (DENSITY * fast_exp_negative((real)-0.5 * x * x)); }
INLINE inner(real x) { return ROOT * (x + CUBE * x * x * x); }

INLINE wave_at(real x)
{
	real t = fast_tanh(inner(x));

	return (real)0.5 * (1 + t) + (real)0.5 * x * (1 - t * t) * (ROOT * (1 + 3 * CUBE * x * x));
}

ISA_BODY bell_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x;
	real *y = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = x[i] * phi(x[i]);
}
ISA_KERNEL(bell);

ISA_BODY bell_slope_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x, *dy = s->dy;
	real *dx = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		dx[i] = dy[i] * bell_at(x[i]);
}
ISA_KERNEL(bell_slope);

ISA_BODY wave_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x;
	real *y = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = (real)0.5 * x[i] * (1 + fast_tanh(inner(x[i])));
}
ISA_KERNEL(wave);

ISA_BODY wave_slope_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x, *dy = s->dy;
	real *dx = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		dx[i] = dy[i] * wave_at(x[i]);
}
ISA_KERNEL(wave_slope);

static int shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	return 0;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	isa_run(par, c->l->attr[TANH] != 0 ? &wave : &bell, &(struct args){ .x = c->x, .to = c->y },
		c->batch * shape_count(&c->l->in), 1024, 8192);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	if (c->dx)
		isa_run(par, c->l->attr[TANH] != 0 ? &wave_slope : &bell_slope, &(struct args){ .x = c->x, .dy = c->dy,
			.to = c->dx },
			c->batch * shape_count(&c->l->in), 1024, 8192);
}

const struct layer_ops layer_gelu = {
	.name = "gelu", .help = "x Phi(x): Gaussian error linear unit", .needs_x = true,
	.nattrs = 1, .attr = { [TANH] = { "tanh", 0, 0, 1, true, "the tanh form" } },
	.shape = shape, .forward = forward, .backward = backward,
};
