/* Binary cross entropy on logits (torch.nn.BCEWithLogitsLoss): max(z, 0) - z t + log(1 + exp(-|z|)), mean over the
 * sample's outputs. Targets are in [0, 1]; a sample is right when every output is on its target's side of 1/2. */
#include <math.h>
#include "kernels/layer.h"

static void rows(const struct loss_call *c, size_t lo, size_t hi, double *sum, double *right)
{
	const real *want = c->target;
	size_t n = c->loss->n;

	for (size_t i = lo; i < hi; i++) {
		double row = 0;
		size_t good = 0;

		for (size_t j = i * n; j < (i + 1) * n; j++) {
			double z = (double)c->out[j], t = (double)want[j], small = exp(-fabs(z));

			row += (z > 0 ? z : 0) - z * t + log1p(small);
			good += (z > 0) == (t > 0.5);
			if (c->dout)
				c->dout[j] = (real)(c->scale * ((z >= 0 ? 1 : small) / (1 + small) - t) / (double)n);
		}
		*sum += row / (double)n;
		*right += good == n;
	}
}

const struct loss_ops loss_bce_with_logits = {
	.name = "bce_with_logits", .help = "sigmoid and binary cross entropy against targets in [0, 1]",
	.target = TARGET_REAL, .counts = true, .rows = rows,
};
