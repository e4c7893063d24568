/* What a piece of the model costs, from its profile. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
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

static uint64_t times(uint64_t x, const struct profile *m, uint32_t batch)
{
	return (uint64_t)((double)x * batch / m->batch + 0.5);
}

static void op_at(struct profile_op *o, const struct profile *m, uint32_t batch)
{
	o->out_bytes = times(o->out_bytes, m, batch);
	o->saved_bytes = times(o->saved_bytes, m, batch);
	for (uint32_t k = 0; k < o->nvariants; k++) {
		struct profile_variant *v = &o->variant[k];

		v->fwd_us = times(v->fwd_us, m, batch);
		v->bwd_us = times(v->bwd_us, m, batch);
		v->work_bytes = times(v->work_bytes, m, batch);
	}
}

void profile_at(const struct profile *m, uint32_t batch, struct profile *ret)
{
	*ret = *m;
	if (m->at) {
		m->at(m->need_arg, batch, ret);
	} else {
		ret->op = xmemdup(m->op, m->nops * sizeof *m->op);
		ret->batch = batch;
		ret->batch_bytes = times(m->batch_bytes, m, batch);
		ret->label_bytes = times(m->label_bytes, m, batch);
		for (uint32_t o = 0; o < m->nops; o++)
			op_at(&ret->op[o], m, batch);
	}
	ret->load_us = times(m->load_us, m, batch);
	ret->state_bytes = m->state_bytes;
	ret->state_vectors = m->state_vectors;
	ret->scaled = m->scaled;
	ret->nfns = m->nfns;
	ret->fn = m->nfns ? xmemdup(m->fn, m->nfns * sizeof *m->fn) : NULL;
}

void profile_free(struct profile *m)
{
	free(m->op);
	free(m->fn);
	*m = (struct profile){0};
}
