/* Builds a model from layer descriptions: attributes, shapes, the offset table, names that PyTorch users know. */
#include "kernels/model.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX ((size_t)1 << 31)          /* of one sample's activation */
#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
#define PARAMS_MAX ((size_t)1 << 40)            /* of a model */

static int attr_unknown(const struct layer *l, const char *name, struct kerr *e)
{
	char names[128] = "no attributes";
	size_t at = 0;

	for (int i = 0; i < l->ops->nattrs && at < sizeof names; i++)
		at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? " " : "", l->ops->attr[i].name);
	return kerr_set(e, "%s does not know '%.32s'; it has %s", l->ops->name, name, names);
}

static int attr_set(struct layer *l, const char *name, double v, struct kerr *e)
{
	for (int i = 0; i < l->ops->nattrs; i++) {
		const struct layer_attr *a = &l->ops->attr[i];

		if (strcmp(a->name, name))
			continue;
		if (!isnan(l->attr[i]) && l->attr[i] != a->def)
			return kerr_set(e, "%s: %s is given twice", l->ops->name, name);
		if (!(v >= a->min && v <= a->max))
			return kerr_set(e, "%s: %s = %g is outside %g..%g", l->ops->name, name, v, a->min, a->max);
		if (a->integer && v != floor(v))
			return kerr_set(e, "%s: %s = %g must be a whole number", l->ops->name, name, v);
		l->attr[i] = v;
		return 0;
	}
	return attr_unknown(l, name, e);
}

static int attrs_fill(struct layer *l, const struct layer_desc *d, struct kerr *e)
{
	for (int i = 0; i < l->ops->nattrs; i++)
		l->attr[i] = l->ops->attr[i].def;
	for (int i = 0; i < d->nattrs; i++)
		if (attr_set(l, d->attr[i], d->value[i], e) < 0)
			return -1;
	for (int i = 0; i < l->ops->nattrs; i++)
		if (isnan(l->attr[i]))
			return kerr_set(e, "%s needs %s (%s)", l->ops->name, l->ops->attr[i].name,
				l->ops->attr[i].help);
	return 0;
}

static int name_take(struct model *m, int i, const char *name, struct kerr *e)
{
	struct layer *l = &m->op[i];

	if (!name)
		snprintf(l->name, sizeof l->name, "%d", i);
	else if (!*name || strlen(name) >= sizeof l->name || strspn(name, NAME_CHARS) != strlen(name))
		return kerr_set(e, "the name '%.60s' must have 1 to %zu letters, digits or _ . -", name,
			sizeof l->name - 1);
	else
		snprintf(l->name, sizeof l->name, "%s", name);
	for (int j = 0; j < i; j++)
		if (!strcmp(m->op[j].name, l->name))
			return kerr_set(e, "the name '%s' is layer %d's already", l->name, j);
	return 0;
}

static int layer_build(struct model *m, int i, const struct layer_desc *d, struct kerr *e)
{
	struct layer *l = &m->op[i];
	char names[160];

	l->ops = layer_find(d->type ? d->type : "");
	if (!l->ops)
		return kerr_set(e, "the type '%.40s' is unknown; there are: %s", d->type ? d->type : "",
			layer_names(names, sizeof names));
	l->in = *model_shape(m, i);
	l->host = &m->host;
	if (name_take(m, i, d->name, e) < 0 || attrs_fill(l, d, e) < 0 || l->ops->shape(l, e) < 0)
		return -1;
	if (shape_count(&l->out) > ELEMENTS_MAX)
		return kerr_set(e, "%s would have %zu outputs per sample; at most %zu are allowed", l->ops->name,
			shape_count(&l->out), ELEMENTS_MAX);
	if (l->nparam > PARAMS_MAX - m->nparam)
		return kerr_set(e, "%s with %zu parameters makes the model larger than %zu", l->ops->name, l->nparam,
			PARAMS_MAX);
	m->offset[i] = m->nparam;
	m->nparam += l->nparam;
	m->offset[i + 1] = m->nparam;
	m->nparams += l->nparams;
	return 0;
}

/* "layer 3 'fc1' after layer 2 'flatten' (relu): ..." so that both sides of a misfit are named. */
static int blame(struct model *m, int i, const struct layer_desc *d, struct kerr *e)
{
	struct kerr why = *e;

	if (i == 0)
		return kerr_set(e, "layer 0 '%.30s' (%.20s): %.160s", d->name ? d->name : "0", d->type ? d->type : "",
			why.text);
	return kerr_set(e, "layer %d '%.30s' (%.20s), after layer %d '%.30s': %.160s", i,
		d->name ? d->name : m->op[i].name,
		d->type ? d->type : "", i - 1, m->op[i - 1].name, why.text);
}

static int table_build(struct model *m, struct kerr *e)
{
	int at = 0;

	m->param = calloc((size_t)m->nparams + 1, sizeof *m->param);
	if (!m->param)
		return kerr_set(e, "out of memory for the table of %d parameter tensors", m->nparams);
	for (int i = 0; i < m->nops; i++)
		for (int j = 0; j < m->op[i].nparams; j++) {
			const struct layer_param *p = &m->op[i].param[j];
			struct model_param *t = &m->param[at++];

			snprintf(t->name, sizeof t->name, "%s.%s", m->op[i].name, p->name);
			t->shape = p->shape;
			t->offset = m->offset[i] + p->offset;
			t->count = p->count;
			t->op = i;
		}
	return 0;
}

static int shape_check(const struct shape *in, struct kerr *e)
{
	size_t n = 1;

	if (in->nd < 1 || in->nd > SHAPE_MAX)
		return kerr_set(e, "the input has %d dimensions; 1 to %d are allowed", in->nd, SHAPE_MAX);
	for (int i = 0; i < in->nd; i++) {
		if (in->d[i] == 0 || in->d[i] > ELEMENTS_MAX / n)
			return kerr_set(e,
				"dimension %d of the input is %zu: it must be at least 1, and all together at most "
				"%zu", i, in->d[i], ELEMENTS_MAX);
		n *= in->d[i];
	}
	return 0;
}

struct model *model_new(const struct shape *in, const struct layer_desc *desc, int n, const struct layer_host *host,
	struct kerr *e)
{
	struct kerr local;
	struct model *m;

	e = e ? e : &local;
	if (n < 1 || n > MODEL_OPS_MAX) {
		kerr_set(e, "a model has 1 to %d layers, not %d", MODEL_OPS_MAX, n);
		return NULL;
	}
	if (shape_check(in, e) < 0)
		return NULL;
	m = calloc(1, sizeof *m);
	if (m) {
		m->op = calloc((size_t)n, sizeof *m->op);
		m->offset = calloc((size_t)n + 1, sizeof *m->offset);
	}
	if (!m || !m->op || !m->offset) {
		kerr_set(e, "out of memory for a model of %d layers", n);
		return model_free(m);
	}
	m->in = *in;
	if (host)
		m->host = *host;
	for (; m->nops < n; m->nops++)
		if (layer_build(m, m->nops, &desc[m->nops], e) < 0) {
			blame(m, m->nops, &desc[m->nops], e);
			return model_free(m);
		}
	m->out = *model_shape(m, n);
	if (table_build(m, e) < 0)
		return model_free(m);
	return m;
}

struct model *model_free(struct model *m)
{
	if (m) {
		free(m->op);
		free(m->offset);
		free(m->param);
	}
	free(m);
	return NULL;
}

void model_init(const struct model *m, uint64_t seed, real *ret_param)
{
	for (int i = 0; i < m->nops; i++)
		if (m->op[i].ops->init)
			m->op[i].ops->init(&m->op[i], rand_key(seed, (uint64_t)i), ret_param + m->offset[i]);
}

uint64_t model_macs(const struct model *m, int a, int b)
{
	uint64_t n = 0;

	assert(a >= 0 && a <= b && b <= m->nops);
	for (int i = a; i < b; i++)
		n += m->op[i].ops->macs ? m->op[i].ops->macs(&m->op[i]) : 0;
	return n;
}

size_t model_param_count(const struct model *m, int a, int b)
{
	assert(a >= 0 && a <= b && b <= m->nops);
	return m->offset[b] - m->offset[a];
}

const struct model_param *model_param_find(const struct model *m, const char *name)
{
	for (int i = 0; i < m->nparams; i++)
		if (!strcmp(m->param[i].name, name))
			return &m->param[i];
	return NULL;
}

const struct shape *model_shape(const struct model *m, int op)
{
	assert(op >= 0 && op <= m->nops);
	return op == 0 ? &m->in : &m->op[op - 1].out;
}
