/* As much of cmocka as the tests of the kernels use, for machines whose libraries are not here: the same names, the
 * same meaning (cmocka.org, API of 1.1). A failing assertion ends its test, and the others go on. */
#ifndef TESTS_ARM_CMOCKA_H
#define TESTS_ARM_CMOCKA_H
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest { const char *name; void (*fn)(void **state); };
#define cmocka_unit_test(f) { #f, f }

static jmp_buf cmocka_end;
#define skip() longjmp(cmocka_end, 2)

#define fail_msg(...) do { \
	fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
	fprintf(stderr, __VA_ARGS__); \
	fputc('\n', stderr); \
	longjmp(cmocka_end, 1); \
} while (0)
#define assert_true(c) do { if (!(c)) fail_msg("not true: %s", #c); } while (0)
#define assert_false(c) do { if (c) fail_msg("true: %s", #c); } while (0)
#define assert_null(p) assert_true((p) == NULL)
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b) do { \
	uintmax_t cmocka_a = (uintmax_t)(a), cmocka_b = (uintmax_t)(b); \
	if (cmocka_a != cmocka_b) \
		fail_msg("%s is %jd, %s is %jd", #a, (intmax_t)cmocka_a, #b, (intmax_t)cmocka_b); \
} while (0)
#define assert_in_range(v, lo, hi) assert_true((uintmax_t)(v) >= (uintmax_t)(lo) && (uintmax_t)(v) <= (uintmax_t)(hi))
#define assert_string_equal(a, b) assert_true(!strcmp((a), (b)))
#define assert_string_not_equal(a, b) assert_true(strcmp((a), (b)))
#define assert_memory_equal(a, b, n) assert_true(!memcmp((a), (b), (n)))
#define assert_memory_not_equal(a, b, n) assert_true(memcmp((a), (b), (n)))

static inline int cmocka_run_all(const struct CMUnitTest *t, size_t n)
{
	/* Not in registers: they must survive the jump. */
	static int failed;

	for (volatile size_t i = 0; i < n; i++) {
		void *state = NULL;

		int how = setjmp(cmocka_end);

		if (how) {
			printf("%s %s\n", how == 2 ? "skipped" : "not ok", t[i].name);
			failed += how == 1;
			continue;
		}
		t[i].fn(&state);
		printf("ok %s\n", t[i].name);
		fflush(stdout);
	}
	return failed;
}
#define cmocka_run_group_tests(t, setup, teardown) cmocka_run_all(t, sizeof(t) / sizeof(*(t)))

#endif
