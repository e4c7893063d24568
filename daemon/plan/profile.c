/* What a piece of the model costs, from its profile. */
#include <stdlib.h>
#include <string.h>
#include "plan/planner.h"

static const struct profile_variant *variant_of(const struct profile_op *op, const char *name)
{
	for (uint32_t k = 0; k < op->nvariants; k++)
		if (strcmp(op->variant[k].name, name) == 0)
			return &op->variant[k];
	return &op->variant[0];
}

static uint64_t sum(const struct profile *m, const struct plan_instr *i, bool backward)
{
	uint64_t us = 0;
	for (uint32_t r = 0; r < i->npiece; r++)
		for (uint32_t o = i->piece[r].a; o <= i->piece[r].b && o < m->nops; o++) {
			const struct profile_variant *v = variant_of(&m->op[o], i->variant);
			us += backward ? v->bwd_us : v->fwd_us;
		}
	return us;
}

uint64_t profile_fwd_us(const struct profile *m, const struct plan_instr *i)
{
	return sum(m, i, false);
}

uint64_t profile_bwd_us(const struct profile *m, const struct plan_instr *i)
{
	return sum(m, i, true);
}

uint64_t profile_param_bytes(const struct profile *m, uint32_t a, uint32_t b)
{
	uint64_t n = 0;
	for (uint32_t o = a; o <= b && o < m->nops; o++)
		n += m->op[o].param_bytes;
	return n;
}

/* Without exact figures every op keeps its output, and scratch is that of the largest. */
void profile_need(const struct profile *m, uint32_t a, uint32_t b, struct piece_need *ret)
{
	*ret = (struct piece_need){ .x = a ? m->op[a - 1].out_bytes : m->batch_bytes };
	if (m->need) {
		m->need(m->need_arg, m->batch, a, b, ret);
		return;
	}
	for (uint32_t o = a; o <= b && o < m->nops; o++) {
		ret->y = m->op[o].out_bytes;
		uint64_t work = m->op[o].variant[0].work_bytes;
		ret->saved += m->op[o].saved_bytes + m->op[o].out_bytes;
		ret->work_fwd = ret->work_bwd = ret->work_eval = work > ret->work_fwd ? work : ret->work_fwd;
	}
}

void profile_free(struct profile *m)
{
	free(m->op);
	free(m->fn);
	*m = (struct profile){0};
}
