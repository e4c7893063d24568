/* Weights of other programs: every half-precision number, brain floats and doubles become the right F32; names with and
 * without what the field puts in front of them; what is missing or does not fit is named. */
#include <math.h>
#include "ckpt/ckpt.h"
#include "common/buf.h"
#include "tests/unit/state_env.h"
#include "tests/unit/t.h"

static void put(struct world *w, const char *head, const void *data, size_t n)
{
	struct buf b = { 0 };
	char path[300];
	FILE *f;

	buf_u64(&b, strlen(head));
	buf_put(&b, head, strlen(head));
	buf_put(&b, data, n);
	snprintf(path, sizeof path, "%s/w", w->dir);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(b.p, 1, b.len, f), b.len);
	fclose(f);
	buf_free(&b);
}

static int get(struct world *w, const char *name, uint64_t n, float *ret, struct err *e)
{
	struct ckpt_tensor t;
	char path[300];

	snprintf(path, sizeof path, "%s/w", w->dir);
	assert_int_equal(ckpt_tensor(&t, name, CKPT_F32, 1, &n, ret, e), 0);
	return ckpt_read_weights(&w->files, path, &t, 1, e);
}

/* IEEE 754 binary16 by its definition. */
static double half(unsigned h)
{
	double v, sign = h >> 15 ? -1 : 1;
	int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);

	if (exponent == 31)
		return fraction ? NAN : sign * INFINITY;
	v = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
	return sign * v;
}

static void test_types(void **state)
{
	static uint16_t h[65536];
	static float got[65536];
	static double d[65536];
	struct world *w = world_new();
	struct err e;

	for (unsigned i = 0; i < 65536; i++) {
		h[i] = (uint16_t)i;
		d[i] = sin(i) * 1e3;
	}
	put(w, "{\"x\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}", h, sizeof h);
	assert_int_equal(get(w, "x", 65536, got, &e), 0);
	for (unsigned i = 0; i < 65536; i++) {
		double want = half(i);

		if (isnan(want) ? !isnan(got[i]) : got[i] != want || !signbit(got[i]) != !signbit(want))
			fail_msg("F16 %04x: %g, not %g", i, (double)got[i], want);
	}
	put(w, "{\"x\":{\"dtype\":\"BF16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}", h, sizeof h);
	assert_int_equal(get(w, "x", 65536, got, &e), 0);
	for (unsigned i = 0; i < 65536; i++) {
		uint32_t bits;

		memcpy(&bits, &got[i], 4);
		assert_int_equal(bits, i << 16);
	}
	put(w, "{\"x\":{\"dtype\":\"F64\",\"shape\":[65536],\"data_offsets\":[0,524288]}}", d, sizeof d);
	assert_int_equal(get(w, "x", 65536, got, &e), 0);
	for (unsigned i = 0; i < 65536; i++)
		assert_true(got[i] == (float)d[i]);
	world_free_all(w);
}

static void test_names(void **state)
{
	static const struct { const char *there, *asked; int ok; } row[] = {
		{ "h.0.w", "h.0.w", 1 }, { "h.0.w", "transformer.h.0.w", 1 }, { "model.h.0.w", "h.0.w", 1 },
		{ "module.h.0.w", "h.0.w", 1 }, { "encoder.h.0.w", "h.0.w", 0 }, { "h.1.w", "h.0.w", 0 },
	};
	const float v[2] = { 3, -4 };
	struct world *w = world_new();
	struct err e;

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		char head[200];
		float got[2] = { 0, 0 };

		snprintf(head, sizeof head, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", row[i].there);
		put(w, head, v, sizeof v);
		if ((get(w, row[i].asked, 2, got, &e) == 0) != row[i].ok)
			fail_msg("%s for %s: %s", row[i].there, row[i].asked, e.text);
		if (row[i].ok)
			assert_true(got[0] == 3 && got[1] == -4);
		else
			assert_non_null(strstr(e.text, "is not in the file, which has 1, such as"));
	}
	world_free_all(w);
}

static void test_misfits(void **state)
{
	const int64_t v[2] = { 1, 2 };
	float got[2];
	struct world *w = world_new();
	struct err e;

	put(w, "{\"x\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}", v, sizeof v);
	assert_int_equal(get(w, "x", 2, got, &e), -1);
	assert_non_null(strstr(e.text, "x is I64; weights are F32"));
	put(w, "{\"x\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", v, sizeof v);
	assert_int_equal(get(w, "x", 2, got, &e), -1);
	assert_non_null(strstr(e.text, "x is 2 x 2 in the file and 2 in the model"));
	put(w, "{\"x\":{\"dtype\":\"F128\",\"shape\":[1],\"data_offsets\":[0,16]}}", v, sizeof v);
	assert_int_equal(get(w, "x", 2, got, &e), -1);
	assert_non_null(strstr(e.text, "F128 is not known"));
	world_free_all(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_types), cmocka_unit_test(test_names),
		cmocka_unit_test(test_misfits) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
