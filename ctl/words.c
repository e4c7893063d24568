/* Parses words by a row of the command table: positions, --options, key=value pairs, files. */
#include "words.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static bool flag(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

static const json_t *row_named(const json_t *table, const char *name)
{
	size_t i;
	json_t *row;

	json_array_foreach((json_t *)table, i, row)
		if (strcmp(text_of(row, "name"), name) == 0)
			return row;
	return NULL;
}

/* The commands that begin with this noun, " a, b, c" into out; false when there are none. */
static bool verbs_of(const json_t *table, const char *noun, char *out, size_t cap)
{
	size_t i, at = 0, n = strlen(noun);
	json_t *row;

	out[0] = '\0';
	json_array_foreach((json_t *)table, i, row) {
		const char *name = text_of(row, "name");

		if (strncmp(name, noun, n) == 0 && name[n] == ' ' && at < cap)
			at += (size_t)snprintf(out + at, cap - at, "%s%s", at ? ", " : "", name + n + 1);
	}
	return at > 0;
}

static const char *nearest(const json_t *table, const char *word)
{
	const char **names = xcalloc(json_array_size(table) + 1, sizeof *names), *best;
	size_t i;
	json_t *row;

	json_array_foreach((json_t *)table, i, row)
		names[i] = text_of(row, "name");
	best = text_nearest(word, names);
	free(names);
	return best;
}

const json_t *words_command(const json_t *table, const char *const *w, size_t n, size_t *ret_used, struct err *e)
{
	char two[128], verbs[256];
	const json_t *row;
	const char *near;

	*ret_used = 1;
	if (n == 0)
		return row_named(table, "status");
	snprintf(two, sizeof two, "%s %s", w[0], n > 1 ? w[1] : "");
	if (n > 1 && (row = row_named(table, two))) {
		*ret_used = 2;
		return row;
	}
	if ((row = row_named(table, w[0])))
		return row;
	near = n > 1 ? nearest(table, two) : NULL;
	if (!near && !verbs_of(table, w[0], verbs, sizeof verbs))
		near = nearest(table, w[0]);
	if (near)
		err_set(e, ERR_INVALID, "there is no command \"%.60s\"; did you mean \"%s\"?", verbs_of(table, w[0], verbs,
			sizeof verbs) ?
			two : w[0], near);
	else if (verbs_of(table, w[0], verbs, sizeof verbs))
		err_set(e, ERR_INVALID, "%s needs one of: %s", w[0], verbs);
	else
		err_set(e, ERR_INVALID, "there is no command \"%.60s\"; see hivectl help", w[0]);
	return NULL;
}

/* --- one value */

static json_t *file_json(const char *path, struct err *e)
{
	bool in = strcmp(path, "-") == 0;
	FILE *f = in ? stdin : fopen(path, "re");
	struct buf b = { 0 };
	size_t k = 1;
	json_t *j;

	if (!f) {
		err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
		return NULL;
	}
	while (k > 0 && b.len <= JSON_FILE.bytes) {
		k = fread(buf_grow(&b, 65536), 1, 65536, f);
		b.len -= 65536 - k;
	}
	if (!in)
		fclose(f);
	j = json_read(b.p ? (const char *)b.p : "", b.len, JSON_FILE, e);
	buf_free(&b);
	if (!j)
		err_wrap(e, "%s", path);
	else if (!json_is_object(j)) {
		err_set(e, ERR_INVALID, "%s: expected a JSON object", path);
		json_decref(j);
		j = NULL;
	}
	return j;
}

/* What was typed, and nothing else. */
static json_t *word_json(const char *word, struct err *e)
{
	json_t *j = json_string(word);

	if (!j)
		err_set(e, ERR_INVALID, "not UTF-8: \"%.60s\"", word);
	return j;
}

/* What looks like a file is one; else it is a name. */
static json_t *file_or_word(const char *word, struct err *e)
{
	size_t n = strlen(word);
	struct stat st;
	bool file = strcmp(word, "-") == 0 || strchr(word, '/') || (n > 5 && strcmp(word + n - 5, ".json") == 0) ||
		(stat(word, &st) == 0 && S_ISREG(st.st_mode));

	return file ? file_json(word, e) : word_json(word, e);
}

static json_t *any_json(const char *word, struct err *e)
{
	json_t *j = json_loads(word, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);

	return j ? j : word_json(word, e);
}

static json_t *convert(const char *type, const char *word, struct err *e)
{
	uint64_t us;
	double d;
	char *end;
	bool yes;
	long long i;

	if (strcmp(type, "string") == 0)
		return word_json(word, e);
	if (strcmp(type, "json") == 0)
		return any_json(word, e);
	if (strcmp(type, "file") == 0)
		return file_json(word, e);
	if (strcmp(type, "spec") == 0)
		return file_or_word(word, e);
	if (strcmp(type, "duration") == 0)
		return text_duration(word, &us, e) == 0 ? json_real((double)us / 1e6) : NULL;
	if (strcmp(type, "boolean") == 0)
		return text_bool(word, &yes, e) == 0 ? json_boolean(yes) : NULL;
	if (strcmp(type, "number") == 0)
		return text_double(word, &d, e) == 0 ? json_real(d) : NULL;
	errno = 0;
	i = strtoll(word, &end, 10);
	if (errno == 0 && end != word && *end == '\0')
		return json_integer(i);
	err_set(e, ERR_INVALID, "expected an integer, found \"%.60s\"", word);
	return NULL;
}

/* --- all words */

static bool same_name(const char *word, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (name[i] == '\0' || !(word[i] == name[i] || (word[i] == '-' && name[i] == '_')))
			return false;
	return name[n] == '\0';
}

/* --lines, --dry-run, or the one option that begins with the letter of -n. */
static const json_t *option_row(const json_t *params, const char *word, size_t n)
{
	const json_t *found = NULL;
	size_t i;
	json_t *p;

	json_array_foreach((json_t *)params, i, p) {
		const char *name = text_of(p, "name");

		if (word[1] == '-' ? same_name(word + 2, n - 2, name) : n == 2 && flag(p, "option") && name[0] == word[1]) {
			if (found && word[1] != '-')
				return NULL;
			found = p;
		}
	}
	return found;
}

static int unknown_option(const json_t *cmd, const char *word, struct err *e)
{
	const json_t *params = json_object_get(cmd, "params");
	const char *names[32], *near;
	char flat[64];
	size_t i, n = 0;
	json_t *p;

	json_array_foreach((json_t *)params, i, p)
		if (n < 31)
			names[n++] = text_of(p, "name");
	names[n] = NULL;
	snprintf(flat, sizeof flat, "%.*s", (int)strcspn(word + strspn(word, "-"), "="), word + strspn(word, "-"));
	near = text_nearest(flat, names);
	return err_set(e, ERR_INVALID, "%s has no option %.60s%s%s%s", text_of(cmd, "name"), word, near
		? "; did you mean --" : "",
		near ? near : "", near ? "?" : "");
}

/* Takes words[at] as an option; returns how many words it used, -1 on error. */
static int take_option(const json_t *cmd, json_t *out, const char *const *w, size_t n, size_t at, struct err *e)
{
	const json_t *params = json_object_get(cmd, "params");
	const char *eq = strchr(w[at], '='), *value;
	size_t len = eq ? (size_t)(eq - w[at]) : strlen(w[at]);
	const json_t *p = option_row(params, w[at], len);
	bool is_bool;
	json_t *v;

	if (!p)
		return unknown_option(cmd, w[at], e);
	is_bool = strcmp(text_of(p, "type"), "boolean") == 0;
	if (!eq && !is_bool && at + 1 >= n)
		return err_set(e, ERR_INVALID, "%s needs a value (%s)", w[at], text_of(p, "help"));
	value = eq ? eq + 1 : is_bool ? "yes" : w[at + 1];
	v = convert(text_of(p, "type"), value, e);
	if (!v)
		return err_wrap(e, "%s", text_of(p, "name"));
	json_object_set_new(out, text_of(p, "name"), v);
	return eq || is_bool ? 1 : 2;
}

static int take_pair(json_t *out, const char *name, const char *word, struct err *e)
{
	json_t *all = json_object_get(out, name);
	const char *eq = strchr(word, '=');
	char key[128];
	json_t *v;

	if (!eq || eq == word || (size_t)(eq - word) >= sizeof key)
		return err_set(e, ERR_INVALID, "%s: expected key=value, found \"%.60s\"", name, word);
	memcpy(key, word, (size_t)(eq - word));
	key[eq - word] = '\0';
	v = text_utf8_ok(word, strlen(word)) ? any_json(eq + 1, e) : word_json(word, e);
	if (!v)
		return err_wrap(e, "%s", name);
	if (!all) {
		all = json_object();
		json_object_set_new(out, name, all);
	}
	json_object_set_new(all, key, v);
	return 0;
}

/* The daemon lives elsewhere: it gets whole paths. */
static int take_path(json_t *out, const char *name, const char *word, struct err *e)
{
	json_t *all = json_object_get(out, name);
	char *here = *word == '/' ? NULL : getcwd(NULL, 0), *path;
	json_t *v;

	if (!*word || (*word != '/' && !here))
		return err_set(e, ERR_INVALID, "%s: expected a file%s", name, *word ? ", and this folder is gone" : "");
	path = here ? xasprintf("%s/%s", here, word) : xstrdup(word);
	v = word_json(path, e);
	free(path);
	free(here);
	if (!v)
		return err_wrap(e, "%s", name);
	if (!all) {
		all = json_array();
		json_object_set_new(out, name, all);
	}
	json_array_append_new(all, v);
	return 0;
}

/* The first positional parameter that still wants words; NULL: none. */
static const json_t *next_position(const json_t *params, const json_t *out)
{
	size_t i;
	json_t *p;

	json_array_foreach((json_t *)params, i, p)
		if (!flag(p, "option") && (flag(p, "rest") || !json_object_get(out, text_of(p, "name"))))
			return p;
	return NULL;
}

static int take_word(const json_t *cmd, json_t *out, const char *word, struct err *e)
{
	const json_t *p = next_position(json_object_get(cmd, "params"), out);
	const char *name = text_of(p, "name"), *had;
	json_t *v;

	if (!p)
		return err_set(e, ERR_INVALID, "%s: \"%.60s\" is one word too many", text_of(cmd, "name"), word);
	if (strcmp(text_of(p, "type"), "pairs") == 0)
		return take_pair(out, name, word, e);
	if (strcmp(text_of(p, "type"), "paths") == 0)
		return take_path(out, name, word, e);
	had = json_string_value(json_object_get(out, name));
	if (had) {
		char *all = xasprintf("%s %s", had, word);

		v = word_json(all, e);
		free(all);
	} else
		v = convert(text_of(p, "type"), word, e);
	if (!v)
		return err_wrap(e, "%s", name);
	json_object_set_new(out, name, v);
	return 0;
}

json_t *words_params(const json_t *cmd, const char *const *w, size_t n, struct err *e)
{
	json_t *out = json_object(), *p;
	bool only_words = false;
	size_t i;
	int used;

	for (i = 0; i < n; i += (size_t)used) {
		used = 1;
		if (!only_words && strcmp(w[i], "--") == 0)
			only_words = true;
		else if (!only_words && w[i][0] == '-' && w[i][1] && !strchr("0123456789.", w[i][1]))
			used = take_option(cmd, out, w, n, i, e);
		else
			used = take_word(cmd, out, w[i], e) < 0 ? -1 : 1;
		if (used < 0)
			goto fail;
	}
	json_array_foreach(json_object_get(cmd, "params"), i, p)
		if (flag(p, "required") && !json_object_get(out, text_of(p, "name"))) {
			char usage[512];

			words_usage(cmd, usage, sizeof usage);
			err_set(e, ERR_INVALID, "%s is missing (%.80s); usage: %.180s", text_of(p, "name"), text_of(p, "help"),
				usage);
			goto fail;
		}
	return out;
fail:
	json_decref(out);
	return NULL;
}

void words_usage(const json_t *cmd, char *out, size_t cap)
{
	size_t i, at = (size_t)snprintf(out, cap, "hivectl %s", text_of(cmd, "name"));
	json_t *p;

	json_array_foreach(json_object_get(cmd, "params"), i, p) {
		char name[64], upper[64];
		bool required = flag(p, "required"), pairs = strcmp(text_of(p, "type"), "pairs") == 0;

		snprintf(name, sizeof name, "%s", text_of(p, "name"));
		snprintf(upper, sizeof upper, "%s", name);
		for (size_t k = 0; name[k]; k++) {
			name[k] = name[k] == '_' ? '-' : name[k];
			upper[k] = upper[k] >= 'a' && upper[k] <= 'z' ? (char)(upper[k] - 32) : upper[k];
		}
		if (at >= cap)
			break;
		if (strcmp(text_of(p, "type"), "boolean") == 0)
			at += (size_t)snprintf(out + at, cap - at, " [--%s]", name);
		else if (flag(p, "option"))
			at += (size_t)snprintf(out + at, cap - at, " [--%s=%s]", name, upper);
		else
			at += (size_t)snprintf(out + at, cap - at, " %s%s%s%s", required ? "" : "[", pairs ? "KEY=VALUE" : upper,
				flag(p, "rest") ? "..." : "", required ? "" : "]");
	}
}
