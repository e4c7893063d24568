/* x sigmoid(x), torch.nn.SiLU. */
#include "kernels/layer/curve.h"

CURVE_INLINE slope_at(real x)
{
	real s = fast_sigmoid(x);

	return s * (1 + x * (1 - s));
}

CURVE(curve, x * fast_sigmoid(x));
CURVE_SLOPE(slope, d * slope_at(v));

static void forward(const struct par *par, const struct layer_call *c)
{
	curve_forward(par, c, &curve, CURVE_HEAVY);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	curve_backward(par, c, &slope, c->x, CURVE_HEAVY);
}

const struct layer_ops layer_silu = {
	.name = "silu", .help = "x sigmoid(x)", .needs_x = true,
	.each = 5, .shape = curve_shape, .forward = forward, .backward = backward,
};
