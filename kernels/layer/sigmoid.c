/* 1 / (1 + exp(-x)), torch.nn.Sigmoid. Backward from the output, so that it may work in place. */
#include "kernels/layer/curve.h"

CURVE(curve, fast_sigmoid(x));
CURVE_SLOPE(slope, d * (v * (1 - v)));

static void forward(const struct par *par, const struct layer_call *c)
{
	curve_forward(par, c, &curve, CURVE_HEAVY);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	curve_backward(par, c, &slope, c->y, CURVE_LIGHT);
}

const struct layer_ops layer_sigmoid = {
	.name = "sigmoid", .help = "1 / (1 + exp(-x))", .needs_y = true, .in_place = true,
	.each = 4, .shape = curve_shape, .forward = forward, .backward = backward,
};
