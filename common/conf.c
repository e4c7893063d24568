/* Configuration: an INI file read through a table of rows. A load works on a copy and swaps it in when all of it was
 * right; values given on the command line (origin "--...") win over every file, at start and at reload. */
#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/conf.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"

#define FILE_MAX ((size_t)1 << 20)
#define LINE_MAX_ 4096

struct value {
	const struct conf_row *row;
	char *key;                          /* the row's, or the one that a "*" row took */
	char *text, *origin;
	int64_t i;                          /* INT, DURATION, SIZE, BOOL */
	double d;
	char **items;                       /* LIST: one block, pointers then bytes */
	size_t n;
	unsigned line;                      /* of the file being read, 0 = not given in it */
};

struct conf {
	const struct conf_row *rows;
	struct value *v;
	size_t n;
};

static void value_done(struct value *v)
{
	free(v->key);
	free(v->text);
	free(v->origin);
	free(v->items);
}

static void split_list(struct value *v)
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
static int parse_value(struct value *v, struct err *e)
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

static struct value *find(const struct conf *c, const char *section, const char *key)
{
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->v[i].row->section, section) && !strcmp(c->v[i].key, key))
			return &c->v[i];
	return NULL;
}

static void add(struct conf *c, struct value v)
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
		struct value v = { .row = r, .key = xstrdup(r->key), .text = xstrdup(r->def ? r->def : ""),
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

static struct conf *copy_of(const struct conf *c, bool command_line_only)
{
	struct conf *k = conf_new(c->rows);

	for (size_t i = 0; i < c->n; i++) {
		const struct value *v = &c->v[i];

		if (!strcmp(v->origin, "default") || (command_line_only && strncmp(v->origin, "--", 2)))
			continue;
		if (conf_set(k, v->row->section, v->key, v->text, v->origin, NULL))
			abort();                        /* it was accepted before */
	}
	return k;
}

static void swap(struct conf *a, struct conf *b)
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

static int set_value(struct conf *c, const char *section, const char *key, const char *text, const char *origin,
	struct err *e)
{
	const struct conf_row *r = row_of(c, section, key, e);
	struct value v = {0}, *old;

	if (!r)
		return -1;
	if (!text_utf8_ok(text, strlen(text)) || !text_utf8_ok(key, strlen(key)))
		return err_set(e, ERR_INVALID, "not UTF-8 text");
	v = (struct value){ .row = r, .key = xstrdup(key), .text = xstrdup(text), .origin = xstrdup(origin) };
	if (parse_value(&v, e)) {
		value_done(&v);
		return -1;
	}
	old = find(c, section, key);
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
	return set_value(c, section, key, value, origin, e) ? err_wrap(e, "%s: [%s] %s", origin, section, key) : 0;
}

/* libinih asks for lines and hands back pairs; the line number is how many it has asked for. */
struct source {
	struct conf *c;
	const char *name, *p, *end;
	unsigned line;
	struct err *e;
	bool failed;
};

static char *next_line(char *out, int cap, void *arg)
{
	struct source *s = arg;
	const char *nl, *from = s->p;
	size_t n;

	if (s->p == s->end || s->failed)
		return NULL;
	nl = memchr(s->p, '\n', (size_t)(s->end - s->p));
	n = (size_t)((nl ? nl : s->end) - s->p);
	s->line++;
	if (n + 1 >= (size_t)cap || memchr(s->p, 0, n)) {
		err_set(s->e, ERR_INVALID, "%s:%u: %s", s->name, s->line,
			n + 1 >= (size_t)cap ? "line too long: at most 4000 characters" : "a NUL byte: this is not text");
		s->failed = true;
		return NULL;
	}
	s->p += n + (nl != NULL);
	while (n && (*from == ' ' || *from == '\t')) {      /* an indented line is a line, not a continuation */
		from++;
		n--;
	}
	memcpy(out, from, n);
	out[n] = 0;
	return out;
}

static int take_pair(void *arg, const char *section, const char *key, const char *value)
{
	struct source *s = arg;
	struct value *old = find(s->c, section, key);
	char *origin, *joined = NULL;
	int rc;

	if (s->failed)
		return 1;
	if (old && old->line && old->row->type != CONF_LIST) {
		err_set(s->e, ERR_INVALID, "%s:%u: [%s] %s: given twice, first on line %u", s->name, s->line, section, key,
			old->line);
		s->failed = true;
		return 0;
	}
	if (old && !strncmp(old->origin, "--", 2))
		return 1;
	if (old && old->line)                           /* a list may be given in several lines */
		value = joined = xasprintf("%s, %s", old->text, value);
	origin = xasprintf("%s:%u", s->name, s->line);
	rc = set_value(s->c, section, key, value, origin, s->e);
	if (rc) {
		err_wrap(s->e, "%s: [%s] %s", origin, section, key);
		s->failed = true;
	} else {
		find(s->c, section, key)->line = s->line;
	}
	free(origin);
	free(joined);
	return !rc;
}

int conf_load_text(struct conf *c, const char *name, const char *text, size_t n, struct err *e)
{
	struct conf *k = copy_of(c, false);
	struct source s = { k, name, text, text + n, 0, e, false };
	int bad;

	/* Debian's libinih reads its limits from these; a path may be longer than its 200 bytes. Always the same values. */
	ini_use_stack = false;
	ini_max_line = LINE_MAX_;
	ini_initial_alloc = LINE_MAX_;
	bad = ini_parse_stream(next_line, &s, take_pair, &s);
	if (bad < 0)
		err_set(e, ERR_NOMEM, "%s: out of memory", name);
	else if (bad > 0 && (!s.failed || (unsigned)bad < s.line))
		err_set(e, ERR_INVALID, "%s:%d: neither [section] nor key = value nor a comment (# or ;)", name, bad);
	if (bad || s.failed) {
		conf_free(k);
		return -1;
	}
	for (size_t i = 0; i < k->n; i++)
		k->v[i].line = 0;
	swap(c, k);
	conf_free(k);
	return 0;
}

static char *read_file(const char *path, size_t *ret_n, struct err *e)
{
	FILE *f = fopen(path, "re");
	char *text;
	size_t n;

	if (!f) {
		err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
		return NULL;
	}
	text = xmalloc(FILE_MAX + 1);
	n = fread(text, 1, FILE_MAX + 1, f);
	if (ferror(f) || n > FILE_MAX) {
		err_set(e, n > FILE_MAX ? ERR_LIMIT : ERR_IO, "%s: %s", path,
			n > FILE_MAX ? "larger than 1 MiB: this is no configuration file" : strerror(errno));
		free(text);
		text = NULL;
	}
	fclose(f);
	*ret_n = n;
	return text;
}

int conf_load(struct conf *c, const char *path, struct err *e)
{
	size_t n;
	char *text = read_file(path, &n, e);
	int rc;

	if (!text)
		return -1;
	rc = conf_load_text(c, path, text, n, e);
	free(text);
	return rc;
}

static bool differs(const struct value *a, const struct value *b)
{
	return !a || !b || strcmp(a->text, b->text);
}

/* Adds the keys of a that b lacks or has with another text; once is enough for those that both have. */
static void changed_keys(const struct conf *a, const struct conf *b, bool only_missing, json_t *ret, struct buf *ret_fixed)
{
	for (size_t i = 0; i < a->n; i++) {
		const struct value *v = &a->v[i], *w = find(b, v->row->section, v->key);
		char *name;

		if (only_missing ? w != NULL : !differs(v, w))
			continue;
		name = xasprintf("%s.%s", v->row->section, v->key);
		json_array_append_new(ret, json_text(name));
		if (!v->row->reload)
			buf_printf(ret_fixed, "%s[%s] %s", ret_fixed->len ? ", " : "", v->row->section, v->key);
		free(name);
	}
}

int conf_reload(struct conf *c, const char *path, json_t **ret_changed, struct err *e)
{
	struct conf *k = copy_of(c, true);
	json_t *changed = json_array();
	struct buf fixed = {0};
	int rc = conf_load(k, path, e);

	if (!rc) {
		changed_keys(k, c, false, changed, &fixed);
		changed_keys(c, k, true, changed, &fixed);
		if (fixed.len)
			rc = err_set(e, ERR_STATE, "%s: %s: cannot change while the daemon runs; restart it, or undo the change",
				path, (const char *)fixed.p);
	}
	if (!rc)
		swap(c, k);
	if (!rc && ret_changed)
		*ret_changed = json_incref(changed);
	json_decref(changed);
	buf_free(&fixed);
	conf_free(k);
	return rc;
}

static const struct value *known(const struct conf *c, const char *section, const char *key)
{
	const struct value *v = find(c, section, key);

	assert(v);
	return v;
}

const char *conf_str(const struct conf *c, const char *section, const char *key)
{
	return known(c, section, key)->text;
}

int64_t conf_int(const struct conf *c, const char *section, const char *key)
{
	const struct value *v = known(c, section, key);

	assert(v->row->type == CONF_INT || v->row->type == CONF_DURATION || v->row->type == CONF_SIZE);
	return v->i;
}

double conf_double(const struct conf *c, const char *section, const char *key)
{
	return known(c, section, key)->d;
}

bool conf_bool(const struct conf *c, const char *section, const char *key)
{
	const struct value *v = known(c, section, key);

	assert(v->row->type == CONF_BOOL);
	return v->i;
}

size_t conf_list(const struct conf *c, const char *section, const char *key, const char *const **ret)
{
	const struct value *v = known(c, section, key);

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
		const struct value *v = &c->v[k];

		if (strcmp(v->row->section, section) || !wild(v->row) || i--)
			continue;
		if (ret_value)
			*ret_value = v->text;
		return v->key;
	}
	return NULL;
}

static json_t *typed(const struct value *v)
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
		const struct value *v = &c->v[i];
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
