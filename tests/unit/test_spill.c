/* Where values of tier file lie in their one file: exec/spill.c. */
#include "common/rng.h"
#include "exec/spill.h"
#include "t.h"

struct place { uint64_t at, bytes; };
static uint64_t pages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

/* The lowest place of so many bytes beside those that are taken: at the beginning, or behind one of them. */
static uint64_t lowest(const struct place *v, size_t n, uint64_t bytes)
{
	uint64_t best = UINT64_MAX;

	for (size_t k = 0; k <= n; k++) {
		uint64_t at = k < n ? v[k].at + pages(v[k].bytes) : 0;
		bool is_free = k == n || v[k].bytes;

		for (size_t i = 0; i < n; i++)
			is_free = is_free && (!v[i].bytes || v[i].at + pages(v[i].bytes) <= at || at + pages(bytes) <= v[i].at);
		best = is_free && at < best ? at : best;
	}
	return best;
}

/* Places never overlap, the lowest that is free is taken, and what is free is whole again. */
static void test_places(void **state)
{
	struct place v[32] = { 0 };
	struct spill *s = spill_new(NULL, "/far");
	struct rng r;

	rng_seed(&r, any_seed());
	for (int step = 0; step < 20000; step++) {
		size_t k = rng_u64(&r) % 32;
		if (v[k].bytes) {
			spill_give(s, v[k].at, v[k].bytes);
			v[k].bytes = 0;
			continue;
		}
		uint64_t bytes = 1 + rng_u64(&r) % 40000, at = lowest(v, 32, bytes);

		v[k] = (struct place){ spill_take(s, bytes), bytes };
		assert_int_equal(v[k].at, at);
		assert_int_equal(v[k].at % 4096, 0);
		for (size_t n = 0; n < 32; n++)
			assert_true(n == k || !v[n].bytes || v[n].at + v[n].bytes <= v[k].at || v[k].at + v[k].bytes <= v[n].at);
	}
	for (size_t k = 0; k < 32; k++)
		if (v[k].bytes)
			spill_give(s, v[k].at, v[k].bytes);
	assert_int_equal(spill_take(s, 10000), 0);
	assert_int_equal(spill_take(s, 1), 3 * 4096);
	assert_int_equal(spill_take(s, 0), 4 * 4096);
	spill_give(s, 0, 10000);
	spill_give(s, 3 * 4096, 1);
	assert_int_equal(spill_take(s, 4 * 4096), 0);
	spill_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_places) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
