/* Fetching: the list's instructions, section by section and iteration by iteration, each reference bound to a slot in
 * the
 * list's order. And the life of a struct tokens. */
#include "plan/tokens_int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

/* What may be read in place of a missing value stays: of all state, because what is not made without the value is
 * missing, too. */
static void find_fallbacks(struct tokens *t, const struct plan_instr *i)
{
	for (uint32_t k = 0; k < i->nout && i->on_missing == PLAN_USE_NEWEST; k++)
		t->newest[i->out[k].buf] = true;
	for (uint32_t b = 0; b < t->plan->nbufs; b++)
		if (t->plan->buf[b].initial && plan_depth(&t->plan->buf[b]) > 1)
			t->newest[b] = true;
}

static void find_pairs(struct tokens *t)
{
	for (uint32_t n = 0; n < t->plan->ninstrs; n++) {
		const struct plan_instr *i = &t->plan->instr[n];
		if (plan_leaves(i->kind) && i->on_missing != PLAN_FAIL)
			find_fallbacks(t, i);
		for (uint32_t k = 0; k < i->nin; k++) {
			if (i->in[k].age == PLAN_NEWEST)
				t->newest[i->in[k].buf] = true;
			if (i->in[k].age != PLAN_SAME)
				continue;
			struct pair x = { i->in[i->in[k].k].buf, i->in[k].buf };
			uint32_t have = 0;
			while (have < t->npairs && memcmp(&t->pair[have], &x, sizeof x) != 0)
				have++;
			if (have < t->npairs)
				continue;
			t->pair = xrealloc(t->pair, (t->npairs + 1) * sizeof x);
			t->pair[t->npairs++] = x;
		}
	}
}

struct tokens *tokens_new(const struct plan *p, const struct token_hooks *hooks, const struct tokens *before)
{
	struct tokens *t = xcalloc(1, sizeof *t);
	t->plan = p;
	t->hooks = hooks ? *hooks : (struct token_hooks){0};
	t->nstreams = p->streams > 0 ? p->streams : 1;
	t->iterations = p->iterations;
	t->index_max = (int64_t)p->first - 1;
	t->depth_max = 1;
	for (uint32_t i = 0; i < p->nbufs; i++)
		if (plan_depth(&p->buf[i]) > t->depth_max)
			t->depth_max = plan_depth(&p->buf[i]);
	for (uint32_t i = 0; i < p->ninstrs; i++)
		for (int s = p->instr[i].section + 1; s <= PLAN_SECTIONS_COUNT; s++)
			t->section[s] = i + 1;
	for (int s = PLAN_SECTIONS_COUNT; s-- > 0;) {
		t->lanes_from[s] = t->lanes_from[s + 1];
		for (uint32_t i = t->section[s]; i < t->section[s + 1]; i++)
			t->lanes_from[s] |= 1u << p->instr[i].lane;
	}
	t->newest = xcalloc(p->nbufs + 1, sizeof *t->newest);
	rings_init(t);
	find_pairs(t);
	t->stream = xcalloc(t->nstreams, sizeof *t->stream);
	for (uint32_t s = 0; s < t->nstreams; s++)
		list_init(&t->stream[s].runs);
	if (before)
		rings_carry(t, before);
	return t;
}

void token_run_free(struct token_run *r)
{
	if (r->own) {
		free(r->own->in);
		free(r->own->out);
		free(r->own->piece);
		free(r->own);
	}
	free(r->in);
	free(r->out);
	free(r->stands);
	free(r);
}

void tokens_free(struct tokens *t)
{
	if (!t)
		return;
	for (uint32_t s = 0; s < t->nstreams; s++)
		list_each_safe(it, &t->stream[s].runs)
			token_run_free(list_entry(it, struct token_run, link));
	rings_free(t);
	free(t->stream);
	free(t->pair);
	free(t->newest);
	free(t);
}

static struct token_run *run_new(struct tokens *t, const struct plan_instr *i, uint32_t stream, int64_t index)
{
	struct token_run *r = xcalloc(1, sizeof *r);
	r->instr = i;
	r->stream = stream;
	r->index = index;
	r->version = -1;
	r->in = xcalloc(i->nin + 1, sizeof *r->in);
	r->out = xcalloc(i->nout + 1, sizeof *r->out);
	for (uint32_t k = 0; k < i->nin; k++)
		r->in[k] = (struct token_bind){ i->in[k].buf, PLAN_NONE, stream, 0, false, false };
	for (uint32_t k = 0; k < i->nout; k++)
		r->out[k] = (struct token_bind){ i->out[k].buf, PLAN_NONE, stream, 0, false, false };
	r->seq = ++t->seq;
	return r;
}

static void fetch_one(struct tokens *t, uint32_t stream, uint32_t at, int64_t index, uint64_t iteration)
{
	const struct plan_instr *i = &t->plan->instr[at];
	struct token_run *r = run_new(t, i, stream, index);
	struct stream *s = &t->stream[stream];
	r->number = at;
	r->iteration = iteration;
	for (uint32_t k = 0; k < i->nin; k++)
		ring_bind_in(t, &i->in[k], index, &r->in[k]);
	for (uint32_t k = 0; k < i->nout; k++)
		ring_bind_out(t, &i->out[k], index, &r->out[k]);
	for (uint32_t k = 0; k < i->nin; k++)
		if (token_drops(i, k))
			ring_unclaim(t, &r->in[k]);
	if (index > t->index_max)
		t->index_max = index;
	list_push(&s->runs, &r->link);
	s->nruns++;
	s->unstarted[i->lane]++;
}

static bool wants_more(const struct tokens *t, const struct stream *s, int section)
{
	if (s->nruns >= TOKENS_AHEAD)
		return false;
	if (section == PLAN_BODY && !list_empty(&s->runs)) {
		/* not too far ahead of what has not started: tokens_stop should mean soon */
		const struct list *it = s->runs.next;
		while (it->next != &s->runs && list_entry(it, const struct token_run, link)->running)
			it = it->next;
		if (s->iteration > list_entry(it, const struct token_run, link)->iteration + t->depth_max)
			return false;
	}
	for (uint32_t l = 0; l < t->plan->nlanes; l++)
		if ((t->lanes_from[section] >> l & 1) && s->unstarted[l] < t->plan->lane[l].window)
			return true;
	return false;
}

static int section_of(const struct tokens *t, struct stream *s)
{
	if (s->at < t->section[PLAN_BODY])
		return PLAN_PROLOGUE;
	if (s->at == t->section[PLAN_BODY] && s->iteration >= t->iterations)
		s->at = t->section[PLAN_EPILOGUE];
	return s->at < t->section[PLAN_EPILOGUE] ? PLAN_BODY :
		s->at < t->section[PLAN_SECTIONS_COUNT] ? PLAN_EPILOGUE : PLAN_SECTIONS_COUNT;
}

void tokens_fetch(struct tokens *t, uint32_t stream)
{
	struct stream *s = &t->stream[stream];
	const struct plan *p = t->plan;
	uint64_t step = p->step > 0 ? p->step : 1;
	for (uint64_t skipped = 0; !s->fetched && skipped < 1u << 20;) {
		int section = section_of(t, s);
		if (section == PLAN_SECTIONS_COUNT)
			s->fetched = true;
		if (s->fetched || !wants_more(t, s, section))
			return;
		const struct plan_instr *i = &p->instr[s->at];
		uint64_t it = section == PLAN_PROLOGUE ? 0 : section == PLAN_BODY ? s->iteration : t->iterations;
		int64_t index = (int64_t)(p->first + it * step) + i->mb;
		if (plan_due(i, index) && plan_in_stream(i, stream))
			fetch_one(t, stream, s->at, index, it);
		else
			skipped++;
		s->at++;
		/* an empty body has no iterations to count */
		if (s->at == t->section[PLAN_EPILOGUE] && section == PLAN_BODY) {
			s->iteration++;
			if (s->iteration < t->iterations)
				s->at = t->section[PLAN_BODY];
		}
	}
}
