/* A state from where it comes to where it can be used, without holding the loop: making, filling and looking through
 * hundreds of millions of numbers is a job of the train lane. */
#include <stdlib.h>
#include "common/mem.h"
#include "train/trainer_int.h"

struct filling {
	struct job job;
	struct trainer *t;
	struct trainer_fill how; json_t *live;
	void (*done)(void *arg, const struct err *e); void *arg;
	int rc; struct err e;
};

static void fill_run(struct job *j)
{
	struct filling *f = container_of(j, struct filling, job);

	if (f->how.at && (f->rc || (f->rc = state_look(f->t, f->how.at, f->how.arg, &f->e))))
		return;
	if (f->how.fresh)
		trainer_init_params(f->t);
	if (f->how.fill)
		f->how.fill(f->how.arg, f->t);
	if (f->how.fresh)
		state_begin(f->t);
	if (!f->how.at)
		f->rc = state_finite(f->t, 0, f->t->state, f->t->state_bytes, &f->e);
}

static void fill_done(struct job *j)
{
	struct filling *f = container_of(j, struct filling, job);
	struct trainer *t = f->t;
	bool dying = t->dying;

	if (f->how.drop)
		f->how.drop(f->how.arg);
	t->filling = false;
	if (!dying && !t->quiet) {           /* else somebody else's state comes already */
		if (!f->rc)
			f->rc = state_adopt(t, f->how.epoch, f->live, &f->e);
		f->done(f->arg, f->rc ? &f->e : NULL);
	}
	json_decref(f->live);
	free(f);
	if (dying)
		trainer_part_gone(t);
	else if (t->quiet)
		trainer_copied(t);
}

void trainer_fill(struct trainer *t, const struct trainer_fill *how, void (*done)(void *arg, const struct err *e),
	void *arg)
{
	struct filling *f = xcalloc(1, sizeof(*f));

	*f = (struct filling){ .t = t, .how = *how, .live = json_deep_copy(how->live), .done = done, .arg = arg };
	f->job = (struct job){ .name = "fill", .lane = env_lane(t->env, "train"), .run = fill_run, .done = fill_done };
	if (how->at && how->live)
		f->rc = spec_live_check(t->s, how->live, &f->e);
	t->filling = true;
	env_work(t->env, &f->job);
}
