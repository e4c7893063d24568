/* JSON-RPC 2.0 messages, strict JSON reading, and field access whose errors name the field. Limits are checked in one
 * pass over the bytes before jansson allocates anything: a hostile frame costs its own length and nothing more. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"

/* Line and column (in characters, from 1) of byte at. */
static void place(const char *p, size_t at, size_t *line, size_t *col)
{
	*line = *col = 1;
	for (size_t i = 0; i < at; i++) {
		if (p[i] == '\n') {
			++*line;
			*col = 1;
		} else if ((p[i] & 0xc0) != 0x80) {
			++*col;
		}
	}
}

static int fail_at(struct err *e, enum err_code code, const char *p, size_t at, const char *what, size_t limit)
{
	size_t line, col;

	place(p, at, &line, &col);
	if (limit)
		return err_set(e, code, "line %zu, column %zu: %s: the limit is %zu", line, col, what, limit);
	return err_set(e, code, "line %zu, column %zu: %s", line, col, what);
}

/* Index behind the string that opens at i, or n when it does not end. */
static size_t skip_string(const char *p, size_t n, size_t i)
{
	for (i++; i < n && p[i] != '"'; i++)
		if (p[i] == '\\')
			i++;
	return i < n ? i + 1 : n;
}

int json_count(const char *p, size_t n, struct json_limits lim, size_t *ret, struct err *e)
{
	size_t depth = 0, values = 0;

	if (n > lim.bytes)
		return err_set(e, ERR_LIMIT, "%zu bytes of JSON: the limit is %zu", n, lim.bytes);
	for (size_t i = 0; i < n;) {
		size_t at = i;

		switch (p[i]) {
		case ' ': case '\t': case '\n': case '\r': case ',':
			i++;
			continue;
		case ':':                       /* what stood before was a key, counted as a value */
			values -= values > 0;
			i++;
			continue;
		case '}': case ']':
			depth -= depth > 0;
			i++;
			continue;
		case '{': case '[':
			if (++depth > lim.depth)
				return fail_at(e, ERR_LIMIT, p, at, "nested too deep", lim.depth);
			i++;
			break;
		case '"':
			i = skip_string(p, n, i);
			break;
		default:
			while (i < n && !strchr(" \t\n\r,:{}[]\"", p[i]))
				i++;
			i += i == at;           /* strchr finds the NUL too */
		}
		if (++values > lim.values)
			return fail_at(e, ERR_LIMIT, p, at, "too many values", lim.values);
	}
	*ret = values;
	return 0;
}

static json_t *read_as(const char *p, size_t n, size_t flags, struct json_limits lim, struct err *e)
{
	json_error_t je;
	json_t *j;
	size_t values;

	if (json_count(p, n, lim, &values, e))
		return NULL;
	j = json_loadb(p, n, JSON_REJECT_DUPLICATES | flags, &je);
	if (!j)
		err_set(e, ERR_PARSE, "line %d, column %d: %s", je.line > 0 ? je.line : 1, je.column, je.text);
	return j;
}

json_t *json_read(const char *p, size_t n, struct json_limits lim, struct err *e)
{
	return read_as(p, n, 0, lim, e);
}

json_t *json_any(const char *p, size_t n, struct json_limits lim, struct err *e)
{
	return read_as(p, n, JSON_DECODE_ANY, lim, e);
}

char *json_line(const json_t *j, size_t *ret_len)
{
	char *s = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));

	if (s && ret_len)
		*ret_len = strlen(s);
	return s;
}

static const char *kind_of(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "a whole number";
	case JSON_REAL: return "a number";
	case JSON_TRUE: case JSON_FALSE: return "a boolean";
	default: return "null";
	}
}

static json_t *need(const json_t *o, const char *key, const char *wanted, struct err *e)
{
	json_t *v = json_object_get(o, key);

	if (!json_is_object(o))
		err_set(e, ERR_INVALID, "%s: expected %s inside an object, found %s", key, wanted, o ? kind_of(o) : "nothing");
	else if (!v)
		err_set(e, ERR_INVALID, "%s: missing: expected %s", key, wanted);
	return v;
}

static int wrong(const json_t *v, const char *key, const char *wanted, struct err *e)
{
	return err_set(e, ERR_INVALID, "%s: expected %s, found %s", key, wanted, kind_of(v));
}

int json_get_i64(const json_t *o, const char *key, int64_t *ret, struct err *e)
{
	json_t *v = need(o, key, "a whole number", e);

	if (!v)
		return -1;
	if (!json_is_integer(v))
		return wrong(v, key, "a whole number", e);
	*ret = json_integer_value(v);
	return 0;
}

int json_get_u64(const json_t *o, const char *key, uint64_t *ret, struct err *e)
{
	int64_t v;

	if (json_get_i64(o, key, &v, e))
		return -1;
	if (v < 0)
		return err_set(e, ERR_INVALID, "%s: %lld: expected 0 or more", key, (long long)v);
	*ret = (uint64_t)v;
	return 0;
}

int json_get_f64(const json_t *o, const char *key, double *ret, struct err *e)
{
	json_t *v = need(o, key, "a number", e);

	if (!v)
		return -1;
	if (!json_is_number(v))
		return wrong(v, key, "a number", e);
	if (!isfinite(json_number_value(v)))
		return err_set(e, ERR_INVALID, "%s: expected a finite number", key);
	*ret = json_number_value(v);
	return 0;
}

int json_get_str(const json_t *o, const char *key, const char **ret, struct err *e)
{
	json_t *v = need(o, key, "a string", e);

	if (!v)
		return -1;
	if (!json_is_string(v))
		return wrong(v, key, "a string", e);
	*ret = json_string_value(v);
	return 0;
}

int json_get_bool(const json_t *o, const char *key, bool *ret, struct err *e)
{
	json_t *v = need(o, key, "true or false", e);

	if (!v)
		return -1;
	if (!json_is_boolean(v))
		return wrong(v, key, "true or false", e);
	*ret = json_is_true(v);
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int json_get_hex(const json_t *o, const char *key, void *out, size_t bytes, struct err *e)
{
	const char *s;
	size_t good = 0;

	if (json_get_str(o, key, &s, e))
		return -1;
	while (good < 2 * bytes && hex_digit(s[good]) >= 0)
		good++;
	if (good != 2 * bytes || s[good])
		return err_set(e, ERR_INVALID, "%s: \"%.80s\": expected %zu hexadecimal digits", key, s, 2 * bytes);
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)out)[i] = (uint8_t)(hex_digit(s[2 * i]) << 4 | hex_digit(s[2 * i + 1]));
	return 0;
}

json_t *json_hex(const void *p, size_t bytes)
{
	char *s = xmalloc(2 * bytes + 1);
	json_t *j = json_stringn_nocheck(text_hex(p, bytes, s), 2 * bytes);

	free(s);
	return j;
}

void json_put_hashes(json_t *o, enum hashes by)
{
	if (by > HASHES_SHA256)
		json_object_set_new(o, "hashes", json_integer((json_int_t)by));
}

enum hashes json_get_hashes(const json_t *o, enum hashes mine)
{
	uint64_t said = HASHES_SHA256;
	json_get_u64(o, "hashes", &said, NULL);
	return hashes_both(said, mine);
}

json_t *json_text(const char *s)
{
	char *t = xstrdup(s);
	json_t *j;

	text_clean(t);
	j = json_string(t);
	free(t);
	return j;
}

int json_only(const json_t *o, const char *const *known, const char *where, struct err *e)
{
	const char *key, *near;
	json_t *v;
	void *it;

	if (!json_is_object(o))
		return err_set(e, ERR_INVALID, "%s: expected an object, found %s", where, o ? kind_of(o) : "nothing");
	for (it = json_object_iter((json_t *)o); it; it = json_object_iter_next((json_t *)o, it)) {
		const char *const *k = known;

		key = json_object_iter_key(it);
		v = json_object_iter_value(it);
		while (*k && strcmp(*k, key))
			k++;
		if (*k || !v)
			continue;
		near = text_nearest(key, known);
		return err_set(e, ERR_INVALID, "%s: unknown key \"%.60s\"%s%s%s", where, key,
			near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
	}
	return 0;
}

static int not_rpc(struct jrpc *m, struct err *e, const char *what)
{
	jrpc_done(m);
	return err_set(e, ERR_INVALID, "not a JSON-RPC 2.0 message: %s", what);
}

/* A response has an id and exactly one of result and error. */
static int parse_response(struct jrpc *m, struct err *e)
{
	if (!m->id)
		return not_rpc(m, e, "a response has an \"id\"");
	if (m->result && m->error)
		return not_rpc(m, e, "\"result\" and \"error\" exclude each other");
	if (!m->result && !m->error)
		return not_rpc(m, e, "expected \"method\", \"result\" or \"error\"");
	m->kind = m->result ? JRPC_RESULT : JRPC_ERROR;
	if (m->error && (!json_is_integer(json_object_get(m->error, "code")) ||
	    !json_is_string(json_object_get(m->error, "message"))))
		return not_rpc(m, e, "\"error\" is an object with a whole number \"code\" and a string \"message\"");
	return 0;
}

int jrpc_parse(struct jrpc *ret, const char *line, size_t n, struct err *e)
{
	json_t *o, *v;
	const char *version;

	memset(ret, 0, sizeof *ret);
	ret->root = o = json_read(line, n, JSON_SOCK, e);
	if (!o)
		return -1;
	if (!json_is_object(o))
		return not_rpc(ret, e, "expected one object a line (batches are not served)");
	version = json_string_value(json_object_get(o, "jsonrpc"));
	if (!version || strcmp(version, "2.0"))
		return not_rpc(ret, e, "expected \"jsonrpc\": \"2.0\"");
	ret->id = json_object_get(o, "id");
	if (ret->id && !json_is_integer(ret->id) && !json_is_string(ret->id) && !json_is_null(ret->id))
		return not_rpc(ret, e, "\"id\" is a whole number, a string or null");
	v = json_object_get(o, "method");
	ret->params = json_object_get(o, "params");
	ret->result = json_object_get(o, "result");
	ret->error = json_object_get(o, "error");
	if (!v)
		return parse_response(ret, e);
	if (!json_is_string(v))
		return not_rpc(ret, e, "\"method\" is a string");
	if (ret->result || ret->error)
		return not_rpc(ret, e, "\"method\" excludes \"result\" and \"error\"");
	if (ret->params && !json_is_object(ret->params))
		return not_rpc(ret, e, "\"params\" is an object: parameters have names here");
	ret->method = json_string_value(v);
	ret->kind = ret->id ? JRPC_REQUEST : JRPC_NOTE;
	return 0;
}

void jrpc_done(struct jrpc *m)
{
	json_decref(m->root);
	memset(m, 0, sizeof *m);
}

static json_t *must(json_t *j)
{
	if (!j)
		abort();        /* small and out of memory */
	return j;
}

json_t *jrpc_request(int id, const char *method, json_t *params)
{
	return must(json_pack("{s:s, s:i, s:o, s:o*}", "jsonrpc", "2.0", "id", id, "method", json_text(method),
		"params", params));
}

json_t *jrpc_note(const char *method, json_t *params)
{
	return must(json_pack("{s:s, s:o, s:o*}", "jsonrpc", "2.0", "method", json_text(method), "params", params));
}

json_t *jrpc_result(json_t *id, json_t *result)
{
	return must(json_pack("{s:s, s:O?, s:o?}", "jsonrpc", "2.0", "id", id, "result", result));
}

json_t *jrpc_error(json_t *id, const struct err *e, json_t *data)
{
	return must(json_pack("{s:s, s:O?, s:{s:i, s:o, s:o*}}", "jsonrpc", "2.0", "id", id, "error",
		"code", err_jrpc(e->code), "message", json_text(e->text), "data", data));
}
