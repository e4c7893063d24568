/* Vectors: equal bytes on every instruction set and for every team, against plain loops, at awkward lengths. */
#include "kernels_util.h"
#include <math.h>
#include <stdio.h>
#include "kernels/vec.h"
#include "skip.h"

static const size_t lengths[] = { 0, 1, 15, 16, 17, 1023, 1024, 1025, 5000, 32769, 300001 };
#define LENGTHS (sizeof lengths / sizeof *lengths)

/* The other ways to execute; [0] is the reference: plain, alone. */
static int ways(struct par *ret)
{
	enum cpu best;
	int n = 0;

	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (enum cpu c = CPU_PLAIN; c <= best; c++) {
		ret[n++] = par_serial(c, NULL);
		ret[n++] = team(2, c, NULL);
		ret[n++] = team(7, c, NULL);
	}
	return n;
}

static void says_what_it_covers(void **state)
{
	enum cpu best, c;
	struct kerr e;

	assert_int_equal(cpu_pick("auto", &best, &e), 0);
	printf("instruction sets compared: plain%s%s\n", best >= CPU_AVX2 ? " avx2" : "",
		best >= CPU_AVX512 ? " avx512" : "; this CPU has no AVX-512: skipped");
	assert_int_equal(cpu_pick("plain", &c, &e), 0);
	assert_int_equal(c, CPU_PLAIN);
	assert_int_equal(cpu_pick("avx512", &c, &e), 0);
	assert_int_equal(c, best);
	assert_int_equal(cpu_pick("sse9", &c, &e), -1);
	assert_non_null(strstr(e.text, "sse9"));
	assert_non_null(strstr(e.text, "plain"));
}

/* Special values are sprinkled in: zeros of both signs, denormals, huge numbers. */
static real *data(uint64_t key, size_t n)
{
	static const real odd[] = { 0.0f, -0.0f, 1e-41f, -3e38f, 1e-30f, 65504.0f, 65520.0f, 6e-8f };
	real *x = noise(key, 3, n);

	for (size_t i = 0; i < n; i += 13)
		x[i] = odd[rand_bits(key, i) % 8];
	return x;
}

static size_t everything(const struct par *par, size_t n, unsigned char *out)
{
	real *x = data(1, n), *y = data(2, n), *z = reals(n);
	uint16_t *h = malloc(2 * n + 1);
	double sums[6];
	size_t at = 0;

#define KEEP(p, size) do { memcpy(out + at, p, size); at += (size); } while (0)
	vec_copy(par, n, y, z); vec_axpy(par, n, 0.3, x, z); KEEP(z, n * sizeof(real));
	vec_lerp(par, n, 0.1, x, z); KEEP(z, n * sizeof(real));
	vec_scale(par, n, 1.7, z); KEEP(z, n * sizeof(real));
	vec_sub(par, n, z, y, z); KEEP(z, n * sizeof(real));
	vec_mean_add(par, n, 1.0 / 3, x, z, 1); vec_mean_add(par, n, 2.0 / 3, y, z, 0); KEEP(z, n * sizeof(real));
	vec_to_f16(par, n, x, h); KEEP(h, 2 * n);
	vec_from_f16(par, n, h, z); KEEP(z, n * sizeof(real));
	vec_to_bf16(par, n, x, h); KEEP(h, 2 * n);
	vec_from_bf16(par, n, h, z); KEEP(z, n * sizeof(real));
	vec_clip_value(par, n, 0.5, z); KEEP(z, n * sizeof(real));
	vec_fill(par, n, (real)0.1, z); KEEP(z, n * sizeof(real));
	for (size_t i = 0; i < n; i += 13)
		x[i] = (real)0.25;
	sums[0] = vec_dot(par, n, x, y);
	sums[1] = vec_sum(par, n, x);
	sums[2] = vec_norm2(par, n, y);
	sums[3] = vec_max_abs(par, n, y);
	sums[4] = vec_clip_norm(par, n, 1, x);
	sums[5] = (double)vec_nonfinite(par, n, y);
	KEEP(sums, sizeof sums);
	KEEP(x, n * sizeof(real));
#undef KEEP
	free(x); free(y); free(z); free(h);
	return at;
}

static void equal_bytes_everywhere(void **state)
{
	struct par way[9];
	int n = ways(way);

	for (size_t l = 0; l < LENGTHS; l++) {
		size_t cap = lengths[l] * 64 + 64, used;
		unsigned char *want = malloc(cap), *got = malloc(cap);

		used = everything(&way[0], lengths[l], want);
		assert_true(used <= cap);
		for (int w = 1; w < n; w++) {
			assert_int_equal(everything(&way[w], lengths[l], got), used);
			if (memcmp(want, got, used))
				fail_msg("%s with %d workers differs from plain at n = %zu", cpu_name(way[w].cpu),
					way[w].n, lengths[l]);
		}
		free(want);
		free(got);
	}
}

static void sums_are_right(void **state)
{
	struct par par = team(3, CPU_PLAIN, NULL);

	for (size_t l = 0; l < LENGTHS; l++) {
		size_t n = lengths[l];
		real *x = noise(8, 1, n), *y = noise(9, 1, n);
		long double dot = 0, sum = 0;
		double most = 0;

		for (size_t i = 0; i < n; i++) {
			dot += (long double)x[i] * y[i];
			sum += x[i];
			most = fabs((double)x[i]) > most ? fabs((double)x[i]) : most;
		}
		assert_true(fabs((double)(vec_dot(&par, n, x, y) - dot)) <= 1e-10);
		assert_true(fabs((double)(vec_sum(&par, n, x) - sum)) <= 1e-10);
		assert_true(vec_max_abs(&par, n, x) == most);
		free(x);
		free(y);
	}
}

/* The order is part of the contract: the tree over blocks, spelled out recursively. */
static double tree(const double *s, size_t n)
{
	size_t half = 1;

	if (n == 1)
		return s[0];
	while (half * 2 < n)
		half *= 2;
	return tree(s, half) + tree(s + half, n - half);
}

static void sums_have_the_stated_order(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	size_t n = 1024 * 777 + 5, blocks = 778;
	real *x = noise(3, 1e3, n);
	double *block = calloc(blocks, sizeof *block);

	for (size_t b = 0; b < blocks; b++) {
		double lane[16] = { 0 };

		for (size_t i = b * 1024; i < n && i < (b + 1) * 1024; i++)
			lane[i % 16] += (double)x[i];
		for (int j = 0; j < 8; j++)
			lane[j] += lane[j + 8];
		block[b] = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
	}
	assert_true(vec_sum(&par, n, x) == tree(block, blocks));
	free(block);
	free(x);
}

static void one_member_keeps_its_bits(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	size_t n = 4097;
	real *x = data(5, n), *acc = bytes(n * sizeof(real));

	vec_mean_add(&par, n, 1, x, acc, 1);
	assert_memory_equal(acc, x, n * sizeof(real));
	/* Equal members with equal weights give the same bits back as well. */
	vec_mean_add(&par, n, 0.5, x, acc, 1);
	vec_mean_add(&par, n, 0.5, x, acc, 0);
	for (size_t i = 0; i < n; i++)
		assert_true(acc[i] == x[i] || fabsf((float)x[i]) < 1e-37f);
	free(x);
	free(acc);
}

static void nonfinite_is_found_first(void **state)
{
	size_t n = 700001, at[] = { 700000, 400123, 5000, 1024, 0 };
	real *x = noise(6, 1, n);
	struct par par = team(3, CPU_PLAIN, NULL);

	assert_int_equal(vec_nonfinite(&par, n, x), n);
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		x[at[i]] = i % 2 ? (real)INFINITY : (real)NAN;
		assert_int_equal(vec_nonfinite(&par, n, x), at[i]);
	}
	free(x);
}

static void clipping_follows_the_norm(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	real x[4] = { 3, 0, 4, 0 }, keep[4] = { 3, 0, 4, 0 }, bad[2] = { INFINITY, 1 };

	assert_true(vec_clip_norm(&par, 4, 10, x) == 5);
	assert_memory_equal(x, keep, sizeof x);
	assert_true(vec_clip_norm(&par, 4, 1, x) == 5);
	assert_true(fabs(vec_norm2(&par, 4, x) - 1) < 1e-6);
	assert_true(isinf(vec_clip_norm(&par, 2, 1, bad)));
	assert_true(isinf(bad[0]) && bad[1] == 1);
}

#ifdef __FLT16_MAX__
static void half_casts_are_ieee(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);

	for (uint32_t i = 0; i < 65536; i++) {
		uint16_t h = (uint16_t)i, back;
		_Float16 want;
		real x;

		memcpy(&want, &h, sizeof h);
		vec_from_f16(&par, 1, &h, &x);
		assert_true(x == (real)want || (x != x && want != want));
		vec_to_f16(&par, 1, &x, &back);
		assert_true(back == h || x != x);
	}
	for (uint64_t i = 0; i < 300000; i++) {
		uint32_t u = (uint32_t)rand_bits(1, i);
		uint16_t h;
		float f;
		_Float16 want, got;

		if (i & 1)      /* most floats overflow a half: aim every other one at its range */
			u = (u & 0x8fffffffu) | 0x30000000u;
		memcpy(&f, &u, sizeof f);
		want = (_Float16)f;
		vec_to_f16(&par, 1, &(real){ f }, &h);
		memcpy(&got, &h, sizeof h);
		if (!(got == want || (f != f && got != got)))
			fail_msg("%.9g becomes %04x", (double)f, h);
	}
}
#else
static void half_casts_are_ieee(void **state) { skip_because("this compiler has no _Float16"); }
#endif

static void bf16_rounds_to_even(void **state)
{
	static const struct { float f; uint16_t h; } row[] = { { 1.0f, 0x3f80 }, { 1.00390625f, 0x3f80 },
		{ 1.01171875f, 0x3f82 }, { -2.0f, 0xc000 }, { 3.4e38f, 0x7f80 }, { INFINITY, 0x7f80 } };
	struct par par = par_serial(CPU_PLAIN, NULL);
	uint16_t h;
	real x;

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		x = row[i].f;
		vec_to_bf16(&par, 1, &x, &h);
		assert_int_equal(h, row[i].h);
	}
	x = (real)NAN;
	vec_to_bf16(&par, 1, &x, &h);
	vec_from_bf16(&par, 1, &h, &x);
	assert_true(x != x);
}

static void slices_cover_once(void **state)
{
	for (size_t n = 0; n < 70; n++)
		for (int parts = 1; parts < 9; parts++)
			for (size_t grain = 1; grain < 20; grain += 6) {
				size_t next = 0, lo, hi;

				for (int p = 0; p < parts; p++) {
					par_slice(n, grain, p, parts, &lo, &hi);
					assert_true(lo == next && hi >= lo && (hi == n || hi % grain == 0));
					next = hi;
				}
				assert_int_equal(next, n);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_what_it_covers),
		cmocka_unit_test(equal_bytes_everywhere),
		cmocka_unit_test(sums_are_right),
		cmocka_unit_test(sums_have_the_stated_order),
		cmocka_unit_test(one_member_keeps_its_bits),
		cmocka_unit_test(nonfinite_is_found_first),
		cmocka_unit_test(clipping_follows_the_norm),
		cmocka_unit_test(half_casts_are_ieee),
		cmocka_unit_test(bf16_rounds_to_even),
		cmocka_unit_test(slices_cover_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
