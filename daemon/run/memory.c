/* memory: what a model needs to be trained and to be used, before anything is started. The trainer says the numbers:
 * it is made on data that are not there, and thrown away before its first step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/mem.h"
#include "common/text.h"
#include "run/int.h"

struct sizes { uint64_t parameters, statistics, optimizer, kept, rest, loaded, training, use; };

static json_t *sizes_json(const struct sizes *z)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "parameter_bytes", (json_int_t)z->parameters,
		"statistics_bytes", (json_int_t)z->statistics, "optimizer_bytes", (json_int_t)z->optimizer, "kept_bytes",
		(json_int_t)z->kept, "rest_bytes", (json_int_t)z->rest, "loaded_bytes", (json_int_t)z->loaded,
		"training_bytes", (json_int_t)z->training, "use_bytes", (json_int_t)z->use);
}

static void line(struct buf *b, const char *what, uint64_t bytes, const char *note)
{
	char size[32];

	buf_printf(b, "%-36s %12s  %16llu  %s\n", what, text_print_size(bytes, size, sizeof(size)),
		(unsigned long long)bytes,
		note);
}

static char *text_of(const struct sizes *z, const struct spec *s)
{
	struct buf b = { 0 };
	char batch[64];
	char *text;

	(void)snprintf(batch, sizeof(batch), "micro-batch of %u", s->local.batch);
	line(&b, "parameters", z->parameters, "");
	line(&b, "running statistics", z->statistics, "");
	line(&b, "optimizer's state", z->optimizer, s->optim->name);
	line(&b, "activations kept for backward", z->kept, batch);
	line(&b, "gradients and scratch", z->rest, "");
	line(&b, "micro-batches prepared ahead", z->loaded, "");
	line(&b, "training", z->training, "all of these");
	line(&b, "use alone", z->use, "parameters, statistics and one forward pass");
	text = xstrdup((const char *)b.p);
	buf_free(&b);
	return text;
}

static json_t *measure(struct runs *rs, const struct spec *s, const struct data *data, struct trainer *t, struct err *e)
{
	const struct model *m = trainer_model(t);
	struct model_need need;
	struct trainer_view v;
	struct sizes z = { 0 };
	json_t *out;
	char *text;

	if (trainer_has_crew(t)) {
		(void)err_set(e, ERR_INVALID, "members of strategy %s hold parts of the model: hivectl run plan FILE "
			"--members N says what each of them takes", s->strategy);
		return NULL;
	}
	trainer_view(t, &v);
	model_need(m, 0, m->nops, s->local.batch, 1, &need);
	z.parameters = m->nparam * sizeof(real);
	z.statistics = m->nbuffer * sizeof(real);
	z.optimizer = v.state_bytes - z.parameters - z.statistics;
	z.kept = trainer_kept_bytes(t);
	z.rest = v.arena_predicted_bytes - v.state_bytes - z.kept;      /* the trainer counts its state into the arena */
	z.loaded = v.loader_bytes;
	z.training = v.arena_predicted_bytes + v.loader_bytes;
	z.use = z.parameters + z.statistics + need.x + need.y + need.work_eval;
	text = text_of(&z, s);
	out = sizes_json(&z);
	json_object_update_new(out, json_pack("{s:s,s:I,s:i,s:s,s:I,s:I,s:s}", "name", s->name, "parameters",
		(json_int_t)m->nparam, "batch", (int)s->local.batch, "optimizer", s->optim->name, "state_bytes",
		(json_int_t)v.state_bytes, "arena_bytes", (json_int_t)v.arena_predicted_bytes, "text", text));
	free(text);
	return out;
}

json_t *runs_whole(const json_t *params, struct err *e)
{
	const json_t *spec = json_object_get(params, "spec"), *batch = json_object_get(params, "batch");
	const json_t *remat = json_object_get(params, "remat");
	const char *name = json_string_value(json_object_get(params, "model"));
	const char *optimizer = json_string_value(json_object_get(params, "optimizer"));
	json_t *w, *model, *local;

	if (!spec && !name) {
		(void)err_set(e, ERR_INVALID, "name a model (hivectl model list), or a spec's file with --spec");
		return NULL;
	}
	if (spec) {
		w = json_deep_copy(spec);
	} else {
		model = json_object();
		(void)json_object_update(model, json_object_get(params, "with"));
		(void)json_object_set_new(model, "zoo", json_string(name));
		w = json_pack("{s:s,s:o,s:s}", "name", name, "model", model, "loss", "cross_entropy");
	}
	if (spec_aliases(w, e) < 0) {
		json_decref(w);
		return NULL;
	}
	if (!json_object_get(w, "optimizer") || optimizer)
		(void)json_object_set_new(w, "optimizer", optimizer && strcmp(optimizer, "sgd") ? json_pack("{s:s}", "name",
			optimizer) : json_pack("{s:s,s:f}", "name", "sgd", "momentum", 0.9));
	(void)json_object_set_new(w, "data", json_pack("{s:s,s:s,s:i}", "name", "none", "kind", "synthetic", "count", 1));
	(void)json_object_del(w, "validation");
	local = json_object_get(w, "local");
	local = json_is_object(local) ? json_copy(local) : json_object();
	(void)json_object_del(local, "data");
	if (batch)
		(void)json_object_set(local, "batch", (json_t *)batch);
	if (remat)
		(void)json_object_set(local, "remat", (json_t *)remat);
	if (!json_object_get(local, "batch"))
		(void)json_object_set_new(local, "batch", json_integer(1));
	(void)json_object_set_new(w, "local", local);
	return w;
}

/* So many parameters of which nothing else is known: what the field's summaries count. */
static void by_number(const json_t *params, struct reply *reply)
{
	double n = json_number_value(json_object_get(params, "parameters"));
	struct err e;
	char text[400];

	if (!(n >= 1 && n <= 1e15)) {
		(void)err_set(&e, ERR_INVALID, "--parameters: must be 1 to 1e15");
		reply_fail(reply, &e);
		return;
	}
	(void)snprintf(text, sizeof(text),
		"%.15g parameters of 4 bytes: %.6g GB\ngradients: %.6g GB more; state of sgd with momentum "
		"%.6g GB, of adam %.6g GB\ntraining with adam without activations: %.6g GB\n", n, n * 4e-9, n * 4e-9,
			n * 4e-9, n * 8e-9,
		n * 16e-9);
	reply_ok(reply, json_pack("{s:f,s:f,s:f,s:f,s:f,s:s}", "parameters", n, "parameter_bytes", n * 4, "gradient_bytes",
		n * 4, "adam_bytes", n * 8, "training_bytes", n * 16, "text", text));
}

void runs_memory(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct spec *s;
	struct err e;
	json_t *w;

	if (json_object_get(params, "parameters")) {
		by_number(params, reply);
		return;
	}
	w = runs_whole(params, &e);
	if (w && json_object_get(params, "batch"))      /* else the smaller one would count */
		(void)json_object_set(w, "target_batch", json_object_get(params, "batch"));
	else if (w && !json_object_get(w, "target_batch"))
		(void)json_object_set_new(w, "target_batch", json_integer(1));
	s = w ? spec_of_json(w, &e) : NULL;
	json_decref(w);
	if (s)
		runs_dry(rs, s, measure, reply);
	else
		reply_fail(reply, &e);
}
