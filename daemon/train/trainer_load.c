/* LOADs of programs, and what becomes of a batch that nobody reads any more (trainer_loader.c gets them). */
#include <stdlib.h>
#include "common/mem.h"
#include "train/trainer_int.h"

void load_op(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	struct trainer *t = arg;

	if (eval_load(t, w, index))
		return;
	if (t->strategy->crew && !t->seat.reads) {
		exec_loaded(w, seat_batch(t, (uint64_t)index), NULL);
		return;
	}
	if (t->load_wait) {
		t->load_more = xrealloc(t->load_more, (t->nmore + 1) * sizeof(*t->load_more));
		t->load_more[t->nmore++] = w;
		return;
	}
	t->load_wait = w;
	load_next(t);
	if (t->load_wait && !load_left(t)) {
		load_told_idle(t);
		if (t->s->mode.overlap)
			trainer_later(t);
	}
	if (t->seat.is)
		return;
	if (t->load_wait && t->winding && !t->stepping)
		exec_interrupt(t->x);
	else if (t->load_wait && t->winding)
		t->break_later = true;
}

/* Nobody reads it any more. What was not counted comes again. */
void load_back(void *arg, struct batch *b)
{
	struct trainer *t = arg;

	if (valid_back(t, b))
		return;
	if (!b->x) {                            /* positions alone */
		free(b);
		return;
	}
	for (uint32_t i = 0; i < b->n; i++)
		ranges_sub(&t->out, b->position[i], b->position[i] + 1);
	grow_back(t, b);
	if (b->counted || t->strategy->crew)    /* flushes count as a whole */
		loader_done(t->loader, b);
	else
		loader_back(t->loader, b);
}
