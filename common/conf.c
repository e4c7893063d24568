/* Configuration: the table of rows, the typed values, and the questions asked of them; conf_file.c reads files. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/conf_int.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"

static void value_done(struct conf_value *v)
{
	free(v->key);
	free(v->text);
	free(v->origin);
	free(v->items);
}

static void split_list(struct conf_value *v)
{
	static const char gaps[] = ", \t";
	size_t len = strlen(v->text), max = len / 2 + 1;
	char *bytes;

	v->items = xmalloc((max + 1) * sizeof *v->items + len + 1);
	bytes = memcpy((char *)(v->items + max + 1), v->text, len + 1);
	v->n = 0;
	for (char *p = bytes + strspn(bytes, gaps); *p; p += strspn(p, gaps)) {
		v->items[v->n++] = p;
		p += strcspn(p, gaps);
		if (*p)
			*p++ = 0;
	}
	v->items[v->n] = NULL;
}

static int out_of_range(const struct conf_row *r, const char *text, struct err *e)
{
	char lo[40], hi[40];

	if (r->type == CONF_DURATION) {
		text_print_duration((uint64_t)r->min, lo, sizeof lo);
		text_print_duration((uint64_t)r->max, hi, sizeof hi);
	} else if (r->type == CONF_SIZE) {
		text_print_size((uint64_t)r->min, lo, sizeof lo);
		text_print_size((uint64_t)r->max, hi, sizeof hi);
	} else {
		snprintf(lo, sizeof lo, "%.10g", r->min);
		snprintf(hi, sizeof hi, "%.10g", r->max);
	}
	return err_set(e, ERR_INVALID, "%.60s is out of range: %s to %s", text, lo, hi);
}

static int parse_int(const char *s, int64_t *ret, struct err *e)
{
	uint64_t u;

	if (text_u64(*s == '-' ? s + 1 : s, &u, NULL) || u > INT64_MAX)
		return err_set(e, ERR_INVALID, "\"%.40s\" is not a whole number", s);
	*ret = *s == '-' ? -(int64_t)u : (int64_t)u;
	return 0;
}

/* Fills v's typed fields from v->text. */
static int parse_value(struct conf_value *v, struct err *e)
{
	const struct conf_row *r = v->row;
	uint64_t u = 0;
	bool b = false;
	int rc = 0;

	v->i = 0;
	v->d = 0;
	if (r->type == CONF_INT) {
		rc = parse_int(v->text, &v->i, e);
		v->d = (double)v->i;
	} else if (r->type == CONF_DURATION || r->type == CONF_SIZE) {
		rc = r->type == CONF_SIZE ? text_size(v->text, &u, e) : text_duration(v->text, &u, e);
		v->i = (int64_t)u;
		v->d = (double)u;
	} else if (r->type == CONF_DOUBLE) {
		rc = text_double(v->text, &v->d, e);
	} else if (r->type == CONF_BOOL) {
		rc = text_bool(v->text, &b, e);
		v->i = b;
	} else if (r->type == CONF_LIST) {
		split_list(v);
	}
	if (!rc && r->type != CONF_STR && r->type != CONF_BOOL && r->type != CONF_LIST && r->min < r->max &&
	    (v->d < r->min || v->d > r->max))
		return out_of_range(r, v->text, e);
	return rc;
}

static bool wild(const struct conf_row *r)
{
	return !strcmp(r->key, "*");
}

struct conf_value *conf_find(const struct conf *c, const char *section, const char *key)
{
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->v[i].row->section, section) && !strcmp(c->v[i].key, key))
			return &c->v[i];
	return NULL;
}

static void add(struct conf *c, struct conf_value v)
{
	c->v = xrealloc(c->v, (c->n + 1) * sizeof *c->v);
	c->v[c->n++] = v;
}

struct conf *conf_new(const struct conf_row *rows)
{
	struct conf *c = xcalloc(1, sizeof *c);
	struct err e;

	c->rows = rows;
	for (const struct conf_row *r = rows; r->section; r++) {
		struct conf_value v = { .row = r, .key = xstrdup(r->key), .text = xstrdup(r->def ? r->def : ""),
			.origin = xstrdup("default") };

		if (wild(r) || parse_value(&v, &e)) {
			assert(wild(r));                /* a default that its own row refuses */
			value_done(&v);
			continue;
		}
		add(c, v);
	}
	return c;
}

void conf_free(struct conf *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		value_done(&c->v[i]);
	free(c->v);
	free(c);
}

struct conf *conf_copy(const struct conf *c, bool command_line_only)
{
	struct conf *k = conf_new(c->rows);

	for (size_t i = 0; i < c->n; i++) {
		const struct conf_value *v = &c->v[i];

		if (!strcmp(v->origin, "default") || (command_line_only && strncmp(v->origin, "--", 2)))
			continue;
		if (conf_set(k, v->row->section, v->key, v->text, v->origin, NULL))
			abort();                        /* it was accepted before */
	}
	return k;
}

void conf_swap(struct conf *a, struct conf *b)
{
	struct conf t = *a;

	*a = *b;
	*b = t;
}

/* The row that takes [section] key, or NULL with the error filled. */
static const struct conf_row *row_of(const struct conf *c, const char *section, const char *key, struct err *e)
{
	const char *names[256], *near;
	size_t n = 0;
	bool known = false;

	for (const struct conf_row *r = c->rows; r->section; r++) {
		if (strcmp(r->section, section))
			continue;
		known = true;
		if (wild(r) || !strcmp(r->key, key))
			return r;
		if (n < 255)
			names[n++] = r->key;
	}
	for (const struct conf_row *r = c->rows; !known && r->section; r++)
		if (n < 255)
			names[n++] = r->section;
	names[n] = NULL;
	if (!*section) {
		err_set(e, ERR_INVALID, "stands before the first [section]");
		return NULL;
	}
	near = text_nearest(known ? key : section, names);
	err_set(e, ERR_INVALID, "unknown %s%s%s%s", known ? "key" : "section", near ? ": did you mean \"" : "",
		near ? near : "", near ? "\"?" : "");
	return NULL;
}

int conf_put(struct conf *c, const char *section, const char *key, const char *text, const char *origin,
	struct err *e)
{
	const struct conf_row *r = row_of(c, section, key, e);
	struct conf_value v = {0}, *old;

	if (!r)
		return -1;
	if (!text_utf8_ok(text, strlen(text)) || !text_utf8_ok(key, strlen(key)))
		return err_set(e, ERR_INVALID, "not UTF-8 text");
	v = (struct conf_value){ .row = r, .key = xstrdup(key), .text = xstrdup(text), .origin = xstrdup(origin) };
	if (parse_value(&v, e)) {
		value_done(&v);
		return -1;
	}
	old = conf_find(c, section, key);
	if (old) {
		v.line = old->line;
		value_done(old);
		*old = v;
	} else {
		add(c, v);
	}
	return 0;
}

int conf_set(struct conf *c, const char *section, const char *key, const char *value, const char *origin, struct err *e)
{
	return conf_put(c, section, key, value, origin, e) ? err_wrap(e, "%s: [%s] %s", origin, section, key) : 0;
}
static const struct conf_value *known(const struct conf *c, const char *section, const char *key)
{
	const struct conf_value *v = conf_find(c, section, key);

	assert(v);
	return v;
}

const char *conf_str(const struct conf *c, const char *section, const char *key)
{
	return known(c, section, key)->text;
}

int64_t conf_int(const struct conf *c, const char *section, const char *key)
{
	const struct conf_value *v = known(c, section, key);

	assert(v->row->type == CONF_INT || v->row->type == CONF_DURATION || v->row->type == CONF_SIZE);
	return v->i;
}

double conf_double(const struct conf *c, const char *section, const char *key)
{
	return known(c, section, key)->d;
}

bool conf_bool(const struct conf *c, const char *section, const char *key)
{
	const struct conf_value *v = known(c, section, key);

	assert(v->row->type == CONF_BOOL);
	return v->i;
}

size_t conf_list(const struct conf *c, const char *section, const char *key, const char *const **ret)
{
	const struct conf_value *v = known(c, section, key);

	assert(v->row->type == CONF_LIST);
	*ret = (const char *const *)v->items;
	return v->n;
}

const char *conf_origin(const struct conf *c, const char *section, const char *key)
{
	return known(c, section, key)->origin;
}

const char *conf_each(const struct conf *c, const char *section, size_t i, const char **ret_value)
{
	for (size_t k = 0; k < c->n; k++) {
		const struct conf_value *v = &c->v[k];

		if (strcmp(v->row->section, section) || !wild(v->row) || i--)
			continue;
		if (ret_value)
			*ret_value = v->text;
		return v->key;
	}
	return NULL;
}

static json_t *typed(const struct conf_value *v)
{
	json_t *list;

	switch (v->row->type) {
	case CONF_INT: case CONF_DURATION: case CONF_SIZE:
		return json_integer(v->i);
	case CONF_DOUBLE:
		return json_real(v->d);
	case CONF_BOOL:
		return json_boolean(v->i);
	case CONF_LIST:
		list = json_array();
		for (size_t i = 0; i < v->n; i++)
			json_array_append_new(list, json_string(v->items[i]));
		return list;
	default:
		return json_string(v->text);
	}
}

json_t *conf_json(const struct conf *c)
{
	json_t *all = json_object();

	for (size_t i = 0; i < c->n; i++) {
		const struct conf_value *v = &c->v[i];
		json_t *section = json_object_get(all, v->row->section);

		if (!section) {
			section = json_object();
			json_object_set_new(all, v->row->section, section);
		}
		json_object_set_new(section, v->key, json_pack("{s:o, s:s, s:o, s:s, s:s, s:b}", "value", typed(v),
			"text", v->text, "origin", json_text(v->origin), "default", v->row->def ? v->row->def : "",
			"help", v->row->help ? v->row->help : "", "reload", (int)v->row->reload));
	}
	return all;
}
