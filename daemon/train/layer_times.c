/* Measures the layers of a model, one forward and one backward pass at a time. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/mem.h"
#include "train/layer_times.h"
#include "train/zoo.h"

enum { FWD, BWD, WAYS };

struct layer_times {
	const struct model *m; const struct par *par;
	size_t batch; int passes, done;         /* done: -1 before the first, which does not count */
	struct model_need need;
	real *param, *grad, *buffer, *x, *y, *dy;
	void *saved, *work;
	uint64_t *ns;                           /* [passes][WAYS][nops] */
	uint64_t (*whole)[WAYS];                /* [passes] */
};

static size_t work_of(const struct model_need *n) { return n->work_fwd > n->work_bwd ? n->work_fwd : n->work_bwd; }

uint64_t layer_times_bytes(const struct model *m, size_t batch, int parts)
{
	struct model_need n;

	model_need(m, 0, m->nops, batch, parts, &n);
	return (2 * (uint64_t)m->nparam + m->nbuffer) * sizeof(real) + n.x + 2 * (uint64_t)n.y + n.saved + work_of(&n);
}

void layer_times_free(struct layer_times *t)
{
	if (!t)
		return;
	big_free(t->param, t->m->nparam * sizeof(real) + 1);
	big_free(t->grad, t->m->nparam * sizeof(real) + 1);
	big_free(t->buffer, t->m->nbuffer * sizeof(real) + 1);
	big_free(t->x, t->need.x);
	big_free(t->y, t->need.y);
	big_free(t->dy, t->need.y);
	big_free(t->saved, t->need.saved + 1);
	big_free(t->work, work_of(&t->need) + 1);
	free(t->ns);
	free(t->whole);
	free(t);
}

struct layer_times *layer_times_new(const struct model *m, const struct par *par, size_t batch, int passes)
{
	struct layer_times *t = xcalloc(1, sizeof(*t));

	*t = (struct layer_times){ .m = m, .par = par, .batch = batch, .passes = passes, .done = -1 };
	model_need(m, 0, m->nops, batch, par->n, &t->need);
	t->ns = xcalloc((size_t)passes * WAYS * (size_t)m->nops, sizeof(*t->ns));
	t->whole = xcalloc((size_t)passes, sizeof(*t->whole));
	t->param = big_alloc(m->nparam * sizeof(real) + 1);
	t->grad = big_alloc(m->nparam * sizeof(real) + 1);
	t->buffer = big_alloc(m->nbuffer * sizeof(real) + 1);
	t->x = big_alloc(t->need.x);
	t->y = big_alloc(t->need.y);
	t->dy = big_alloc(t->need.y);
	t->saved = big_alloc(t->need.saved + 1);
	t->work = big_alloc(work_of(&t->need) + 1);
	if (t->param && t->grad && t->buffer && t->x && t->y && t->dy && t->saved && t->work)
		return t;
	layer_times_free(t);
	return NULL;
}

/* Noise; for models that look tokens up: the token 0, which every vocabulary has. */
static void samples_make(struct layer_times *t)
{
	size_t n = t->need.x / sizeof(real);
	bool tokens = false;

	for (int i = 0; i < t->m->nops; i++)
		tokens = tokens || !strcmp(t->m->op[i].ops->name, "embedding");
	rand_normal(rand_key(1, 0), 1, n, t->x);
	for (size_t i = 0; tokens && i < n; i++)
		t->x[i] = 0;
	rand_normal(rand_key(1, 1), 1e-3, t->need.y / sizeof(real), t->dy);
}

bool layer_times_pass(struct layer_times *t)
{
	struct model_call c = { .batch = t->batch, .param = t->param, .buffer = t->m->nbuffer ? t->buffer : NULL,
		.key = rand_key(2, (uint64_t)(t->done + 1)), .saved = t->saved, .work = t->work, .train = true, .fresh = true };
	size_t at = t->done < 0 ? 0 : (size_t)t->done;
	uint64_t *ns = t->ns + at * WAYS * (size_t)t->m->nops, from, between;

	if (t->done < 0) {
		model_init(t->m, 1, t->param);
		model_init_buffers(t->m, t->buffer);
		samples_make(t);
	}
	memset(ns, 0, WAYS * (size_t)t->m->nops * sizeof(*ns));
	from = t->par->now_ns();
	c.ns = ns;
	model_forward(t->par, t->m, 0, t->m->nops, &c, t->x, t->y);
	between = t->par->now_ns();
	c.ns = ns + t->m->nops;
	model_backward(t->par, t->m, 0, t->m->nops, &c, t->x, t->dy, NULL, t->grad);
	t->whole[at][FWD] = between - from;
	t->whole[at][BWD] = t->par->now_ns() - between;
	return ++t->done < t->passes;
}

uint64_t layer_times_last_us(const struct layer_times *t)
{
	const uint64_t *w = t->whole[t->done > 0 ? t->done - 1 : 0];

	return (w[FWD] + w[BWD]) / 1000;
}

const real *layer_times_output(const struct layer_times *t, size_t *ret_n)
{
	*ret_n = t->need.y / sizeof(real);
	return t->y;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double median_us(uint64_t *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_size);
	return n ? (double)(v[n / 2] + v[(n - 1) / 2]) / 2e3 : 0;
}

static double op_us(const struct layer_times *t, int way, int op)
{
	uint64_t v[LAYER_TIMES_PASSES];

	for (int k = 0; k < t->done; k++)
		v[k] = t->ns[((size_t)k * WAYS + (size_t)way) * (size_t)t->m->nops + (size_t)op];
	return median_us(v, t->done);
}

static double whole_us(const struct layer_times *t, int way)
{
	uint64_t v[LAYER_TIMES_PASSES];

	for (int k = 0; k < t->done; k++)
		v[k] = t->whole[k][way];
	return median_us(v, t->done);
}

static json_t *layer_json(const struct layer_times *t, int i, double fwd, double bwd)
{
	json_t *o = zoo_layer_json(t->m, i, t->batch);
	int in = model_runs_in(t->m, 0, t->m->nops, i);

	json_object_set_new(o, "forward_us", json_real(fwd));
	json_object_set_new(o, "backward_us", json_real(bwd));
	if (in != i)
		json_object_set_new(o, "in", json_string(t->m->op[in].name));
	return o;
}

static void line(struct buf *b, const json_t *o, int wide, double sum)
{
	double fwd = json_number_value(json_object_get(o, "forward_us")), bwd = json_number_value(json_object_get(o,
		"backward_us"));
	const char *in = json_string_value(json_object_get(o, "in"));

	buf_printf(b, "%-*s  %-17s  %12" JSON_INTEGER_FORMAT "  %12" JSON_INTEGER_FORMAT "  %12" JSON_INTEGER_FORMAT
		"  %10.3f  %11.3f  %6.1f %%%s%s\n", wide, json_string_value(json_object_get(o, "name")),
		json_string_value(json_object_get(o, "type")), json_integer_value(json_object_get(o, "weight_bytes")),
		json_integer_value(json_object_get(o, "bytes")), json_integer_value(json_object_get(o, "saved_bytes")),
		fwd / 1e3, bwd / 1e3, sum > 0 ? (fwd + bwd) * 100 / sum : 0, in ? "  forward in " : "", in ? in : "");
}

json_t *layer_times_json(const struct layer_times *t)
{
	json_t *layers = json_array(), *o, *out;
	double sum = 0, fwd = whole_us(t, FWD), bwd = whole_us(t, BWD);
	struct buf b = { 0 };
	int wide = 5;
	size_t i;

	for (int k = 0; k < t->m->nops; k++) {
		double f = op_us(t, FWD, k), r = op_us(t, BWD, k);

		sum += f + r;
		wide = (int)strlen(t->m->op[k].name) > wide ? (int)strlen(t->m->op[k].name) : wide;
		json_array_append_new(layers, layer_json(t, k, f, r));
	}
	buf_printf(&b, "%-*s  %-17s  %12s  %12s  %12s  %10s  %11s  %8s\n", wide, "layer", "type", "weight bytes",
		"output bytes", "kept alone", "forward ms", "backward ms", "share");
	json_array_foreach(layers, i, o)
		line(&b, o, wide, sum);
	buf_printf(&b, "\nbatch %zu on %d thread%s, medians of %d: forward %.3f ms, backward %.3f ms; layers alone "
		"%.3f ms\nkept for backward by each layer beside its input, and by all %zu bytes\n",
		t->batch, t->par->n, t->par->n == 1 ? "" : "s", t->done, fwd / 1e3, bwd / 1e3, sum / 1e3, t->need.saved);
	out = json_pack("{s:I,s:i,s:i,s:f,s:f,s:f,s:I,s:o,s:s}", "batch", (json_int_t)t->batch, "passes", t->done,
		"threads", t->par->n, "forward_us", fwd, "backward_us", bwd, "layers_us", sum, "saved_bytes",
		(json_int_t)t->need.saved, "layers", layers, "text", (const char *)b.p);
	buf_free(&b);
	return out;
}
