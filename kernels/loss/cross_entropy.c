/* Softmax cross entropy over class indices (torch.nn.functional.cross_entropy): log sum exp(z) - z[target]. */
#include <math.h>
#include "kernels/layer.h"

static int check(const struct shape *out, struct kerr *e)
{
	char text[64];

	if (out->nd != 1 || out->d[0] < 2)
		return kerr_set(e,
			"loss cross_entropy needs one row of at least 2 scores per sample, not an output of shape "
			"%s", shape_text(out, text, sizeof text));
	return 0;
}

static double rows(size_t lo, size_t hi, size_t n, const real *out, const void *target, double scale, real *dout,
	size_t *correct)
{
	const int32_t *label = target;
	double sum = 0;

	for (size_t i = lo; i < hi; i++) {
		const real *z = out + i * n;
		size_t best = 0, t = (size_t)label[i];
		double total = 0;

		for (size_t j = 1; j < n; j++)
			if (z[j] > z[best])
				best = j;
		for (size_t j = 0; j < n; j++)
			total += exp((double)z[j] - (double)z[best]);
		sum += log(total) + (double)z[best] - (double)z[t];
		*correct += best == t;
		for (size_t j = 0; dout && j < n; j++)
			dout[i * n + j] = (real)(scale * (exp((double)z[j] - (double)z[best]) / total - (j == t)));
	}
	return sum;
}

const struct loss_ops loss_cross_entropy = {
	.name = "cross_entropy", .help = "softmax cross entropy over class labels",
	.target = TARGET_CLASS, .check = check, .rows = rows,
};
