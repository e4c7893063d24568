/* Where a run is: the point after its last epoch, those before it (a snapshot of epoch e travels with the point of
 * epoch e), the target batch that is in force there, and whether that is the goal. */
#include <string.h>
#include "common/planted.h"
#include "run/int.h"

bool run_goal(const struct run *r)
{
	const struct spec *s = r->spec;
	if (s->stop_epochs && r->point.epoch >= s->stop_epochs)
		return true;
	if (s->stop_samples && r->point.samples >= s->stop_samples)
		return true;
	if (r->crew && !PLANTED(EVAL_EACH))
		return json_object_get(r->point.params, SPEC_REACHED) != NULL;
	return s->stop_accuracy > 0 && r->best_accuracy >= s->stop_accuracy;
}

uint64_t run_target(const struct run *r)
{
	return spec_live_target(r->spec, r->point.params);
}

void run_applied_point(struct run *r)
{
	struct avg_point *slot = &r->recent[r->point.epoch % RUN_POINTS];
	avg_point_done(slot);
	avg_point_init(slot);
	avg_point_copy(slot, &r->point);
	if (r->avg)
		avg_target(r->avg, spec_epoch_samples(r->spec, run_target(r)));
	if (r->nrecent < RUN_POINTS)
		r->nrecent++;
}

const struct avg_point *run_point_at(const struct run *r, uint64_t epoch)
{
	const struct avg_point *p = &r->recent[epoch % RUN_POINTS];
	return r->nrecent && p->epoch == epoch && p->params ? p : NULL;
}

void run_take_point(struct run *r, const struct avg_point *p)
{
	memcpy(r->last_prev, r->point.prev, DIGEST);
	avg_point_done(&r->point);
	avg_point_init(&r->point);
	avg_point_copy(&r->point, p);
	run_applied_point(r);           /* its step comes later, perhaps after the next commit: see record_epoch */
}
