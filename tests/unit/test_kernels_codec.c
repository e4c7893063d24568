/* The encodings for the wire: stated errors, the same bytes on every CPU, sizes, what is not finite, strange bytes,
 * and that error feedback loses nothing (K10). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/codec.h"
#include "common/mem.h"
#include "common/rng.h"

static const size_t sizes[] = { 0, 1, 2, 3, 127, 128, 129, 255, 256, 257, 1023, 1025, 4095, 4096, 4097, 16384, 16385,
	16641, 40001 };
#define SIZES (sizeof sizes / sizeof *sizes)

static double normal(struct rng *r)
{
	double s = 0;

	for (int i = 0; i < 12; i++)
		s += (double)rng_below(r, 1u << 24) / (1 << 24);
	return s - 6;
}

static void fill(struct rng *r, float *x, size_t n, double scale)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(normal(r) * scale);
}

/* Encodes and decodes through memory of exactly the stated sizes. */
static void through(const struct codec_ops *c, const struct par *par, size_t n, const float *x, float *y)
{
	uint8_t *wire = xcalloc(c->bytes(n) + 1, 1);

	wire[c->bytes(n)] = 0xa5;
	c->encode(par, n, x, wire);
	assert_int_equal(wire[c->bytes(n)], 0xa5);
	c->decode(par, n, wire, y);
	free(wire);
}

struct extremes { double most, least, greatest; };

static struct extremes extremes_of(const float *x, size_t n)
{
	struct extremes r = { 0, INFINITY, -INFINITY };

	for (size_t k = 0; k < n; k++) {
		r.most = fmax(r.most, fabs((double)x[k]));
		r.least = fmin(r.least, x[k]);
		r.greatest = fmax(r.greatest, x[k]);
	}
	return r;
}

/* b: of the block that v is in. */
static double error_allowed(const char *name, double v, struct extremes b)
{
	double a = fabs(v), most = b.most, least = b.least, greatest = b.greatest;

	if (!strcmp(name, "none"))
		return 0;
	if (!strcmp(name, "bf16"))
		return a * 0x1p-8;
	if (!strcmp(name, "fp16"))
		return a > 65504 ? a - 65504 : fmax(a * 0x1p-11, 0x1p-25);
	if (!strcmp(name, "fp16_scaled"))
		return fmax(a * 0x1p-11, most * 0x1p-38);
	if (!strcmp(name, "uniform8"))
		return (greatest - least) / 510 * (1 + 1e-9) + fmax(fabs(least), fabs(greatest)) * 0x1p-24;
	if (!strcmp(name, "blockwise8"))
		return most / 254 * (1 + 1e-5);
	if (!strcmp(name, "blockwise4"))
		return most / 14 * (1 + 1e-5);
	return most * 2;                        /* quantile8 promises a mean error, below */
}

static void test_errors(void **state)
{
	static const double scales[] = { 1e-25, 1e-3, 1, 1e4, 1e30 };
	struct par par = par_serial(CPU_PLAIN, NULL);
	float *x = xcalloc(40001, sizeof *x), *y = xcalloc(40001, sizeof *y);
	struct rng rng;

	rng_seed(&rng, 11);
	for (int k = 0; codec_at(k); k++)
		for (size_t s = 0; s < SIZES; s++)
			for (int j = 0; j < 5; j++) {
				const struct codec_ops *c = codec_at(k);
				size_t n = sizes[s], bad = n;
				struct extremes b = { 0 };

				fill(&rng, x, n, scales[j]);
				for (size_t i = 0; i < n; i += 7)
					x[i] = 0;
				through(c, &par, n, x, y);
				for (size_t i = 0; i < n && bad == n; i++) {
					if (i % c->block == 0)
						b = extremes_of(x + i, n - i < c->block ? n - i : c->block);
					if (!(fabs((double)y[i] - x[i]) <= error_allowed(c->name, x[i], b)))
						bad = i;
				}
				if (bad < n)
					fail_msg("%s, %zu elements, scale %g: %zu: %.9g became %.9g", c->name, n, scales[j], bad, x[bad],
						y[bad]);
			}
	free(x);
	free(y);
}

/* hivemind's figures for normal numbers: mean square errors of its codecs (test_compression.py). */
static void test_mean_square(void **state)
{
	static const struct { const char *name; double most, bits; } want[] = { { "fp16", 5e-8, 16 }, { "fp16_scaled", 5e-8,
		16.1 }, { "uniform8", 8e-4, 8.1 }, { "quantile8", 8e-4, 8.6 }, { "blockwise8", 8e-4, 8.2 },
		{ "blockwise4", 2e-2, 4.3 }, { "bf16", 1e-5, 16 }, { "none", 0, 32 } };
	size_t n = 1 << 17;
	struct par par = par_serial(CPU_PLAIN, NULL);
	float *x = xcalloc(n, sizeof *x), *y = xcalloc(n, sizeof *y);
	struct rng rng;

	rng_seed(&rng, 12);
	fill(&rng, x, n, 1);
	for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
		const struct codec_ops *c = codec_find(want[k].name);
		double sum = 0;

		through(c, &par, n, x, y);
		for (size_t i = 0; i < n; i++)
			sum += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
		if (sum / (double)n > want[k].most || 8.0 * (double)c->bytes(n) / (double)n > want[k].bits)
			fail_msg("%s: mean square error %g, %g bits", c->name, sum / (double)n,
				8.0 * (double)c->bytes(n) / (double)n);
	}
	free(x);
	free(y);
}

static void backwards(const struct par *par, void (*fn)(void *arg, int part, int parts), void *arg)
{
	for (int i = par->n; i-- > 0;)
		fn(arg, i, par->n);
}

/* Instruction sets, teams, and cuts at multiples of the block: the same bytes and the same floats. */
static void test_same_bytes(void **state)
{
	static const char *const cpus[] = { "plain", "avx2", "avx512" };
	size_t n = 5 * 16384 + 777;
	float *x = xcalloc(n, sizeof *x), *y = xcalloc(n, sizeof *y), *z = xcalloc(n, sizeof *z);
	struct rng rng;

	rng_seed(&rng, 13);
	fill(&rng, x, n, 3);
	x[4100] = NAN;
	x[70000] = INFINITY;
	for (int k = 0; codec_at(k); k++) {
		const struct codec_ops *c = codec_at(k);
		uint8_t *a = xcalloc(c->bytes(n), 1), *b = xcalloc(c->bytes(n), 1);
		struct par plain = par_serial(CPU_PLAIN, NULL);

		c->encode(&plain, n, x, a);
		c->decode(&plain, n, a, y);
		for (int i = 0; i < 3; i++) {
			struct par par = { .n = 3, .run = backwards };

			assert_int_equal(cpu_pick(cpus[i], &par.cpu, NULL), 0);
			memset(b, 0xee, c->bytes(n));
			c->encode(&par, n, x, b);
			if (memcmp(a, b, c->bytes(n)))
				fail_msg("%s: other bytes on %s", c->name, cpus[i]);
			c->decode(&par, n, b, z);
			for (size_t e = 0; e < n; e++)
				if (memcmp(&y[e], &z[e], 4) && !(isnan(y[e]) && isnan(z[e])))
					fail_msg("%s: %zu decodes to something else on %s", c->name, e, cpus[i]);
		}
		for (size_t at = 0; at < n; at += 2 * CODEC_BLOCK_MAX) {
			size_t len = n - at < 2 * CODEC_BLOCK_MAX ? n - at : 2 * CODEC_BLOCK_MAX;

			c->encode(&plain, len, x + at, b + c->bytes(at));
		}
		assert_int_equal(CODEC_BLOCK_MAX % c->block, 0);
		assert_memory_equal(a, b, c->bytes(n));
		free(a);
		free(b);
	}
	free(x);
	free(y);
	free(z);
}

static void test_not_finite(void **state)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY };
	struct par par = par_serial(CPU_PLAIN, NULL);
	float x[300], y[300];
	struct rng rng;

	rng_seed(&rng, 14);
	for (int k = 0; codec_at(k); k++)
		for (size_t at = 0; at < 300; at += 13)
			for (int o = 0; o < 3; o++) {
				fill(&rng, x, 300, 1);
				x[at] = odd[o];
				through(codec_at(k), &par, 300, x, y);
				if (isfinite(y[at]))
					fail_msg("%s: %g at %zu became %g", codec_at(k)->name, odd[o], at, y[at]);
			}
	for (int k = 0; codec_at(k); k++) {     /* ... and the largest finite numbers stay finite */
		for (int i = 0; i < 300; i++)
			x[i] = i % 2 ? 3.4028235e38f : -3.4028235e38f;
		through(codec_at(k), &par, 300, x, y);
		for (int i = 0; i < 300; i++)
			if (!isfinite(y[i]) || (y[i] > 0) != (x[i] > 0))
				fail_msg("%s: %g became %g", codec_at(k)->name, x[i], y[i]);
	}
}

/* Any bytes decode: exactly bytes(n) of them are read, n numbers written. */
static void test_strange_bytes(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct rng rng;

	rng_seed(&rng, 15);
	for (int k = 0; codec_at(k); k++)
		for (int round = 0; round < 60; round++) {
			size_t n = rng_below(&rng, 700), bytes = codec_at(k)->bytes(n);
			uint8_t *wire = malloc(bytes ? bytes : 1);
			float *y = malloc((n ? n : 1) * sizeof *y);

			for (size_t i = 0; i < bytes; i++)
				wire[i] = round % 3 ? (uint8_t)rng_u64(&rng) : 0xff;
			codec_at(k)->decode(&par, n, wire, y);
			free(wire);
			free(y);
		}
}

/* What was sent and what is still owed are together what should have been sent. */
static void test_telescoping(void **state)
{
	enum { N = 5000, STEPS = 100 };
	struct par par = par_serial(CPU_PLAIN, NULL);
	float *x = xcalloc(N, sizeof *x), *y = xcalloc(N, sizeof *y), *owed = xcalloc(N, sizeof *owed);
	double *sent = xcalloc(N, sizeof *sent), *truth = xcalloc(N, sizeof *truth);

	for (int k = 0; codec_at(k); k++) {
		struct rng rng;

		rng_seed(&rng, 16);
		memset(owed, 0, N * sizeof *owed);
		memset(sent, 0, N * sizeof *sent);
		memset(truth, 0, N * sizeof *truth);
		for (int t = 0; t < STEPS; t++) {
			fill(&rng, x, N, 0.1);
			for (int i = 0; i < N; i++) {
				truth[i] += x[i];
				x[i] += owed[i];
			}
			through(codec_at(k), &par, N, x, y);
			for (int i = 0; i < N; i++) {
				owed[i] = x[i] - y[i];
				sent[i] += y[i];
			}
		}
		for (int i = 0; i < N; i++)
			if (!(fabs(sent[i] + owed[i] - truth[i]) < 1e-5))
				fail_msg("%s: %d: sent %g and owed %g are not %g", codec_at(k)->name, i, sent[i], owed[i], truth[i]);
	}
	free(x);
	free(y);
	free(owed);
	free(sent);
	free(truth);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors), cmocka_unit_test(test_mean_square), cmocka_unit_test(test_same_bytes),
		cmocka_unit_test(test_not_finite), cmocka_unit_test(test_strange_bytes), cmocka_unit_test(test_telescoping),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
