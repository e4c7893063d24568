/* Builds a model from layer descriptions: attributes, edges, shapes, the offset tables, names that PyTorch users
 * know. */
#include "kernels/model.h"
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS_MAX ((size_t)1 << 31)          /* of one sample's activation */
#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
#define PARAMS_MAX ((size_t)1 << 40)            /* of a model */

static int attr_unknown(const struct layer *l, const char *name, struct kerr *e)
{
	char names[160] = "no attributes";
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

static int op_named(const struct model *m, int before, const char *name)
{
	for (int i = 0; i < before; i++)
		if (!strcmp(m->op[i].name, name))
			return i;
	return -1;
}

static int inputs_find(struct model *m, int i, const struct layer_desc *d, struct kerr *e)
{
	struct model_node *n = &m->node[i];
	const struct layer_ops *o = m->op[i].ops;
	int lo = o->inputs_min ? o->inputs_min : 1, hi = o->inputs_max ? o->inputs_max : 1;

	n->nin = d->ninputs ? d->ninputs : 1;
	if (n->nin < lo || n->nin > hi)
		return kerr_set(e, "%s reads %d inputs; it takes %d to %d", o->name, n->nin, lo, hi);
	n->from[0] = i;
	for (int k = 0; k < d->ninputs; k++) {
		int op = op_named(m, i, d->input[k]);

		if (op < 0 && strcmp(d->input[k], "input"))
			return kerr_set(e, "its input '%.60s' is no layer before it (\"input\" is the model's own)", d->input[k]);
		n->from[k] = op + 1;
	}
	m->op[i].nin = n->nin;
	for (int k = 0; k < n->nin; k++) {
		m->op[i].ins[k] = *model_shape(m, n->from[k]);
		m->tensor[n->from[k]].last = i;
		if (o->needs_x && i < m->tensor[n->from[k]].first_x)
			m->tensor[n->from[k]].first_x = i;
	}
	m->op[i].in = m->op[i].ins[0];
	n->edges = i ? m->node[i - 1].edges + m->node[i - 1].nin : 0;
	return 0;
}

/* A layer that shares has the owner's tensors, in shape and number. */
static int share_find(struct model *m, int i, const char *name, struct kerr *e)
{
	const struct layer *l = &m->op[i], *o;
	char a[64], b[64];
	int op = op_named(m, i, name);

	if (op < 0)
		return kerr_set(e, "it shares the parameters of '%.60s', which is no layer before it", name);
	o = &m->op[op];
	if (o->nparams != l->nparams)
		return kerr_set(e, "it has %d parameter tensors and '%.60s', whose parameters it shares, has %d", l->nparams,
			name, o->nparams);
	for (int j = 0; j < l->nparams; j++)
		if (o->param[j].shape.nd != l->param[j].shape.nd ||
		    memcmp(o->param[j].shape.d, l->param[j].shape.d, (size_t)l->param[j].shape.nd * sizeof(size_t)))
			return kerr_set(e, "its %s has shape %s and that of '%.60s', which it shares, %s", l->param[j].name,
				shape_text(&l->param[j].shape, a, sizeof a), name, shape_text(&o->param[j].shape, b, sizeof b));
	m->node[i].owner = m->node[op].owner;
	for (int j = 0; j < i; j++)
		m->node[j].shared_later |= m->node[j].owner == m->node[i].owner;
	m->node[i].param = m->node[op].param;
	return 0;
}

static int layer_build(struct model *m, int i, const struct layer_desc *d, struct kerr *e)
{
	struct layer *l = &m->op[i];
	char names[240];

	l->ops = layer_find(d->type ? d->type : "");
	if (!l->ops)
		return kerr_set(e, "the type '%.40s' is unknown; there are: %s", d->type ? d->type : "",
			layer_names(names, sizeof names));
	l->host = &m->host;
	m->node[i].owner = i;
	m->node[i].param = m->nparam;
	m->node[i].buffer = m->nbuffer;
	m->tensor[i + 1].first_x = INT_MAX;
	m->tensor[i + 1].last = -1;
	if (name_take(m, i, d->name, e) < 0 || inputs_find(m, i, d, e) < 0 || attrs_fill(l, d, e) < 0 ||
	    l->ops->shape(l, e) < 0 || (d->share && share_find(m, i, d->share, e) < 0))
		return -1;
	if (shape_count(&l->out) > ELEMENTS_MAX)
		return kerr_set(e, "%s would have %zu outputs per sample; at most %zu are allowed", l->ops->name,
			shape_count(&l->out), ELEMENTS_MAX);
	if (l->nparam > PARAMS_MAX - m->nparam)
		return kerr_set(e, "%s with %zu parameters makes the model larger than %zu", l->ops->name, l->nparam,
			PARAMS_MAX);
	m->offset[i] = m->nparam;
	if (m->node[i].owner == i) {
		m->nparam += l->nparam;
		m->nparams += l->nparams;
	}
	m->offset[i + 1] = m->nparam;
	m->nbuffer += l->nbuffer;
	m->nbuffers += l->nbuffers;
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

static void row(struct model_param *t, const struct layer *l, const struct layer_param *p, size_t start, int op)
{
	snprintf(t->name, sizeof t->name, "%s.%s", l->name, p->name);
	t->shape = p->shape;
	t->offset = start + p->offset;
	t->count = p->count;
	t->op = op;
}

static int table_build(struct model *m, struct kerr *e)
{
	int at = 0, nb = 0;

	m->param = calloc((size_t)m->nparams + 1, sizeof *m->param);
	m->buffer = calloc((size_t)m->nbuffers + 1, sizeof *m->buffer);
	if (!m->param || !m->buffer)
		return kerr_set(e, "out of memory for the table of %d parameter tensors", m->nparams);
	for (int i = 0; i < m->nops; i++) {
		const struct layer *l = &m->op[i];

		for (int j = 0; j < l->nparams && m->node[i].owner == i; j++)
			row(&m->param[at++], l, &l->param[j], m->offset[i], i);
		for (int j = 0; j < l->nbuffers; j++)
			row(&m->buffer[nb++], l, &l->buffer[j], m->node[i].buffer, i);
	}
	return 0;
}

/* Every value has a reader; the last one's is whoever runs the model. */
static int readers_check(struct model *m, struct kerr *e)
{
	m->tensor[m->nops].last = m->nops;
	if (m->tensor[0].last < 0)
		return kerr_set(e, "nobody reads the model's input");
	for (int t = 1; t < m->nops; t++)
		if (m->tensor[t].last < 0)
			return kerr_set(e, "nobody reads the output of layer %d '%s' (%s): only the last layer's leaves the model",
				t - 1, m->op[t - 1].name, m->op[t - 1].ops->name);
	return 0;
}

/* Tensor t flows through the cuts t to last; those before it have taken what is theirs. */
static void cuts_low(struct model *m)
{
	for (int t = 0, cut = 0; t <= m->nops; t++)
		for (; cut <= m->tensor[t].last; cut++)
			m->tensor[cut].low = t;
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
		m->node = calloc((size_t)n, sizeof *m->node);
		m->tensor = calloc((size_t)n + 1, sizeof *m->tensor);
		m->offset = calloc((size_t)n + 1, sizeof *m->offset);
	}
	if (!m || !m->op || !m->offset || !m->node || !m->tensor) {
		kerr_set(e, "out of memory for a model of %d layers", n);
		return model_free(m);
	}
	m->in = *in;
	m->tensor[0] = (struct model_tensor){ .last = -1, .first_x = INT_MAX };
	if (host)
		m->host = *host;
	for (; m->nops < n; m->nops++)
		if (layer_build(m, m->nops, &desc[m->nops], e) < 0) {
			blame(m, m->nops, &desc[m->nops], e);
			return model_free(m);
		}
	m->out = *model_shape(m, n);
	if (readers_check(m, e) < 0 || table_build(m, e) < 0)
		return model_free(m);
	cuts_low(m);
	return m;
}

void model_precision(struct model *m, enum precision p)
{
	for (int i = 0; i < m->nops; i++)
		if (m->op[i].ops->multiplies)
			m->op[i].precision = p;
}

struct model *model_free(struct model *m)
{
	if (m) {
		free(m->op);
		free(m->node);
		free(m->tensor);
		free(m->offset);
		free(m->param);
		free(m->buffer);
	}
	free(m);
	return NULL;
}

void model_init(const struct model *m, uint64_t seed, real *ret_param)
{
	(void)model_init_part(m, seed, 0, m->nparam, ret_param);
}

int model_init_part(const struct model *m, uint64_t seed, size_t lo, size_t hi, real *ret_param)
{
	for (int i = 0; i < m->nops; i++) {
		const struct layer *l = &m->op[i];
		size_t a = m->offset[i], b = m->offset[i + 1], from = a > lo ? a : lo, upto = b < hi ? b : hi;
		real *whole;

		if (!l->ops->init || m->node[i].owner != i || from >= upto)
			continue;
		if (a >= lo && b <= hi) {
			l->ops->init(l, rand_key(seed, (uint64_t)i), ret_param + (a - lo));
			continue;
		}
		whole = calloc(b - a, sizeof *whole);   /* cut: chance goes through the layer from its first parameter on */
		if (!whole)
			return -1;
		l->ops->init(l, rand_key(seed, (uint64_t)i), whole);
		memcpy(ret_param + (from - lo), whole + (from - a), (upto - from) * sizeof *whole);
		free(whole);
	}
	return 0;
}

void model_init_buffers(const struct model *m, real *ret_buffer)
{
	for (size_t i = 0; i < m->nbuffer; i++)
		ret_buffer[i] = 0;
	for (int i = 0; i < m->nops; i++)
		if (m->op[i].ops->init_buffer)
			m->op[i].ops->init_buffer(&m->op[i], ret_buffer + m->node[i].buffer);
}

bool model_closed(const struct model *m, int a, int b)
{
	for (int i = a; i < b; i++)
		if (m->node[i].owner < a)
			return false;
	for (int i = b; i < m->nops; i++)
		if (m->node[i].owner >= a && m->node[i].owner < b)
			return false;
	return true;
}

int model_cut_values(const struct model *m, int cut)
{
	int n = 0;

	assert(cut >= 0 && cut <= m->nops);
	for (int t = m->tensor[cut].low; t <= cut; t++)
		n += m->tensor[t].last >= cut;
	return n;
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

const struct shape *model_shape(const struct model *m, int t)
{
	assert(t >= 0 && t <= m->nops);
	return t == 0 ? &m->in : &m->op[t - 1].out;
}
