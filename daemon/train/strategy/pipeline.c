/* pipeline: the model is cut into stages, each on a member of its own (or on several replicas), and micro-batches go
 * through them in the order of a schedule; perhaps several such pipelines side by side. Gradients add up over the
 * micro-batches of an epoch; then the update is that of any unit. A composition: parts/units.c says how many pipelines,
 * parts/partition.c who has what, parts/keep.c who holds it beside them, parts/tied.c what two have in common,
 * parts/schedule/ who does what when, parts/stage.c what that means for one member, parts/stage_pass.c its passes,
 * parts/round.c what follows, parts/stage_valid.c validation; and where the spec leaves it to the planner, parts/ways.c
 * what all this is to be. */
#include "train/strategy/parts/round.h"
#include "train/strategy/parts/units.h"
#include "train/strategy/parts/said.h"
#include "train/strategy/parts/seats.h"
#include "train/strategy/parts/ways.h"

/* The pipeline that this member is in, or the first; of as many as its members can hold. */
static int pipe_of(struct pipe *x, const struct view *v, struct err *e)
{
	uint32_t mine;

	*x = (struct pipe){ .v = v };
	if (seats_find(x, v, e) < 0)
		return -1;
	for (uint32_t units = x->units; seats_cut(x, units, e) < 0; units--)
		if (units == 1)
			return -1;
	mine = v->me / x->members < x->units ? v->me / x->members : 0;
	x->base = mine * x->members;
	return seats_flush(x, units_share(x, v, mine).n, e);
}

/* A view in which nothing is left to choose, with micro-batches of the size that was. */
struct chosen { struct view v; struct profile profile; json_t *values; };

static int chosen_open(struct chosen *c, const struct view *v, struct err *e)
{
	uint32_t batch;

	*c = (struct chosen){ .v = *v };
	if (ways_open(v->values) && ways_choose(v, &c->values, e) < 0)
		return -1;
	c->v.values = c->values ? c->values : v->values;
	batch = ways_batch(c->v.values);
	if (batch && batch != v->profile->batch && json_object_get(c->v.values, PLANNER_CHOSEN)) {
		profile_at(v->profile, batch, &c->profile);
		c->v.profile = &c->profile;
	}
	return 0;
}

static void chosen_close(struct chosen *c)
{
	profile_free(&c->profile);
	json_decref(c->values);
}

static int settle(const struct view *v, json_t **ret, struct err *e)
{
	json_t *list;
	struct chosen c;
	struct pipe x;

	if (chosen_open(&c, v, e) < 0)
		return -1;
	if (pipe_of(&x, &c.v, e) < 0) {
		chosen_close(&c);
		return -1;
	}
	list = json_array();
	for (uint32_t s = 0; s < x.n; s++)
		(void)json_array_append_new(list, json_pack("{s:I,s:I}", "layers",
			(json_int_t)(x.stage[s].b - x.stage[s].a + 1), "replicas", (json_int_t)x.stage[s].replicas));
	*ret = json_copy((json_t *)c.v.values);
	(void)json_object_set_new(*ret, "stages", list);
	(void)json_object_set_new(*ret, UNITS_SETTLED, json_integer(x.units));
	chosen_close(&c);
	return 0;
}

/* --- programs */

static void program(struct pipe *x, struct plan *ret)
{
	const struct view *v = x->v;
	uint64_t made = (v->samples + v->profile->batch - 1) / v->profile->batch, n;
	uint64_t share = units_share(x, v, x->base / x->members).n;

	n = v->granted && share > made ? share - made : 0;
	plan_begin(ret, "pipeline", v);
	ret->redundancy = v->redundancy ? v->redundancy : 1;
	if (v->validates) {
		if (stage_of(x, v->me))
			stage_validate(ret, x, v->me);
		return;
	}
	if (stage_of(x, v->me) && x->schedule->runs_on) {
		stage_buffers(ret, x, v->me);
		pipe_run_on(ret, x, made, share);
		return;
	}
	if (!stage_of(x, v->me) || (!v->begun && !n))
		return;                 /* spare, or the target is reached: wait */
	n = seats_flush_size(x, n);
	stage_buffers(ret, x, v->me);
	if (v->begun)
		pipe_update(ret, x);
	else
		stage_flush(ret, x, v->me, (uint32_t)n, made + n >= share);
}

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	struct chosen c;
	struct pipe x;
	int rc;

	if (chosen_open(&c, v, e) < 0)
		return -1;
	rc = pipe_of(&x, &c.v, e);
	if (rc == 0)
		program(&x, ret);
	chosen_close(&c);
	return rc;
}

static int unit(const struct view *v, uint32_t rank, struct planner_unit *ret, struct err *e)
{
	struct chosen c;
	struct pipe x = { .v = v };
	int rc;

	if (chosen_open(&c, v, e) < 0)
		return -1;
	rc = seats_find(&x, &c.v, e);
	*ret = (struct planner_unit){ .unit = PLAN_NO_UNIT };
	if (rc == 0 && rank / x.members < x.units)
		*ret = units_share(&x, &c.v, rank / x.members);
	chosen_close(&c);
	return rc;
}

static uint32_t batch(const json_t *values)
{
	return json_object_get(values, PLANNER_CHOSEN) ? ways_batch(values) : 0;
}

static bool lost(const struct view *v, uint32_t rank)
{
	return true;                    /* every stage is needed, and replicas agree strictly */
}

static const char *const keys[] = { "schedule", "stages", "micro_batches", "micro_batch_size", "replicas",
	"remat", NULL };

static int mode(const struct plan_results *settings, const json_t *values, struct planner_mode *ret, struct err *e)
{
	const struct turns_ops *schedule = said_schedule(values);

	ret->patient = true;            /* a flush that has begun ends: its other members are in it, too */
	ret->equality = "parameters and optimizer state of a stage are equal on all who hold it after every commit";
	if (!schedule->runs_on)
		return 0;
	ret->runs_on = true;
	ret->nstate = ret->nparams = 1;
	ret->state[0] = STAGE_BEFORE;
	ret->equality = "parameters, those from before the last step and optimizer state of a stage are equal on all who "
		"hold it after every commit; every gradient is of parameters one step old";
	ret->under_way = "a checkpoint and a donor's state hold what is committed; the gradient that is being agreed and "
		"micro-batches under way are dropped when a member dies, and their samples come again";
	return 0;
}

const struct planner_ops strategy_pipeline = { .name = "pipeline",
	.help = "the model cut into stages, each on a member; micro-batches go through them", .needs_swarm = true,
	.crew = true, .redundancy = 2, .values = keys, .check = said_check, .settle = settle, .mode = mode, .plan = plan,
	.unit = unit, .lost = lost, .batch = batch };
