/* Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415), torch.nn.GELU: x Phi(x) by the error function,
 * or its tanh form, which GPT-2 uses. In float both are within 4e-7 max(1, |x|) of the exact values, slopes within
 * 4e-7. */
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
/* 0.5 (1 + tanh(u)) = sigmoid(2 u): one exponential and one division. */
INLINE twice(real x) { return 2 * ROOT * (x + CUBE * x * x * x); }

/* The density and the distribution need the same exponential. */
INLINE bell_at(real x)
{
	real a = x * SQRT_HALF, e = fast_exp_negative(-a * a);

	return (real)0.5 * (1 + fast_erf_of(a, e)) + x * (DENSITY * e);
}

INLINE wave_at(real x)
{
	real u = twice(x), e = fast_exp_negative(u < 0 ? u : -u), y = 1 / (1 + e);

	/* s = sigmoid(u), and s (1 - s) = e y y without cancellation */
	return (u < 0 ? e * y : y) + x * (e * y * y) * (2 * ROOT * (1 + 3 * CUBE * x * x));
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
		y[i] = x[i] * fast_sigmoid(twice(x[i]));
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

static uint64_t other(const struct layer *l)
{
	return (uint64_t)shape_count(&l->out) * (l->attr[TANH] != 0 ? 9 : 5);
}

const struct layer_ops layer_gelu = {
	.name = "gelu", .help = "x Phi(x): Gaussian error linear unit", .needs_x = true,
	.nattrs = 1, .attr = { [TANH] = { "tanh", 0, 0, 1, true, "the tanh form" } },
	.other = other, .shape = shape, .forward = forward, .backward = backward,
};
