/* The parts of a spec that kernels/ answers for: input shape, layers, optimizer (the loss: loss.c). Layers are
 * checked one attribute at a time here, because the author of a spec needs the place; shapes are checked by building
 * the model once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "kernels/scale.h"
#include "train/spec/int.h"

#define NAMES_MAX 32

int place_unknown(const struct place *at, const char *what, const char *word, const char *names, struct err *e)
{
	char copy[512], shown[64];
	const char *list[NAMES_MAX + 1], *near;
	char *rest = copy;
	int n = 0;

	(void)snprintf(copy, sizeof(copy), "%s", names);
	(void)snprintf(shown, sizeof(shown), "%s", word);
	text_clean(shown);
	for (char *w; n < NAMES_MAX && (w = strsep(&rest, " ")); )
		if (*w)
			list[n++] = w;
	list[n] = NULL;
	near = text_nearest(word, list);
	if (near)
		return place_err(at, e, "unknown %s \"%s\"; did you mean \"%s\"?", what, shown, near);
	return place_err(at, e, "unknown %s \"%s\"; known: %s", what, shown, names);
}

static int read_input(struct spec *s, const json_t *shared, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, "input");
	const json_t *in = json_object_get(shared, "input");

	if (!json_is_array(in) || json_array_size(in) < 1 || json_array_size(in) > SHAPE_MAX)
		return place_err(&at, e,
		"must be the shape of one sample, 1 to %d whole numbers such as [1, 28, 28], and is %s",
			SHAPE_MAX, json_kind(in));
	s->input.nd = (int)json_array_size(in);
	for (int i = 0; i < s->input.nd; i++) {
		const struct place p = place_index(&at, (size_t)i);
		double d;

		if (read_number(json_array_get(in, (size_t)i), &p, 1, 1 << 24, &d, e) < 0)
			return -1;
		if (d != floor(d))
			return place_err(&p, e, "%g must be a whole number", d);
		s->input.d[i] = (size_t)d;
	}
	return 0;
}

static int attr_known(const struct layer_ops *ops, const char *key, const struct place *at, struct err *e)
{
	const char *names[LAYER_ATTRS_MAX + 5] = { "type", "name", "inputs", "share" };

	for (int i = 0; i < ops->nattrs; i++) {
		if (!strcmp(ops->attr[i].name, key))
			return i;
		names[4 + i] = ops->attr[i].name;
	}
	{
		char all[256] = "";
		const char *near = text_nearest(key, names);

		for (int i = 0; names[i]; i++)
			(void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "", names[i]);
		if (near)
			return place_err(at, e, "unknown attribute of %s; did you mean \"%s\"?", ops->name, near);
		return place_err(at, e, "unknown attribute of %s; known: %s", ops->name, all);
	}
}

static int read_attr(const struct layer_ops *ops, int a, const json_t *v, const struct place *at, double *ret,
	struct err *e)
{
	const struct layer_attr *row = &ops->attr[a];

	if (json_is_boolean(v) && row->integer && row->max == 1) {
		*ret = json_is_true(v);
		return 0;
	}
	if (read_number(v, at, row->min, row->max, ret, e) < 0)
		return -1;
	if (row->integer && *ret != floor(*ret))
		return place_err(at, e, "%g must be a whole number (%s)", *ret, row->help);
	return 0;
}

/* Which layers there are is checked when the model is built. */
static int read_edge(struct layer_desc *d, const char *key, const json_t *v, const struct place *at, struct err *e)
{
	size_t n = json_array_size(v);
	const char **names;

	if (!strcmp(key, "share")) {
		d->share = json_string_value(v);
		return d->share ? 0 : place_err(at, e, "must be the name of an earlier layer, and is %s", json_kind(v));
	}
	if (n < 1 || n > LAYER_INPUTS_MAX)
		return place_err(at, e, "must be an array of the names of 1 to %d earlier layers, and is %s", LAYER_INPUTS_MAX,
			json_kind(v));
	d->input = names = xcalloc(n, sizeof(*names));
	for (; d->ninputs < (int)n; d->ninputs++) {
		const struct place p = place_index(at, (size_t)d->ninputs);

		names[d->ninputs] = json_string_value(json_array_get(v, (size_t)d->ninputs));
		if (!names[d->ninputs])
			return place_err(&p, e, "must be the name of an earlier layer, and is %s",
				json_kind(json_array_get(v, (size_t)d->ninputs)));
	}
	return 0;
}

/* How convolutions compute, as the attribute "winograd" of those layers that do not say so themselves. */
static int read_conv(const json_t *shared, int *ret, struct err *e)
{
	static const struct { const char *name; int winograd; } known[] = {
		{ "auto", -1 }, { "winograd4", -4 }, { "winograd2", -2 }, { "direct", 0 },
	};
	const struct place top = { "" }, at = place_key(&top, "conv");
	char name[24] = "auto";

	if (read_text(shared, &top, "conv", name, sizeof(name), e) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(name, known[i].name)) {
			*ret = known[i].winograd;
			return 0;
		}
	return place_unknown(&at, "kind of convolution", name, "auto winograd4 winograd2 direct", e);
}

/* "loss_scale", in PyTorch's words (torch.amp.GradScaler). */
static int read_scale(struct spec *s, const json_t *shared, struct err *e)
{
	static const char *const known[] = { "init_scale", "growth_interval", NULL };
	const struct place top = { "" }, at = place_key(&top, "loss_scale"), init = place_key(&at, "init_scale");
	const json_t *o = json_object_get(shared, "loss_scale");
	bool scaled = s->precision == PRECISION_FP16;

	if (!scaled)
		return o ? place_err(&at, e, "is for precision fp16, whose range is too small for gradients as they are") : 0;
	s->scale_init = SCALE_INIT;
	s->scale_interval = SCALE_INTERVAL;
	if (!o)
		return 0;
	if (read_object(o, &at, e) < 0 || read_known(o, &at, known, e) < 0 ||
	    read_real(o, &at, "init_scale", 1, SCALE_MAX, &s->scale_init, e) < 0 ||
	    read_u32(o, &at, "growth_interval", 1, 1000000, &s->scale_interval, e) < 0)
		return -1;
	return scale_ok(s->scale_init) ? 0 : place_err(&init, e, "must be a power of two, and is %g", s->scale_init);
}

static int read_precision(struct spec *s, const json_t *shared, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, "precision");
	char name[24] = "fp32";

	if (read_text(shared, &top, "precision", name, sizeof(name), e) < 0)
		return -1;
	s->precision = !strcmp(name, "bf16") ? PRECISION_BF16 : !strcmp(name, "fp16") ? PRECISION_FP16 : PRECISION_FP32;
	if (!strcmp(name, "fp64"))
		return place_err(&at, e, "is fp64, and state and gradients are in single precision: fp32, bf16 or fp16");
	return s->precision != PRECISION_FP32 || !strcmp(name, "fp32") ? read_scale(s, shared, e) :
		place_unknown(&at, "precision", name, "fp32 bf16 fp16", e);
}

static int read_layer(struct spec *s, int i, const json_t *j, int conv, const struct place *at, struct err *e)
{
	struct layer_desc *d = &s->layer[i];
	const struct layer_ops *ops;
	const char *type, *key, **attr;
	double *value;
	json_t *v;

	if (read_object(j, at, e) < 0)
		return -1;
	type = json_string_value(json_object_get(j, "type"));
	const struct place p = place_key(at, "type");
	if (!type)
		return place_err(&p, e, "must be the name of a layer, and is %s", json_kind(json_object_get(j, "type")));
	ops = layer_find(type);
	if (!ops) {
		char names[400];

		return place_unknown(&p, "layer", type, layer_names(names, sizeof(names)), e);
	}
	d->type = ops->name;
	d->attr = attr = xcalloc(LAYER_ATTRS_MAX, sizeof(*attr));
	d->value = value = xcalloc(LAYER_ATTRS_MAX, sizeof(*value));
	json_object_foreach((json_t *)j, key, v) {
		const struct place q = place_key(at, key);
		int a;

		if (!strcmp(key, "type"))
			continue;
		if (!strcmp(key, "name")) {
			d->name = json_string_value(v);
			if (!d->name || !text_name_ok(d->name) || strlen(d->name) > 63)
				return place_err(&q, e, "must be a name of letters, digits, - _ . (at most 63), and is %s",
					json_kind(v));
			continue;
		}
		if (!strcmp(key, "inputs") || !strcmp(key, "share")) {
			if (read_edge(d, key, v, &q, e) < 0)
				return -1;
			continue;
		}
		a = attr_known(ops, key, &q, e);
		if (a < 0 || read_attr(ops, a, v, &q, &value[d->nattrs], e) < 0)
			return -1;
		attr[d->nattrs++] = ops->attr[a].name;
	}
	if (conv != -1 && !strcmp(type, "conv2d") && !json_object_get(j, "winograd")) {
		value[d->nattrs] = conv;
		attr[d->nattrs++] = "winograd";
	}
	for (int a = 0; a < ops->nattrs; a++)
		if (isnan(ops->attr[a].def) && !json_object_get(j, ops->attr[a].name))
			return place_err(at, e, "%s needs \"%s\" (%s)", ops->name, ops->attr[a].name, ops->attr[a].help);
	return 0;
}

int spec_read_layers(struct spec *s, const json_t *shared, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, "model");
	const json_t *v = json_object_get(shared, "model");
	int conv = -1;

	if (read_input(s, shared, e) < 0 || read_conv(shared, &conv, e) < 0 || read_precision(s, shared, e) < 0)
		return -1;
	if (!json_is_array(v) || json_array_size(v) < 1 || json_array_size(v) > SPEC_LAYERS_MAX)
		return place_err(&at, e, "must be an array of 1 to %d layers, and is %s%s", SPEC_LAYERS_MAX, json_kind(v),
			json_is_array(v) ? (json_array_size(v) ? " of more" : " of none") : "");
	s->layer = xcalloc(json_array_size(v), sizeof(*s->layer));
	for (size_t i = 0; i < json_array_size(v); i++) {
		const struct place p = place_index(&at, i);

		s->nlayers++;
		if (read_layer(s, (int)i, json_array_get(v, i), conv, &p, e) < 0)
			return -1;
	}
	return 0;
}

int spec_read_model(struct spec *s, const json_t *shared, struct err *e)
{
	return spec_read_layers(s, shared, e) < 0 ? -1 : spec_read_loss(s, shared, e);
}

static void wait_nobody(void *arg, uint64_t us, bool backward)
{
}

struct model *spec_model_of(const struct spec *s, const struct shape *input, const struct layer_host *host,
	struct err *e)
{
	static const struct layer_host nobody = { .wait = wait_nobody };
	struct kerr why;
	struct model *m = model_new(input, s->layer, s->nlayers, host ? host : &nobody, &why);

	if (!m)
		(void)err_set(e, ERR_INVALID, "model: %s", why.text);
	else
		model_precision(m, s->precision);
	return m;
}

struct model *spec_model(const struct spec *s, const struct layer_host *host, struct err *e)
{
	return spec_model_of(s, &s->input, host, e);
}

static int read_hyper(struct spec *s, const json_t *o, const struct place *at, struct err *e)
{
	const char *names[OPTIM_KEYS_MAX + 3] = { "name", "decay" };
	const struct place dp = place_key(at, "decay");
	char decay[16] = "weights";
	struct kerr why;

	for (int i = 0; i < s->optim->nkeys; i++)
		names[2 + i] = s->optim->key[i].name;
	if (read_known(o, at, names, e) < 0 || read_text(o, at, "decay", decay, sizeof(decay), e) < 0)
		return -1;
	s->decay_all = !strcmp(decay, "all");
	if (!s->decay_all && strcmp(decay, "weights"))
		return place_unknown(&dp, "choice of what decays", decay, "weights all", e);
	optim_defaults(s->optim, s->hyper);
	for (int i = 0; i < s->optim->nkeys; i++) {
		const struct optim_key *k = &s->optim->key[i];
		const struct place p = place_key(at, k->name);
		const json_t *v = json_object_get(o, k->name);
		double x = json_is_true(v) ? 1 : 0;

		if (!v)
			continue;
		if (!(json_is_boolean(v) && k->flag) && read_number(v, &p, k->min, k->max, &x, e) < 0)
			return -1;
		if (optim_set(s->optim, s->hyper, k->name, x, &why) < 0)
			return place_err(&p, e, "%s", why.text);
	}
	if (optim_check(s->optim, s->hyper, &why) < 0)
		return place_err(at, e, "%s", why.text);
	return 0;
}

int spec_read_optim(struct spec *s, const json_t *shared, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, "optimizer"), nm = place_key(&at, "name");
	const json_t *o = json_object_get(shared, "optimizer");
	const char *name;

	if (read_object(o, &at, e) < 0)
		return -1;
	name = json_string_value(json_object_get(o, "name"));
	if (!name)
		return place_err(&nm, e, "must be the name of an optimizer, and is %s", json_kind(json_object_get(o, "name")));
	s->optim = optim_find(name);
	if (!s->optim) {
		char names[200];

		return place_unknown(&nm, "optimizer", name, optim_names(names, sizeof(names)), e);
	}
	if (read_hyper(s, o, &at, e) < 0 || read_real(shared, &top, "clip_norm", 0, 1e30, &s->clip_norm, e) < 0)
		return -1;
	return schedule_read(&s->schedule, json_object_get(shared, "schedule"), e);
}
