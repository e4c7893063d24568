/* Mean squared error (torch.nn.MSELoss), mean over the sample's outputs. */
#include "kernels/layer.h"

static double rows(size_t lo, size_t hi, size_t n, const real *out, const void *target, double scale, real *dout,
	size_t *correct)
{
	const real *want = target;
	double sum = 0;

	for (size_t i = lo; i < hi; i++) {
		double row = 0;

		for (size_t j = i * n; j < (i + 1) * n; j++) {
			double d = (double)out[j] - (double)want[j];

			row += d * d;
			if (dout)
				dout[j] = (real)(scale * 2 * d / (double)n);
		}
		sum += row / (double)n;
	}
	return sum;
}

const struct loss_ops loss_mse = {
	.name = "mse", .help = "mean squared error", .target = TARGET_REAL, .rows = rows,
};
