/* Validation by the members of a pipeline: held-out micro-batches go forward. Nothing goes back, so that a stage holds
 * what it works at and what comes meanwhile, and no more. Who has the last stage sums up what it has seen, and sends
 * that to every other member of its pipeline; each replica of it does: together their sums are all of the program.
 * Pipelines side by side have nothing to do with each other here: each goes through everything, so that whoever dies
 * disturbs its own alone. */
#include <stdio.h>
#include <string.h>
#include "common/planted.h"
#include "exec/vec.h"
#include "train/strategy/parts/stage_int.h"

static uint32_t who(const struct pipe *x, const struct stage *at, uint32_t mb)
{
	return x->base + at->rank + mb % at->replicas;
}

static void forward(struct plan *p, const struct member *r, uint32_t mb)
{
	const char *read = r->first ? r->last ? "" : "x" : r->last ? "labels" : "positions";
	struct plan_instr *i;
	char in[24] = "", w[WEIGHTS_TEXT];
	uint32_t s = r->s;

	if (!r->first) {
		plan_recv(p, mb, who(r->x, r->at - 1, mb), "va%u", s);
		(void)snprintf(in, sizeof(in), "va%u! ", s);
	}
	i = plan_do(p, PLAN_LOAD, mb, "-> vbatch");
	memcpy(i->variant, read, strlen(read) + 1);
	(void)stage_weights(r, r->x->schedule->runs_on && PLANTED(EVAL_BEFORE) ? STAGE_BEFORE : "w", w);
	i = plan_piece(plan_do(p, PLAN_FWD, mb, "%svbatch%s -> va%u", in, w, s + 1), r->at->a, r->at->b);
	i->work_bytes = r->need.work_eval;
	if (!PLANTED(EVAL_TRAINS))
		memcpy(i->variant, "eval", 5);
	if (!r->last) {
		plan_send(p, mb, who(r->x, r->at + 1, mb), "va%u!", s + 1);
		plan_do(p, PLAN_DROP, mb, "vbatch!");
		return;
	}
	i = plan_vec(p, mb, "loss", "va%u! vbatch -> vloss vcorrect", s + 1);
	memcpy(i->variant, "eval", 5);
	plan_vec(p, mb, "tally", "vloss! vcorrect! vbatch! -> told%u+", p->me - r->x->base - r->at->rank);
}

/* Every replica of the last stage to everybody else. */
static void tell(struct plan *p, const struct member *r)
{
	const struct pipe *x = r->x;
	const struct stage *last = &x->stage[x->n - 1];

	for (uint32_t k = 0; k < last->replicas && k < x->v->validates; k++) {
		uint32_t from = x->base + last->rank + k;

		if (from != p->me)
			plan_recv(p, 0, from, "told%u", k);
		for (uint32_t m = x->base; from == p->me && m < x->base + x->members; m++)
			if (m != p->me && (!PLANTED(EVAL_UNTOLD) || m != x->base))
				plan_send(p, 0, m, "told%u", k);
		plan_do(p, PLAN_DROP, 0, "told%u!", k);
	}
}

void stage_validate(struct plan *p, const struct pipe *x, uint32_t rank)
{
	const struct stage *at = stage_of(x, rank);
	struct member r;

	stage_member(&r, x, (uint32_t)(at - x->stage), at->a, at->b);
	if (x->schedule->runs_on && !PLANTED(EVAL_FORGETS))
		stage_buffers(p, x, rank);
	else
		stage_state(p, x, rank);
	stage_held(p, &r);
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	p->step = (uint32_t)x->v->validates;
	for (uint32_t mb = 0; mb < x->v->validates; mb++)
		if (who(x, at, mb) == rank)
			forward(p, &r, mb);
	tell(p, &r);
}
