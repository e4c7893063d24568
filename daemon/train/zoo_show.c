/* hivectl model show and model list: layers, shapes, parameters, multiply-adds and bytes of a model, exactly as the
 * kernels state them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/mem.h"
#include "common/reply.h"
#include "train/spec/int.h"
#include "train/zoo.h"

#define BATCH_MAX 1000000

static json_t *shape_json(const struct shape *s)
{
	json_t *a = json_array();

	for (int i = 0; i < s->nd; i++)
		(void)json_array_append_new(a, json_integer((json_int_t)s->d[i]));
	return a;
}

static const char *tensor_name(const struct model *m, int t)
{
	return t == 0 ? "input" : m->op[t - 1].name;
}

json_t *zoo_layer_json(const struct model *m, int i, size_t batch)
{
	const struct layer *l = &m->op[i];
	struct model_need need;
	json_t *from = json_array();
	size_t own = model_param_count(m, i, i + 1);

	model_need(m, i, i + 1, batch, 1, &need);
	for (int k = 0; k < m->node[i].nin; k++)
		(void)json_array_append_new(from, json_string(tensor_name(m, m->node[i].from[k])));
	return json_pack("{s:s,s:s,s:o,s:o,s:I,s:I,s:s*,s:I,s:I,s:I}", "name", l->name, "type", l->ops->name, "inputs",
		from, "shape", shape_json(&l->out), "parameters", (json_int_t)own, "weight_bytes",
		(json_int_t)(own * sizeof(real)), "shares", m->node[i].owner == i ? NULL : m->op[m->node[i].owner].name, "macs",
		(json_int_t)model_macs(m, i, i + 1), "bytes", (json_int_t)(batch * shape_count(&l->out) * sizeof(real)),
		"saved_bytes", (json_int_t)need.saved);
}

/* From where, when that is not simply the layer above. */
static void inputs_text(const struct model *m, int i, char *ret, size_t cap)
{
	const struct model_node *n = &m->node[i];

	*ret = 0;
	if (n->nin == 1 && n->from[0] == i)
		return;
	for (int k = 0; k < n->nin && strlen(ret) + 2 < cap; k++)
		(void)snprintf(ret + strlen(ret), cap - strlen(ret), "%s%s", k ? " + " : "  <- ", tensor_name(m, n->from[k]));
}

static char *text_of(const struct model *m, size_t batch, const struct model_need *need)
{
	struct buf b = { 0 };
	char shape[80], from[200], *text;
	int wide = 5;

	for (int i = 0; i < m->nops; i++)
		wide = (int)strlen(m->op[i].name) > wide ? (int)strlen(m->op[i].name) : wide;
	buf_printf(&b, "%-*s  %-17s  %-18s  %12s  %12s  %14s  %12s  %12s\n", wide, "layer", "type", "output", "parameters",
		"weight bytes", "multiply-adds", "output bytes", "kept alone");
	for (int i = 0; i < m->nops; i++) {
		const struct layer *l = &m->op[i];
		struct model_need alone;

		model_need(m, i, i + 1, batch, 1, &alone);
		inputs_text(m, i, from, sizeof(from));
		buf_printf(&b, "%-*s  %-17s  %-18s  %12zu  %12zu  %14" PRIu64 "  %12zu  %12zu%s", wide, l->name, l->ops->name,
			shape_text(&l->out, shape, sizeof(shape)), model_param_count(m, i, i + 1),
			model_param_count(m, i, i + 1) * sizeof(real), model_macs(m, i, i + 1),
			batch * shape_count(&l->out) * sizeof(real), alone.saved, from);
		if (m->node[i].owner != i)
			buf_printf(&b, "  shares %s", m->op[m->node[i].owner].name);
		buf_printf(&b, "\n");
	}
	buf_printf(&b, "\n%zu parameters (%zu bytes), %zu running statistics, %" PRIu64
		" multiply-adds forward per sample\n",
		m->nparam, m->nparam * sizeof(real), m->nbuffer, model_macs(m, 0, m->nops));
	buf_printf(&b, "batch %zu: %zu bytes kept for backward, %zu of scratch forward, %zu backward; evaluation %zu\n",
		batch, need->saved, need->work_fwd, need->work_bwd, need->work_eval);
	text = xstrdup((const char *)b.p);
	buf_free(&b);
	return text;
}

static json_t *describe(const char *name, const struct model *m, size_t batch)
{
	json_t *layers = json_array(), *out;
	struct model_need need;
	char *text;

	model_need(m, 0, m->nops, batch, 1, &need);
	for (int i = 0; i < m->nops; i++)
		(void)json_array_append_new(layers, zoo_layer_json(m, i, batch));
	text = text_of(m, batch, &need);
	out = json_pack("{s:s,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s}", "name", name, "input", shape_json(&m->in),
		"output", shape_json(&m->out), "layers", layers, "parameters", (json_int_t)m->nparam, "buffers",
		(json_int_t)m->nbuffer, "macs", (json_int_t)model_macs(m, 0, m->nops), "batch", (json_int_t)batch,
		"saved_bytes", (json_int_t)need.saved, "work_forward_bytes", (json_int_t)need.work_fwd, "work_backward_bytes",
		(json_int_t)need.work_bwd, "work_evaluation_bytes", (json_int_t)need.work_eval, "text", text);
	free(text);
	return out;
}

/* The input and the layers that are asked for, as in the shared part of a spec. New reference. */
static json_t *asked(const json_t *params, struct err *e)
{
	static const char *const keys[] = { "input", "model", "conv", "precision" };    /* what memory depends on */
	const json_t *spec = json_object_get(params, "spec"), *with = json_object_get(params, "with");
	const char *name = json_string_value(json_object_get(params, "model"));
	json_t *whole = spec ? json_deep_copy(spec) : NULL, *shared, *model;

	if (whole && spec_aliases(whole, e) < 0) {
		json_decref(whole);
		return NULL;
	}
	shared = json_object();
	model = json_object();
	for (size_t i = 0; whole && i < sizeof(keys) / sizeof(*keys); i++)
		(void)json_object_set(shared, keys[i], json_object_get(whole, keys[i]));
	json_decref(whole);
	if (!spec && name) {
		(void)json_object_update(model, (json_t *)with);
		(void)json_object_set_new(model, "zoo", json_string(name));
		(void)json_object_set(shared, "model", model);
	}
	json_decref(model);
	if (json_object_get(shared, "model") && zoo_resolve(shared, e) == 0)
		return shared;
	if (!json_object_get(shared, "model"))
		(void)err_set(e, ERR_INVALID, "name a model (hivectl model list), or a file with --spec");
	json_decref(shared);
	return NULL;
}

struct model *zoo_asked(const json_t *params, const struct layer_host *host, size_t *ret_batch, struct err *e)
{
	json_int_t batch = json_integer_value(json_object_get(params, "batch"));
	struct spec *s = xcalloc(1, sizeof(*s));
	struct model *m = NULL;

	batch = json_object_get(params, "batch") ? batch : 1;
	s->shared = asked(params, e);
	if (batch < 1 || batch > BATCH_MAX)
		(void)err_set(e, ERR_INVALID, "batch: must be 1 to %d", BATCH_MAX);
	else if (s->shared && spec_read_layers(s, s->shared, e) == 0)
		m = spec_model(s, host, e);
	spec_free(s);
	*ret_batch = (size_t)batch;
	return m;
}

void zoo_show(void *arg, const json_t *params, struct reply *r)
{
	const char *name = json_string_value(json_object_get(params, "model"));
	struct err e;
	size_t batch;
	struct model *m = zoo_asked(params, NULL, &batch, &e);

	if (m)
		reply_ok(r, describe(name ? name : "spec", m, batch));
	else
		reply_fail(r, &e);
	model_free(m);
}

void zoo_list(void *arg, const json_t *params, struct reply *r)
{
	json_t *out = json_array();

	for (const struct zoo_entry *z = zoo_entries; z->name; z++) {
		struct err e;
		json_t *entry = zoo_entry_json(z->name, &e);
		char *text = json_dumps(json_object_get(entry, "parameters"), JSON_COMPACT | JSON_REAL_PRECISION(6));

		(void)json_array_append_new(out, json_pack("{s:s,s:s*,s:O*}", "name", z->name, "parameters", text, "help",
			json_object_get(entry, "help")));
		free(text);
		json_decref(entry);
	}
	reply_ok(r, json_pack("{s:o}", "models", out));
}
