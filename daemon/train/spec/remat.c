/* "remat" of the local part: which memory pass (train/memory.h) this machine takes. It changes no bit of what is
 * learned, so every peer chooses its own, and it is in no digest. Whether the model can be cut that way is seen here,
 * on the model itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/memory.h"
#include "train/profile.h"
#include "train/spec/int.h"
#include "train/strategy.h"

static const struct place at = { "local.remat" };

static json_t *names_of(const char *text)
{
	json_t *list = json_array();

	for (size_t n; *text; text += n + (text[n] == ',')) {
		n = strcspn(text, ",");
		(void)json_array_append_new(list, json_stringn(text, n));
	}
	return list;
}

/* "periodic", "periodic:8" (segments), "periodic:3GiB" (memory), "user:conv1,conv2" as an object. New reference. */
static json_t *long_form(const char *text, struct err *e)
{
	const char *colon = strchr(text, ':');
	const struct memory_ops *ops;
	char *end;
	uint64_t bytes;
	unsigned long n;
	struct err why;
	json_t *o;

	if (!colon)
		return json_pack("{s:s}", "policy", text);
	o = json_pack("{s:s%}", "policy", text, (size_t)(colon - text));
	ops = memory_find(json_string_value(json_object_get(o, "policy")));
	n = strtoul(colon + 1, &end, 10);
	if (ops && ops->marks) {
		(void)json_object_set_new(o, "checkpoints", names_of(colon + 1));
	} else if (colon[1] >= '0' && colon[1] <= '9' && !*end) {
		(void)json_object_set_new(o, "segments", json_integer((json_int_t)n));
	} else if (text_size(colon + 1, &bytes, &why) < 0) {
		(void)place_err(&at, e, "\"%.40s\": behind the : stands a number of segments, or a size such as 3GiB", text);
		json_decref(o);
		return NULL;
	} else {
		(void)json_object_set_new(o, "memory", json_string(colon + 1));
	}
	return o;
}

static const char *layer_name(const struct spec *s, uint32_t i, char out[16])
{
	(void)snprintf(out, 16, "%u", i);
	return s->layer[i].name ? s->layer[i].name : out;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static int no_layer(const struct place *p, const struct spec *s, const char *name, struct err *e)
{
	const char *all[SPEC_LAYERS_MAX + 1] = { NULL }, *near;

	for (int n = 0, o = 0; n < s->nlayers; n++)
		if (s->layer[n].name)
			all[o++] = s->layer[n].name;
	near = text_nearest(name, all);
	return place_err(p, e, "the model has no layer \"%.60s\"%s%s%s", name, near ? "; did you mean \"" : "",
		near ? near : "", near ? "\"?" : " (those without a name are numbers, from 0)");
}

static int read_marks(struct spec_remat *r, const struct spec *s, const json_t *v, struct err *e)
{
	const struct place here = place_key(&at, "checkpoints");

	if (!json_is_array(v) || !json_array_size(v))
		return place_err(&here, e, "must be an array of the names of layers, and is %s%s", json_is_array(v) ?
			"an empty" : json_kind(v), json_is_array(v) ? " one" : "");
	for (size_t i = 0; i < json_array_size(v); i++) {
		const struct place p = place_index(&here, i);
		const char *name = json_string_value(json_array_get(v, i));
		uint32_t k = 0;
		char number[16];

		if (!name)
			return place_err(&p, e, "must be the name of a layer, and is %s", json_kind(json_array_get(v, i)));
		while (k < (uint32_t)s->nlayers && strcmp(layer_name(s, k, number), name))
			k++;
		if (k == (uint32_t)s->nlayers)
			return no_layer(&p, s, name, e);
		for (uint32_t n = 0; n < r->nmarks; n++)
			if (r->mark[n] == k)
				return place_err(&p, e, "\"%.60s\" is there twice", name);
		r->mark[r->nmarks++] = k;
	}
	qsort(r->mark, r->nmarks, sizeof(*r->mark), by_number);
	return 0;
}

/* What goes past the mark: who made it. */
static const char *passes_by(const struct model *m, uint32_t mark)
{
	for (int t = 0; t <= (int)mark; t++)
		if (m->tensor[t].last > (int)mark)
			return t ? m->op[t - 1].name : "input";
	return "?";
}

/* The nearest layers of which one could be marked instead; -1: none on that side. */
static int near_mark(const struct profile *p, uint32_t mark, int step)
{
	for (int i = (int)mark + step; i >= 0 && i + 1 < (int)p->nops; i += step)
		if (p->op[i + 1].flows <= 1)
			return i;
	return -1;
}

static int judge_marks(const struct spec_remat *r, const struct model *m, const struct profile *p, struct err *e)
{
	const struct place here = place_key(&at, "checkpoints");

	for (uint32_t k = 0; k < r->nmarks; k++) {
		uint32_t i = r->mark[k];
		int before = near_mark(p, i, -1), behind = near_mark(p, i, 1);

		if (i + 1 == p->nops)
			return place_err(&here, e, "%.40s is the last layer: what it makes leaves the model, and is nothing that "
				"could be kept", p->op[i].name);
		if (p->op[i + 1].flows > 1)
			return place_err(&here, e, "%.40s cannot be one: what %.40s makes goes past it and would be lost; the "
				"nearest that can: %.40s%s%.40s", p->op[i].name, passes_by(m, i),
				before >= 0 ? p->op[before].name : "", before >= 0 && behind >= 0 ? ", " : behind < 0 && before < 0 ?
				"none" : "", behind >= 0 ? p->op[behind].name : "");
	}
	return 0;
}

struct memory_pass spec_memory(const struct spec_local *l)
{
	return (struct memory_pass){ memory_find(l->remat.policy), l->remat.segments, l->remat.nmarks, l->remat.mark };
}

/* Can this model be cut so? */
static int judge(const struct spec_local *l, const struct spec *s, struct err *e)
{
	const struct memory_pass how = spec_memory(l);
	const struct place here = place_key(&at, "segments");
	struct profile_source from = { .parts = 1 };
	struct profile p;
	uint32_t units;
	int rc;

	from.model = spec_model(s, NULL, e);
	if (!from.model)
		return -1;
	profile_model(&p, &from, 1);
	rc = judge_marks(&l->remat, from.model, &p, e);
	units = memory_units(&p, 0, p.nops - 1, &how);
	if (rc == 0 && l->remat.segments > units)
		rc = place_err(&here, e, "%u are asked for, and policy %s can cut this model of %u layers into %u at most",
			l->remat.segments, l->remat.policy, p.nops, units);
	profile_free(&p);
	(void)model_free((struct model *)from.model);
	return rc;
}

static int rules(const struct spec_remat *r, const struct spec *s, bool said, struct err *e)
{
	const struct place here = place_key(&at, "policy");
	const struct memory_ops *ops = memory_find(r->policy);
	char names[100];

	if (!ops)
		return place_unknown(&here, "policy", r->policy, memory_names(names, sizeof(names)), e);
	if (!said)
		return place_err(&here, e, "is missing: one of %s", memory_names(names, sizeof(names)));
	if (ops->marks && !r->nmarks)
		return place_err(&at, e, "policy %s keeps what marked layers make, and none is marked: \"checkpoints\" has "
			"their names, or a layer has \"checkpoint\": true", ops->name);
	if (!ops->marks && r->nmarks)
		return place_err(&at, e, "layers are marked (checkpoints), and that is for policy user; this one is %s",
			ops->name);
	if (!ops->counts && (r->segments || r->memory_bytes))
		return place_err(&at, e, "policy %s has no %s to choose: that is for periodic and boundary", ops->name,
			r->segments ? "segments" : "memory");
	if (r->segments && r->memory_bytes)
		return place_err(&at, e, "segments and memory are two ways to say one thing: give one of them");
	if (strcmp(r->policy, "none") && strategy_find(s->strategy)->crew)
		return place_err(&at, e, "strategy %s and policy %s do not go together where each peer says its own: "
			"plan.remat (none, boundary, auto) is for all members", s->strategy, r->policy);
	return 0;
}

static int read_keys(struct spec_local *l, const struct spec *s, const json_t *o, struct err *e)
{
	static const char *const known[] = { "policy", "segments", "memory", "checkpoints", NULL };
	struct spec_remat *r = &l->remat;
	const json_t *marks = json_object_get(o, "checkpoints");
	int said;

	if (read_object(o, &at, e) < 0 || read_known(o, &at, known, e) < 0)
		return -1;
	if (marks)
		memcpy(r->policy, "user", 5);
	said = read_text(o, &at, "policy", r->policy, sizeof(r->policy), e);
	if (said < 0 || read_u32(o, &at, "segments", 1, SPEC_LAYERS_MAX, &r->segments, e) < 0 ||
	    read_size(o, &at, "memory", &r->memory_bytes, e) < 0 || (marks && read_marks(r, s, marks, e) < 0) ||
	    rules(r, s, said == 0 || marks, e) < 0)
		return -1;
	return strcmp(r->policy, "none") ? judge(l, s, e) : 0;
}

int spec_read_remat(struct spec_local *l, const struct spec *s, const json_t *local, struct err *e)
{
	const json_t *v = json_object_get(local, "remat");
	const char *text = json_string_value(v);
	json_t *o;
	int rc;

	l->remat = (struct spec_remat){ .policy = "none" };
	if (!v)
		return 0;
	o = text ? long_form(text, e) : json_incref((json_t *)v);
	rc = o ? read_keys(l, s, o, e) : -1;
	json_decref(o);
	return rc;
}

json_t *spec_remat_json(const struct spec *s)
{
	const struct spec_remat *r = &s->local.remat;
	json_t *o = json_pack("{s:s}", "policy", r->policy), *list = json_array();
	char number[16];

	if (r->segments)
		(void)json_object_set_new(o, "segments", json_integer(r->segments));
	if (r->memory_bytes)
		(void)json_object_set_new(o, "memory", json_integer((json_int_t)r->memory_bytes));
	for (uint32_t k = 0; k < r->nmarks; k++)
		(void)json_array_append_new(list, json_string(layer_name(s, r->mark[k], number)));
	if (r->nmarks)
		(void)json_object_set(o, "checkpoints", list);
	json_decref(list);
	return o;
}
