/* `run plan` of a seat: the program of a validation, and what it costs. Members go through it together, so that the
 * prediction is of the programs of all of them, each as fast as this machine's matrix products. */
#include <stdlib.h>
#include "common/mem.h"
#include "common/text.h"
#include "plan/predict.h"
#include "train/profile.h"
#include "train/trainer_int.h"

#define COLUMNS 100

struct whole { struct profile speeds; uint32_t n; struct plan *plan; const struct plan **list; double *speed;
	struct prediction out; };

static int open_whole(struct whole *w, struct trainer *t, const struct view *v, bool draw, struct err *e)
{
	struct predict_conf c = { .profile = &w->speeds, .spans = draw, .link = { v->latency_us, v->us_per_byte } };
	struct profile_source from = { .model = t->model, .parts = t->source.parts, .macs_per_us = t->c.macs_per_us,
		.x_bytes = t->source.x_bytes, .y_bytes = t->source.y_bytes };

	*w = (struct whole){ .n = v->nmembers, .plan = xcalloc(v->nmembers, sizeof(*w->plan)),
		.list = xcalloc(v->nmembers, sizeof(*w->list)), .speed = xcalloc(v->nmembers, sizeof(*w->speed)) };
	profile_model(&w->speeds, &from, t->profile.batch);
	if (plan_members(t->strategy, v, w->plan, NULL, e) < 0)
		return -1;
	for (uint32_t k = 0; k < w->n; k++) {
		w->list[k] = &w->plan[k];
		w->speed[k] = v->member[k].speed;
	}
	c.speed = w->speed;
	return predict(w->list, w->n, &c, &w->out, e);
}

static void close_whole(struct whole *w)
{
	for (uint32_t k = 0; k < w->n; k++)
		plan_free(&w->plan[k]);
	free(w->plan);
	free(w->list);
	free(w->speed);
	prediction_free(&w->out);
	profile_free(&w->speeds);
}

/* This member's instructions, and the figures of all. */
static json_t *told(const struct trainer *t, const struct whole *w, const struct view *v, bool draw, struct buf *text)
{
	const struct predict_peer *mine = &w->out.peer[v->me];
	uint64_t all = batches_of(t, t->v.count), programs = (all + v->validates - 1) / v->validates, sent = 0;
	uint64_t held = t->seat.reads ? planner_held_bytes(v) : 0;
	char most[32], bytes[32];

	for (int c = 0; c < PLAN_CLASSES_COUNT; c++)
		sent += mine->sent[c];
	buf_printf(text, "a validation, of %u held-out micro-batches (%llu samples, %llu program%s):\n", v->validates,
		(unsigned long long)t->v.count, (unsigned long long)programs, programs > 1 ? "s" : "");
	plan_print(&w->plan[v->me], text);
	if (!w->out.stuck)
		buf_printf(text, "predicted: %.3f ms, arena at most %s, sends %s\n\n", (double)w->out.us / 1e3,
			text_print_size(mine->peak[0], most, sizeof(most)), text_print_size(sent, bytes, sizeof(bytes)));
	if (held)
		buf_printf(text, "batches held out, beside the arena: %d of %llu bytes each\n\n", PLANNER_HELD_SLOTS,
			(unsigned long long)(held / PLANNER_HELD_SLOTS));
	if (!w->out.stuck && draw && w->out.us) {
		plan_gantt(&w->out, w->list, COLUMNS, text);
		buf_printf(text, "\n");
	}
	return json_pack("{s:I,s:I,s:I,s:I,s:o,s:{s:I,s:I,s:I,s:b}}", "micro_batches", (json_int_t)v->validates, "samples",
		(json_int_t)t->v.count, "programs", (json_int_t)programs, "held_out_bytes", (json_int_t)held, "plan",
		plan_to_json(&w->plan[v->me]), "predicted", "us", (json_int_t)w->out.us, "peak_bytes",
		(json_int_t)mine->peak[0], "sent_bytes", (json_int_t)sent, "stuck", w->out.stuck);
}

int eval_plan_json(struct trainer *t, bool draw, struct buf *text, json_t **ret, struct err *e)
{
	struct view v = trainer_plan_view(t, NULL, 0);
	struct whole w;
	int rc;

	*ret = NULL;
	if (!t->seat.is || !v.held)
		return 0;
	v.validates = v.held;
	v.first = t->v.eval.index;
	v.begun = v.sent = v.agreed = v.gave = false;
	rc = open_whole(&w, t, &v, draw, e);
	if (rc == 0)
		*ret = told(t, &w, &v, draw, text);
	close_whole(&w);
	return rc;
}
