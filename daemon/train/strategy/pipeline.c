/* pipeline: the model is cut into stages, each on a member of its own (or on several replicas), and micro-batches go
 * through them in the order of a schedule; perhaps several such pipelines side by side. Gradients add up over the
 * micro-batches of an epoch; then the update is that of any unit. A composition: parts/units.c says how many pipelines,
 * parts/partition.c who has what, parts/keep.c who holds it beside them, parts/schedule/ who does what when,
 * parts/stage.c what that means for one member, parts/stage_pass.c its passes, parts/round.c what follows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "train/strategy/parts/keep.h"
#include "train/strategy/parts/units.h"
#include "train/strategy/parts/round.h"

#define SAMPLES_MAX (1 << 20)           /* of a micro-batch */
#define MICRO_MAX 1024                  /* of a program, which has some ten instructions for each */

static const struct turns_ops *turns_of(const json_t *values)
{
	const char *name = json_string_value(json_object_get(values, "schedule"));

	return turns_find(name ? name : "1f1b");
}

static uint32_t count_of(const json_t *v, uint32_t most)
{
	json_int_t n = json_integer_value(v);

	return json_is_integer(v) && n >= 1 && n <= most ? (uint32_t)n : 0;
}

/* --- what the spec says, before anything is known of model and members */

static int check_stage(const json_t *o, size_t at, struct err *e)
{
	const json_t *layers = json_object_get(o, "layers"), *replicas = json_object_get(o, "replicas");
	const char *key;
	json_t *v;

	if (!json_is_object(o))
		return err_set(e, ERR_INVALID, "stages[%zu] must be an object such as {\"layers\": 4, \"replicas\": 2}", at);
	json_object_foreach((json_t *)o, key, v)
		if (strcmp(key, "layers") && strcmp(key, "replicas"))
			return err_set(e, ERR_INVALID, "stages[%zu]: unknown key \"%.40s\"; a stage has layers and replicas", at,
				key);
	if (replicas && !count_of(replicas, PLAN_MEMBERS_MAX))
		return err_set(e, ERR_INVALID, "stages[%zu].replicas must be a whole number from 1 to %d", at,
			PLAN_MEMBERS_MAX);
	if (layers && !count_of(layers, 1 << 20) && !json_is_string(layers))
		return err_set(e, ERR_INVALID, "stages[%zu].layers must be how many layers, or the first and the last one such "
			"as \"conv1-fc\"", at);
	return 0;
}

static int check_stages(const json_t *v, struct err *e)
{
	size_t given = 0, i;
	json_t *o;

	if (!v)
		return err_set(e, ERR_INVALID, "stages is missing: into how many the model is cut, such as 4");
	if (json_is_integer(v))
		return count_of(v, STAGES_MAX) ? 0 : err_set(e, ERR_INVALID, "stages must be from 1 to %d", STAGES_MAX);
	if (!json_is_array(v) || !json_array_size(v) || json_array_size(v) > STAGES_MAX)
		return err_set(e, ERR_INVALID, "stages must be a number, or a list of 1 to %d stages", STAGES_MAX);
	json_array_foreach((json_t *)v, i, o) {
		if (check_stage(o, i, e) < 0)
			return -1;
		given += json_object_get(o, "layers") != NULL;
	}
	if (given && given < json_array_size(v))
		return err_set(e, ERR_INVALID, "stages: %zu of %zu say their layers; give those of all, or of none and "
			"the cuts are found", given, json_array_size(v));
	return 0;
}

static int check(const json_t *values, struct err *e)
{
	const json_t *schedule = json_object_get(values, "schedule"), *micro = json_object_get(values, "micro_batches");
	const json_t *size = json_object_get(values, "micro_batch_size"), *units = json_object_get(values, "replicas");
	char names[200];

	if (schedule && !json_is_string(schedule))
		return err_set(e, ERR_INVALID, "schedule must be one of: %s", turns_names(names, sizeof(names)));
	if (!turns_of(values))
		return err_set(e, ERR_INVALID, "schedule \"%.40s\" is unknown; known: %s", json_string_value(schedule),
			turns_names(names, sizeof(names)));
	if (micro && !count_of(micro, MICRO_MAX))
		return err_set(e, ERR_INVALID, "micro_batches must be a whole number from 1 to %d", MICRO_MAX);
	if (size && !count_of(size, SAMPLES_MAX))
		return err_set(e, ERR_INVALID, "micro_batch_size must be a whole number from 1 to %d", SAMPLES_MAX);
	if (units && !count_of(units, PLAN_MEMBERS_MAX))
		return err_set(e, ERR_INVALID, "replicas must be a whole number from 1 to %d: so many pipelines side by side "
			"at most", PLAN_MEMBERS_MAX);
	return check_stages(json_object_get(values, "stages"), e);
}

/* --- the stages of this model on these members */

static uint32_t op_named(const struct profile *m, const char *name, size_t n)
{
	for (uint32_t o = 0; o < m->nops; o++)
		if (strlen(m->op[o].name) == n && !memcmp(m->op[o].name, name, n))
			return o;
	return m->nops;
}

/* "FIRST-LAST" or "ONLY"; names may have a - themselves. */
static bool named(const struct profile *m, const char *text, uint32_t *ret_a, uint32_t *ret_b)
{
	*ret_a = *ret_b = op_named(m, text, strlen(text));
	for (const char *dash = strchr(text, '-'); *ret_a == m->nops && dash; dash = strchr(dash + 1, '-')) {
		uint32_t a = op_named(m, text, (size_t)(dash - text)), b = op_named(m, dash + 1, strlen(dash + 1));

		if (a < m->nops && b < m->nops && a <= b) {
			*ret_a = a;
			*ret_b = b;
		}
	}
	return *ret_a < m->nops;
}

static int layers_of(struct pipe *x, const json_t *list, struct err *e)
{
	const struct profile *m = x->v->profile;
	uint32_t next = 0;

	for (uint32_t s = 0; s < x->n; s++) {
		const json_t *layers = json_object_get(json_array_get(list, s), "layers");
		struct stage *at = &x->stage[s];

		at->a = next;
		at->b = next + (uint32_t)json_integer_value(layers) - 1;
		if (json_is_string(layers) && !named(m, json_string_value(layers), &at->a, &at->b))
			return err_set(e, ERR_INVALID, "stages[%u].layers: \"%.60s\" are no layers of this model (%s to %s), first "
				"and last", s, json_string_value(layers), m->op[0].name, m->op[m->nops - 1].name);
		if (at->a != next)
			return err_set(e, ERR_INVALID, "stages[%u].layers begins with %s, and %s is the next layer: every layer is "
				"in one stage, in the order of the model", s, m->op[at->a].name,
				next < m->nops ? m->op[next].name : "none");
		if (at->b >= m->nops)
			return err_set(e, ERR_INVALID, "stages[%u].layers: %u layers are asked for up to here, and the model has "
				"%u", s, at->b + 1, m->nops);
		next = at->b + 1;
	}
	return next == m->nops ? 0 : err_set(e, ERR_INVALID, "stages: their layers end with %s, and the model goes on with "
		"%s (%u layers in all)", m->op[next - 1].name, m->op[next].name, m->nops);
}

/* Members in the order of the view: of each pipeline the first stage's replicas, the second's, and so on. */
static int seats(struct pipe *x, const json_t *stages, struct err *e)
{
	x->n = json_is_array(stages) ? (uint32_t)json_array_size(stages) : (uint32_t)json_integer_value(stages);
	x->members = 0;
	x->widest = 1;
	for (uint32_t s = 0; s < x->n; s++) {
		const json_t *r = json_object_get(json_array_get(stages, s), "replicas");
		uint32_t replicas = r ? (uint32_t)json_integer_value(r) : 1;

		x->stage[s] = (struct stage){ .rank = x->members, .replicas = replicas };
		x->members += replicas;
		x->widest = replicas > x->widest ? replicas : x->widest;
	}
	return x->members <= x->v->nmembers ? 0 : err_set(e, ERR_INVALID, "%u stages need %u members, and there are %u: "
		"more peers, or fewer stages%s", x->n, x->members, x->v->nmembers, x->members > x->n ? " or replicas" : "");
}

/* Of a schedule that runs on a program is an epoch. More than two versions of the weights would be needed if the first
 * micro-batches of the epoch after the next were under way before this one has ended. */
static int epoch_of(struct pipe *x, uint64_t epoch, struct err *e)
{
	const json_t *said = json_object_get(x->v->values, "micro_batches");
	const char *name = x->schedule->name;

	x->most = epoch > MICRO_MAX ? MICRO_MAX : (uint32_t)epoch;
	if (said && (uint64_t)json_integer_value(said) != epoch)
		return err_set(e, ERR_INVALID, "schedule %s has no flush: a version of the weights comes of all %llu "
			"micro-batches that a pipeline makes in an epoch (target_batch), and micro_batches is %lld: leave it out, "
			"or change one of them", name, (unsigned long long)epoch, (long long)json_integer_value(said));
	if (epoch > MICRO_MAX)
		return err_set(e, ERR_INVALID, "schedule %s makes the micro-batches of an epoch in one program, of %d at most, "
			"and there are %llu: a smaller target_batch, or greater micro-batches", name, MICRO_MAX,
			(unsigned long long)epoch);
	return epoch >= x->members ? 0 : err_set(e, ERR_INVALID, "schedule %s needs a micro-batch for every member of a "
		"pipeline in each epoch: there are %u members and %llu micro-batches; a greater target_batch, smaller "
		"micro-batches, or fewer stages", name, x->members, (unsigned long long)epoch);
}

/* Micro-batches of a flush, of a pipeline that makes so many in an epoch. Every replica has one at least, so that each
 * has a sum. */
static int flush_of(struct pipe *x, uint64_t epoch, struct err *e)
{
	const json_t *said = json_object_get(x->v->values, "micro_batches");
	uint32_t most = x->schedule->micro_batches ? x->schedule->micro_batches * x->n : 1;

	if (x->schedule->runs_on)
		return epoch_of(x, epoch, e);
	if (said)
		most = (uint32_t)json_integer_value(said);
	else if (most < x->widest)
		most = x->widest;
	x->most = most > epoch ? (uint32_t)epoch : most < MICRO_MAX ? most : MICRO_MAX;
	if (x->most < x->widest)
		return err_set(e, ERR_INVALID, "a stage has %u replicas, and a flush %u micro-batches: some would have "
			"nothing to do; fewer replicas, more micro_batches, or a greater target_batch (%llu, in micro-batches of "
			"%u)", x->widest, x->most, (unsigned long long)x->v->target_batch, x->v->profile->batch);
	return 0;
}

static uint64_t holds(void *arg, uint32_t s, uint32_t a, uint32_t b, const struct piece_need *need)
{
	return stage_holds(arg, s, a, b, need);
}

static uint64_t passes(void *arg, uint32_t s, uint64_t x, uint64_t y)
{
	return stage_passes(arg, s, x, y);
}

/* The cuts for so many pipelines. */
static int cuts(struct pipe *x, uint32_t units, const json_t *stages, struct err *e)
{
	struct cutting c = { .v = x->v, .n = x->n, .stage = x->stage, .units = units, .members = x->members, .holds = holds,
		.passes = passes, .arg = x };
	bool given = json_object_get(json_array_get(stages, 0), "layers") != NULL;
	uint32_t copies = x->v->redundancy ? x->v->redundancy : 1;
	uint64_t least, most;

	x->units = units;
	x->copies = (copies + units - 1) / units;
	x->cut = false;
	units_range(x, x->v, &least, &most);
	if (flush_of(x, least, e) < 0 || flush_of(x, most, e) < 0)
		return -1;              /* what lies between them can be when they can */
	keep_find(x);
	if ((given ? layers_of(x, stages, e) : partition(&c, e)) < 0)
		return -1;
	x->cut = true;
	keep_find(x);
	if (keep_enough(x, e) < 0)
		return -1;
	/* with copies, what a member keeps was not known while the cuts were looked for */
	return given || x->copies > 1 ? partition_fits(&c, e) : 0;
}

/* How many pipelines, and who is in each. */
static int seats_of(struct pipe *x, const struct view *v, struct err *e)
{
	const json_t *stages = json_object_get(v->values, "stages");

	x->v = v;
	x->base = 0;
	x->schedule = turns_of(v->values);
	if (!stages)
		return check_stages(NULL, e);
	if (seats(x, stages, e) < 0)
		return -1;
	units_find(x, v);
	return 0;
}

/* The pipeline that this member is in, or the first; of as many as its members can hold. */
static int pipe_of(struct pipe *x, const struct view *v, struct err *e)
{
	const json_t *stages = json_object_get(v->values, "stages");
	uint32_t mine;

	if (seats_of(x, v, e) < 0)
		return -1;
	for (uint32_t units = x->units; cuts(x, units, stages, e) < 0; units--)
		if (units == 1)
			return -1;
	mine = v->me / x->members < x->units ? v->me / x->members : 0;
	x->base = mine * x->members;
	return flush_of(x, units_share(x, v, mine).n, e);
}

static int settle(const struct view *v, json_t **ret, struct err *e)
{
	json_t *list;
	struct pipe x;

	if (pipe_of(&x, v, e) < 0)
		return -1;
	list = json_array();
	for (uint32_t s = 0; s < x.n; s++)
		(void)json_array_append_new(list, json_pack("{s:I,s:I}", "layers",
			(json_int_t)(x.stage[s].b - x.stage[s].a + 1), "replicas", (json_int_t)x.stage[s].replicas));
	*ret = json_copy((json_t *)v->values);
	(void)json_object_set_new(*ret, "stages", list);
	(void)json_object_set_new(*ret, UNITS_SETTLED, json_integer(x.units));
	return 0;
}

/* --- programs */

/* Of so many that are left: no replica is without one, and what comes behind it is no shorter, if that can be. */
static uint64_t flush_size(const struct pipe *x, uint64_t left)
{
	uint64_t n = left > x->most ? x->most : left, rest = left - n;

	if (rest && rest < x->widest && n >= 2 * x->widest - rest)
		n -= x->widest - rest;
	return n < x->widest ? x->widest : n;
}

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	uint64_t made = (v->samples + v->profile->batch - 1) / v->profile->batch, share, n;
	struct pipe x;

	if (pipe_of(&x, v, e) < 0)
		return -1;
	share = units_share(&x, v, x.base / x.members).n;
	n = v->granted && share > made ? share - made : 0;
	plan_begin(ret, "pipeline", v);
	ret->redundancy = v->redundancy ? v->redundancy : 1;
	if (stage_of(&x, v->me) && x.schedule->runs_on) {
		stage_buffers(ret, &x, v->me);
		pipe_run_on(ret, &x, made, share);
		return 0;
	}
	if (!stage_of(&x, v->me) || (!v->begun && !n))
		return 0;               /* spare, or the target is reached: wait */
	n = flush_size(&x, n);
	stage_buffers(ret, &x, v->me);
	if (v->begun)
		pipe_update(ret, &x);
	else
		stage_flush(ret, &x, v->me, (uint32_t)n);
	return 0;
}

static int unit(const struct view *v, uint32_t rank, struct planner_unit *ret, struct err *e)
{
	struct pipe x;

	if (seats_of(&x, v, e) < 0)
		return -1;
	*ret = (struct planner_unit){ .unit = PLAN_NO_UNIT };
	if (rank / x.members < x.units)
		*ret = units_share(&x, v, rank / x.members);
	return 0;
}

static bool lost(const struct view *v, uint32_t rank)
{
	return true;                    /* every stage is needed, and replicas agree strictly */
}

static const char *const keys[] = { "schedule", "stages", "micro_batches", "micro_batch_size", "replicas",
	NULL };

static int mode(const struct plan_results *settings, const json_t *values, struct planner_mode *ret, struct err *e)
{
	const struct turns_ops *schedule = turns_of(values);

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
	.crew = true, .redundancy = 2, .values = keys, .check = check, .settle = settle, .mode = mode, .plan = plan,
	.unit = unit, .lost = lost };
