/* Reading one JSON object: every key is asked for by name, what is left over is unknown and refused. */
#include "plan/json_get.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "plan/refs.h"

void get_fail(struct get *g, enum err_code code, const char *key, const char *fmt, ...)
{
	char text[200];
	va_list ap;
	if (g->bad)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	g->bad = true;
	err_set(g->e, code, "%s%s%s: %s", g->where, key[0] && g->where[0] ? "." : "", key, text);
}

struct get get_of(const json_t *o, struct err *e, const char *table, size_t at)
{
	struct get g = { .o = o, .e = e };
	if (table)
		snprintf(g.where, sizeof g.where, "%s[%zu]", table, at);
	if (!json_is_object(o))
		get_fail(&g, ERR_PARSE, "", "an object is expected");
	return g;
}

json_t *get_key(struct get *g, const char *key)
{
	assert(g->nasked < GET_KEYS);
	g->asked[g->nasked++] = key;
	return g->bad ? NULL : json_object_get(g->o, key);
}

uint64_t get_u(struct get *g, const char *key, uint64_t usual, uint64_t max)
{
	const json_t *v = get_key(g, key);
	if (!v)
		return usual;
	if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
		get_fail(g, ERR_INVALID, key, "a whole number from 0 to %llu is expected", (unsigned long long)max);
	return g->bad ? usual : (uint64_t)json_integer_value(v);
}

int64_t get_i(struct get *g, const char *key, int64_t max)
{
	const json_t *v = get_key(g, key);
	if (!v)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < -max || json_integer_value(v) > max)
		get_fail(g, ERR_INVALID, key, "a whole number from -%lld to %lld is expected", (long long)max, (long long)max);
	return g->bad ? 0 : json_integer_value(v);
}

bool get_b(struct get *g, const char *key)
{
	const json_t *v = get_key(g, key);
	if (v && !json_is_boolean(v))
		get_fail(g, ERR_INVALID, key, "true or false is expected");
	return v && json_is_true(v);
}

/* A name; absent is "" unless must. */
void get_name(struct get *g, const char *key, bool must, char out[PLAN_NAME])
{
	const json_t *v = get_key(g, key);
	out[0] = '\0';
	if (!v && must)
		get_fail(g, ERR_INVALID, key, "is missing");
	if (!v)
		return;
	const char *s = json_string_value(v);
	if (!s || !refs_name_ok(s, json_string_length(v)))
		get_fail(g, ERR_INVALID, key, "a name of 1 to %d letters, digits, . _ / - is expected", PLAN_NAME - 1);
	else
		memcpy(out, s, json_string_length(v) + 1);
}

unsigned get_enum(struct get *g, const char *key, const char *const *names, unsigned n)
{
	const json_t *v = get_key(g, key);
	if (!v)
		return 0;
	const char *s = json_string_value(v);
	for (unsigned i = 0; s && i < n; i++)
		if (strcmp(s, names[i]) == 0)
			return i;
	get_fail(g, ERR_INVALID, key, "\"%.40s\" is not one of %s ... %s", s ? s : "(no string)", names[0], names[n - 1]);
	return 0;
}

const json_t *get_array(struct get *g, const char *key, size_t max)
{
	const json_t *v = get_key(g, key);
	if (v && (!json_is_array(v) || json_array_size(v) > max)) {
		get_fail(g, ERR_LIMIT, key, "an array of at most %zu is expected", max);
		return NULL;
	}
	return v;
}

uint64_t get_at(struct get *g, const char *key, const json_t *x, size_t i, uint64_t max)
{
	const json_t *v = json_array_get(x, i);
	if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max) {
		get_fail(g, ERR_INVALID, key, "a whole number from 0 to %llu is expected", (unsigned long long)max);
		return 0;
	}
	return (uint64_t)json_integer_value(v);
}

int get_end(struct get *g)
{
	const char *key;
	json_t *v;
	if (g->bad)
		return -1;
	json_object_foreach((json_t *)g->o, key, v) {
		unsigned i = 0;
		while (i < g->nasked && strcmp(g->asked[i], key) != 0)
			i++;
		if (i < g->nasked)
			continue;
		get_fail(g, ERR_INVALID, "", "key \"%.40s\" is not known to this version", key);
		return -1;
	}
	return 0;
}
