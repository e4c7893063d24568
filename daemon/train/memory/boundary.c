/* boundary: what flows from one block of the model to the next is kept (the boundary inputs of GPipe, arXiv:1811.06965,
 * with a block in the place of a stage). A residual block begins where one value becomes several ways and ends where
 * they have come together; a model without such ways has a block for each layer with parameters. */
#include "train/memory.h"

static bool parts(const struct profile *m, uint32_t i)
{
	return m->op[i].flows <= 1 && !m->op[i].goes_on;
}

/* Before op i several values flow, or one behind it: a block begins, or has ended there. */
static bool branches(const struct profile *m, uint32_t a, uint32_t b)
{
	for (uint32_t i = a + 1; i <= b; i++)
		if (m->op[i].flows > 1)
			return true;
	return false;
}

static uint32_t cuts(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how, uint32_t *ret)
{
	bool ways = branches(m, a, b), inside = false;
	uint32_t n = 0;

	for (uint32_t i = a + 1; i <= b; i++) {
		bool begins = ways ? inside || (i < b && m->op[i + 1].flows > 1) : m->op[i].param_bytes > 0;

		if (parts(m, i) && begins)
			ret[n++] = i;
		inside = m->op[i].flows > 1 || (inside && !parts(m, i));
	}
	return n;
}

static uint32_t usual(uint32_t units)
{
	return units;
}

const struct memory_ops memory_boundary = { .name = "boundary", .help = "what flows between blocks is kept",
	.counts = true, .cuts = cuts, .usual = usual };
