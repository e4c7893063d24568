/* max(x, 0), torch.nn.ReLU: NaN stays NaN. Backward from the output, so that it may work in place. */
#include "kernels/layer/curve.h"

CURVE(rect, x < 0 ? 0 : x);
CURVE_SLOPE(slope, v > 0 ? d : 0);

static void forward(const struct par *par, const struct layer_call *c)
{
	curve_forward(par, c, &rect, CURVE_LIGHT);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	curve_backward(par, c, &slope, c->y, CURVE_LIGHT);
}

const struct layer_ops layer_relu = {
	.name = "relu", .help = "max(x, 0)", .needs_y = true, .in_place = true, .fuse = FUSE_RECTIFY,
	.each = 1, .shape = curve_shape, .forward = forward, .backward = backward,
};
