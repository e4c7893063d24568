/* What the programs of a run take when they follow each other. */
#include <stdlib.h>
#include "common/mem.h"
#include "plan/tokens.h"
#include "train/memory.h"

#define PROGRAMS_PLAIN 4                /* micro-batches, the round, and both again */
#define PROGRAMS 5                      /* with rounds beside: what follows it, micro-batches and the round again */
#define ALIKE 4                         /* micro-batches, from which on each holds what the one before it did */

struct tokens *memory_rehearse(const struct plan *p, const struct tokens *before, uint64_t *peak)
{
	struct tokens *k = tokens_new(p, NULL, before);
	struct token_run *r, **waits = xcalloc((size_t)p->ninstrs + 1, sizeof(*waits));
	uint32_t n = 0;

	while ((r = tokens_start(k)) || n)
		if (!r)
			tokens_end(k, waits[--n], NULL);
		else if (r->instr->kind == PLAN_SUM && p->group[r->instr->group].elastic && n < p->ninstrs)
			waits[n++] = r;         /* for others, while all else goes on that can */
		else
			tokens_end(k, r, NULL);
	free(waits);
	if (peak && tokens_peak(k, 0) > *peak)
		*peak = tokens_peak(k, 0);
	return k;
}

uint64_t memory_programs(const struct planner_ops *strategy, const struct view *view, bool under_way, struct err *e)
{
	const struct plan_results none = { 0, NULL };
	struct tokens *before = NULL;
	struct plan p[PROGRAMS];
	uint64_t peak = 0;
	int n = 0, programs = under_way ? PROGRAMS : PROGRAMS_PLAIN;

	for (; n < programs; n++) {     /* each with what those before have left */
		struct view v = *view;
		bool round = n % (under_way ? 3 : 2) == 1;
		struct tokens *k;

		v.first = before ? (uint64_t)tokens_next_index(before) : 0;
		v.granted = true;
		v.samples = round ? v.target_batch : 0;
		v.begun = round && strategy->needs_swarm;
		v.agreed = under_way && n == 2;
		v.gave = n > 0;
		v.fresh = n == 0;
		if (strategy->plan(&v, &none, &p[n], e) < 0)
			break;
		if (!under_way && p[n].iterations > ALIKE)
			p[n].iterations = ALIKE;
		k = memory_rehearse(&p[n], before, &peak);
		tokens_free(before);
		before = k;
	}
	tokens_free(before);
	if (n < programs)
		peak = 0;
	for (int i = 0; i < n; i++)
		plan_free(&p[i]);
	return peak;
}
