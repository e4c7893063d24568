/* Tied tensors of a pipeline (tied.h). What a member holds, and what it brings to a round, lies end to end in a
 * contribution; so of all stages only two that are neighbours there can have something in common: the last one and,
 * behind it, the first. */
#include <stdlib.h>
#include "common/mem.h"
#include "train/strategy/parts/tied.h"

uint64_t tied_elements(const struct profile *m, uint32_t cut)
{
	uint64_t most = 0;

	for (uint32_t o = cut; o < m->nops; o++) {
		uint32_t owner = m->op[o].shares;       /* 1 + that */
		uint64_t end = owner < m->nops ? m->op[owner].param_lo : m->params;

		if (owner && owner <= cut && end > most)
			most = end;
	}
	return most;
}

struct ties ties_of(const struct profile *m)
{
	struct ties t = { 0, xcalloc(m->nops + 1, sizeof(*t.v)) };

	for (uint32_t o = 0; o < m->nops; o++)
		if (m->op[o].shares)
			t.v[t.n++] = (struct tie){ m->op[o].shares - 1, o };
	return t;
}

const struct tie *ties_broken(const struct ties *t, uint32_t s, uint32_t n, uint32_t a, uint32_t b)
{
	for (const struct tie *x = t->v; x < t->v + t->n; x++) {
		bool owns = x->owner >= a && x->owner <= b, uses = x->user >= a && x->user <= b;

		if ((owns && !uses && s > 0) || (uses && !owns && s + 1 < n))
			return x;
	}
	return NULL;
}

bool ties_allow(const struct ties *t, uint32_t s, uint32_t n, uint32_t a, uint32_t b)
{
	return !ties_broken(t, s, n, a, b);
}
