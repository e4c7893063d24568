/* Values that never come (plan.h, Missing): who is passed over, what stands for them, and what an instruction leaves
 * that was passed over or abandoned. */
#include "plan/tokens_int.h"
#include <stdlib.h>
#include "common/mem.h"
#include "common/planted.h"

static bool elastic(const struct tokens *t, const struct plan_instr *i)
{
	return i->kind == PLAN_SUM && t->plan->group[i->group].elastic;
}

static bool does_without(const struct tokens *t, const struct plan_instr *i)
{
	return (i->kind == PLAN_VEC && i->on_missing == PLAN_WITHOUT) || i->kind == PLAN_DROP || elastic(t, i);
}

void token_read(struct tokens *t, struct token_run *r)
{
	for (uint32_t k = 0; k < r->instr->nin; k++) {
		r->in[k].missing = ring_slot(t, &r->in[k])->state == SLOT_MISSING;
		r->passed = r->passed || (r->in[k].missing && !does_without(t, r->instr));
	}
}

/* Does output k write over a value of the same key that is one of its inputs? */
static bool over_input(const struct token_run *r, uint32_t k)
{
	const struct token_bind *b = &r->out[k];
	for (uint32_t n = 0; n < r->instr->nin; n++)
		if (r->in[n].buf == b->buf && r->in[n].slot == b->slot && !r->in[n].missing && r->in[n].key == b->key)
			return true;
	return false;
}

/* Passed over, it leaves what it would have changed as it is. */
static bool stays(const struct token_run *r, uint32_t k)
{
	return r->passed && !r->out[k].blank && (r->instr->out[k].add || over_input(r, k));
}

bool tokens_stand(struct tokens *t, struct token_run *r)
{
	const struct plan_instr *i = r->instr;
	bool any = false, newest = !r->passed && i->on_missing == PLAN_USE_NEWEST;
	r->stands = xcalloc(i->nout + 1, sizeof *r->stands);
	for (uint32_t k = 0; k < i->nout; k++) {
		struct token_bind *s = &r->stands[k];
		*s = r->out[k];
		s->slot = newest || t->plan->buf[s->buf].initial ? tokens_newest(t, s->stream, s->buf) : PLAN_NONE;
		if (stays(r, k))
			s->slot = PLAN_NONE;
		if (s->slot == PLAN_NONE)
			continue;
		s->key = ring_slot(t, s)->key;
		ring_slot(t, s)->readers++;
		any = true;
	}
	return any;
}

/* What stands for it has been copied: it is that value, under a key of its own. */
static void end_stand(struct tokens *t, const struct token_run *r, uint32_t k)
{
	const struct token_slot *from = ring_slot(t, &r->stands[k]);
	struct token_slot *s = ring_slot(t, &r->out[k]);
	s->state = SLOT_FULL;
	s->version = from->version;
	s->remote = from->remote;
	ring_senders(s, from->nfrom, from->from, from->parts);
}

void token_not_made(struct tokens *t, struct token_run *r)
{
	for (uint32_t k = 0; k < r->instr->nout; k++) {
		if (r->stands && r->stands[k].slot != PLAN_NONE) {
			end_stand(t, r, k);
			ring_slot(t, &r->stands[k])->readers--;
		} else if (!stays(r, k)) {
			ring_slot(t, &r->out[k])->key = r->out[k].key;
			ring_missing(t, &r->out[k], false);
		}
	}
}

void tokens_abandon(struct tokens *t, struct token_run *r, bool begun)
{
	for (uint32_t k = 0; k < r->instr->nout; k++) {
		bool stood = r->stands && r->stands[k].slot != PLAN_NONE;
		if (stood)
			ring_slot(t, &r->stands[k])->readers--;
		if (stays(r, k) || (r->passed && !stood))
			continue;
		if (!r->out[k].blank && (!begun || over_input(r, k)))
			ring_slot(t, &r->out[k])->state = SLOT_FULL;
		else
			ring_missing(t, &r->out[k], true);
	}
	token_leave(t, r, !elastic(t, r->instr) || PLANTED(SUM_TAKES));
}
