/* A spec from few words and a look at the data. Defaults: SGD with momentum for what has no vocabulary, AdamW for that;
 * images are cropped and flipped in training, everything made of bytes is normalized with the data's own mean and
 * deviation. */
#include <math.h>
#include <string.h>
#include "common/mem.h"
#include "train/spec/draft.h"
#include "train/spec/int.h"
#include "train/strategy.h"
#include "train/zoo.h"

#define TARGET_BATCH 256
#define TARGET_TEXTS 64
#define BATCH_TOKENS 2048                       /* of a micro-batch of text */
#define SMALL 64                                /* images up to this side are cropped out of a frame of zeros */

static json_t *rounded(const double *v, uint32_t n)
{
	json_t *a = json_array();

	for (uint32_t i = 0; i < n; i++)
		(void)json_array_append_new(a, json_real(round(v[i] * 100) / 100));
	return a;
}

/* CIFAR-10's own over all 50 000 images, as everybody writes them. */
static const struct data_about cifar10 = { .channels = 3, .mean = { 125.31, 122.95, 113.87 },
	.std = { 62.99, 62.09, 66.7 } };

static json_t *normalize(const struct data_about *a, size_t channels)
{
	json_t *o = json_pack("{s:s}", "type", "normalize");
	double mean = 0, square = 0, std;

	if (a->channels == channels) {
		(void)json_object_set_new(o, "mean", rounded(a->mean, a->channels));
		(void)json_object_set_new(o, "std", rounded(a->std, a->channels));
		return o;
	}
	for (uint32_t c = 0; c < a->channels; c++) {   /* one for all: as if it were one plane */
		mean += a->mean[c] / a->channels;
		square += (a->std[c] * a->std[c] + a->mean[c] * a->mean[c]) / a->channels;
	}
	std = sqrt(square - mean * mean);
	(void)json_object_set_new(o, "mean", json_real(round(mean * 100) / 100));
	(void)json_object_set_new(o, "std", json_real(round(std * 100) / 100));
	return o;
}

static uint64_t dim(const json_t *input, size_t i)
{
	return (uint64_t)json_integer_value(json_array_get(input, i));
}

static json_t *steps(const struct data_about *a, const char *name, const json_t *input)
{
	bool picture = json_array_size(input) == 3, cifar = !strncmp(name, "cifar10", 7);
	json_t *list = json_array(), *size = json_pack("[I,I]", (json_int_t)dim(input, 1), (json_int_t)dim(input, 2));
	bool fits = a->shape.nd == 3 && a->shape.d[1] == dim(input, 1) && a->shape.d[2] == dim(input, 2);

	if (picture && (a->images || cifar)) {
		if (fits && a->shape.d[1] <= SMALL && a->shape.d[2] <= SMALL)
			(void)json_array_append_new(list, json_pack("{s:s,s:O,s:I}", "type", "crop", "size", size, "padding",
				(json_int_t)(dim(input, 1) / 8)));
		else if (a->images)
			(void)json_array_append_new(list, json_pack("{s:s,s:O}", "type", "resized_crop", "size", size));
		(void)json_array_append_new(list, json_pack("{s:s}", "type", "flip"));
	}
	if (a->channels)
		(void)json_array_append_new(list, normalize(cifar && a->channels == 3 ? &cifar10 : a,
			picture ? dim(input, 0) : 1));
	json_decref(size);
	return list;
}

/* The model's parameters that the data answers for, unless they were given. */
static json_t *with(const json_t *entry, const struct data_about *a, const json_t *given)
{
	const json_t *has = json_object_get(entry, "parameters");
	json_t *w = json_is_object(given) ? json_deep_copy(given) : json_object();
	size_t n = a->shape.nd ? shape_count(&a->shape) : 0;
	const char *by_classes[] = { "classes", "vocab" };
	const json_t *in = json_object_get(entry, "input");
	bool hides = data_find(a->kind)->tokens && json_array_size(in) == 2 && dim(in, 0) == 2;

	for (int i = 0; i < 2; i++)
		if (a->classes && json_object_get(has, by_classes[i]) && !json_object_get(w, by_classes[i]))
			(void)json_object_set_new(w, by_classes[i], json_integer((json_int_t)a->classes + hides));
	if (n && !data_find(a->kind)->tokens && json_object_get(has, "inputs") && !json_object_get(w, "inputs"))
		(void)json_object_set_new(w, "inputs", json_integer((json_int_t)n));
	if (a->shape.nd >= 2 && a->shape.d[a->shape.nd - 1] == a->shape.d[a->shape.nd - 2] &&
	    json_object_get(has, "pixels") && !json_object_get(w, "pixels"))
		(void)json_object_set_new(w, "pixels", json_integer((json_int_t)a->shape.d[a->shape.nd - 1]));
	return w;
}

/* The zoo's input; of models that take any size with as many channels as the data has and, unless they were given, as
 * many pixels. Models that begin by flattening take pictures as they are: what prepares them wants their shape. */
static json_t *input_of(const json_t *zoo, const struct data_about *a, bool any_size, bool given)
{
	json_t *in = json_deep_copy(zoo);

	if (json_array_size(in) == 1 && a->shape.nd == 3 && dim(in, 0) == shape_count(&a->shape)) {
		json_array_clear(in);
		for (int i = 0; i < 3; i++)
			(void)json_array_append_new(in, json_integer((json_int_t)a->shape.d[i]));
		return in;
	}
	if (json_array_size(in) != 3 || a->shape.nd < 2 || !any_size)
		return in;
	(void)json_array_set_new(in, 0, json_integer(a->shape.nd == 3 ? (json_int_t)a->shape.d[0] : 1));
	for (size_t i = 1; i < 3 && !given; i++)
		(void)json_array_set_new(in, i, json_integer((json_int_t)a->shape.d[(size_t)a->shape.nd - 3 + i]));
	return in;
}

static json_t *optimizer(const char *name, bool texts)
{
	if (!name)
		name = texts ? "adamw" : "sgd";
	if (!strcmp(name, "sgd"))
		return json_pack("{s:s,s:f,s:f,s:f}", "name", name, "lr", 0.01, "momentum", 0.9, "weight_decay", 5e-4);
	if (!strcmp(name, "adamw"))
		return json_pack("{s:s,s:f,s:f}", "name", name, "lr", 3e-4, "weight_decay", 0.1);
	return json_pack("{s:s}", "name", name);
}

/* A tenth of the time is spent on validation (forward is a third of a step). */
static void validate(json_t *spec, uint64_t held_out, uint64_t target, const json_t *params)
{
	const json_t *tbs = json_object_get(params, "tbs");
	uint64_t samples = json_integer_value(tbs) > 0 ? (uint64_t)json_integer_value(tbs) : target;

	if (held_out)
		(void)json_object_set_new(spec, "validation", json_pack("{s:I}", "every",
			(json_int_t)(3 * held_out / samples + 1)));
}

/* What else is different for text: samples are long; models of two rows guess hidden tokens, and of those that read
 * pairs not every place counts. */
static void text(json_t *spec, const json_t *input, const struct data_about *a, const json_t *params)
{
	size_t nd = json_array_size(input);
	bool pairs = nd == 2 && dim(input, 0) == 3;
	uint64_t n = dim(input, nd - 1), batch = n < BATCH_TOKENS ? BATCH_TOKENS / n : 1;

	(void)json_object_set_new(spec, "target_batch", json_integer(TARGET_TEXTS));
	validate(spec, a->count[DATA_VALIDATION] / (pairs ? 1 : n), TARGET_TEXTS, params);        /* of a text: tokens */
	(void)json_object_set_new(spec, "local", json_pack("{s:I}", "batch", (json_int_t)(batch < 32 ? batch : 32)));
	if (nd > 1)
		(void)json_object_set_new(spec, "loss", json_pack("{s:s,s:i}", "type", "cross_entropy", "ignore", -100));
}

/* "remat" is a word about all members, where the strategy has it; else this machine's own. */
static bool of_all(json_t *spec)
{
	const char *name = json_string_value(json_object_get(spec, "strategy"));
	const struct planner_ops *p = name ? strategy_find(name) : NULL;

	if (!p || !spec_plan_has(p, "remat"))
		return false;
	(void)json_object_del(json_object_get(spec, "local"), "remat");
	return true;
}

void draft_over(json_t *spec, const json_t *params)
{
	static const char *const same[] = { "conv", "precision", "seed", "open", "admins", "strategy" };
	static const char *const plan[] = { "stages", "replicas", "schedule", "micro_batches", "micro_batch_size",
		"remat" };
	json_t *o = json_object_get(spec, "optimizer"), *v;
	const char *name = json_string_value(json_object_get(params, "optimizer"));

	if (name)
		(void)json_object_set_new(spec, "optimizer", optimizer(name, false));
	o = json_object_get(spec, "optimizer");
	v = json_object_get(params, "lr");
	if (v && json_is_object(o))
		(void)json_object_set(o, "lr", v);
	v = json_object_get(params, "tbs");
	if (v)
		(void)json_object_set(spec, "target_batch", v);
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
		if ((v = json_object_get(params, same[i])))
			(void)json_object_set(spec, same[i], v);
	for (size_t i = 0; i < sizeof(plan) / sizeof(*plan); i++)
		if ((v = json_object_get(params, plan[i])) && (strcmp(plan[i], "remat") || of_all(spec))) {
			o = json_object_get(spec, "plan");
			o = json_is_object(o) ? json_copy(o) : json_object();
			(void)json_object_set(o, plan[i], v);
			(void)json_object_set_new(spec, "plan", o);
		}
	v = json_object_get(params, "epochs");
	if (v) {
		o = json_object_get(spec, "stop");
		o = json_is_object(o) ? json_copy(o) : json_object();
		(void)json_object_set(o, "epochs", v);
		(void)json_object_set_new(spec, "stop", o);
	}
}

json_t *draft_spec(const json_t *params, const struct data_about *a, struct err *e)
{
	const char *model = json_string_value(json_object_get(params, "model")), *name = a->kind;
	const char *data = json_string_value(json_object_get(params, "data"));
	size_t len = strlen(name);
	json_t *entry = zoo_entry_json(model, e), *w, *zoo_input, *layers, *input, *out;
	const json_t *has = json_object_get(entry, "parameters");
	bool texts = json_object_get(has, "vocab") != NULL;

	if (!entry)
		return NULL;
	if (data && strchr(data, ':')) {
		name = data;
		len = strcspn(data, ":");
	}
	w = with(entry, a, json_object_get(params, "with"));
	if (zoo_expand(model, w, &zoo_input, &layers, e) < 0) {
		json_decref(entry);
		json_decref(w);
		return NULL;
	}
	input = input_of(zoo_input, a, json_object_get(has, "pixels") != NULL,
		json_object_get(json_object_get(params, "with"), "pixels") != NULL);
	(void)json_object_set_new(w, "zoo", json_string(model));
	out = json_pack("{s:O,s:O,s:s,s:o,s:i,s:{s:s#,s:s,s:o}}", "model", w, "input", input, "loss",
		a->classes ? "cross_entropy" : "mse", "optimizer", optimizer(NULL, texts), "target_batch", TARGET_BATCH,
		"data", "name", name, (int)len, "kind", a->kind, "steps", steps(a, name, input));
	if (data_find(a->kind)->tokens && dim(input, json_array_size(input) - 1))
		text(out, input, a, params);
	else
		validate(out, a->count[DATA_VALIDATION], TARGET_BATCH, params);
	draft_over(out, params);
	json_decref(entry);
	json_decref(w);
	json_decref(zoo_input);
	json_decref(layers);
	json_decref(input);
	return out;
}
