/* Expands entries of the model zoo: their parameters, then their elements one after the other into layers. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/spec/spec.h"
#include "train/spec/int.h"
#include "train/zoo.h"

#define NAMES_MAX 64
#define TURNS_MAX 4096
#define BASES_MAX 4

static const struct zoo_entry *find(const char *name)
{
	for (const struct zoo_entry *z = zoo_entries; z->name; z++)
		if (!strcmp(z->name, name))
			return z;
	return NULL;
}

struct expand {
	json_t *vars, *marks, *out;
	char last[64];                  /* name of the layer before; "input" before the first */
	struct err *e;
};

static int items(struct expand *x, const json_t *list);

static int number_of(struct expand *x, const json_t *v, double *ret)
{
	const char *text = json_string_value(v);
	json_t *got = text ? zoo_value(text + (*text == '='), x->vars, x->e) : json_incref((json_t *)v);
	int rc = 0;

	if (!got)
		return -1;
	if (!json_is_number(got) && !json_is_boolean(got))
		rc = err_set(x->e, ERR_INVALID, "\"%.80s\" is no number", text ? text : json_kind(v));
	*ret = json_is_boolean(got) ? json_is_true(got) : json_number_value(got);
	json_decref(got);
	return rc;
}

/* "layer{s+1}.{b}.conv1", "Mixed_5{letter[b]}.conv": numbers and texts. */
static int fill(struct expand *x, const char *text, char *ret, size_t cap)
{
	size_t at = 0;

	while (*text && at + 1 < cap) {
		char inner[64];
		size_t n = strcspn(text + 1, "}");
		double v;

		if (*text != '{') {
			ret[at++] = *text++;
			continue;
		}
		(void)snprintf(inner, sizeof(inner), "%.*s", (int)n, text + 1);
		json_t *j = zoo_value(inner, x->vars, x->e);
		int rc = j && (json_is_string(j) || number_of(x, j, &v) == 0) ? 0 : -1;

		if (rc == 0 && json_is_string(j))
			at += (size_t)snprintf(ret + at, cap - at, "%s", json_string_value(j));
		else if (rc == 0)
			at += (size_t)snprintf(ret + at, cap - at, "%.17g", v);
		json_decref(j);
		if (rc < 0)
			return -1;
		text += n + 1 + (text[n + 1] == '}');
	}
	if (at >= cap)
		at = cap - 1;
	ret[at] = 0;
	return 0;
}

/* One value of a layer: an expression, or a text with names in braces. New reference. */
static json_t *value(struct expand *x, const json_t *v)
{
	const char *text = json_string_value(v);
	char full[160];

	if (!text)
		return json_deep_copy(v);
	if (*text == '=')
		return zoo_value(text + 1, x->vars, x->e);
	return fill(x, text, full, sizeof(full)) < 0 ? NULL : json_string(full);
}

static json_t *inputs(struct expand *x, const json_t *list)
{
	json_t *out = json_array(), *v;
	size_t i;

	json_array_foreach((json_t *)list, i, v) {
		char name[160];
		json_t *mark;

		if (fill(x, json_string_value(v) ? json_string_value(v) : "", name, sizeof(name)) < 0) {
			json_decref(out);
			return NULL;
		}
		mark = json_object_get(x->marks, name);
		(void)json_array_append_new(out, mark ? json_incref(mark) : json_string(name));
	}
	return out;
}

static int layer(struct expand *x, const json_t *item)
{
	json_t *out = json_object(), *v;
	const char *key, *name;

	if (json_array_size(x->out) >= SPEC_LAYERS_MAX) {
		json_decref(out);
		return err_set(x->e, ERR_LIMIT, "it would have more than %d layers", SPEC_LAYERS_MAX);
	}
	json_object_foreach((json_t *)item, key, v) {
		json_t *got = !strcmp(key, "inputs") ? inputs(x, v) : value(x, v);

		if (!got) {
			json_decref(out);
			return -1;
		}
		(void)json_object_set_new(out, key, got);
	}
	name = json_string_value(json_object_get(out, "name"));
	if (name)
		(void)snprintf(x->last, sizeof(x->last), "%s", name);
	else
		(void)snprintf(x->last, sizeof(x->last), "%zu", json_array_size(x->out));
	(void)json_array_append_new(x->out, out);
	return 0;
}

static int loop(struct expand *x, const json_t *item)
{
	const char *var = json_string_value(json_object_get(item, "for"));
	double n;

	if (number_of(x, json_object_get(item, "count"), &n) < 0)
		return -1;
	if (!(n >= 0 && n <= TURNS_MAX))
		return err_set(x->e, ERR_LIMIT, "%g repetitions: 0 to %d are allowed", n, TURNS_MAX);
	for (int i = 0; i < (int)n; i++) {
		(void)json_object_set_new(x->vars, var, json_integer(i));
		if (items(x, json_object_get(item, "do")) < 0)
			return -1;
	}
	return 0;
}

static int item_of(struct expand *x, const json_t *item)
{
	const json_t *let = json_object_get(item, "let");
	const char *key, *mark = json_string_value(json_object_get(item, "mark"));
	json_t *v;
	double yes;

	if (json_object_get(item, "for"))
		return loop(x, item);
	if (json_object_get(item, "if")) {
		if (number_of(x, json_object_get(item, "if"), &yes) < 0)
			return -1;
		return items(x, json_object_get(item, yes != 0 ? "then" : "else"));
	}
	json_object_foreach((json_t *)let, key, v) {
		json_t *got = value(x, v);

		if (!got)
			return -1;
		(void)json_object_set_new(x->vars, key, got);
	}
	if (mark)
		(void)json_object_set_new(x->marks, mark, json_string(x->last));
	return let || mark ? 0 : layer(x, item);
}

static int items(struct expand *x, const json_t *list)
{
	json_t *item;
	size_t i;

	json_array_foreach((json_t *)list, i, item)
		if (item_of(x, item) < 0)
			return -1;
	return 0;
}

/* --- parameters */

static int unknown(const char *name, const json_t *vars, const char *key, struct err *e)
{
	const char *names[NAMES_MAX + 1], *k, *near;
	char all[200] = "";
	json_t *v;
	int n = 0;

	json_object_foreach((json_t *)vars, k, v)
		if (n < NAMES_MAX) {
			(void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", n ? " " : "", k);
			names[n++] = k;
		}
	names[n] = NULL;
	near = text_nearest(key, names);
	if (near)
		return err_set(e, ERR_INVALID, "model %s has no parameter \"%.40s\"; did you mean \"%s\"?", name, key, near);
	return err_set(e, ERR_INVALID, "model %s has no parameter \"%.40s\"; it has: %s", name, key, all);
}

static int chosen(const char *name, const char *key, const json_t *v, const json_t *choices, struct err *e)
{
	char all[160] = "";
	json_t *c;
	size_t i;

	json_array_foreach((json_t *)choices, i, c) {
		if (json_equal(c, v))
			return 0;
		(void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "", json_string_value(c));
	}
	return choices ? err_set(e, ERR_INVALID, "model %s: %s must be one of: %s", name, key, all) : 0;
}

static bool kinds_differ(const json_t *a, const json_t *b)
{
	bool list = json_is_array(a) && json_is_array(b);
	json_t *v;
	size_t i;

	json_array_foreach((json_t *)b, i, v)
		list = list && json_is_number(v);
	return !list && (json_is_string(a) != json_is_string(b) || json_is_array(a) || json_is_array(b) ||
		json_is_object(b) || json_is_null(b));
}

/* Takes what is given over the defaults. */
static int given_take(const char *name, json_t *vars, const json_t *choices, const json_t *given, struct err *e)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)given, key, v) {
		json_t *def = json_object_get(vars, key);

		if (!strcmp(key, "zoo"))
			continue;
		if (!def)
			return unknown(name, vars, key, e);
		if (kinds_differ(def, v))
			return err_set(e, ERR_INVALID, "model %s: %s must be %s, and is %s", name, key, json_kind(def),
				json_kind(v));
		if (chosen(name, key, v, json_object_get(choices, key), e) < 0)
			return -1;
		(void)json_object_set(vars, key, v);
	}
	return 0;
}

/* The file of an entry with its base's parts under its own defaults. New reference. */
static json_t *entry_read(const char *name, int depth, struct err *e)
{
	const struct zoo_entry *z = find(name);
	json_error_t why;
	json_t *own, *base;
	const char *from;

	if (!z || depth > BASES_MAX) {
		const char *names[NAMES_MAX + 1] = { NULL }, *near;
		char all[200] = "";
		int n = 0;

		for (z = zoo_entries; z->name && n < NAMES_MAX; z++) {
			(void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", n ? " " : "", z->name);
			names[n++] = z->name;
		}
		near = text_nearest(name, names);
		(void)(near ? err_set(e, ERR_NOT_FOUND, "unknown model \"%.40s\"; did you mean \"%s\"?", name, near) :
			err_set(e, ERR_NOT_FOUND, "unknown model \"%.40s\"; known: %s", name, all));
		return NULL;
	}
	own = json_loads(z->text, 0, &why);
	if (!own) {
		(void)err_set(e, ERR_INTERNAL, "zoo %s: line %d: %s", name, why.line, why.text);
		return NULL;
	}
	from = json_string_value(json_object_get(own, "base"));
	base = from ? entry_read(from, depth + 1, e) : NULL;
	if (!from)
		return own;
	if (base) {
		(void)json_object_update(json_object_get(base, "parameters"), json_object_get(own, "parameters"));
		(void)json_object_set(base, "help", json_object_get(own, "help"));
	}
	json_decref(own);
	return base;
}

json_t *zoo_entry_json(const char *name, struct err *e)
{
	return entry_read(name, 0, e);
}

int zoo_expand(const char *name, const json_t *given, json_t **ret_input, json_t **ret_model, struct err *e)
{
	json_t *entry = entry_read(name, 0, e), *v;
	struct expand x = { .last = "input", .e = e };
	int rc;
	size_t i;

	if (!entry)
		return -1;
	x.vars = json_deep_copy(json_object_get(entry, "parameters"));
	x.marks = json_object();
	x.out = json_array();
	*ret_input = json_array();
	rc = given_take(name, x.vars, json_object_get(entry, "choices"), given, e);
	if (rc == 0 && items(&x, json_object_get(entry, "model")) < 0)
		rc = err_wrap(e, "model %s", name);
	json_array_foreach(json_object_get(entry, "input"), i, v) {
		json_t *got = rc < 0 ? NULL : value(&x, v);

		if (rc == 0 && !got)
			rc = err_wrap(e, "model %s: input", name);
		else if (got)
			(void)json_array_append_new(*ret_input, got);
	}
	json_decref(x.vars);
	json_decref(x.marks);
	json_decref(entry);
	*ret_model = x.out;
	if (rc < 0) {
		json_decref(*ret_input);
		json_decref(*ret_model);
		*ret_input = *ret_model = NULL;
	}
	return rc;
}

int zoo_resolve(json_t *shared, struct err *e)
{
	json_t *m = json_object_get(shared, "model"), *input, *model;
	const char *name = json_is_object(m) ? json_string_value(json_object_get(m, "zoo")) : json_string_value(m);

	if (json_is_object(m) && !name)
		return err_set(e, ERR_INVALID, "model: must be an array of layers, the name of a model, or an object whose "
			"\"zoo\" is that name");
	if (!name)
		return 0;
	if (zoo_expand(name, json_is_object(m) ? m : NULL, &input, &model, e) < 0)
		return -1;
	(void)json_object_set_new(shared, "model", model);
	if (!json_object_get(shared, "input"))
		(void)json_object_set(shared, "input", input);
	json_decref(input);
	return 0;
}
