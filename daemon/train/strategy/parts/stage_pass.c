/* Micro-batches of one member of a pipeline, in the order of its schedule: a flush of them, or one epoch that runs on
 * into the next (stage.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "train/strategy/parts/stage_int.h"

/* Who of a stage makes the micro-batch mb of the plan. */
static uint32_t who(const struct plan *p, const struct pipe *x, const struct stage *at, int64_t mb)
{
	return x->base + at->rank + (uint32_t)((p->first + (uint64_t)mb) % at->replicas);
}

const char *stage_weights(const struct member *r, const char *w, char out[WEIGHTS_TEXT])
{
	char own[24] = "", tied[24] = "";

	if (stage_part_learns(&r->own))
		(void)snprintf(own, sizeof(own), " %s%u", w, r->s);
	if (r->tied.hi)
		(void)snprintf(tied, sizeof(tied), " %s" TIED_TAG, w);
	(void)snprintf(out, WEIGHTS_TEXT, "%s%s", own, tied);
	return out;
}

static void take(struct plan *p, const struct member *r, int64_t mb)
{
	if (!r->first)
		plan_recv(p, mb, who(p, r->x, r->at - 1, mb), "a%u", r->s);
}

static void forward(struct plan *p, const struct member *r, int64_t mb, const char *of)
{
	const char *read = r->first ? r->last ? "" : "x" : r->last ? "labels" : "positions";
	struct plan_instr *i = plan_do(p, PLAN_LOAD, mb, "-> batch");
	char in[24] = "", w[WEIGHTS_TEXT];
	uint32_t s = r->s;

	memcpy(i->variant, read, strlen(read) + 1);
	if (!r->first)
		(void)snprintf(in, sizeof(in), "a%u ", s);
	if (r->again)
		i = plan_do(p, PLAN_FWD, mb, "%sbatch%s -> a%u", in, stage_weights(r, of, w), s + 1);
	else
		i = plan_do(p, PLAN_FWD, mb, "%sbatch%s -> a%u save:kept%u", in, stage_weights(r, of, w), s + 1, s);
	plan_piece(i, r->at->a, r->at->b)->keep = r->again ? PLAN_KEEP_INPUT : PLAN_KEEP_ALL;
	i->work_bytes = r->again ? r->need.work_eval : r->need.work_fwd;
	if (r->last && r->again)
		plan_do(p, PLAN_DROP, mb, "a%u", s + 1);
	if (!r->last)
		plan_send(p, mb, who(p, r->x, r->at + 1, mb), "a%u!", s + 1);
}

/* Does it make gradients of what the first stage has, too? */
static bool ties_up(const struct member *r) { return r->last && r->tied.hi; }

static bool adds_up(const struct member *r) { return stage_part_learns(&r->part) || ties_up(r); }

/* Its samples count once, where their sum is the last to be complete. The loss is let go beside the train lane, which
 * must not wait until a neighbour has it. */
static void sum_up(struct plan *p, const struct member *r, int64_t mb)
{
	const char *batch = r->first ? "batch" : "batch!", *stats = r->part.stats ? " stats" : "";
	bool own = stage_part_learns(&r->part);
	const char *tied = own && ties_up(r) ? " dw" TIED_TAG "!" : "", *to = own && ties_up(r) ? " acc" TIED_TAG "+" : "";
	struct plan_instr *i;
	char tag[12];

	if (adds_up(r)) {
		(void)stage_tag(own ? r->s : STAGE_TIED, tag);
		i = plan_vec(p, mb, "accumulate", "dw%s! %s loss%s%s -> acc%s+ unit%s", tag, batch, stats, tied, tag, to);
		i->inplace = true;
		i->scale = r->x->v->profile->batch;
	}
	plan_do(p, PLAN_DROP, mb, "loss!%s", r->first || adds_up(r) ? "" : " batch!");
	if (r->first)
		plan_do(p, PLAN_COMMIT, mb, "batch!")->priority = 1;
}

/* Forward once more, from the input that was kept, with the weights of the first time: now for BWD. What comes out is
 * wanted by the loss alone. */
static void again(struct plan *p, const struct member *r, int64_t mb, const char *of)
{
	const char *out = r->last ? "a" : "again";
	struct plan_instr *i;
	char in[24] = "", w[WEIGHTS_TEXT];

	if (!r->first)
		(void)snprintf(in, sizeof(in), "a%u ", r->s);
	i = plan_do(p, PLAN_FWD, mb, "%sbatch%s -> %s%u save:kept%u", in, stage_weights(r, of, w), out, r->s + 1, r->s);
	plan_piece(i, r->at->a, r->at->b)->keep = PLAN_KEEP_ALL;
	i->replay = true;
	i->work_bytes = r->need.work_fwd;
	if (!r->last)
		plan_do(p, PLAN_DROP, mb, "again%u", r->s + 1);
}

static void backward(struct plan *p, const struct member *r, int64_t mb, const char *of)
{
	char in[24] = "", out[24] = "", w[WEIGHTS_TEXT];
	const char *tied = ties_up(r) ? " dw" TIED_TAG : "";
	char dw[16] = "";
	uint32_t s = r->s;

	if (r->again)
		again(p, r, mb, of);
	if (r->last) {
		plan_vec(p, mb, "loss", "a%u! batch -> g%u loss correct", s + 1, s + 1)->inplace = true;
	} else {
		plan_recv(p, mb, who(p, r->x, r->at + 1, mb), "g%u", s + 1);
		plan_recv(p, mb, who(p, r->x, r->at + 1, mb), "loss");
	}
	if (!r->first) {
		(void)snprintf(in, sizeof(in), " a%u!", s);
		(void)snprintf(out, sizeof(out), " g%u", s);
	}
	if (stage_part_learns(&r->part))
		(void)snprintf(dw, sizeof(dw), " dw%u", s);
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept%u! g%u!%s batch%s ->%s%s%s", s, s + 1, in, stage_weights(r, of, w),
		out, dw, tied), r->at->a, r->at->b)->work_bytes = r->need.work_bwd;
	if (!r->first) {
		plan_send(p, mb, who(p, r->x, r->at - 1, mb), "g%u!", s);
		plan_send(p, mb, who(p, r->x, r->at - 1, mb), "loss");
	}
	sum_up(p, r, mb);
}

/* Its own of micro-batches first .. first + n - 1: `own` of them, from `from` on every so many. */
struct own { uint32_t n, from, every; };

static struct own own_of(const struct plan *p, const struct pipe *x, const struct stage *at, uint32_t rank, uint32_t n)
{
	uint32_t every = at->replicas, from = (rank - x->base - at->rank + every - (uint32_t)(p->first % every)) % every;

	return (struct own){ n > from ? (n - from + every - 1) / every : 0, from, every };
}

static int64_t mb_of(const struct own *o, uint32_t k)
{
	return o->from + (int64_t)k * o->every;
}

/* Running statistics go on from what the sum says: an abandoned flush leaves no trace. */
static void statistics(struct plan *p, const struct member *r, const struct own *o, const char *from)
{
	if (r->part.stats)
		plan_vec(p, o->from, "tail", "%s%u -> stats", from, r->s);
}

static void body(struct plan *p, uint32_t n)
{
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	p->step = n;
}

/* The epoch's gradients of what both ends have in common become one: each replica of the last stage gives its sum to
 * one of the first. All members of a pipeline have all of its micro-batches behind them, or none: so this is done once,
 * however often a round begins with it. */
static void tie(struct plan *p, const struct member *r, uint32_t rank)
{
	const struct pipe *x = r->x;
	const struct stage *first = x->stage, *last = &x->stage[x->n - 1];
	uint32_t k = rank - x->base - r->at->rank;

	if (r->tied.hi && r->last)
		plan_send(p, 0, x->base + first->rank + k % first->replicas, "acc" TIED_TAG "!");
	for (uint32_t u = k; r->tied.hi && r->first && u < last->replicas; u += first->replicas) {
		plan_recv(p, 0, x->base + last->rank + u, "acc" TIED_TAG);
		if (PLANTED(TIED_UNSENT))
			plan_do(p, PLAN_DROP, 0, "acc" TIED_TAG "!");
		else
			plan_vec(p, 0, "tied", "acc" TIED_TAG "! acc0 -> acc0")->scale = PLANTED(TIED_TWICE) ? 2 : 1;
	}
}

void stage_flush(struct plan *p, const struct pipe *x, uint32_t rank, uint32_t n, bool ends)
{
	const struct stage *at = stage_of(x, rank);
	struct own own = own_of(p, x, at, rank, n);
	struct turns_at load = stage_load(x, (uint32_t)(at - x->stage), own.n);
	struct turn *turn = xcalloc(2 * (size_t)own.n + 1, sizeof(*turn));
	struct member r;

	stage_member(&r, x, (uint32_t)(at - x->stage), at->a, at->b);
	x->schedule->order(&load, turn);
	statistics(p, &r, &own, x->v->samples && !x->v->begun ? "acc" : "w");
	body(p, n);
	for (uint32_t k = 0; k < 2 * own.n; k++)
		if (turn[k].back) {
			backward(p, &r, mb_of(&own, turn[k].k), "w");
		} else {
			take(p, &r, mb_of(&own, turn[k].k));
			forward(p, &r, mb_of(&own, turn[k].k), "w");
		}
	if (ends)
		tie(p, &r, rank);
	free(turn);
}

/* What comes from the stage before, in order: the one that is wanted, and then always one more. */
struct taking { uint32_t next, end; };

static struct taking taking_of(const struct member *r, const struct own *o, uint32_t n, bool fresh)
{
	struct taking t = { 0, 0 };

	while (mb_of(o, t.end) < (int64_t)n + r->come)
		t.end++;
	while (!fresh && mb_of(o, t.next) < (int64_t)r->come)
		t.next++;
	return t;
}

static void take_to(struct plan *p, const struct member *r, const struct own *o, struct taking *t, uint32_t end)
{
	for (; t->next < end && t->next < t->end; t->next++)
		take(p, r, mb_of(o, t->next));
}

void stage_run_on(struct plan *p, const struct pipe *x, uint32_t rank, uint32_t n, const struct run_on *how)
{
	const struct stage *at = stage_of(x, rank);
	struct own own = own_of(p, x, at, rank, n);
	uint32_t s = (uint32_t)(at - x->stage), back = 0;
	bool stepped = !how->step;
	struct taking taking;
	struct turns_at load;
	struct turn *turn;
	struct member r;

	stage_member(&r, x, s, at->a, at->b);
	load = stage_load(x, s, own.n + r.ahead);
	turn = xcalloc(2 * (size_t)load.n + 1, sizeof(*turn));
	taking = taking_of(&r, &own, n, how->fresh);
	x->schedule->order(&load, turn);
	if (how->fresh)
		statistics(p, &r, &own, "w");
	body(p, n);
	for (const struct turn *i = turn; back < own.n; i++) {
		bool next = i->k >= own.n;      /* of the next epoch */

		if (!i->back && i->k < r.ahead && !how->fresh)
			continue;               /* it is forward since the program before */
		if (next && !stepped) {
			how->step(p, x);
			stepped = true;
		}
		if (!i->back)
			take_to(p, &r, &own, &taking, i->k + 1 > taking.next + 1 ? i->k + 1 : taking.next + 1);
		if (i->back) {
			backward(p, &r, mb_of(&own, i->k), stepped ? STAGE_BEFORE : "w");
			back++;
		} else {
			forward(p, &r, mb_of(&own, i->k), stepped && !next ? STAGE_BEFORE : "w");
		}
	}
	if (!stepped)
		how->step(p, x);
	take_to(p, &r, &own, &taking, taking.end);
	tie(p, &r, rank);
	free(turn);
}
