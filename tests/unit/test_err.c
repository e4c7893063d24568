/* struct err: codes, names on the wire, wrapping, cleaning and truncation. */
#include <ctype.h>
#include "tests/unit/t.h"

static void names_are_the_lower_case_of_the_list(void **s)
{
	static const struct { const char *upper; int jrpc; } list[] = {
#define X(name, jrpc) { #name, jrpc },
		ERR_LIST(X)
#undef X
	};

	for (int i = 0; i < ERR_COUNT_; i++) {
		char low[40];
		size_t k = 0;

		for (; list[i].upper[k]; k++)
			low[k] = (char)tolower(list[i].upper[k]);
		low[k] = 0;
		assert_string_equal(err_name((enum err_code)i), low);
		assert_int_equal(err_from_name(low), i);
		assert_int_equal(err_jrpc((enum err_code)i), list[i].jrpc);
		assert_int_equal(err_from_jrpc(list[i].jrpc), i);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(list[i].jrpc, list[j].jrpc);
	}
}

static void unknown_is_internal(void **s)
{
	assert_string_equal(err_name((enum err_code)999), "internal");
	assert_string_equal(err_name((enum err_code)-1), "internal");
	assert_int_equal(err_from_name("no such"), ERR_INTERNAL);
	assert_int_equal(err_from_name(NULL), ERR_INTERNAL);
	assert_int_equal(err_jrpc((enum err_code)999), -32603);
	assert_int_equal(err_from_jrpc(12345), ERR_INTERNAL);
}

static void set_and_wrap(void **s)
{
	struct err e;

	assert_int_equal(err_set(&e, ERR_IO, "%s: %d", "disk", 7), -1);
	assert_int_equal(e.code, ERR_IO);
	assert_string_equal(e.text, "disk: 7");
	assert_int_equal(err_wrap(&e, "file %s", "x"), -1);
	assert_int_equal(e.code, ERR_IO);
	assert_string_equal(e.text, "file x: disk: 7");
	err_set(&e, ERR_IO, "<%s>", e.text);            /* its own text as an argument */
	assert_string_equal(e.text, "<file x: disk: 7>");
	err_wrap(&e, "%.3s", e.text);
	assert_string_equal(e.text, "<fi: <file x: disk: 7>");
	assert_int_equal(err_set(NULL, ERR_IO, "x"), -1);
	assert_int_equal(err_wrap(NULL, "x"), -1);
}

static void long_and_dirty_texts(void **s)
{
	struct err e;
	char big[1000];

	memset(big, 'a', sizeof big - 1);
	big[sizeof big - 1] = 0;
	err_set(&e, ERR_INVALID, "%s", big);
	assert_int_equal(strlen(e.text), sizeof e.text - 1);
	err_wrap(&e, "%s", big);
	assert_int_equal(strlen(e.text), sizeof e.text - 1);
	err_set(&e, ERR_INVALID, "a\nb\033[31m\xff");
	assert_string_equal(e.text, "a?b?[31m?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_the_lower_case_of_the_list), cmocka_unit_test(unknown_is_internal),
		cmocka_unit_test(set_and_wrap), cmocka_unit_test(long_and_dirty_texts),
	};

	return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
