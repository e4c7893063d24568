/* Who keeps a trainer's memory after trainer_free, and what goes with the last of them. */
#include <stdlib.h>
#include "common/mem.h"
#include "train/trainer_int.h"

static void released(void *arg)
{
	struct trainer *t = arg;
	void (*gone)(void *arg) = t->gone;
	void *gone_arg = t->gone_arg;

	valid_free(t);                          /* a copy of the parameters may have been under way to it */
	model_free(t->model);
	free(t->sums.v);
	free(t);
	if (gone)
		gone(gone_arg);
}

/* The state is the last to go: jobs may be at it. */
static void release(struct trainer *t)
{
	round_drop(t);
	ranges_free(&t->grant);
	ranges_free(&t->claimed);
	ranges_free(&t->out);
	ranges_free(&t->last);
	ranges_free(&t->flight.claimed);
	profile_free(&t->profile);
	seat_free(t);
	free(t->v.eval.told);
	free(t->load_more);
	big_free(t->stats, t->stats_bytes + 1);
	big_free(t->grow.x, t->grow.bytes);
	ranges_free(&t->grow.claimed);
	state_free(t->state, released, t);
}

void trainer_part_gone(void *arg)
{
	struct trainer *t = arg;

	if (!--t->parts)
		release(t);
}

void trainer_read(struct trainer *t) { t->readers++; }

void trainer_read_over(void *trainer)
{
	struct trainer *t = trainer;

	t->readers--;
	if (t->dying)
		trainer_part_gone(t);
}
