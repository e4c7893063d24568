/* What the rest of the room asks of a run whose plans have many members: who is in the generation, who holds the state,
 * and where this peer stands. */
#include <string.h>
#include "common/planted.h"
#include "run/crew_int.h"

#define PATIENT_US 10000000             /* nothing has ended, and the generation is over */
#define RARE 20                         /* times a validation's time between two */

void run_crew_look(struct run_crew *s)
{
	env_after(s->r->rs->ctx.env, &s->timer, 0);
}

/* Only who trains takes part. */
void run_crew_ready(struct run *r)
{
	struct run_crew *s = r->crew;
	if (!s || !s->crew)
		return;
	bool in = r->state == RUN_TRAIN && !s->follows;
	struct crew_roster to = { .epoch = s->roster.epoch, .target = run_target(r), .term = s->roster.term,
		.n = in ? s->roster.n : 0, .live = s->ids, .ngone = s->roster.ngone, .gone = s->ids + s->roster.n };
	if (in)
		to.leader = s->roster.leader;
	crew_roster(s->crew, &to);
}

bool run_crew_drains(const struct run *r) { return r->crew && r->crew->drains; }

bool run_crew_placed(const struct run *r) { return !r->crew || r->crew->step == SEAT_RUNS; }

bool run_crew_seated(const struct run *r)
{
	return run_crew_placed(r) && (!r->crew || trainer_seated(r->trainer));
}

uint64_t run_crew_still_us(struct run_crew *s)
{
	uint64_t now = env_now(s->r->rs->ctx.env);
	struct trainer_view v;
	trainer_view(s->r->trainer, &v);
	if (!s->looked_us || v.instructions != s->looked)
		s->looked_us = now;
	s->looked = v.instructions;
	return now - s->looked_us;
}

/* The last validation of all. Members go when they have ended it, and so does the generation: whoever is slower ends
 * it, too, but does not wait for ever for somebody who has died. */
bool run_crew_looks(struct run *r)
{
	struct run_crew *s = r->crew;
	if (!s)
		return true;
	if (s->in)
		s->looked_us = 0;
	return run_crew_still_us(s) < PATIENT_US && run_crew_seated(r);
}

uint64_t run_crew_share(const struct run *r) { return r->crew ? trainer_share(r->trainer) : 0; }

/* Who brings nothing of its unit's to a round, because it learns nothing or a replica speaks for it, is no member
 * there, and what its unit is in, it is in. */
uint64_t run_crew_counted(const struct run *r, const struct avg_commit *c)
{
	const struct run_crew *s = r->crew;
	uint64_t samples = c->my_samples;
	bool is = s && s->headed && s->told && c->generation == s->generation && !PLANTED(UNIT_UNCOUNTED);
	for (size_t k = 0; is && !samples && k < c->shares; k++)
		if (id_eq(&c->share[k].id, &s->head))
			samples = c->share[k].samples;
	return samples;
}

/* Does this peer count its unit's samples? */
bool run_crew_head(const struct run *r)
{
	return !r->crew || (run_crew_seated(r) && trainer_part(r->trainer)->brings && !trainer_part(r->trainer)->lo);
}

/* All end at one epoch: that it is good enough is said by a COMMIT. Whoever is first to be heard will do. */
void run_crew_reached(struct run *r, double accuracy)
{
	if (r->crew && r->spec->stop_accuracy > 0 && accuracy >= r->spec->stop_accuracy && !run_goal(r))
		avg_propose(r->avg, json_pack("{s:f}", SPEC_REACHED, accuracy), 0, NULL, NULL);
}

int run_crew_may_end(const struct run *r, const struct id *author, const json_t *patch, bool here, struct err *e)
{
	if (!r->crew || json_object_size(patch) != 1)
		return err_set(e, ERR_AUTH, "%s: only members of one plan say so to each other", SPEC_REACHED);
	if (here && !run_crew_names(r, author))
		return err_set(e, ERR_AUTH, "%s: who says so is no member of this generation", SPEC_REACHED);
	return spec_live_check(r->spec, patch, e);
}

int run_crew_change(const struct run *r, const json_t *patch, struct err *e)
{
	const char *robust = json_string_value(json_object_get(patch, "robust"));
	if (!r->crew)
		return 0;
	if (json_number_value(json_object_get(patch, "clip_norm")) > 0)
		return err_set(e, ERR_INVALID, "clip_norm: nobody has the whole gradient in strategy %s", r->spec->strategy);
	if (robust && strcmp(robust, "none"))
		return err_set(e, ERR_INVALID, "robust: members bring parts of the vector in strategy %s, and a robust mean is "
			"of whole ones", r->spec->strategy);
	return 0;
}

/* Members begin a validation together, so that when goes by what they all know: where the spec is silent, so seldom
 * that it takes a twentieth of the time, where forward is a third of a step. */
bool run_crew_validates(const struct run *r, uint64_t epoch)
{
	uint64_t n = data_count(r->data, DATA_VALIDATION), every = r->spec->validation_every;
	uint64_t step = 3 * spec_epoch_samples(r->spec, run_target(r));
	if (every == SPEC_VALIDATION_AUTO)
		every = (RARE * n + step - 1) / step;
	return n && epoch && every && epoch % every == 0;
}

uint64_t run_crew_life(const struct run *r) { return crew_life(r->crew->crew); }

struct mover *run_crew_mover(const struct run *r) { return r->crew ? r->crew->mover : NULL; }

uint64_t run_crew_base(const struct run *r) { return crew_base(r->crew->crew); }

size_t run_crew_holders(const struct run *r, struct id *ret, size_t max)
{
	return crew_base_members(r->crew->crew, ret, max);
}

size_t run_crew_members(const struct run *r, struct id *ret, size_t max)
{
	const struct run_crew *s = r->crew;
	size_t n = s->in ? s->v.nmembers : 0;
	n = n < max ? n : max;
	for (size_t i = 0; i < n; i++)
		ret[i] = s->member[i].id;
	return n;
}

bool run_crew_names(const struct run *r, const struct id *id) { return crew_names(r->crew->crew, id); }

bool run_crew_stands(const struct run *r) { return r->state == RUN_TRAIN && !r->crew->follows; }

bool run_crew_whole(const struct run *r)
{
	struct trainer_view t;
	trainer_view(r->trainer, &t);
	return r->crew->whole && t.epoch == r->point.epoch;
}
