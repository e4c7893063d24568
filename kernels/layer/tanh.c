/* Hyperbolic tangent, torch.nn.Tanh. Backward from the output, so that it may work in place. */
#include "kernels/layer/curve.h"

CURVE(curve, fast_tanh(x));
CURVE_SLOPE(slope, d * (1 - v * v));

static void forward(const struct par *par, const struct layer_call *c)
{
	curve_forward(par, c, &curve, CURVE_HEAVY);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	curve_backward(par, c, &slope, c->y, CURVE_LIGHT);
}

const struct layer_ops layer_tanh = {
	.name = "tanh", .help = "hyperbolic tangent", .needs_y = true, .in_place = true,
	.each = 1, .shape = curve_shape, .forward = forward, .backward = backward,
};
