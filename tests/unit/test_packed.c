/* Specifications in records of the DHT: what is too large is deflated and comes back as it was, and what somebody has
 * made up is refused, however much it would become. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "run/packed.h"
#include "t.h"

static json_t *layers(int n)
{
	json_t *o = json_object(), *list = json_array();

	for (int i = 0; i < n; i++)
		(void)json_array_append_new(list, json_pack("{s:s,s:i,s:b,s:f}", "type", "linear", "out", 1000 + i, "bias",
			i % 2, "std", 0.02));
	(void)json_object_set_new(o, "model", list);
	return o;
}

static void small_ones_stay(void **state)
{
	json_t *spec = layers(3), *p, *back;
	struct err e;
	size_t bytes;

	p = spec_packed(spec, 16000, &bytes);
	assert_ptr_equal(p, spec);
	assert_true(bytes > 100 && bytes < 1000);
	back = spec_unpacked(p, &e);
	assert_ptr_equal(back, spec);
	json_decref(back);
	json_decref(p);
	json_decref(spec);
}

static void large_ones_come_back(void **state)
{
	json_t *spec = layers(900), *p, *back;
	struct err e;
	size_t bytes;
	char *text;

	p = spec_packed(spec, 16000, &bytes);
	assert_non_null(p);
	assert_true(bytes > 16000);
	text = json_dumps(p, JSON_COMPACT);
	assert_true(strlen(text) <= 16000);
	free(text);
	back = spec_unpacked(p, &e);
	assert_non_null(back);
	assert_true(json_equal(back, spec));
	json_decref(back);
	json_decref(p);
	assert_null(spec_packed(spec, 200, &bytes));
	json_decref(spec);
}

static void refused(json_t *p, const char *words)
{
	struct err e;

	assert_null(spec_unpacked(p, &e));
	assert_err(e, ERR_PROTOCOL, words);
	json_decref(p);
}

/* 2 MiB of blanks are 2 kB. */
static void made_up(void **state)
{
	uLongf len = compressBound(2 << 20);
	Bytef *out = malloc(len);
	char *blanks = malloc(2 << 20);

	assert_true(out && blanks);
	memset(blanks, ' ', 2 << 20);
	assert_int_equal(compress2(out, &len, (Bytef *)blanks, 2 << 20, 9), Z_OK);
	refused(json_pack("{s:o}", "deflated", json_hex(out, len)), "more than 1048576 bytes");
	refused(json_pack("{s:s}", "deflated", "78da00"), "cannot be inflated");
	refused(json_pack("{s:s}", "deflated", ""), "is {\"deflated\": hex digits}");
	refused(json_pack("{s:i}", "deflated", 3), "is {\"deflated\": hex digits}");
	refused(json_pack("{s:s,s:i}", "deflated", "78da", "more", 1), "is {\"deflated\": hex digits}");
	len = compressBound(2 << 20);
	assert_int_equal(compress2(out, &len, (const Bytef *)"{\"a\":1", 6, 9), Z_OK);
	{
		json_t *p = json_pack("{s:o}", "deflated", json_hex(out, len));
		struct err e;

		assert_null(spec_unpacked(p, &e));      /* no JSON: whatever is said of it */
		json_decref(p);
	}
	free(out);
	free(blanks);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(small_ones_stay), cmocka_unit_test(large_ones_come_back),
		cmocka_unit_test(made_up) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
