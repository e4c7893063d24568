/* Elements of every type added up: in member order, in the type's own precision, with one rounding for the halves. */
#include <math.h>
#include "avg/coll_int.h"
#include "kernels/vec.h"
#include "t.h"

#define N 5000                          /* more than a block */

struct rows { const char *p; size_t bytes; };

static const void *row(const void *arg, uint32_t i)
{
	const struct rows *r = arg;

	return r->p + i * r->bytes;
}

/* One element of each of n members. */
static void sum(enum coll_type type, enum coll_op op, uint32_t n, const void *x, void *out)
{
	struct rows r = { x, coll_size(type) };

	coll_sum(type, op, 1, n, row, &r, out);
}

static void test_floats(void **state)
{
	float f[3] = { 1e8f, -1e8f, 3 }, back[3] = { 3, -1e8f, 1e8f }, small[3] = { 16777216, 1, 1 }, got;
	double d[3] = { 0.1, 0.2, 0.3 }, nan3[3] = { 1, NAN, 2 }, more;

	sum(COLL_F32, COLL_SUM, 3, f, &got);
	assert_true(got == 3);
	sum(COLL_F32, COLL_SUM, 3, back, &got);         /* member order, not the best one */
	assert_true(got == (3 - 1e8f) + 1e8f);
	sum(COLL_F32, COLL_SUM, 3, small, &got);
	assert_true(got == 16777216);
	sum(COLL_F64, COLL_SUM, 3, d, &more);
	assert_true(more == 0.1 + 0.2 + 0.3 && more != (double)(0.1f + 0.2f + 0.3f));
	sum(COLL_F64, COLL_MEAN, 3, d, &more);
	assert_true(more == (0.1 + 0.2 + 0.3) / 3);
	sum(COLL_F64, COLL_MAX, 3, d, &more);
	assert_true(more == 0.3);
	sum(COLL_F64, COLL_MAX, 3, nan3, &more);
	assert_true(isnan(more));
}

static void test_whole(void **state)
{
	int32_t i[3] = { INT32_MAX, 1, 5 }, low[2] = { -3, -4 }, got;
	int64_t l[3] = { INT64_MAX, 2, -7 }, big[2] = { (int64_t)1 << 53, 1 }, more;

	sum(COLL_I32, COLL_SUM, 3, i, &got);
	assert_int_equal(got, INT32_MIN + 5);        /* modulo 2^32 */
	sum(COLL_I32, COLL_MAX, 3, i, &got);
	assert_int_equal(got, INT32_MAX);
	sum(COLL_I32, COLL_MEAN, 2, low, &got);
	assert_int_equal(got, -3);
	sum(COLL_I64, COLL_SUM, 3, l, &more);
	assert_true(more == INT64_MAX - 5);
	sum(COLL_I64, COLL_SUM, 2, big, &more);         /* a double would lose the one */
	assert_true(more == ((int64_t)1 << 53) + 1);
	sum(COLL_I64, COLL_MAX, 3, l, &more);
	assert_true(more == INT64_MAX);
}

/* Added in float and rounded once: rounded after each member, the ones would all be lost. */
static void test_halves(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	float x[3] = { 2048, 1, 1 }, y[3] = { 256, 1, 1 }, over[2] = { 65504, 65504 }, got;
	uint16_t h[3], out;

	vec_to_f16(&par, 3, x, h);
	sum(COLL_F16, COLL_SUM, 3, h, &out);
	vec_from_f16(&par, 1, &out, &got);
	assert_true(got == 2050);
	sum(COLL_F16, COLL_MEAN, 3, h, &out);
	vec_from_f16(&par, 1, &out, &got);
	assert_true(fabsf(got - 2050.0f / 3) <= 0.25f);
	vec_to_f16(&par, 2, over, h);
	sum(COLL_F16, COLL_SUM, 2, h, &out);
	vec_from_f16(&par, 1, &out, &got);
	assert_true(isinf(got));
	vec_to_bf16(&par, 3, y, h);
	sum(COLL_BF16, COLL_SUM, 3, h, &out);
	vec_from_bf16(&par, 1, &out, &got);
	assert_true(got == 258);
	sum(COLL_BF16, COLL_MAX, 3, h, &out);
	vec_from_bf16(&par, 1, &out, &got);
	assert_true(got == 256);
}

/* Longer than a block, and into the memory of a member, as a step does it. */
static void test_long(void **state)
{
	int64_t *x = test_calloc(3 * N, sizeof(*x));
	struct rows r = { (const char *)x, N * sizeof(*x) };

	for (int64_t i = 0; i < 3; i++)
		for (int64_t k = 0; k < N; k++)
			x[i * N + k] = (i + 1) * k - 1000;
	coll_sum(COLL_I64, COLL_SUM, N, 3, row, &r, x + N);
	for (int64_t k = 0; k < N; k++)
		assert_true(x[N + k] == 6 * k - 3000);
	test_free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_floats), cmocka_unit_test(test_whole), cmocka_unit_test(test_halves),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
