/* The rehearsal of a run: profile, plans of all members, check, prediction, text. */
#include "train/rehearse.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "plan/check.h"
#include "state/state.h"
#include "train/data/data.h"
#include "train/memory.h"
#include "train/profile.h"
#include "train/strategy.h"
#include "train/trainer.h"

/* Where an epoch begins before the one before has ended: so many, and the one by which the others are judged, in front
 * of the last and with the pipeline full. */
#define RUN_ON 4
#define STEADY 2

struct stagehand {                              /* all that is needed, and let go at the end */
	const struct rehearse_conf *c;
	const struct planner_ops *strategy;
	struct model *model;
	struct profile_source source; struct profile profile;
	struct profile_times *times;            /* measured; may be NULL */
	uint32_t n; struct view_member *member;
	struct view v;
	struct memory_pass pass; uint64_t most; /* most: of the arena, for who has the whole model */
	struct plan *plan; const struct plan **list;    /* n for each program */
	uint32_t programs; json_t *values;      /* values: with what was open in them */
	struct prediction out, whole;           /* whole: of all programs, out being one of them; else empty */
	struct err fewer;                       /* why there are not as many copies of the state as are wished, if so */
	struct buf text;
};

static const char *size(uint64_t bytes, char out[32]) { return text_print_size(bytes, out, 32); }

static int open_model(struct stagehand *h, struct err *e)
{
	const struct spec *s = h->c->spec;
	uint64_t w;

	h->model = spec_model(s, NULL, e);
	if (!h->model)
		return -1;
	h->times = h->c->measured ? profile_times_read(h->c->measured, h->model, e) : NULL;
	if (h->c->measured && !h->times)
		return -1;
	h->source = (struct profile_source){ .model = h->model, .parts = strategy_find(s->strategy)->crew ?
		TRAINER_THREADS_MAX : h->c->parts, .macs_per_us = h->c->macs_per_us, .times = h->times,
		.x_bytes = shape_count(&s->input) * sizeof(real), .y_bytes = s->loss->target == TARGET_CLASS ?
		s->objective.rows * sizeof(int32_t) : shape_count(&h->model->out) * sizeof(real) };
	profile_model(&h->profile, &h->source, s->local.batch);
	for (int i = 0; i < s->optim->nstates; i++)
		h->profile.state_vectors += optim_uses_state(s->optim, s->hyper, i);
	h->profile.scaled = s->precision == PRECISION_FP16;
	w = h->profile.params * sizeof(real) + h->profile.stats_bytes;
	h->profile.state_bytes = layout_opt_bytes(w, h->profile.state_vectors * h->profile.params * sizeof(real),
		layout_clock_of(h->profile.scaled));
	return 0;
}

static int open_members(struct stagehand *h, struct err *e)
{
	const struct spec *s = h->c->spec;

	h->strategy = strategy_find(s->strategy);
	h->n = h->c->members;
	if (h->n > 1 && !h->strategy->crew)
		return err_set(e, ERR_INVALID, "strategy %s has the whole model on every peer, and all do the same: --members "
			"is for strategies that cut it up, such as pipeline", s->strategy);
	h->member = xcalloc(h->n, sizeof(*h->member));
	for (uint32_t k = 0; k < h->n; k++) {
		memcpy(h->member[k].id.b, &(uint32_t){ k + 1 }, sizeof(uint32_t));
		h->member[k].speed = 1;
		h->member[k].memory_bytes = h->c->memory_bytes;
	}
	h->pass = spec_memory(&s->local);
	h->v = (struct view){ .profile = &h->profile, .memory = &h->pass, .nmembers = h->n, .member = h->member,
		.generation = 1, .redundancy = s->redundancy, .target_batch = s->target_batch, .granted = true, .fresh = true,
		.settings = { s->nsettings, s->setting }, .values = s->plan, .us_per_byte = h->c->link.us_per_byte,
		.latency_us = h->c->link.latency_us };
	h->v.held = h->strategy->crew;          /* the data are not asked: as if they held something out */
	h->programs = h->strategy->crew && s->mode.runs_on ? RUN_ON : 1;
	h->plan = xcalloc((size_t)h->programs * h->n, sizeof(*h->plan));
	h->list = xcalloc((size_t)h->programs * h->n, sizeof(*h->list));
	for (uint32_t k = 0; k < h->programs * h->n; k++)
		h->list[k] = &h->plan[k];
	return 0;
}

static uint64_t ahead(const struct stagehand *h)
{
	const struct spec_local *l = &h->c->spec->local;

	return loader_ahead(h->source.x_bytes, h->source.y_bytes, l->batch, l->prefetch, l->workers);
}

/* Bytes of training with the memory pass as it is, as a trainer predicts them; SIZE_MAX: it cannot be planned. */
static uint64_t taken(void *arg)
{
	struct stagehand *h = arg;
	struct err e;
	uint64_t n = memory_programs(h->strategy, &h->v, h->c->spec->mode.under_way, &e);

	return n ? n + ahead(h) : SIZE_MAX;
}

/* Who has the whole model has it within so many bytes, or not at all. */
static int too_much(struct stagehand *h, uint64_t most, uint64_t takes, struct err *e)
{
	char have[32], need[32], with[80];
	struct memory_found found;

	h->pass = (struct memory_pass){ .ops = memory_find("periodic") };
	if (memory_fewest(&h->profile, &h->pass, most, taken, h, &found))
		(void)snprintf(with, sizeof(with), "--remat periodic:%u would do", found.segments);
	else
		(void)snprintf(with, sizeof(with), "with --remat at least %llu", (unsigned long long)(found.bytes - most));
	return err_set(e, ERR_LIMIT, "memory: %s are allowed, and training with a micro-batch of %u takes %s: %llu bytes "
		"are missing; %s", size(most, have), h->c->spec->local.batch, size(takes, need),
		(unsigned long long)(takes - most), with);
}

/* The memory pass, when bytes are said and no segments; and whether it fits. */
static int open_memory(struct stagehand *h, struct err *e)
{
	uint64_t most = h->c->spec->local.remat.memory_bytes;
	struct memory_found found;
	char have[32];

	if (h->strategy->crew)
		return 0;
	if (most && !memory_fewest(&h->profile, &h->pass, most, taken, h, &found))
		return err_set(e, ERR_LIMIT, "local.remat.memory: %s are allowed, and the least possible with policy %s and a "
			"micro-batch of %u is %llu, in %u segments: %llu bytes are missing", size(most, have), h->pass.ops->name,
			h->c->spec->local.batch, (unsigned long long)found.bytes, found.segments,
			(unsigned long long)(found.bytes - most));
	if (most)
		h->pass.segments = found.segments;
	h->most = memory_programs(h->strategy, &h->v, h->c->spec->mode.under_way, e);
	if (!h->most)
		return -1;
	most = h->c->memory_bytes;
	return most && h->most + ahead(h) > most ? too_much(h, most, h->most + ahead(h), e) : 0;
}

/* With as many copies of the state as are wished, or as there can be: what a crew does. The error is that of the
 * wish. */
static int plan_all(struct stagehand *h, struct err *e)
{
	struct err other;
	int rc = plan_members(h->strategy, &h->v, h->plan, &h->values, e);

	while (rc < 0 && h->strategy->crew && h->v.redundancy > 1) {
		h->fewer = *e;
		h->v.redundancy--;
		rc = plan_members(h->strategy, &h->v, h->plan, &h->values, &other);
	}
	return rc;
}

/* The size of micro-batches that the planner has chosen is that of all that follows. */
static void take_size(struct stagehand *h)
{
	uint32_t batch = h->values && h->strategy->batch ? h->strategy->batch(h->values) : 0;
	struct profile was = h->profile;

	if (batch && batch != was.batch) {
		profile_at(&was, batch, &h->profile);
		profile_free(&was);
	}
}

/* The epochs that follow, each with the round of the one before it. */
static int plan_on(struct stagehand *h, struct err *e)
{
	const struct plan_results none = { 0, NULL };
	struct view v = h->v;

	v.values = h->values;
	v.fresh = false;
	for (uint32_t k = h->n; k < h->programs * h->n; k++) {
		struct planner_unit u;

		v.me = k % h->n;
		if (h->strategy->unit(&v, v.me, &u, e) < 0)
			return -1;
		v.first = k / h->n * u.n;
		v.samples = u.n * h->profile.batch;
		if (h->strategy->plan(&v, &none, &h->plan[k], e) < 0)
			return -1;
	}
	return 0;
}

static int check_all(struct stagehand *h, struct err *e)
{
	struct check_conf c = { .predict = { .profile = &h->profile } };

	if (plan_check(h->list, h->n, &c, NULL, e) < 0)
		return -1;
	c.predict.link = h->c->link;
	c.predict.spans = true;
	c.predict.nthen = h->programs - 1;
	c.predict.then = h->list + h->n;
	if (predict(h->list, h->n, &c.predict, &h->out, e) < 0)
		return -1;
	h->whole = h->out;
	if (h->programs > 1 && prediction_of(&h->whole, h->list, STEADY, &h->out))
		return 0;
	h->whole = (struct prediction){ 0 };    /* stuck, or there is but one */
	return 0;
}

/* --- text */

static void layers_of(const struct stagehand *h, const struct plan *p, uint32_t *ret_a, uint32_t *ret_b)
{
	*ret_a = h->profile.nops;
	*ret_b = 0;
	for (uint32_t k = 0; k < p->ninstrs; k++)
		for (uint32_t r = 0; p->instr[k].kind == PLAN_FWD && r < p->instr[k].npiece; r++) {
			const struct plan_range *x = &p->instr[k].piece[r];

			*ret_a = x->a < *ret_a ? x->a : *ret_a;
			*ret_b = x->b > *ret_b ? x->b : *ret_b;
		}
}

static uint64_t state_of(const struct plan *p)
{
	uint64_t bytes = 0;

	for (uint32_t b = 0; b < p->nbufs; b++)
		if (plan_is_state(&p->buf[b]))
			bytes += p->buf[b].bytes;
	return bytes;
}

/* It reads samples, and with them those that are held out. */
static uint64_t held_by(const struct stagehand *h, const struct plan *p)
{
	for (uint32_t i = 0; i < p->ninstrs; i++)
		if (p->instr[i].kind == PLAN_LOAD && strcmp(p->instr[i].variant, "positions"))
			return planner_held_bytes(&h->v);
	return 0;
}

static json_t *member(struct stagehand *h, uint32_t k)
{
	const struct predict_peer *x = &h->out.peer[k];
	const struct profile_op *op = h->profile.op;
	uint64_t sent = 0, most = h->most ? h->most : x->peak[0];        /* of its programs one after the other */
	uint32_t a, b;
	char s1[32], s2[32], s3[32];
	uint64_t made = x->ran[h->strategy->crew ? PLAN_BWD : PLAN_FWD];        /* stages may go forward twice */
	json_t *o;

	layers_of(h, &h->plan[k], &a, &b);
	for (int c = 0; c < PLAN_CLASSES_COUNT; c++)
		sent += x->sent[c];
	o = json_pack("{s:I,s:I,s:I,s:I,s:I,s:f}", "member", (json_int_t)k, "micro_batches", (json_int_t)made,
		"state_bytes", (json_int_t)state_of(&h->plan[k]), "peak_bytes", (json_int_t)most, "sent_bytes",
		(json_int_t)sent, "idle", x->bubble);
	if (h->v.held)
		(void)json_object_set_new(o, "held_out_bytes", json_integer((json_int_t)held_by(h, &h->plan[k])));
	if (a == h->profile.nops) {
		buf_printf(&h->text, "%6u  has no part: spare\n", k);
		return o;
	}
	(void)json_object_set_new(o, "first_layer", json_string(op[a].name));
	(void)json_object_set_new(o, "last_layer", json_string(op[b].name));
	buf_printf(&h->text, "%6u  %6u  %10s  %13llu  %10s  %10s  %5.1f %%  %s to %s\n", k, b - a + 1,
		size(state_of(&h->plan[k]), s1), (unsigned long long)made, size(most, s2), size(sent, s3),
		x->bubble * 100, op[a].name, op[b].name);
	return o;
}

static uint64_t first_us(const struct stagehand *h)
{
	uint64_t us = 0;

	for (uint32_t k = 0; k < h->n; k++)
		us = h->whole.peer[k].ended[0].finish_us > us ? h->whole.peer[k].ended[0].finish_us : us;
	return us;
}

static json_t *members(struct stagehand *h)
{
	json_t *list = json_array();

	buf_printf(&h->text, "%6s  %6s  %10s  %13s  %10s  %10s  %7s\n", "member", "layers", "state", "micro-batches",
		"at most", "sends", "idle");
	for (uint32_t k = 0; k < h->n; k++)
		(void)json_array_append_new(list, member(h, k));
	buf_printf(&h->text, "\npredicted%s: %.3f ms", h->times ? " (from measured times of layers)" :
		h->c->macs_per_us > 0 ? " (from this machine's speed of matrix products)" : "", (double)h->out.us / 1e3);
	if (h->whole.npeers)
		buf_printf(&h->text, " an epoch, and %.3f ms the first", (double)first_us(h) / 1e3);
	buf_printf(&h->text, "\n\n");
	if (h->v.held)
		buf_printf(&h->text, "for validation, who reads samples (first and last stages) has %d batches that are held "
			"out beside that: %llu bytes\n", PLANNER_HELD_SLOTS, (unsigned long long)planner_held_bytes(&h->v));
	if (h->n < 2)
		return list;
	buf_printf(&h->text, "each of them works with numbers of the others: one that lies spoils them all, and without "
		"one they wait until somebody takes its place\n");
	buf_printf(&h->text, "copies of the state: %u of %u%s\n", h->v.redundancy, h->c->spec->redundancy,
		h->v.redundancy < 2 ? "; what the one who dies has learned is lost" : "");
	if (h->fewer.code)
		buf_printf(&h->text, "why not %u: %s\n", h->c->spec->redundancy, h->fewer.text);
	buf_printf(&h->text, "\n");
	return list;
}

static json_t *instructions(struct stagehand *h)
{
	json_t *list = json_array();

	for (uint32_t k = 0; k < h->n; k++) {
		buf_printf(&h->text, h->programs > 1 ? "member %u, the first epoch:\n" : "member %u:\n", k);
		plan_print(&h->plan[k], &h->text);
		buf_printf(&h->text, "\n");
		(void)json_array_append_new(list, plan_to_json(&h->plan[k]));
	}
	return list;
}

static void chart(struct stagehand *h)
{
	if (!h->out.us)
		buf_printf(&h->text, "nothing takes time: there is nothing to draw\n");
	else
		buf_printf(&h->text, "digits: micro-batches (modulo 10) forward, letters: backward, -: on the way, *: other\n");
	plan_gantt(&h->out, h->list, REHEARSE_COLUMNS, &h->text);
}

static json_t *told(struct stagehand *h)
{
	json_t *o = json_object(), *list, *predicted, *chosen = json_object_get(h->values, PLANNER_CHOSEN);
	uint8_t digest[32];
	struct id id;
	char hex[ID_HEX];

	if (chosen) {
		(void)json_object_set(o, PLANNER_CHOSEN, chosen);
		buf_printf(&h->text, "%s (of %lld ways)\n\n", json_string_value(json_object_get(chosen, "text")),
			(long long)json_integer_value(json_object_get(chosen, "ways")));
	}
	(void)json_object_set_new(o, "remat", memory_json(&h->profile, &h->pass, &h->text));
	list = members(h);
	if (h->c->draw)
		chart(h);
	else
		(void)json_object_set_new(o, "plans", instructions(h));
	plan_digest_all(h->list, h->n, digest);
	memcpy(id.b, digest, sizeof(id.b));
	id_hex(&id, hex);
	(void)json_object_set_new(o, "members", list);
	(void)json_object_set_new(o, "redundancy", json_integer(h->v.redundancy));
	if (h->fewer.code)
		(void)json_object_set_new(o, "fewer_copies", json_string(h->fewer.text));
	predicted = prediction_json(&h->out, h->list);
	if (h->whole.npeers)
		(void)json_object_set_new(predicted, "first_us", json_integer((json_int_t)first_us(h)));
	(void)json_object_set_new(o, "predicted", predicted);
	(void)json_object_set_new(o, "digest", json_string(hex));
	(void)json_object_set_new(o, "text", json_stringn((const char *)h->text.p, h->text.len));
	return o;
}

json_t *rehearse(const struct rehearse_conf *c, struct err *e)
{
	struct stagehand h = { .c = c };
	json_t *o = NULL;

	if (open_model(&h, e) == 0 && open_members(&h, e) == 0 && open_memory(&h, e) == 0 &&
	    plan_all(&h, e) == 0) {
		take_size(&h);
		o = plan_on(&h, e) == 0 && check_all(&h, e) == 0 ? told(&h) : NULL;
	}
	for (uint32_t k = 0; h.plan && k < h.programs * h.n; k++)
		plan_free(&h.plan[k]);
	free(h.plan);
	free(h.list);
	free(h.member);
	json_decref(h.values);
	prediction_free(&h.out);
	prediction_free(&h.whole);
	profile_free(&h.profile);
	free(h.times);
	model_free(h.model);
	buf_free(&h.text);
	return o;
}
