/* For test_pipeline.c and test_pipeline_on.c: plans run without time and without mail. A SEND ends only together with
 * its RECV, whatever else ends first. */
#ifndef TESTS_PIPE_MEET_H
#define TESTS_PIPE_MEET_H
#include "pipe_any.h"
#include "plan/tokens.h"

struct meeting { struct any *a; struct tokens *t[PIPE_MAX]; uint32_t n; struct { uint32_t peer; struct token_run *r; }
	run[4096]; };

static inline void begin_all(struct meeting *w)
{
	struct token_run *r;

	for (uint32_t k = 0; k < w->a->members; k++)
		while ((r = tokens_start(w->t[k]))) {
			assert_true(w->n < 4096);
			w->run[w->n].peer = k;
			w->run[w->n++].r = r;
		}
}

static inline void end_one(struct meeting *w, uint32_t k)
{
	const struct token_news news = { .version = -1 };
	struct token_run *r = w->run[k].r;
	uint32_t peer = w->run[k].peer;

	w->run[k] = w->run[--w->n];
	tokens_end(w->t[peer], r, r->instr->kind == PLAN_RECV ? &news : NULL);
}

static inline bool meets(const struct meeting *w, uint32_t a, uint32_t b)
{
	const struct plan_instr *s = w->run[a].r->instr, *r = w->run[b].r->instr;
	const struct plan *from = &w->a->k.plan[w->run[a].peer], *to = &w->a->k.plan[w->run[b].peer];

	return s->kind == PLAN_SEND && r->kind == PLAN_RECV && s->peer == to->me && r->peer == from->me &&
		w->run[a].r->index == w->run[b].r->index && !strcmp(plan_label(from, s), plan_label(to, r));
}

static inline bool same_sum(const struct meeting *w, uint32_t k, const char *group, int64_t index)
{
	const struct plan_instr *i = w->run[k].r->instr;

	return i->kind == PLAN_SUM && w->run[k].r->index == index &&
		!strcmp(w->a->k.plan[w->run[k].peer].group[i->group].name, group);
}

/* What units agree on comes by itself; a strict SUM ends when all members are in it, on all of them. */
static inline bool sum_ends(struct meeting *w, uint32_t a)
{
	const struct plan *p = &w->a->k.plan[w->run[a].peer];
	const struct token_run *x = w->run[a].r;
	const struct plan_group *g = x->instr->kind == PLAN_SUM ? &p->group[x->instr->group] : NULL;
	int64_t index = x->index;
	uint32_t all = 0, wanted = g ? g->n : 0;
	char name[PLAN_NAME];

	if (!g)
		return false;
	if (g->elastic) {
		end_one(w, a);
		return true;
	}
	memcpy(name, g->name, sizeof(name));
	for (uint32_t k = 0; k < w->n; k++)
		all += same_sum(w, k, name, index);
	for (uint32_t k = w->n; k-- > 0 && all == wanted; )
		if (same_sum(w, k, name, index))
			end_one(w, k);
	return all == wanted;
}

/* One that can end now, from a random one on; false: none can. */
static inline bool end_any(struct meeting *w)
{
	uint32_t from = w->n ? (uint32_t)up_to(&w->a->r, w->n - 1) : 0;

	for (uint32_t x = 0; x < w->n; x++) {
		uint32_t a = (from + x) % w->n;

		if (!plan_leaves(w->run[a].r->instr->kind)) {
			end_one(w, a);
			return true;
		}
		if (sum_ends(w, a))
			return true;
		for (uint32_t b = 0; b < w->n; b++)
			if (meets(w, a, b)) {
				end_one(w, a > b ? a : b);
				end_one(w, a > b ? b : a);
				return true;
			}
	}
	return false;
}

/* before: of the programs before, by member, which are freed; what these leave (NULL: neither). */
static inline void meet(struct any *a, struct tokens **before)
{
	struct meeting w = { .a = a };

	for (uint32_t k = 0; k < a->members; k++)
		w.t[k] = tokens_new(&a->k.plan[k], NULL, before ? before[k] : NULL);
	do
		begin_all(&w);
	while (end_any(&w));
	for (uint32_t k = 0; k < a->members; k++) {
		if (!tokens_finished(w.t[k])) {
			struct buf why = { 0 };

			tokens_why(w.t[k], &why);
			fail_msg("member %u waits for ever: %s", k, (const char *)why.p);
		}
		if (before)
			tokens_free(before[k]);
		if (before)
			before[k] = w.t[k];
		else
			tokens_free(w.t[k]);
	}
}

#endif
