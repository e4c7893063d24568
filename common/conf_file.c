/* Reading configuration files: a load works on a copy and swaps it in when all of it was right; values given on the
 * command line (origin "--...") win over every file, at start and at reload. */
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/conf_int.h"
#include "common/jrpc.h"
#include "common/mem.h"

#define FILE_MAX ((size_t)1 << 20)
#define LINE_MAX_ 4096

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
	struct conf_value *old = conf_find(s->c, section, key);
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
	rc = conf_put(s->c, section, key, value, origin, s->e);
	if (rc) {
		err_wrap(s->e, "%s: [%s] %s", origin, section, key);
		s->failed = true;
	} else {
		conf_find(s->c, section, key)->line = s->line;
	}
	free(origin);
	free(joined);
	return !rc;
}

int conf_load_text(struct conf *c, const char *name, const char *text, size_t n, struct err *e)
{
	struct conf *k = conf_copy(c, false);
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
	conf_swap(c, k);
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

static bool differs(const struct conf_value *a, const struct conf_value *b)
{
	return !a || !b || strcmp(a->text, b->text);
}

/* Adds the keys of a that b lacks or has with another text; once is enough for those that both have. */
static void changed_keys(const struct conf *a, const struct conf *b, bool only_missing, json_t *ret,
	struct buf *ret_fixed)
{
	for (size_t i = 0; i < a->n; i++) {
		const struct conf_value *v = &a->v[i], *w = conf_find(b, v->row->section, v->key);
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
	struct conf *k = conf_copy(c, true);
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
		conf_swap(c, k);
	if (!rc && ret_changed)
		*ret_changed = json_incref(changed);
	json_decref(changed);
	buf_free(&fixed);
	conf_free(k);
	return rc;
}
