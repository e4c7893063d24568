/* The canonical text of a spec's shared part, its digest, the run's id, and where two specs differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/hash.h"
#include "common/mem.h"
#include "train/spec/int.h"

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Keys of an object in the order of their bytes; free() the array. */
static const char **sorted_keys(const json_t *o, size_t *ret_n)
{
	const char **key = xcalloc(json_object_size(o) + 1, sizeof(*key)), *k;
	json_t *v;
	size_t n = 0;

	json_object_foreach((json_t *)o, k, v)
		key[n++] = k;
	qsort(key, n, sizeof(*key), by_name);
	*ret_n = n;
	return key;
}

static void put_string(struct buf *b, const char *s, size_t n)
{
	static const char hex[] = "0123456789abcdef";

	buf_u8(b, '"');
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '"' || c == '\\') {
			buf_u8(b, '\\');
			buf_u8(b, c);
		} else if (c < 0x20) {
			buf_put(b, "\\u00", 4);
			buf_u8(b, (uint8_t)hex[c >> 4]);
			buf_u8(b, (uint8_t)hex[c & 15]);
		} else {
			buf_u8(b, c);
		}
	}
	buf_u8(b, '"');
}

/* 1 and 1.0 are the same number, so they have the same text. Snprintf's point follows the locale: it is put right. */
static void put_real(struct buf *b, double x)
{
	char t[40];

	if (x == floor(x) && fabs(x) < 9007199254740992.0) {
		buf_printf(b, "%lld", (long long)x);
		return;
	}
	(void)snprintf(t, sizeof(t), "%.17g", x);
	for (char *p = t; *p; p++)
		if (!strchr("0123456789+-eE", *p))
			*p = '.';
	buf_put(b, t, strlen(t));
}

static void put(struct buf *b, const json_t *j)
{
	size_t n;

	switch (json_typeof(j)) {
	case JSON_OBJECT: {
		const char **key = sorted_keys(j, &n);

		buf_u8(b, '{');
		for (size_t i = 0; i < n; i++) {
			if (i)
				buf_u8(b, ',');
			put_string(b, key[i], strlen(key[i]));
			buf_u8(b, ':');
			put(b, json_object_get(j, key[i]));
		}
		buf_u8(b, '}');
		free(key);
		break;
	}
	case JSON_ARRAY:
		buf_u8(b, '[');
		for (size_t i = 0; i < json_array_size(j); i++) {
			if (i)
				buf_u8(b, ',');
			put(b, json_array_get(j, i));
		}
		buf_u8(b, ']');
		break;
	case JSON_STRING:
		put_string(b, json_string_value(j), json_string_length(j));
		break;
	case JSON_INTEGER:
		buf_printf(b, "%lld", (long long)json_integer_value(j));
		break;
	case JSON_REAL:
		put_real(b, json_real_value(j));
		break;
	default:
		buf_printf(b, "%s", json_is_true(j) ? "true" : json_is_false(j) ? "false" : "null");
	}
}

char *spec_canonical(const json_t *j)
{
	struct buf b = { 0 };

	put(&b, j);
	buf_u8(&b, 0);
	return (char *)b.p;
}

void spec_run_id(const struct spec *s, const struct id *author, struct id *ret_run)
{
	char *text = spec_canonical(s->shared);
	struct sha256 h;

	sha256_init(&h);
	sha256_add(&h, author->b, sizeof(author->b));
	sha256_add(&h, s->name, strlen(s->name) + 1);   /* with NUL: names end somewhere */
	sha256_add(&h, text, strlen(text));
	sha256_end(&h, ret_run->b);
	free(text);
}

static void brief(const json_t *j, char *out, size_t cap)
{
	char *text = j ? spec_canonical(j) : xstrdup("nothing");

	(void)snprintf(out, cap, "%.60s%s", text, strlen(text) > 60 ? "..." : "");
	free(text);
}

static bool differ(const struct place *at, const json_t *a, const json_t *b, char *ret_text, size_t cap)
{
	char *ta, *tb, here[80], there[80];
	bool same;

	if (json_is_object(a) && json_is_object(b)) {
		const char **key;
		size_t n;
		bool found = false;
		json_t *all = json_copy((json_t *)a);

		(void)json_object_update_missing(all, (json_t *)b);
		key = sorted_keys(all, &n);
		for (size_t i = 0; i < n && !found; i++) {
			const struct place p = place_key(at, key[i]);

			found = differ(&p, json_object_get(a, key[i]), json_object_get(b, key[i]), ret_text, cap);
		}
		free(key);
		json_decref(all);
		return found;
	}
	if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
		for (size_t i = 0; i < json_array_size(a); i++) {
			const struct place p = place_index(at, i);

			if (differ(&p, json_array_get(a, i), json_array_get(b, i), ret_text, cap))
				return true;
		}
		return false;
	}
	ta = a ? spec_canonical(a) : xstrdup("");
	tb = b ? spec_canonical(b) : xstrdup("");
	same = !strcmp(ta, tb);
	free(ta);
	free(tb);
	if (same)
		return false;
	brief(a, here, sizeof(here));
	brief(b, there, sizeof(there));
	(void)snprintf(ret_text, cap, "%s: %s here, %s there", at->text, here, there);
	return true;
}

bool spec_diff(const json_t *here, const json_t *there, char *ret_text, size_t cap)
{
	const struct place top = { "" };

	return differ(&top, here, there, ret_text, cap);
}
