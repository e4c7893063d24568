/* Generators: published outputs, uniformity, and the permutation's being one. */
#include "common/rng.h"
#include "tests/unit/t.h"

/* splitmix64 from seed 0 (Vigna's splitmix64.c) fills the state; xoshiro256** from that state starts so. */
static void published_outputs(void **s)
{
	struct rng r;

	rng_seed(&r, 0);
	assert_true(r.s[0] == 0xe220a8397b1dcdafu);
	assert_true(r.s[1] == 0x6e789e6aa1b965f4u);
	assert_true(r.s[2] == 0x06c45d188009454fu);
	assert_true(r.s[3] == 0xf88bb8a8724c81ecu);
	r = (struct rng){{ 1, 2, 3, 4 }};               /* the example of the reference implementation */
	assert_true(rng_u64(&r) == 11520);
	assert_true(rng_u64(&r) == 0);
	assert_true(rng_u64(&r) == 1509978240);
	assert_true(rng_u64(&r) == 1215971899390074240);
}

static void below_and_unit_are_uniform(void **s)
{
	struct rng r;
	int count[10] = {0}, bins[10] = {0};

	rng_seed(&r, 5);
	for (int i = 0; i < 100000; i++) {
		double u = rng_unit(&r);

		count[rng_below(&r, 10)]++;
		assert_true(u >= 0 && u < 1);
		bins[(int)(u * 10)]++;
	}
	for (int i = 0; i < 10; i++) {                  /* 10 000 with a standard deviation of 95 */
		assert_in_range(count[i], 9500, 10500);
		assert_in_range(bins[i], 9500, 10500);
	}
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(rng_below(&r, 1), 0);
		assert_true(rng_below(&r, UINT64_MAX) < UINT64_MAX);
		assert_true(rng_below(&r, ((uint64_t)1 << 63) + 1) <= (uint64_t)1 << 63);
	}
}

static void counter_based_bits_flip_by_half(void **s)
{
	long flips = 0;

	assert_true(rng_at(1, 2) == rng_at(1, 2));
	assert_true(rng_at(1, 2) != rng_at(2, 1));
	assert_true(rng_mix(1, 2) != rng_mix(2, 1));
	for (uint64_t c = 0; c < 4000; c++) {
		flips += __builtin_popcountll(rng_at(7, c) ^ rng_at(7, c + 1));
		flips += __builtin_popcountll(rng_at(c, 9) ^ rng_at(c + 1, 9));
	}
	assert_in_range(flips, 8000 * 32 - 2000, 8000 * 32 + 2000);
}

static void permutation(void **s)
{
	static const uint64_t sizes[] = { 1, 2, 3, 5, 16, 17, 100, 1437, 4096, 60000 };
	static unsigned char seen[60000];

	for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
		for (uint64_t key = 0; key < 3; key++) {
			uint64_t n = sizes[k], fixed = 0;

			memset(seen, 0, sizeof seen);
			for (uint64_t i = 0; i < n; i++) {
				uint64_t p = rng_permute(key, n, i);

				assert_true(p < n);
				assert_int_equal(seen[p]++, 0);
				fixed += p == i;
			}
			if (n > 10)
				assert_true(fixed < 12);        /* 1 on average */
		}
	assert_true(rng_permute(1, UINT64_MAX, UINT64_MAX - 1) < UINT64_MAX);
}

/* Every value must be as likely at every place: 6 items, 6000 keys, 1000 expected per cell, deviation 29. */
static void permutation_is_fair(void **s)
{
	int cell[6][6] = {{0}};

	for (uint64_t key = 0; key < 6000; key++)
		for (unsigned i = 0; i < 6; i++)
			cell[i][rng_permute(key, 6, i)]++;
	for (int i = 0; i < 36; i++)
		assert_in_range(cell[i / 6][i % 6], 850, 1150);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_outputs), cmocka_unit_test(below_and_unit_are_uniform),
		cmocka_unit_test(counter_based_bits_flip_by_half), cmocka_unit_test(permutation),
		cmocka_unit_test(permutation_is_fair),
	};

	return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
