/* What a round is given while it is made: a program that computes a micro-batch and gives its gradient in parts, each
 * to a SUM (planner_mode.grows). The samples count when backward begins, and are told, so that the round begins
 * meanwhile; what is there is contributed then, the rest as it comes. A program that is abandoned before the commit has
 * decided has given nothing: the micro-batch is not counted any more, and comes again as a whole. */
#include <math.h>
#include <stdlib.h>
#include "exec/batch.h"
#include "common/mem.h"
#include "train/trainer_int.h"

void grow_planned(struct trainer *t, const struct plan *p, uint32_t sums)
{
	bool loads = false;

	for (uint32_t i = 0; i < p->ninstrs; i++)
		loads = loads || p->instr[i].kind == PLAN_LOAD;
	t->grow.planned = sums && loads && !p->iterations && t->s->mode.grows;
	if (t->grow.planned)
		t->round_prog = false;          /* not before its samples count */
}

void grow_counted(struct trainer *t, struct batch *b)
{
	struct grow *g = &t->grow;

	g->on = true;
	g->told = false;
	g->batch = b;
	g->n = b->n;
	g->loss = isfinite(t->batch_loss) ? t->batch_loss : 0;
	ranges_clear(&g->claimed);
	for (uint32_t i = 0; i < b->n; i++)
		ranges_add(&g->claimed, b->position[i], b->position[i] + 1);
	t->round_prog = true;
}

void grow_back(struct trainer *t, const struct batch *b)
{
	if (t->grow.batch == b)
		t->grow.batch = NULL;
}

void grow_decided(struct trainer *t, bool mine)
{
	struct grow *g = &t->grow;

	if (!g->on)
		return;
	g->on = g->told = false;
	if (!mine && g->batch)
		g->batch->counted = false;
	if (!mine && !sums_wait(&t->sums))      /* nobody wants the rest of it */
		t->round_prog = false;
}

bool grow_undo(struct trainer *t)
{
	struct grow *g = &t->grow;

	if (!g->on)
		return false;
	grow_decided(t, false);
	t->samples -= g->n;
	t->batches--;
	t->loss_sum -= g->loss;
	ranges_sub_all(&t->claimed, &g->claimed);
	load_regrant(t);
	return true;
}

/* Elements lo .. hi - 1 are there. */
static void give(struct trainer *t, size_t lo, size_t hi)
{
	t->cb.contribute_part(t->arg, t->begin_epoch, t->grow.x, t->samples, &t->claimed, lo, hi);
}

static void tell_whole(struct trainer *t)
{
	if (sums_wait(&t->sums))
		trainer_line(t, "\"ev\":\"contribute\",\"epoch\":%llu,\"samples\":%llu", (unsigned long long)t->begin_epoch,
			(unsigned long long)t->samples);
}

void grow_begun(struct trainer *t)
{
	t->grow.told = true;
	tell_whole(t);
	give(t, 0, 0);
	for (uint32_t k = 0; k < t->sums.n; k++)
		give(t, t->sums.v[k].at, t->sums.v[k].at + t->sums.v[k].len);
}

void grow_sum(struct trainer *t, const struct sum *s)
{
	if (!t->grow.told)
		return;                         /* it waits for BEGIN */
	tell_whole(t);
	give(t, s->at, s->at + s->len);
}

int grow_new(struct trainer *t, struct err *e)
{
	t->grow.bytes = t->s->mode.grows ? trainer_contribution_len(t) * sizeof(real) : 0;
	if (!t->grow.bytes)
		return 0;
	t->grow.x = big_alloc(t->grow.bytes);
	if (!t->grow.x)
		return err_set(e, ERR_NOMEM, "no memory for what a round is given (%zu bytes)", t->grow.bytes);
	exec_bind_parts(t->x, "grad", t->grow.x, t->grow.bytes);
	return 0;
}
