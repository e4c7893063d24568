/* The profile of a model. */
#include "train/profile.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

static uint64_t attr_us(const struct layer *l, const char *name)
{
	for (int i = 0; i < l->ops->nattrs; i++)
		if (!strcmp(l->ops->attr[i].name, name))
			return (uint64_t)(l->attr[i] * 1000 + 0.5);
	return 0;
}

/* A time of a layer in the file; -1: there is none. */
static double time_in(const json_t *layer, const char *key)
{
	const json_t *v = json_object_get(layer, key);
	double us = json_is_number(v) ? json_number_value(v) : -1;

	return isfinite(us) && us < 1e12 ? us : -1;
}

struct profile_times *profile_times_read(const json_t *file, const struct model *m, struct err *e)
{
	const json_t *layers = json_object_get(file, "layers"), *l;
	json_int_t batch = json_integer_value(json_object_get(file, "batch"));
	struct profile_times *t;
	size_t i;

	if (!json_is_array(layers) || batch < 1) {
		(void)err_set(e, ERR_INVALID, "this is no profile: what hivectl --json model profile prints has batch and "
			"layers");
		return NULL;
	}
	if (json_array_size(layers) != (size_t)m->nops) {
		(void)err_set(e, ERR_INVALID, "the profile is of %zu layers, and the model has %d: measure this model",
			json_array_size(layers), m->nops);
		return NULL;
	}
	t = xcalloc((size_t)m->nops, sizeof(*t));
	json_array_foreach(layers, i, l) {
		const char *name = json_string_value(json_object_get(l, "name"));

		t[i] = (struct profile_times){ time_in(l, "forward_us") / (double)batch,
			time_in(l, "backward_us") / (double)batch };
		if (name && !strcmp(name, m->op[i].name) && t[i].fwd_us >= 0 && t[i].bwd_us >= 0)
			continue;
		(void)err_set(e, ERR_INVALID, "the profile's layer %zu is \"%.60s\"%s, and the model's \"%s\": measure this "
			"model", i, name ? name : "", name && !strcmp(name, m->op[i].name) ? " without times from 0 to 1e12 us" :
			"", m->op[i].name);
		free(t);
		return NULL;
	}
	return t;
}

static void op_profile(struct profile_op *p, const struct profile_source *from, int i, uint32_t batch)
{
	const struct model *m = from->model;
	const struct layer *l = &m->op[i];
	struct profile_variant *v = &p->variant[0];
	double macs = (double)model_macs(m, i, i + 1) * batch;
	struct model_need need;

	model_need(m, i, i + 1, batch, from->parts, &need);
	(void)snprintf(p->name, sizeof(p->name), "%.47s", l->name);
	p->out_bytes = batch * shape_count(&l->out) * sizeof(real);
	p->saved_bytes = need.saved;
	p->param_bytes = model_param_count(m, i, i + 1) * sizeof(real);
	p->param_lo = m->offset[i];
	p->shares = m->node[i].owner == i ? 0 : (uint32_t)m->node[i].owner + 1;
	p->flows = (uint32_t)model_cut_values(m, i);
	p->goes_on = model_runs_in(m, 0, m->nops, i) != i;
	p->nvariants = 1;
	v->fwd_us = from->times ? (uint64_t)(from->times[i].fwd_us * batch + 0.5) : attr_us(l, "fwd_ms");
	v->bwd_us = from->times ? (uint64_t)(from->times[i].bwd_us * batch + 0.5) : attr_us(l, "bwd_ms");
	if (!from->times && from->macs_per_us > 0) {
		v->fwd_us += (uint64_t)(macs / from->macs_per_us + 0.5);
		v->bwd_us += (uint64_t)(2 * macs / from->macs_per_us + 0.5);
	}
	v->work_bytes = need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd;
	for (int k = 0; k < m->node[i].nin && p->npreds < PROFILE_PREDS; k++)
		if (m->node[i].from[k] > 0)
			p->pred[p->npreds++] = (uint32_t)m->node[i].from[k] - 1;
}

/* Several lanes may plan with one profile: whoever finds another one here does without what was asked before. */
static bool known(struct profile_source *from, struct profile_asked *k)
{
	const struct profile_asked *slot = &from->asked[k->a % PROFILE_ASKED];
	bool same;

	if (atomic_flag_test_and_set(&from->asking))
		return false;
	same = slot->batch == k->batch && slot->a == k->a && slot->b == k->b;
	if (same)
		k->need = slot->need;
	atomic_flag_clear(&from->asking);
	return same;
}

static void keep(struct profile_source *from, const struct profile_asked *k)
{
	if (atomic_flag_test_and_set(&from->asking))
		return;
	from->asked[k->a % PROFILE_ASKED] = *k;
	atomic_flag_clear(&from->asking);
}

static void need(void *arg, uint32_t batch, uint32_t a, uint32_t b, struct piece_need *ret)
{
	struct profile_source *from = arg;
	struct profile_asked k = { .batch = batch, .a = a, .b = b };
	struct model_need need;

	if (!known(from, &k)) {
		model_need(from->model, (int)a, (int)b + 1, batch, from->parts, &need);
		k.need = (struct piece_need){ need.x, need.y, need.saved, need.work_fwd, need.work_bwd, need.work_eval };
		keep(from, &k);
	}
	*ret = k.need;
}

static void at(void *arg, uint32_t batch, struct profile *ret)
{
	profile_model(ret, arg, batch);
}

void profile_model(struct profile *ret, struct profile_source *from, uint32_t batch)
{
	const struct model *m = from->model;

	*ret = (struct profile){ .batch = batch, .nops = (uint32_t)m->nops, .params = m->nparam,
		.batch_bytes = batch * (from->x_bytes + from->y_bytes), .label_bytes = batch * from->y_bytes,
		.stats_bytes = m->nbuffer * sizeof(real), .need = need, .need_arg = from,
		.at = at };
	ret->op = xcalloc((size_t)m->nops, sizeof(*ret->op));
	for (int i = 0; i < m->nops; i++)
		op_profile(&ret->op[i], from, i, batch);
	for (int k = 0; k < m->nbuffers; k++)
		ret->op[m->buffer[k].op].stats_bytes += m->buffer[k].count * sizeof(real);
}
