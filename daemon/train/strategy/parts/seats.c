/* Who has which stage of this model, and in what flushes an epoch is made (seats.h). */
#include <stdlib.h>
#include <string.h>
#include "train/strategy/parts/keep.h"
#include "train/strategy/parts/said.h"
#include "train/strategy/parts/seats.h"
#include "train/strategy/parts/tied.h"
#include "train/strategy/parts/units.h"

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
int seats_flush(struct pipe *x, uint64_t epoch, struct err *e)
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

static uint64_t holds(void *arg, uint32_t s, uint32_t a, uint32_t b, const struct piece_need *need,
	const uint32_t *at)
{
	return stage_holds(arg, s, a, b, need, at);
}

static uint64_t passes(void *arg, uint32_t s, uint64_t x, uint64_t y)
{
	return stage_passes(arg, s, x, y);
}

static uint64_t least(void *arg, uint32_t a, uint32_t b)
{
	return stage_least(arg, a, b);
}

static struct cutting cutting_of(struct pipe *x)
{
	return (struct cutting){ .v = x->v, .n = x->n, .stage = x->stage, .units = x->units, .members = x->members,
		.keep = x->copies > 1 ? x->keep : NULL, .holds = holds, .passes = passes, .least = least, .arg = x,
		.more = x->more, .lacks = x->quiet ? NULL : &x->lacks };
}

uint64_t seats_bytes(struct pipe *x, uint64_t *ret_has)
{
	const struct cutting c = cutting_of(x);

	return partition_bytes(&c, ret_has);
}

int seats_cut(struct pipe *x, uint32_t units, struct err *e)
{
	const json_t *stages = json_object_get(x->v->values, "stages");
	bool given = json_object_get(json_array_get(stages, 0), "layers") != NULL;
	uint32_t copies = x->v->redundancy ? x->v->redundancy : 1;
	struct cutting c;
	uint64_t least, most;

	x->units = units;
	x->lacks = 0;
	x->copies = (copies + units - 1) / units;
	c = cutting_of(x);
	x->cut = false;
	x->tied = 0;
	units_range(x, x->v, &least, &most);
	c.epoch = least;
	if (seats_flush(x, least, e) < 0 || seats_flush(x, most, e) < 0)
		return -1;              /* what lies between them can be when they can */
	for (uint32_t s = 0; s < x->n; s++)
		x->stage[s].again = stage_again(x, s);
	keep_find(x);
	if ((given ? layers_of(x, stages, e) : partition(&c, e)) < 0)
		return -1;
	x->cut = true;
	x->tied = x->n > 1 ? tied_elements(x->v->profile, x->stage[x->n - 1].a) : 0;
	keep_find(x);
	if (keep_enough(x, e) < 0)
		return -1;
	/* with copies, what a member keeps was not known while the cuts were looked for */
	return given || x->copies > 1 ? partition_fits(&c, e) : 0;
}

int seats_find(struct pipe *x, const struct view *v, struct err *e)
{
	const json_t *stages = json_object_get(v->values, "stages");

	x->v = v;
	x->base = 0;
	x->schedule = said_schedule(v->values);
	x->remat = said_remat(v->values) == REMAT_BOUNDARY;
	if (!stages)
		return said_check(v->values, e);
	if (seats(x, stages, e) < 0)
		return -1;
	units_find(x, v);
	return 0;
}

/* No replica is without one, and what comes behind it is no shorter, if that can be. */
uint64_t seats_flush_size(const struct pipe *x, uint64_t left)
{
	uint64_t n = left > x->most ? x->most : left, rest = left - n;

	if (rest && rest < x->widest && n >= 2 * x->widest - rest)
		n -= x->widest - rest;
	return n < x->widest ? x->widest : n;
}
