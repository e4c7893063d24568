/* The reducer without a network: which element travels how, sums of encoded terms, means that few members cannot move,
 * and a descent that a liar ruins or does not. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "avg/reduce.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/rng.h"

static json_t *json(const char *text)
{
	json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
	assert_non_null(j);
	return j;
}

static void make(struct coding *c, const char *text, const struct avg_tensor *t, size_t n, uint64_t len)
{
	json_t *j = text ? json(text) : NULL;
	struct err e;
	if (coding_make(c, j, t, n, len, &e))
		fail_msg("%s: %s", text, e.text);
	json_decref(j);
}

static float noise(struct rng *r) { return (float)(rng_unit(r) + rng_unit(r) + rng_unit(r) - 1.5); }

static const struct avg_tensor tensors[] = { { 5000, AVG_MATRIX }, { 100, AVG_VECTOR }, { 300, AVG_MATRIX },
	{ 2000, AVG_VECTOR }, { 7000, AVG_STATE } };

static void test_roles(void **state)
{
	static const struct { const char *spec; const char *codec[5]; } rows[] = {
		{ "\"fp16\"", { "fp16", "fp16", "fp16", "fp16", "fp16" } },
		{ "{\"default\":\"blockwise8\",\"small\":\"none\"}", { "blockwise8", "none", "none",
			"blockwise8", "blockwise8" } },
		{ "{\"matrix\":\"bf16\",\"state\":\"uniform8\"}", { "bf16", "none", "bf16", "none", "uniform8" } },
		{ "{\"default\":\"fp16\",\"vector\":\"none\",\"small\":\"bf16\",\"small_below\":301}", { "fp16", "bf16", "bf16",
			"none", "fp16" } },
		{ "null", { "none", "none", "none", "none", "none" } },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct coding c;
		uint64_t at = 0;
		size_t run = 0, bytes = 0;
		make(&c, rows[i].spec, tensors, 5, 14400);
		for (int t = 0; t < 5; at += tensors[t++].len) {
			while (c.run[run].hi <= at)
				run++;
			if (strcmp(c.run[run].codec->name, rows[i].codec[t]))
				fail_msg("%s: tensor %d travels as %s, not %s", rows[i].spec, t, c.run[run].codec->name,
					rows[i].codec[t]);
			assert_true(c.run[run].hi >= at + tensors[t].len);
		}
		for (run = 0; run < c.n; run++)
			bytes += c.run[run].codec->bytes(c.run[run].hi - c.run[run].lo);
		assert_int_equal(coding_bytes(&c, 0, 14400), bytes);
		assert_int_equal(coding_plain(&c, 0, 14400), i == 4);
		coding_free(&c);
	}
}

static void test_refused(void **state)
{
	static const char *const rows[][2] = {
		{ "\"fp17\"", "fp17" }, { "17", "averaging.codec" }, { "{\"default\":\"zip\"}", "codec.default" },
		{ "{\"bias\":\"fp16\"}", "bias" }, { "{\"small_below\":0}", "small_below" }, { "{\"state\":1}", "codec.state" },
		{ "[\"fp16\"]", "averaging.codec" }, { "\"fp17\"", "blockwise8" },
	};
	enum robust robust;
	struct err e;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		json_t *j = json(rows[i][0]);
		assert_int_equal(coding_check(j, &e), -1);
		if (!strstr(e.text, rows[i][1]))
			fail_msg("%s: \"%s\" does not say %s", rows[i][0], e.text, rows[i][1]);
		json_decref(j);
	}
	assert_int_equal(robust_parse("krum", &robust, &e), -1);
	assert_non_null(strstr(e.text, "trimmed"));
	assert_int_equal(robust_parse(NULL, &robust, &e), -1);
}

/* Any part of any mix: terms that come encoded sum to what their decoded floats do; encoding a part needs nothing of
 * what is beside it. */
static void test_coded_sums(void **state)
{
	enum { N = 14400, M = 4 };
	struct coding c, plain;
	struct rng rng;
	float *x = xcalloc(M * N, sizeof *x), *y = xcalloc(M * N, sizeof *y), *a = xcalloc(N, sizeof *a),
		*b = xcalloc(N, sizeof *b);
	rng_seed(&rng, 3);
	make(&plain, NULL, NULL, 0, N);
	for (int round = 0; round < 40; round++) {
		struct reduce_term coded[M] = { 0 }, floats[M] = { 0 };
		uint64_t off = rng_below(&rng, N - 1), len = 1 + rng_below(&rng, N - off), total = 0;
		uint8_t *wire[M];
		make(&c, round % 2 ? "{\"default\":\"blockwise8\",\"vector\":\"fp16\",\"small\":\"none\"}" :
			"{\"matrix\":\"uniform8\","
			"\"state\":\"quantile8\",\"vector\":\"blockwise4\"}", tensors, 5, N);
		for (int i = 0; i < M; i++) {
			for (uint64_t k = 0; k < len; k++)
				x[(uint64_t)i * N + k] = noise(&rng);
			wire[i] = malloc(coding_bytes(&c, off, len));
			coding_encode(&c, off, len, x + i * N, wire[i]);
			coding_decode(&c, off, len, wire[i], y + i * N);
			coded[i] = (struct reduce_term){ .coded = wire[i], .weight = 1 + rng_below(&rng, 9) };
			floats[i] = (struct reduce_term){ .x = y + i * N, .weight = coded[i].weight };
			total += coded[i].weight;
		}
		assert_int_equal(reduce_part(&c, off, len, coded, M, total, (enum robust)(round % 4), a), 0);
		assert_int_equal(reduce_part(&c, off, len, floats, M, total, (enum robust)(round % 4), b), 0);
		assert_memory_equal(a, b, len * sizeof *a);
		for (int i = 0; i < M; i++)
			free(wire[i]);
		coding_free(&c);
	}
	coding_free(&plain);
	free(x);
	free(y);
	free(a);
	free(b);
}

static int ascending(const void *x, const void *y)
{
	float a = *(const float *)x, b = *(const float *)y;
	return a < b ? -1 : a > b;
}

static void test_order(void **state)
{
	enum { N = 700 };
	struct coding c;
	struct rng rng;
	float *x = xcalloc(9 * N, sizeof *x), out[N];
	rng_seed(&rng, 4);
	make(&c, NULL, NULL, 0, N);
	for (size_t m = 3; m <= 9; m++)
		for (int trimmed = 0; trimmed < 2; trimmed++) {
			struct reduce_term t[9] = { 0 };
			size_t cut = (m - 1) / 4 > 1 ? (m - 1) / 4 : 1;
			for (size_t i = 0; i < m; i++) {
				for (int k = 0; k < N; k++)
					x[i * N + (size_t)k] = noise(&rng);
				t[i] = (struct reduce_term){ .x = x + i * N, .weight = i + 1 };
			}
			assert_int_equal(reduce_part(&c, 0, N, t, m, m * (m + 1) / 2, trimmed ? ROBUST_TRIMMED : ROBUST_MEDIAN,
				out), 0);
			for (size_t k = 0; k < N; k++) {
				float v[9];
				double want = 0;
				for (size_t i = 0; i < m; i++)
					v[i] = x[i * N + k];
				qsort(v, m, sizeof *v, ascending);
				for (size_t i = cut; i < m - cut && trimmed; i++)
					want += v[i] / (double)(m - 2 * cut);
				if (!trimmed)
					want = ((double)v[(m - 1) / 2] + v[m / 2]) / 2;
				assert_true(fabs(out[k] - want) < 1e-6);
			}
		}
	coding_free(&c);
	free(x);
}

/* Nobody far away: clipping changes little. One far away: it is pulled in, and named. */
static void test_clip_and_odd(void **state)
{
	enum { N = 20000, M = 7 };
	struct coding c;
	struct rng rng;
	float *x = xcalloc(M * N, sizeof *x), *out = xcalloc(N, sizeof *out);
	rng_seed(&rng, 5);
	make(&c, NULL, NULL, 0, N);
	for (int evil = 0; evil < 2; evil++)
		for (int mode = ROBUST_CLIP; mode <= ROBUST_TRIMMED; mode++) {
			struct reduce_term t[M] = { 0 };
			double off = 0;
			for (int i = 0; i < M; i++) {
				for (int k = 0; k < N; k++)
					x[i * N + k] = (evil && i == 2 ? -1e6f : 1.0f) * (1 + noise(&rng));
				t[i] = (struct reduce_term){ .x = x + i * N, .weight = 10 };
			}
			assert_int_equal(reduce_part(&c, 0, N, t, M, 70, (enum robust)mode, out), 0);
			for (int k = 0; k < N; k++)
				off += (out[k] - 1.0) * (out[k] - 1.0) / N;
			if (off > 0.2)
				fail_msg("%s, evil %d: mean square distance %g", robust_name((enum robust)mode), evil, off);
			for (int i = 0; i < M; i++)
				assert_int_equal(t[i].odd, evil && i == 2);
		}
	coding_free(&c);
	free(x);
	free(out);
}

static void test_not_finite(void **state)
{
	enum { N = 40000, M = 4 };
	struct rng rng;
	float *x = xcalloc(M * N, sizeof *x), *out = xcalloc(N, sizeof *out);
	rng_seed(&rng, 6);
	for (int k = 0; k < M * N; k++)
		x[k] = noise(&rng);
	for (int round = 0; round < 24; round++) {
		struct coding c;
		struct reduce_term t[M] = { 0 };
		uint8_t *wire[M];
		int who = (int)rng_below(&rng, M + 1), codec = round % 8;
		uint64_t where = rng_below(&rng, N);
		char spec[40];
		snprintf(spec, sizeof spec, "\"%s\"", codec_at(codec)->name);
		make(&c, spec, NULL, 0, N);
		float was = who < M ? x[(uint64_t)who * N + where] : 0;
		if (who < M)
			x[(uint64_t)who * N + where] = round % 2 ? NAN : -INFINITY;
		for (int i = 0; i < M; i++) {
			wire[i] = malloc(coding_bytes(&c, 0, N));
			coding_encode(&c, 0, N, x + i * N, wire[i]);
			t[i] = (struct reduce_term){ .coded = wire[i], .weight = 1 };
		}
		assert_int_equal(reduce_part(&c, 0, N, t, M, M, (enum robust)(round / 8), out), who < M ? -1 : 0);
		for (int i = 0; i < M; i++) {
			assert_int_equal(t[i].bad, i == who);
			free(wire[i]);
		}
		if (who < M)
			x[(uint64_t)who * N + where] = was;
		coding_free(&c);
	}
	free(x);
	free(out);
}

/* Infinities of two members that would cancel, a NaN in the last float, and a sum that overflows by itself: only who
 * brought something is named. */
static void who_brought_what_is_not_finite(void **s)
{
	enum { N = 20000, M = 3 };
	float *x = xcalloc(M * N, sizeof *x), *out = xcalloc(N, sizeof *out);
	for (int what = 0; what < 4; what++) {
		struct coding c;
		struct reduce_term t[M] = { 0 };
		for (int k = 0; k < M * N; k++)
			x[k] = (float)(k % 7);
		if (what == 1) {
			x[17000] = INFINITY;
			x[2 * N + 17000] = -INFINITY;
		} else if (what == 2) {
			x[2 * N - 1] = NAN;
		} else if (what == 3) {
			x[5] = x[N + 5] = x[2 * N + 5] = FLT_MAX;
		}
		make(&c, "\"none\"", NULL, 0, N);
		for (int i = 0; i < M; i++)
			t[i] = (struct reduce_term){ .x = x + i * N, .weight = (uint64_t)i + 1 };
		assert_int_equal(reduce_part(&c, 0, N, t, M, 6, ROBUST_NONE, out), what == 1 || what == 2 ? -1 : 0);
		assert_int_equal(t[0].bad, what == 1);
		assert_int_equal(t[1].bad, what == 2);
		assert_int_equal(t[2].bad, what == 1);
		coding_free(&c);
	}
	free(x);
	free(out);
}

/* Least squares, eight members, one of whom sends something else; what is left of the distance after 300 steps. */
static double descent(enum robust robust, int evil, const char *codec)
{
	enum { N = 600, M = 8 };
	struct coding c;
	struct rng rng;
	float w[N] = { 0 }, want[N], mean[N], *x = xcalloc(M * N, sizeof *x);
	double left = 0;
	rng_seed(&rng, 7);
	make(&c, codec, NULL, 0, N);
	for (int k = 0; k < N; k++)
		want[k] = noise(&rng);
	for (int step = 0; step < 300; step++) {
		struct reduce_term t[M] = { 0 };
		uint8_t wire[M][4 * N];
		for (int i = 0; i < M; i++) {
			for (int k = 0; k < N; k++)
				x[i * N + k] = w[k] - want[k] + 0.5f * noise(&rng);
			for (int k = 0; k < N && i == 3 && evil; k++)
				x[i * N + k] = evil == 1 ? 1e8f * noise(&rng) : -20 * x[i * N + k];
			coding_encode(&c, 0, N, x + i * N, wire[i]);
			t[i] = (struct reduce_term){ .coded = wire[i], .weight = 16 };
		}
		assert_int_equal(reduce_part(&c, 0, N, t, M, 16 * M, robust, mean), 0);
		for (int k = 0; k < N; k++)
			w[k] -= 0.1f * mean[k];
	}
	for (int k = 0; k < N; k++)
		left += ((double)w[k] - want[k]) * ((double)w[k] - want[k]) / N;
	free(x);
	coding_free(&c);
	return left;
}

static void test_liar(void **state)
{
	double honest = descent(ROBUST_NONE, 0, NULL);
	assert_true(honest < 0.01);
	for (int evil = 1; evil <= 2; evil++) {
		double none = descent(ROBUST_NONE, evil, NULL);
		if (none < 1)
			fail_msg("liar %d, none: learns all the same, %g", evil, none);
		for (int mode = ROBUST_CLIP; mode <= ROBUST_TRIMMED; mode++)
			for (int k = 0; k < 2; k++) {
				double left = descent((enum robust)mode, evil, k ? "\"blockwise8\"" : NULL);
				if (!(left < 0.02))
					fail_msg("liar %d, %s: %g is left", evil, robust_name((enum robust)mode), left);
			}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_roles), cmocka_unit_test(test_refused), cmocka_unit_test(test_coded_sums),
		cmocka_unit_test(test_order), cmocka_unit_test(test_clip_and_odd), cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_liar), cmocka_unit_test(who_brought_what_is_not_finite),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
