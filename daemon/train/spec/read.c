/* Checked values out of a JSON object. One place for types, ranges and the texts of the errors, so that a spec's author
 * always reads where, what is there, and what would be right. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "common/text.h"
#include "train/spec/read.h"

struct place place_key(const struct place *at, const char *key)
{
	struct place p;

	(void)snprintf(p.text, sizeof(p.text), "%.96s%s%.60s", at->text, at->text[0] ? "." : "", key);
	text_clean(p.text);
	return p;
}

struct place place_index(const struct place *at, size_t i)
{
	struct place p;

	(void)snprintf(p.text, sizeof(p.text), "%.130s[%zu]", at->text, i);
	return p;
}

int place_err(const struct place *at, struct err *e, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(e, ERR_INVALID, "%s: %s", at->text[0] ? at->text : "spec", text);
}

const char *json_kind(const json_t *j)
{
	if (!j)
		return "nothing";
	switch (json_typeof(j)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a number";
	case JSON_TRUE: case JSON_FALSE: return "a boolean";
	default: return "null";
	}
}

int read_object(const json_t *j, const struct place *at, struct err *e)
{
	if (!json_is_object(j))
		return place_err(at, e, "must be an object {...}, and is %s", json_kind(j));
	return 0;
}

int read_known(const json_t *o, const struct place *at, const char *const *known, struct err *e)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)o, key, v) {
		char all[200] = "";
		const char *near;
		struct place p;
		int i;

		for (i = 0; known[i] && strcmp(known[i], key); i++)
			;
		if (known[i])
			continue;
		p = place_key(at, key);
		near = text_nearest(key, known);
		if (near)
			return place_err(&p, e, "unknown key; did you mean \"%s\"?", near);
		for (i = 0; known[i] && strlen(all) + strlen(known[i]) + 2 < sizeof(all); i++)
			(void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "", known[i]);
		return place_err(&p, e, "unknown key; known here: %s", all);
	}
	return 0;
}

int read_number(const json_t *v, const struct place *at, double lo, double hi, double *ret, struct err *e)
{
	double x;

	if (!json_is_number(v))
		return place_err(at, e, "must be a number, and is %s", json_kind(v));
	x = json_number_value(v);
	if (!(x >= lo && x <= hi))
		return place_err(at, e, "%.17g is out of range; %.17g to %.17g is allowed", x, lo, hi);
	*ret = x;
	return 0;
}

int read_real(const json_t *o, const struct place *at, const char *key, double lo, double hi, double *ret,
	struct err *e)
{
	struct place p = place_key(at, key);
	const json_t *v = json_object_get(o, key);

	return v ? read_number(v, &p, lo, hi, ret, e) : 1;
}

int read_u64(const json_t *o, const struct place *at, const char *key, uint64_t lo, uint64_t hi, uint64_t *ret,
	struct err *e)
{
	struct place p = place_key(at, key);
	const json_t *v = json_object_get(o, key);
	json_int_t x;

	if (!v)
		return 1;
	if (!json_is_integer(v))
		return place_err(&p, e, "must be a whole number, and is %s", json_kind(v));
	x = json_integer_value(v);
	if (x < 0 || (uint64_t)x < lo || (uint64_t)x > hi)
		return place_err(&p, e, "%lld is out of range; %llu to %llu is allowed", (long long)x,
			(unsigned long long)lo, (unsigned long long)hi);
	*ret = (uint64_t)x;
	return 0;
}

int read_u32(const json_t *o, const struct place *at, const char *key, uint32_t lo, uint32_t hi, uint32_t *ret,
	struct err *e)
{
	uint64_t v = *ret;
	int rc = read_u64(o, at, key, lo, hi, &v, e);

	*ret = (uint32_t)v;
	return rc;
}

int read_bool(const json_t *o, const struct place *at, const char *key, bool *ret, struct err *e)
{
	struct place p = place_key(at, key);
	const json_t *v = json_object_get(o, key);

	if (!v)
		return 1;
	if (!json_is_boolean(v))
		return place_err(&p, e, "must be true or false, and is %s", json_kind(v));
	*ret = json_is_true(v);
	return 0;
}

int read_text(const json_t *o, const struct place *at, const char *key, char *ret, size_t cap, struct err *e)
{
	struct place p = place_key(at, key);
	const json_t *v = json_object_get(o, key);

	if (!v)
		return 1;
	if (!json_is_string(v))
		return place_err(&p, e, "must be a string, and is %s", json_kind(v));
	if (json_string_length(v) >= cap || strlen(json_string_value(v)) != json_string_length(v))
		return place_err(&p, e, "has %zu bytes; at most %zu are allowed, none of them zero", json_string_length(v),
			cap - 1);
	memcpy(ret, json_string_value(v), json_string_length(v) + 1);
	return 0;
}

int read_size(const json_t *o, const struct place *at, const char *key, uint64_t *ret_bytes, struct err *e)
{
	struct place p = place_key(at, key);
	const json_t *v = json_object_get(o, key);
	struct err why;

	if (!v)
		return 1;
	if (json_is_integer(v))
		return read_u64(o, at, key, 0, INT64_MAX, ret_bytes, e);
	if (!json_is_string(v))
		return place_err(&p, e, "must be a size such as \"1GiB\", and is %s", json_kind(v));
	if (text_size(json_string_value(v), ret_bytes, &why) < 0)
		return place_err(&p, e, "%s", why.text);
	return 0;
}
