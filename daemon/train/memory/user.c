/* user: what the marked layers make is kept, and nothing else (the first of PyTorch's two ways). */
#include "common/planted.h"
#include "train/memory.h"

static uint32_t cuts(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how, uint32_t *ret)
{
	uint32_t n = 0;

	for (uint32_t k = PLANTED(MARK_MISSED); k < how->nmarks; k++)
		if (how->mark[k] >= a && how->mark[k] < b)
			ret[n++] = how->mark[k] + 1;
	return n;
}

static uint32_t usual(uint32_t units)
{
	return units;
}

const struct memory_ops memory_user = { .name = "user", .help = "what marked layers make is kept", .marks = true,
	.cuts = cuts, .usual = usual };
