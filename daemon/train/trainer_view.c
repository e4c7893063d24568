/* Figures of a trainer for status, dry runs and `run plan`. */
#include <math.h>
#include <stdlib.h>
#include "common/text.h"
#include "plan/predict.h"
#include "train/memory.h"
#include "train/trainer_int.h"

#define CHART 100                       /* columns */

static const char *state_of(const struct trainer *t)
{
	if (t->broken)
		return "broken";
	if (t->applying)
		return "applying";
	if (t->in_begin || !list_empty(&t->commits))
		return "round";
	if (!t->started)
		return "quiet";
	if (t->paused)
		return "paused";
	return t->load_wait || !load_left(t) || t->samples >= t->hold_at ? "waiting" : "training";
}

/* Batches that the loader has, or will have; a seat that reads nothing has none. */
static uint32_t depth_of(const struct trainer *t)
{
	return t->loader_depth ? t->loader_depth : t->seat.is ? 0 : load_depth(t, t->s->local.batch);
}

void trainer_view(const struct trainer *t, struct trainer_view *ret)
{
	struct exec_view x;

	exec_view(t->x, &x);
	*ret = (struct trainer_view){ .epoch = t->epoch, .samples = t->samples, .batches = t->batches,
		.left = load_left(t), .rate = t->rate, .loss = t->samples ? t->loss_sum / (double)t->samples : NAN,
		.lr = round_lr(t), .state = state_of(t), .arena_bytes = x.arena_bytes, .arena_peak_bytes = x.arena_peak_bytes,
		.arena_predicted_bytes = t->predicted_bytes, .state_bytes = trainer_shard(t)->bytes,
		.loader_bytes = loader_bytes(t->c.data, t->s->local.batch, depth_of(t)), .held_bytes = eval_bytes(t),
		.skipped = t->skipped_steps, .loss_scale = t->loss_scale, .abandoned = x.abandoned,
		.generation = trainer_generation(t), .programs = x.programs, .checks = x.checks, .instructions = x.instructions,
		.busy_us = x.busy_us, .load_wait_us = x.load_wait_us,
		.flops = x.flops, .stale = t->stale, .stale_most = t->stale_most };
}

/* What the predictor says of one program, beside its table. */
static json_t *predicted(struct trainer *t, const struct plan *p, const struct tokens *before, bool draw,
	struct buf *text)
{
	struct profile m;
	bool measured = measured_profile(t, &m);
	const struct predict_conf c = { .profile = measured ? &m : &t->profile, .before = &before,
		.spans = draw };
	struct prediction r;
	char bytes[32];

	int rc = predict(&p, 1, &c, &r, NULL);
	if (measured)
		profile_free(&m);
	if (rc < 0)
		return json_object();
	if (!r.stuck)
		buf_printf(text, "predicted%s: %.3f ms, step arena at most %s\n\n", measured ? " (from measured times)" : "",
			(double)r.us / 1e3,
			text_print_size(r.peer[0].peak[0], bytes, sizeof bytes));
	if (!r.stuck && draw) {
		plan_gantt(&r, &p, CHART, text);
		buf_printf(text, "\n");
	}
	json_t *o = json_pack("{s:I,s:I,s:b,s:b}", "us", (json_int_t)r.us, "peak_bytes", (json_int_t)r.peer[0].peak[0],
		"stuck", r.stuck, "measured", measured);
	prediction_free(&r);
	return o;
}

/* Each of the programs above begins with what those before it have left the first time; later that is more. */
static void told_most(const struct trainer *t, struct buf *text)
{
	char bytes[32];

	if (t->predicted_bytes)         /* not of a crew: its members hold parts */
		buf_printf(text, "memory as the run goes on: at most %s (%llu bytes)\n",
			text_print_size(t->predicted_bytes, bytes, sizeof bytes), (unsigned long long)t->predicted_bytes);
}

/* A micro-batch, and the round that ends an epoch; where rounds go on beside micro-batches, what follows the commit. */
json_t *trainer_plan_json(struct trainer *t, bool draw, struct err *e)
{
	static const char *const titles[2][3] = { { "a micro-batch:", "the round that ends an epoch:",
		"what follows the round's commit:" }, { "the first epoch:", "an epoch, with the round of the one before:",
		"what follows that round's commit, where micro-batches cannot go on:" } };
	const char *const *title = titles[runs_on(t)];
	const struct plan_results none = { 0, NULL };
	struct view_member me = { .id = t->c.self, .speed = 1 };
	json_t *plans = json_array(), *costs = json_array(), *look = NULL, *o = NULL;
	struct buf text = { 0 };
	struct plan plan[3] = { 0 };
	struct tokens *left = NULL;             /* what those before leave for the next */
	json_t *remat = memory_json(&t->profile, &t->pass, &text);
	int n = 0, most = t->s->mode.under_way ? 3 : 2, rc = 0;

	for (; n < most && rc == 0; n++) {
		struct view v = trainer_plan_view(t, &me, left ? (uint64_t)tokens_next_index(left) : 0);
		struct plan *p = &plan[n];
		struct tokens *before = left;

		v.granted = true;
		v.samples = n == 1 ? t->target : 0;
		v.begun = n == 1 && t->strategy->needs_swarm;
		v.fresh = n == 0;
		v.agreed = n == 2;
		v.gave = n > 0;
		rc = t->strategy->plan(&v, &none, p, e);
		if (rc < 0)
			break;
		if (!n && t->s->mode.grows && p->ngroups)
			most = 1;
		buf_printf(&text, "%s\n", most > 1 ? title[n] : "a micro-batch, and the round that has it while it is made:");
		plan_print(p, &text);
		(void)json_array_append_new(costs, predicted(t, p, before, draw, &text));
		(void)json_array_append_new(plans, plan_to_json(p));
		left = memory_rehearse(p, before, NULL);
		tokens_free(before);
	}
	if (rc == 0)
		rc = eval_plan_json(t, draw, &text, &look, e);
	if (rc == 0) {
		told_most(t, &text);
		o = json_pack("{s:s%,s:O,s:O,s:I}", "text", text.p, text.len, "plans", plans, "predicted", costs, "peak_bytes",
			(json_int_t)t->predicted_bytes);
		(void)json_object_set(o, "remat", remat);
		if (look)
			(void)json_object_set(o, "validation", look);
	}
	json_decref(look);
	tokens_free(left);
	while (n-- > 0)
		plan_free(&plan[n]);
	json_decref(plans);
	json_decref(costs);
	json_decref(remat);
	buf_free(&text);
	return o;
}

json_t *trainer_data_json(const struct trainer *t)
{
	json_t *o = data_json(t->c.data);
	uint64_t wait = t->loader ? loader_wait_us(t->loader) : 0;
	struct exec_view x;

	exec_view(t->x, &x);
	(void)json_object_set_new(o, "wait_us", json_integer((json_int_t)wait));
	(void)json_object_set_new(o, "workers", json_integer(t->s->local.workers));
	(void)json_object_set_new(o, "prefetch", json_integer(load_depth(t, t->s->local.batch) - 1));
	(void)json_object_set_new(o, "bottleneck", json_string(wait > (wait + x.busy_us) / 5 ? "data" : "compute"));
	return o;
}

json_t *trainer_traffic_json(const struct trainer *t)
{
	json_t *o = json_object();
	struct exec_view x;

	exec_view(t->x, &x);
	for (int c = 0; c < PLAN_CLASSES_COUNT; c++)
		(void)json_object_set_new(o, plan_class_name((enum plan_class)c), json_integer((json_int_t)x.bytes[c]));
	return o;
}

struct view trainer_crew_view(struct trainer *t)
{
	struct view v = trainer_plan_view(t, NULL, 0);

	trainer_read(t);
	v.nmembers = 0;
	v.target_batch = epoch_goal(t);
	v.granted = true;
	return v;
}
