/* `run layers`: where the time of training goes on this peer: first the whole of it, since the first micro-batch here,
 * then layer by layer, measured in the train lane, as means. */
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/mem.h"
#include "kernels/cost.h"
#include "train/memory.h"
#include "train/trainer_int.h"

/* Of a micro-batch; times: that it runs forward; gflops: 0 when there is no work; in: the op in whose pass it runs. */
struct row { double fwd_us, bwd_us, gflops; int in, times; };

/* What stands beside the layers: instructions of a micro-batch, and those of a step. */
static const struct part { const char *fn, *name; bool step; } parts[] = {
	{ "loss", "loss", false }, { "accumulate", "accumulate", false }, { "mean", "mean", true },
	{ "opt", "optimizer", true }, { "digest", "digest", true } };

static double us_each(uint64_t ns, uint64_t samples, uint32_t batch)
{
	return samples ? (double)ns / (double)samples * batch / 1e3 : 0;
}

/* How often and where each op runs forward. */
static void runs_of(const struct trainer *t, struct row *v)
{
	struct passes s;

	memory_passes(&t->profile, 0, t->profile.nops - 1, &t->pass, &s);
	for (uint32_t k = 0; k < s.n; k++)
		for (uint32_t i = s.v[k].a; i <= s.v[k].b && s.v[k].kind == PLAN_FWD; i++) {
			v[i].times++;
			v[i].in = model_runs_in(t->model, (int)s.v[k].a, (int)s.v[k].b + 1, (int)i);
		}
	passes_free(&s);
}

/* free() it. ret_sum_us: of all of them. */
static struct row *rows_of(const struct trainer *t, double *ret_sum_us)
{
	const struct exec_layer *l = exec_layers(t->x);
	const struct model *m = t->model;
	uint32_t batch = t->s->local.batch;
	struct cost *c = xcalloc((size_t)m->nops, sizeof(*c));
	struct row *v = xcalloc((size_t)m->nops, sizeof(*v));

	cost_each(m, 0, m->nops, batch, false, false, c);
	cost_each(m, 0, m->nops, batch, true, false, c);
	*ret_sum_us = 0;
	runs_of(t, v);
	for (int i = 0; i < m->nops; i++) {
		struct row *r = &v[i];
		double once = us_each(l[i].fwd.ns, l[i].fwd.samples, batch);

		r->fwd_us = once * r->times;
		r->bwd_us = us_each(l[i].bwd.ns, l[i].bwd.samples, batch);
		if (once + r->bwd_us > 0)
			r->gflops = (double)cost_flops(&c[i]) / (once + r->bwd_us) / 1e3;
		*ret_sum_us += r->fwd_us + r->bwd_us;
	}
	free(c);
	return v;
}

static void print_row(const struct model *m, int i, int wide, const struct row *r, double sum, struct buf *text)
{
	buf_printf(text, "%-*s  %-17s  %10.3f  %11.3f  %6.1f %%", wide, m->op[i].name, m->op[i].ops->name, r->fwd_us / 1e3,
		r->bwd_us / 1e3, sum > 0 ? (r->fwd_us + r->bwd_us) * 100 / sum : 0);
	if (r->in != i)
		buf_printf(text, "  forward in %s", m->op[r->in].name);
	else if (r->gflops > 0)
		buf_printf(text, "  %9.1f", r->gflops);
	if (r->times > 1)
		buf_printf(text, "  forward twice");
	buf_printf(text, "\n");
}

static json_t *layers_json(const struct trainer *t, const struct row *v, double sum, struct buf *text)
{
	const struct model *m = t->model;
	json_t *list = json_array();
	int wide = 5;

	for (int i = 0; i < m->nops; i++)
		wide = (int)strlen(m->op[i].name) > wide ? (int)strlen(m->op[i].name) : wide;
	buf_printf(text, "%-*s  %-17s  %10s  %11s  %8s  %9s\n", wide, "layer", "type", "forward ms", "backward ms", "share",
		"GFLOP/s");
	for (int i = 0; i < m->nops; i++) {
		const struct row r = v[i];
		json_t *o = json_pack("{s:s,s:s,s:f,s:f,s:f,s:f}", "name", m->op[i].name, "type", m->op[i].ops->name,
			"forward_us", r.fwd_us, "backward_us", r.bwd_us, "share", sum > 0 ? (r.fwd_us + r.bwd_us) / sum : 0,
			"gflops_per_s", r.gflops);

		if (r.times > 1)
			(void)json_object_set_new(o, "forward_times", json_integer(r.times));
		if (r.in != i)
			(void)json_object_set_new(o, "forward_in", json_string(m->op[r.in].name));
		print_row(m, i, wide, &r, sum, text);
		(void)json_array_append_new(list, o);
	}
	return list;
}

static json_t *parts_json(const struct trainer *t, bool step, struct buf *text)
{
	json_t *o = json_object();
	const char *before = step ? ": " : ", ";

	for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++) {
		double us = parts[k].step == step ? exec_ran_us(t->x, PLAN_VEC, parts[k].fn) : 0;

		if (us <= 0)
			continue;
		buf_printf(text, "%s%s %.3f", before, parts[k].name, us / 1e3);
		before = ", ";
		(void)json_object_set_new(o, parts[k].name, json_real(us));
	}
	return o;
}

/* Where all the time has gone since the first micro-batch. The last one is what is left. */
enum { IN_LAYERS, IN_BATCH, IN_STEP, IN_EVAL, IN_OTHER, IN_WAITING, WHOLE };
static const struct { const char *key, *name; } wholes[WHOLE] = { { "layers_us", "layers" },
	{ "micro_batch_us", "the rest of micro-batches" }, { "step_us", "steps" }, { "validation_us", "validation" },
	{ "other_us", "other work" }, { "waiting_us", "waiting" } };

static void whole_of(const struct trainer *t, const struct exec_view *x, uint64_t wall_us, double *us)
{
	const struct exec_layer *l = exec_layers(t->x);
	struct exec_view v = { 0 };

	for (int i = 0; i < WHOLE; i++)
		us[i] = 0;
	for (int i = 0; i < t->model->nops; i++)
		us[IN_LAYERS] += (double)(l[i].fwd.ns + l[i].bwd.ns) / 1e3;
	for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++)
		us[parts[k].step ? IN_STEP : IN_BATCH] += (double)exec_train_ns(t->x, PLAN_VEC, parts[k].fn) / 1e3;
	us[IN_OTHER] = (double)(x->train_ns - x->eval_ns) / 1e3 - us[IN_LAYERS] - us[IN_BATCH] - us[IN_STEP];
	if (t->v.x)
		exec_view(t->v.x, &v);
	us[IN_EVAL] = (double)(x->eval_ns + v.train_ns) / 1e3;
	us[IN_WAITING] = (double)wall_us - (double)(x->train_ns + v.train_ns) / 1e3;
	for (int i = IN_OTHER; i <= IN_WAITING; i++)
		us[i] = us[i] > 0 ? us[i] : 0;          /* clocks differ in the last digits */
}

static json_t *whole_json(const struct trainer *t, struct buf *text)
{
	struct exec_view x;
	uint64_t wall;
	double us[WHOLE];
	json_t *o;

	exec_view(t->x, &x);
	wall = env_now(t->c.env) - x.begun_us;
	whole_of(t, &x, wall, us);
	o = json_pack("{s:I,s:I}", "wall_us", (json_int_t)wall, "load_wait_us", (json_int_t)x.load_wait_us);
	buf_printf(text, "of %.1f s", (double)wall / 1e6);
	for (int i = 0; i < WHOLE; i++) {
		(void)json_object_set_new(o, wholes[i].key, json_real(us[i]));
		buf_printf(text, "%s %s %.1f %%", i ? "," : ":", wholes[i].name, wall ? us[i] * 100 / (double)wall : 0);
	}
	double data = (double)x.load_wait_us < us[IN_WAITING] ? (double)x.load_wait_us : us[IN_WAITING];
	buf_printf(text, " (for data %.1f %% at most)\n\n", wall ? data * 100 / (double)wall : 0);
	return o;
}

json_t *trainer_layers_json(const struct trainer *t, struct err *e)
{
	const struct exec_layer *v = exec_layers(t->x);
	struct buf text = { 0 };
	json_t *whole, *layers, *micro, *step;
	struct row *rows;
	uint64_t samples;
	double sum;

	if (!v || !v[0].fwd.samples || !v[t->model->nops - 1].bwd.samples) {
		(void)err_set(e, ERR_STATE, "this peer has not trained a micro-batch since the run was started or joined here");
		return NULL;
	}
	whole = whole_json(t, &text);
	rows = rows_of(t, &sum);
	layers = layers_json(t, rows, sum, &text);
	samples = v[0].fwd.samples / (uint64_t)rows[0].times;
	free(rows);
	buf_printf(&text, "\na micro-batch of %u, ms: layers %.3f", t->s->local.batch, sum / 1e3);
	micro = parts_json(t, false, &text);
	buf_printf(&text, "\na step, ms");
	step = parts_json(t, true, &text);
	buf_printf(&text, "%s\n", t->strategy->needs_swarm ? "; and the round" : "");
	json_t *o = json_pack("{s:o,s:I,s:I,s:f,s:o,s:o,s:o,s:s%}", "time", whole, "batch",
		(json_int_t)t->s->local.batch, "samples", (json_int_t)samples, "layers_us", sum,
		"layers", layers, "micro_batch_us", micro, "step_us", step, "text", text.p, text.len);
	buf_free(&text);
	return o;
}
