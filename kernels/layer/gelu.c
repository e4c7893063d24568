/* Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415), torch.nn.GELU: x Phi(x) by the error function,
 * or its tanh form, which GPT-2 uses. In float both are within 4e-7 max(1, |x|) of the exact values, slopes within
 * 4e-7. */
#include "kernels/layer/curve.h"

enum { TANH };

#define SQRT_HALF ((real)0.70710678118654752)
#define DENSITY ((real)0.39894228040143268)     /* 1 / sqrt(2 pi) */
#define ROOT ((real)0.79788456080286536)        /* sqrt(2 / pi) */
#define CUBE ((real)0.044715)

CURVE_INLINE phi(real x) { return (real)0.5 * (1 + fast_erf(x * SQRT_HALF)); }
/* 0.5 (1 + tanh(u)) = sigmoid(2 u): one exponential and one division. */
CURVE_INLINE twice(real x) { return 2 * ROOT * (x + CUBE * x * x * x); }

/* The density and the distribution need the same exponential. */
CURVE_INLINE bell_at(real x)
{
	real a = x * SQRT_HALF, e = fast_exp_negative(-a * a);

	return (real)0.5 * (1 + fast_erf_of(a, e)) + x * (DENSITY * e);
}

CURVE_INLINE wave_at(real x)
{
	real u = twice(x), e = fast_exp_negative(u < 0 ? u : -u), y = 1 / (1 + e);

	/* s = sigmoid(u), and s (1 - s) = e y y without cancellation */
	return (u < 0 ? e * y : y) + x * (e * y * y) * (2 * ROOT * (1 + 3 * CUBE * x * x));
}

CURVE(bell, x * phi(x));
CURVE_SLOPE(bell_slope, d * bell_at(v));
CURVE(wave, x * fast_sigmoid(twice(x)));
CURVE_SLOPE(wave_slope, d * wave_at(v));

static void forward(const struct par *par, const struct layer_call *c)
{
	curve_forward(par, c, c->l->attr[TANH] != 0 ? &wave : &bell, CURVE_HEAVY);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	curve_backward(par, c, c->l->attr[TANH] != 0 ? &wave_slope : &bell_slope, c->x, CURVE_HEAVY);
}

static uint64_t other(const struct layer *l)
{
	return (uint64_t)shape_count(&l->out) * (l->attr[TANH] != 0 ? 9 : 5);
}

const struct layer_ops layer_gelu = {
	.name = "gelu", .help = "x Phi(x): Gaussian error linear unit", .needs_x = true,
	.nattrs = 1, .attr = { [TANH] = { "tanh", 0, 0, 1, true, "the tanh form" } },
	.other = other, .shape = curve_shape, .forward = forward, .backward = backward,
};
