/* periodic: segments of equal numbers of units, the square root of all unless said: of n equal layers in k segments no
 * more than k + n / k activations are there at once (Chen et al., arXiv:1604.06174; PyTorch's checkpoint_sequential).
 * It may be cut wherever one value flows, but not where kernels go over memory for two layers at once. */
#include "train/memory.h"

static uint32_t cuts(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how, uint32_t *ret)
{
	uint32_t n = 0;

	for (uint32_t i = a + 1; i <= b; i++)
		if (m->op[i].flows <= 1 && !m->op[i].goes_on)
			ret[n++] = i;
	return n;
}

static uint32_t usual(uint32_t units)
{
	uint32_t k = 1;

	while ((uint64_t)(k + 1) * (k + 1) <= units)
		k++;
	return k;
}

const struct memory_ops memory_periodic = { .name = "periodic", .help = "equal segments, the square root of all",
	.counts = true, .cuts = cuts, .usual = usual };
