/* Mean squared error (torch.nn.MSELoss), mean over the sample's outputs. */
#include "kernels/layer.h"

static void rows(const struct loss_call *c, size_t lo, size_t hi, double *sum, double *right)
{
	const real *want = c->target;
	size_t n = c->loss->n;

	for (size_t i = lo; i < hi; i++) {
		double row = 0;

		for (size_t j = i * n; j < (i + 1) * n; j++) {
			double d = (double)c->out[j] - (double)want[j];

			row += d * d;
			if (c->dout)
				c->dout[j] = (real)(c->scale * 2 * d / (double)n);
		}
		*sum += row / (double)n;
	}
}

const struct loss_ops loss_mse = {
	.name = "mse", .help = "mean squared error", .target = TARGET_REAL, .rows = rows,
};
