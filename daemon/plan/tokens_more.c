/* Beside the way of an instruction: inserting for hooks, stopping, and saying what is waited for. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "plan/tokens_int.h"

static struct plan_instr *copy(const struct plan_instr *i)
{
	struct plan_instr *c = xmemdup(i, sizeof *i);
	c->in = i->nin > 0 ? xmemdup(i->in, i->nin * sizeof *i->in) : NULL;
	c->out = i->nout > 0 ? xmemdup(i->out, i->nout * sizeof *i->out) : NULL;
	c->piece = i->npiece > 0 ? xmemdup(i->piece, i->npiece * sizeof *i->piece) : NULL;
	return c;
}

/* What is there now, not what the list will have made: the fetch is ahead of the instruction that waits. */
static bool bind_now(struct tokens *t, const struct plan_ref *ref, int64_t index, bool out, struct token_bind *b)
{
	const struct plan_buf *x = &t->plan->buf[ref->buf];
	const struct ring *r = ring_of(t, b->stream, ref->buf);
	b->buf = ref->buf;
	b->slot = PLAN_NONE;
	b->key = plan_key(t->plan, x, index) - ref->k;
	if (ref->age != PLAN_EXACT || x->shared)
		return true;
	if (!out && x->initial && b->key < r->first)
		b->key = r->first;
	for (uint32_t k = 0; k < r->depth && b->slot == PLAN_NONE; k++)
		if (r->slot[k].state != SLOT_EMPTY && r->slot[k].key == b->key)
			b->slot = k;
	for (uint32_t k = 0; k < r->depth && b->slot == PLAN_NONE && out; k++)
		if (r->slot[k].state == SLOT_EMPTY && !r->slot[k].claimed)
			b->slot = k;
	return b->slot != PLAN_NONE;
}

int tokens_insert(struct tokens *t, struct token_run *before, const struct plan_instr *i, int64_t index)
{
	struct token_run *r = xcalloc(1, sizeof *r);
	r->own = copy(i);
	r->instr = r->own;
	r->stream = before->stream;
	r->iteration = before->iteration;
	r->number = PLAN_NONE;
	r->index = index;
	r->version = -1;
	r->inserted = true;
	r->seq = ++t->seq;
	r->in = xcalloc(i->nin + 1, sizeof *r->in);
	r->out = xcalloc(i->nout + 1, sizeof *r->out);
	bool ok = true;
	for (uint32_t k = 0; k < i->nin; k++) {
		r->in[k].stream = r->stream;
		ok = bind_now(t, &i->in[k], index, false, &r->in[k]) && ok;
	}
	for (uint32_t k = 0; k < i->nout; k++) {
		r->out[k].stream = r->stream;
		ok = bind_now(t, &i->out[k], index, true, &r->out[k]) && ok;
	}
	if (!ok) {
		token_run_free(r);
		return -1;
	}
	t->nothing = false;
	list_insert_(&r->link, before->link.prev, &before->link);
	t->stream[r->stream].nruns++;
	t->stream[r->stream].unstarted[i->lane]++;
	return 0;
}

void tokens_stop(struct tokens *t)
{
	uint64_t most = 0;
	for (uint32_t s = 0; s < t->nstreams; s++) {
		const struct stream *x = &t->stream[s];
		uint64_t n = x->iteration + (x->at > t->section[PLAN_BODY] && x->at < t->section[PLAN_EPILOGUE] ? 1 : 0);
		most = n > most ? n : most;
	}
	if (most < t->iterations)
		t->iterations = most;
	t->nothing = false;
}

bool tokens_finished(const struct tokens *t)
{
	for (uint32_t s = 0; s < t->nstreams; s++)
		if (!t->stream[s].fetched || !list_empty(&t->stream[s].runs))
			return false;
	return true;
}

uint64_t tokens_running(const struct tokens *t)
{
	return t->running;
}

int64_t tokens_next_index(const struct tokens *t)
{
	uint64_t step = t->plan->step > 0 ? t->plan->step : 1;
	int64_t body = (int64_t)(t->plan->first + t->iterations * step);
	return body > t->index_max + 1 ? body : t->index_max + 1;
}

void tokens_lost(struct tokens *t, uint32_t rank)
{
	if (t->hooks.lost)
		t->hooks.lost(t->hooks.arg, t, rank);
}

const struct plan *tokens_plan(const struct tokens *t)
{
	return t->plan;
}

uint64_t tokens_used(const struct tokens *t, uint32_t tier)
{
	return tier < PLAN_TIERS_MAX ? t->used[tier] : 0;
}

uint64_t tokens_peak(const struct tokens *t, uint32_t tier)
{
	return tier < PLAN_TIERS_MAX ? t->peak[tier] : 0;
}

uint32_t tokens_peak_values(const struct tokens *t, uint32_t buf)
{
	return buf < t->plan->nbufs ? t->peak_values[buf] : 0;
}

/* The oldest one decides: what waits for an earlier instruction waits for whatever that one waits for. A lane that is
 * busy or a window that is short is a reason only while something runs. */
enum token_wait tokens_blocked(struct tokens *t, uint32_t stream, const struct token_run **ret_run, uint32_t *ret_which)
{
	uint32_t which = 0;
	*ret_run = NULL;
	if (stream >= t->nstreams)
		return WAIT_NOTHING;
	list_each(it, &t->stream[stream].runs) {
		struct token_run *r = list_entry(it, struct token_run, link);
		if (r->running)
			continue;
		*ret_run = r;
		enum token_wait w = token_hinders(t, r, &which);
		*ret_which = which;
		return w == WAIT_NOTHING ? WAIT_LANE : w;
	}
	return WAIT_NOTHING;
}

static bool why(struct tokens *t, uint32_t stream, bool more, struct buf *out)
{
	const struct token_run *r;
	uint32_t which = 0;
	const struct plan *p = t->plan;
	enum token_wait w = tokens_blocked(t, stream, &r, &which);
	if (w == WAIT_NOTHING)
		return more;
	buf_printf(out, "%s%s of index %lld", more ? "; " : "", plan_kind_name(r->instr->kind), (long long)r->index);
	buf_printf(out, " (");
	plan_print_instr(p, r->instr, out);
	buf_printf(out, ")");
	const char *in = which < r->instr->nin ? p->buf[r->instr->in[which].buf].name : "?";
	const char *to = which < r->instr->nout ? p->buf[r->instr->out[which].buf].name : "?";
	switch (w) {
	case WAIT_LANE: buf_printf(out, " waits for lane %s", p->lane[r->instr->lane].name); break;
	case WAIT_EARLIER: buf_printf(out, " waits for an instruction before it"); break;
	case WAIT_VALUE: buf_printf(out, " waits for its input %s", in); break;
	case WAIT_AGE: buf_printf(out, " waits for a value of %s that is young enough", in); break;
	case WAIT_SLOT: buf_printf(out, " waits for a free slot of %s: its ring is too short", which < r->instr->nout ?
		to : in);
		break;
	case WAIT_MEMORY: buf_printf(out, " waits for memory in tier %s", p->tier[which].name); break;
	case WAIT_LOST: buf_printf(out, " reads %s key %lld, which nothing before it has made or which is gone", in,
		(long long)r->in[which].key); break;
	default: break;
	}
	return true;
}

void tokens_why(struct tokens *t, struct buf *out)
{
	bool more = false;
	for (uint32_t s = 0; s < t->nstreams; s++)
		more = why(t, s, more, out);
}
