/* What every cmocka program includes, in cmocka's order. */
#ifndef TESTS_T_H
#define TESTS_T_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "common/err.h"

/* What a test draws begins with it; SEED=n repeats. */
static inline uint64_t any_seed(void)
{
	const char *given = getenv("SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000;

	print_message("SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

/* The error text must contain part: messages are part of what is promised. */
#define assert_err(e, want_code, part) do { \
	assert_string_equal(err_name((e).code), err_name(want_code)); \
	if (!strstr((e).text, part)) \
		fail_msg("error \"%s\" does not say \"%s\"", (e).text, part); \
} while (0)

#endif
