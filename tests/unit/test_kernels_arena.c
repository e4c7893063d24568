/* The arena: exact budget, exact peak, marks, alignment, and poison under ASan. */
#include "kernels_util.h"
#include "kernels/arena.h"
#include "skip.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static void budget_is_exact(void **state)
{
	struct arena a;
	struct kerr e;

	assert_int_equal(arena_init(&a, 256, &e), 0);
	assert_non_null(arena_alloc(&a, 64, "weights", &e));
	assert_non_null(arena_alloc(&a, 1, "one byte", &e));
	assert_int_equal(a.used, 128);
	assert_null(arena_alloc(&a, 129, "activations", &e));
	assert_non_null(strstr(e.text, "activations"));
	assert_non_null(strstr(e.text, "129"));
	assert_non_null(strstr(e.text, "256"));
	assert_int_equal(a.used, 128);
	assert_non_null(arena_alloc(&a, 128, "the rest", &e));
	assert_null(arena_alloc(&a, 1, "too much", &e));
	assert_non_null(arena_alloc(&a, 0, "nothing", &e));
	assert_int_equal(a.peak, 256);
	arena_done(&a);
}

static void a_budget_need_not_be_round(void **state)
{
	struct arena a;
	struct kerr e;

	assert_int_equal(arena_init(&a, 100, &e), 0);
	assert_non_null(arena_alloc(&a, 64, "first", &e));
	assert_null(arena_alloc(&a, 37, "second", &e));
	assert_non_null(arena_alloc(&a, 36, "second", &e));
	assert_int_equal(a.peak, 100);
	arena_done(&a);
}

static void marks_give_back_and_peak_stays(void **state)
{
	struct arena a;
	struct kerr e;
	struct arena_mark m;
	void *p, *q;

	assert_int_equal(arena_init(&a, 1024, &e), 0);
	arena_alloc(&a, 64, "kept", &e);
	m = arena_mark(&a);
	p = arena_alloc(&a, 512, "scratch", &e);
	assert_int_equal((uintptr_t)p % 64, 0);
	memset(p, 1, 512);
	arena_release(&a, m);
	assert_int_equal(a.used, 64);
	assert_int_equal(a.peak, 576);
	q = arena_alloc(&a, 8, "again", &e);
	assert_ptr_equal(p, q);
	arena_reset(&a);
	assert_int_equal(a.used, 0);
	assert_int_equal(a.peak, 576);
	arena_done(&a);
}

static void overruns_are_poisoned(void **state)
{
#ifdef __SANITIZE_ADDRESS__
	struct arena a;
	struct kerr e;
	struct arena_mark m;
	unsigned char *p;

	assert_int_equal(arena_init(&a, 4096, &e), 0);
	m = arena_mark(&a);
	p = arena_alloc(&a, 100, "piece", &e);
	arena_alloc(&a, 100, "neighbour", &e);
	assert_false(__asan_address_is_poisoned(p + 99));
	assert_true(__asan_address_is_poisoned(p + 100));
	assert_true(__asan_address_is_poisoned(p + 128));
	arena_release(&a, m);
	assert_true(__asan_address_is_poisoned(p));
	arena_done(&a);
#else
	skip_because("this build is not for AddressSanitizer");
#endif
}

static void absurd_sizes_are_errors(void **state)
{
	struct arena a;
	struct kerr e;

	assert_int_equal(arena_init(&a, SIZE_MAX, &e), -1);
	assert_non_null(strstr(e.text, "larger than the address space"));
	assert_int_equal(arena_init(&a, 64, &e), 0);
	assert_null(arena_alloc(&a, SIZE_MAX, "all", &e));
	assert_null(arena_alloc(&a, SIZE_MAX - 10, "nearly all", &e));
	arena_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(budget_is_exact),
		cmocka_unit_test(a_budget_need_not_be_round),
		cmocka_unit_test(marks_give_back_and_peak_stays),
		cmocka_unit_test(overruns_are_poisoned),
		cmocka_unit_test(absurd_sizes_are_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
