/* Resampling with vectors of 16 sums. Along columns neighbours lie beside each other; along rows 16 rows are turned
 * into columns first, and back afterwards. */
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include "common/mem.h"
#include "kernels/par.h"
#include "train/data/resample.h"

#define BITS 22
#define TILE 16

void weights_make(struct weights *k, size_t in, size_t out)
{
	double scale = (double)in / (double)out, filter = scale < 1 ? 1 : scale, support = filter;
	double *w;

	k->in = in;
	k->out = out;
	k->stride = (size_t)support * 2 + 3;
	k->first = xcalloc(out, sizeof(*k->first));
	k->n = xcalloc(out, sizeof(*k->n));
	k->weight = xcalloc(out * k->stride, sizeof(*k->weight));
	w = xcalloc(k->stride, sizeof(*w));
	for (size_t i = 0; i < out; i++) {
		double center = ((double)i + 0.5) * scale, sum = 0;
		long lo = (long)(center - support + 0.5), hi = (long)(center + support + 0.5);

		lo = lo < 0 ? 0 : lo;
		hi = hi > (long)in ? (long)in : hi;
		for (long x = lo; x < hi; x++) {
			double far = ((double)x - center + 0.5) * (1 / filter);

			far = far < 0 ? -far : far;
			w[x - lo] = far < 1 ? 1 - far : 0;
			sum += w[x - lo];
		}
		k->first[i] = (uint32_t)lo;
		k->n[i] = (uint32_t)(hi - lo);
		for (long x = 0; x < hi - lo; x++)
			k->weight[i * k->stride + (size_t)x] = (int32_t)(0.5 + (sum != 0 ? w[x] / sum : 0) * (1 << BITS));
	}
	free(w);
}

void weights_free(struct weights *k)
{
	free(k->first);
	free(k->n);
	free(k->weight);
}

/* Outputs [lo, hi): each a weighted sum of n[i] vectors of 16 bytes, `step` bytes from one to the next; the bytes go to
 * to + i * to_step. */
struct sums { const struct weights *k; const uint8_t *from; size_t step; uint8_t *to; size_t to_step; };

static uint8_t byte_of(int32_t v)
{
	v >>= BITS;
	return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v;
}

static void sums_plain(const struct sums *a)
{
	for (size_t i = 0; i < a->k->out; i++) {
		const int32_t *w = a->k->weight + i * a->k->stride;
		const uint8_t *x = a->from + a->k->first[i] * a->step;
		int32_t v[TILE] = { 0 };

		for (uint32_t j = 0; j < a->k->n[i]; j++, x += a->step)
			for (int r = 0; r < TILE; r++)
				v[r] += x[r] * w[j];
		for (int r = 0; r < TILE; r++)
			a->to[i * a->to_step + (size_t)r] = byte_of(v[r] + (1 << (BITS - 1)));
	}
}

#ifdef __x86_64__
/* The packs saturate, which is what byte_of does; they work on halves of registers, so the words are put in order. */
__attribute__((target("avx2")))
static void sums_avx2(const struct sums *a)
{
	const __m256i half = _mm256_set1_epi32(1 << (BITS - 1));

	for (size_t i = 0; i < a->k->out; i++) {
		const int32_t *w = a->k->weight + i * a->k->stride;
		const uint8_t *x = a->from + a->k->first[i] * a->step;
		__m256i s0 = half, s1 = half;
		__m128i words;

		for (uint32_t j = 0; j < a->k->n[i]; j++, x += a->step) {
			__m256i weight = _mm256_set1_epi32(w[j]);
			__m128i p = _mm_loadu_si128((const __m128i *)x);

			s0 = _mm256_add_epi32(s0, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(p), weight));
			s1 = _mm256_add_epi32(s1, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(p, 8)), weight));
		}
		s0 = _mm256_packs_epi32(_mm256_srai_epi32(s0, BITS), _mm256_srai_epi32(s1, BITS));
		s0 = _mm256_permute4x64_epi64(s0, 0xd8);
		words = _mm_packus_epi16(_mm256_castsi256_si128(s0), _mm256_extracti128_si256(s0, 1));
		_mm_storeu_si128((__m128i *)(a->to + i * a->to_step), words);
	}
}
#endif

static void run_sums(const struct sums *a, enum cpu cpu)
{
#ifdef __x86_64__
	if (cpu >= CPU_AVX2) {
		sums_avx2(a);
		return;
	}
#endif
	sums_plain(a);
}

static enum cpu best(void)
{
	enum cpu cpu = CPU_PLAIN;
	struct kerr why;

	(void)cpu_pick(NULL, &cpu, &why);
	return cpu;
}

#ifdef __x86_64__
/* The bytes of the first half with those of the second between them: four times is a transposition. */
static inline void shuffle(const __m128i from[16], __m128i to[16])
{
	for (int i = 0; i < 8; i++) {
		to[2 * i] = _mm_unpacklo_epi8(from[i], from[i + 8]);
		to[2 * i + 1] = _mm_unpackhi_epi8(from[i], from[i + 8]);
	}
}
#endif

/* 16 x 16 bytes: rows `from_step` apart become columns. */
static void turn(const uint8_t *from, size_t from_step, uint8_t *to, size_t to_step)
{
#ifdef __x86_64__
	__m128i a[16], b[16];

	for (int i = 0; i < 16; i++)
		a[i] = _mm_loadu_si128((const __m128i *)(from + (size_t)i * from_step));
	for (int twice = 0; twice < 2; twice++) {
		shuffle(a, b);
		shuffle(b, a);
	}
	for (int i = 0; i < 16; i++)
		_mm_storeu_si128((__m128i *)(to + (size_t)i * to_step), a[i]);
#else
	for (size_t i = 0; i < 16; i++)
		for (size_t j = 0; j < 16; j++)
			to[j * to_step + i] = from[i * from_step + j];
#endif
}

static size_t tiles(size_t n)
{
	return (n + TILE - 1) / TILE * TILE;
}

size_t resample_scratch(size_t in, size_t out)
{
	return (tiles(in) + tiles(out)) * TILE;
}

/* 16 rows as columns: byte r of vector x is pixel x of row r. */
static void stand(const uint8_t *from, size_t w, uint8_t *to)
{
	size_t x = 0;

	for (; x + TILE <= w; x += TILE)
		turn(from + x, w, to + x * TILE, TILE);
	for (; x < w; x++)
		for (size_t r = 0; r < TILE; r++)
			to[x * TILE + r] = from[r * w + x];
}

static void lie(const uint8_t *from, size_t w, uint8_t *to)
{
	size_t x = 0;

	for (; x + TILE <= w; x += TILE)
		turn(from + x * TILE, TILE, to + x, w);
	for (; x < w; x++)
		for (size_t r = 0; r < TILE; r++)
			to[r * w + x] = from[x * TILE + r];
}

static void one_row(const struct weights *k, const uint8_t *from, uint8_t *to)
{
	for (size_t i = 0; i < k->out; i++) {
		const int32_t *w = k->weight + i * k->stride;
		const uint8_t *x = from + k->first[i];
		int32_t v = 1 << (BITS - 1);

		for (uint32_t j = 0; j < k->n[i]; j++)
			v += x[j] * w[j];
		to[i] = byte_of(v);
	}
}

void resample_rows(const struct weights *k, const uint8_t *from, size_t h, uint8_t *to, uint8_t *scratch)
{
	uint8_t *upright = scratch, *made = scratch + tiles(k->in) * TILE;
	const struct sums a = { k, upright, TILE, made, TILE };
	enum cpu cpu = best();
	size_t r = 0;

	for (; r + TILE <= h; r += TILE) {
		stand(from + r * k->in, k->in, upright);
		run_sums(&a, cpu);
		lie(made, k->out, to + r * k->out);
	}
	for (; r < h; r++)
		one_row(k, from + r * k->in, to + r * k->out);
}

void resample_columns(const struct weights *k, const uint8_t *from, size_t w, uint8_t *to)
{
	enum cpu cpu = best();
	size_t x = 0;

	for (; x + TILE <= w; x += TILE) {
		const struct sums a = { k, from + x, w, to + x, w };

		run_sums(&a, cpu);
	}
	for (size_t i = 0; i < k->out; i++)
		for (size_t c = x; c < w; c++) {
			const int32_t *weight = k->weight + i * k->stride;
			int32_t v = 1 << (BITS - 1);

			for (uint32_t j = 0; j < k->n[i]; j++)
				v += from[(k->first[i] + j) * w + c] * weight[j];
			to[i * w + c] = byte_of(v);
		}
}
