/* Softmax cross entropy of a sequence whose parts weigh differently, as text and image tokens in one sequence:
 * L = (w_text CE_text + w_image CE_image) / (w_text + w_image), each CE the mean over its part (DALL-E's loss: Ramesh
 * et al., arXiv:2102.12092, section 2.2). The parts are options (struct loss). */
#include "kernels/loss/cross_entropy.h"

static int check(const struct shape *out, struct kerr *e)
{
	char text[64];

	if (out->nd != 2 || out->d[1] < 2)
		return kerr_set(e, "loss parts needs a sequence of scores [positions, classes] per sample, not an output of "
			"shape %s", shape_text(out, text, sizeof text));
	return 0;
}

const struct loss_ops loss_parts = {
	.name = "parts", .help = "softmax cross entropy of a sequence whose parts have weights",
	.target = TARGET_CLASS, .counts = true, .check = check, .rows = cross_entropy_rows,
};
