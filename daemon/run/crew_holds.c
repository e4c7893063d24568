/* What a member holds of its crew's state: its checkpoints, what was moved, and how it lets go of all of it. */
#include <stdlib.h>
#include "common/planted.h"
#include "run/crew_int.h"

#define CREW_EVERY 20                   /* epochs between checkpoints of crews, unless anybody says */
#define SAVE_ROOM 4                     /* times a checkpoint's time between two of a crew */
#define SAVE_RARELY 10                  /* so many times doubled at most */

/* Members of a crew save the same epochs, since only together they are a state: where a disk is too slow for every one,
 * every second, fourth, ... so that those of the slowest are among everybody's. */
bool run_crew_due(const struct run *r, uint64_t epoch, uint64_t every)
{
	uint64_t us = 0, n = r->nepochs < EXEC_TIMES_KEPT ? r->nepochs : EXEC_TIMES_KEPT, step = every ? every : CREW_EVERY;
	for (uint64_t i = 0; i < n; i++)
		us += r->epoch_took[i];
	us = n ? us / n * step : 0;
	for (unsigned k = 0; us && k < SAVE_RARELY && us < SAVE_ROOM * r->save_took_us; k++, us *= 2)
		step *= 2;
	return epoch % step == 0;
}

void run_crew_snapshot(struct run *r, snapshot_fn *done, void *arg)
{
	const struct run_crew *s = r->crew;
	struct state *kept = s ? mover_kept(s->mover, NULL) : NULL;
	if (!kept) {
		trainer_snapshot(r->trainer, done, arg);
		return;
	}
	state_snapshot(kept, done, arg);
	(void)state_copies(kept, r->point.epoch);
}

void run_crew_saved(struct run *r)
{
	if (r->crew)
		rally_read(r->crew->finds, NULL);
}

uint64_t run_crew_keeps(const struct run *r)
{
	return r->crew && !PLANTED(RALLY_UNKEPT) ? rally_on_disks(r->crew->finds) : 0;
}

bool run_crew_has_saved(const struct run *r, const struct avg_point *p, const struct snapshot *s, uint64_t *ret_bytes)
{
	const struct kept *k = r->crew ? rally_has(r->crew->finds, p->epoch, p->prev, s->part, s->nparts) : NULL;
	*ret_bytes = k ? k->bytes : 0;
	return k != NULL;
}

json_t *run_crew_json(const struct run *r)
{
	json_t *o = r->crew ? crew_json(r->crew->crew) : json_null();
	if (r->crew) {
		const char *lacks = rally_lacks(r->crew->finds);
		json_object_set_new(o, "moved", mover_json(r->crew->mover));
		json_object_set_new(o, "lacks", lacks ? json_string(lacks) : json_null());
	}
	return o;
}

void run_crew_close(struct run *r)
{
	struct run_crew *x = r->crew;
	r->crew = NULL;
	if (!x)
		return;
	run_crew_unsettle(x);
	env_timer(r->rs->ctx.env, &x->timer, 0);
	env_timer(r->rs->ctx.env, &x->lost, 0);
	mover_free(x->mover);
	rally_free(x->finds);
	crew_free(x->crew, trainer_read_over, r->trainer);
	free(x->member);
	json_decref(x->values);
	free(x->ids);
	free(x);
}

/* It comes from the disk, with the newest that is there. What of it is used others have a word in: it holds nothing
 * yet. */
int run_crew_comes(struct run *r, struct err *e)
{
	struct run_crew *s = r->crew;
	s->follows = true;
	rally_since(s->finds);
	rally_read(s->finds, &s->lost);
	return avg_enter(r->avg, &r->point, true, e);
}
