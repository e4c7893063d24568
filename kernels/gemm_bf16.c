/* Both operands are packed in pairs along k: panels of rows of A, [32 terms][row][16 pairs], and of 32 columns of
 * B, [32 terms][16 pairs][column][2]. One tile of C at a time is summed into a buffer, and goes from there where it
 * belongs. DOT_TWIN is AMX in plain C, in the same order. */
#include "kernels/gemm_bf16.h"
#include <assert.h>
#include <string.h>
#include "kernels/bf16.h"
#include "kernels/isa.h"

#ifndef REAL_DOUBLE
#define COLS 32
#define TERMS 32                                /* of a step: 16 pairs */
#define DEEP 512                                /* of k at once: a panel of B is 32 KiB */
#define MANY 448                                /* rows of packed A: a multiple of 14 and of 32 */
#define WIDE 768                                /* columns of packed B */
#define INLINE static inline __attribute__((always_inline))

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t gemm_bf16_work(size_t m, size_t n, size_t k)
{
	size_t deep = smaller(up(k, TERMS), DEEP);

	/* a panel of A has 14 or 32 rows, and what is packed at most the larger one's */
	return (smaller(up(m, 14) > up(m, 32) ? up(m, 14) : up(m, 32), MANY) + smaller(up(n, COLS), WIDE)) * deep *
		sizeof(uint16_t);
}

/* --- packing */

/* Rows [0, m) of A, terms [0, k): x[i * ld + l], or x[l * ld + i] by k. Rows and terms that are not there are 0. */
INLINE void pack_a_body(const real *x, size_t ld, bool by_k, size_t m, size_t k, size_t rows, uint16_t *to)
{
	for (size_t p = 0; p < m; p += rows)
		for (size_t l = 0; l < k; l += TERMS, to += rows * TERMS) {
			size_t n = smaller(k - l, TERMS), have = smaller(m - p, rows);

			if (n < TERMS || have < rows)
				memset(to, 0, rows * TERMS * sizeof(*to));
			for (size_t i = 0; i < have && !by_k; i++)
				for (size_t t = 0; t < n; t++)
					to[i * TERMS + t] = bf16_of(x[(p + i) * ld + l + t]);
			for (size_t t = 0; t < n && by_k; t++)
				for (size_t i = 0; i < have; i++)
					to[i * TERMS + t] = bf16_of(x[(l + t) * ld + p + i]);
		}
}

/* Columns [0, n) of B, terms [0, k): x[l * ld + j], or x[j * ld + l] when trans. */
INLINE void pack_b_body(const real *x, size_t ld, bool trans, size_t n, size_t k, uint16_t *to)
{
	for (size_t p = 0; p < n; p += COLS)
		for (size_t l = 0; l < k; l += TERMS, to += COLS * TERMS) {
			size_t terms = smaller(k - l, TERMS), have = smaller(n - p, COLS);

			if (terms < TERMS || have < COLS)
				memset(to, 0, COLS * TERMS * sizeof(*to));
			for (size_t t = 0; t < terms && !trans; t++)
				for (size_t j = 0; j < have; j++)
					to[t / 2 * 2 * COLS + 2 * j + t % 2] = bf16_of(x[(l + t) * ld + p + j]);
			for (size_t j = 0; j < have && trans; j++)
				for (size_t t = 0; t < terms; t++)
					to[t / 2 * 2 * COLS + 2 * j + t % 2] = bf16_of(x[(p + j) * ld + l + t]);
		}
}

/* --- one tile: k / TERMS steps of packed A and B, to t[rows][COLS] */

static float flushed(float x)
{
	return x > -0x1p-126f && x < 0x1p-126f ? 0 * x : x;
}

static float term(uint16_t h) { return flushed(bf16_to_float(h)); }

static void tile_twin(size_t steps, const uint16_t *a, const uint16_t *b, float *t)
{
	memset(t, 0, COLS * COLS * sizeof(*t));
	for (; steps; steps--, a += COLS * TERMS, b += COLS * TERMS)
		for (size_t i = 0; i < COLS; i++)
			for (size_t j = 0; j < COLS; j++) {
				float even = 0, odd = 0;

				for (size_t l = 0; l < TERMS; l += 2) {
					even = flushed(even + term(a[i * TERMS + l]) * term(b[l * COLS + 2 * j]));
					odd = flushed(odd + term(a[i * TERMS + l + 1]) * term(b[l * COLS + 2 * j + 1]));
				}
				t[i * COLS + j] = flushed(t[i * COLS + j] + flushed(even + odd));
			}
}

struct way {                                    /* how tiles are made */
	size_t rows;
	void (*pack_a)(const real *x, size_t ld, bool by_k, size_t m, size_t k, size_t rows, uint16_t *to);
	void (*pack_b)(const real *x, size_t ld, bool trans, size_t n, size_t k, uint16_t *to);
	void (*tile)(size_t steps, const uint16_t *a, const uint16_t *b, float *t);
};

static void pack_a_plain(const real *x, size_t ld, bool by_k, size_t m, size_t k, size_t rows, uint16_t *to)
{
	pack_a_body(x, ld, by_k, m, k, rows, to);
}

static void pack_b_plain(const real *x, size_t ld, bool trans, size_t n, size_t k, uint16_t *to)
{
	pack_b_body(x, ld, trans, n, k, to);
}

static const struct way twin = { 32, pack_a_plain, pack_b_plain, tile_twin };

#ifdef __x86_64__
#include <immintrin.h>
#define AVX512 __attribute__((target("avx2,fma," ISA_AVX512)))

AVX512 static void pack_a_avx512(const real *x, size_t ld, bool by_k, size_t m, size_t k, size_t rows, uint16_t *to)
{
	if (by_k)
		pack_a_body(x, ld, true, m, k, rows, to);
	else
		pack_a_body(x, ld, false, m, k, rows, to);
}

AVX512 static void pack_b_avx512(const real *x, size_t ld, bool trans, size_t n, size_t k, uint16_t *to)
{
	if (trans)
		pack_b_body(x, ld, true, n, k, to);
	else
		pack_b_body(x, ld, false, n, k, to);
}

#define ROWS 14

__attribute__((target("avx512bf16," ISA_AVX512)))
static void tile_avx512(size_t steps, const uint16_t *a, const uint16_t *b, float *t)
{
	__m512 s0[ROWS], s1[ROWS];

#pragma GCC unroll 14
	for (int i = 0; i < ROWS; i++)
		s0[i] = s1[i] = _mm512_setzero_ps();
	for (; steps; steps--, a += ROWS * TERMS)
		for (int l = 0; l < TERMS; l += 2, b += 2 * COLS) {
			__m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + COLS);

#pragma GCC unroll 14
			for (int i = 0; i < ROWS; i++) {
				int pair;
				__m512bh v;

				memcpy(&pair, a + i * TERMS + l, sizeof(pair));
				v = (__m512bh)_mm512_set1_epi32(pair);
				s0[i] = _mm512_dpbf16_ps(s0[i], v, b0);
				s1[i] = _mm512_dpbf16_ps(s1[i], v, b1);
			}
		}
#pragma GCC unroll 14
	for (int i = 0; i < ROWS; i++) {
		_mm512_storeu_ps(t + i * COLS, s0[i]);
		_mm512_storeu_ps(t + i * COLS + COLS / 2, s1[i]);
	}
}

__attribute__((target("amx-tile,amx-bf16")))
static void tile_amx(size_t steps, const uint16_t *a, const uint16_t *b, float *t)
{
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	for (; steps; steps--, a += COLS * TERMS, b += COLS * TERMS) {
		_tile_loadd(4, a, TERMS * sizeof(*a));
		_tile_loadd(5, a + 16 * TERMS, TERMS * sizeof(*a));
		_tile_loadd(6, b, 2 * COLS * sizeof(*b));
		_tile_loadd(7, b + COLS, 2 * COLS * sizeof(*b));
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
	_tile_stored(0, t, COLS * sizeof(*t));
	_tile_stored(1, t + 16, COLS * sizeof(*t));
	_tile_stored(2, t + 16 * COLS, COLS * sizeof(*t));
	_tile_stored(3, t + 16 * COLS + 16, COLS * sizeof(*t));
}

/* Eight tiles of 16 rows and 64 bytes. */
struct __attribute__((packed)) tiles { uint8_t palette, start, reserved[14]; uint16_t bytes[16]; uint8_t rows[16]; };

__attribute__((target("amx-tile")))
static void amx_begin(void)
{
	struct tiles c = { .palette = 1 };

	for (int i = 0; i < 8; i++) {
		c.bytes[i] = 64;
		c.rows[i] = 16;
	}
	_tile_loadconfig(&c);
}

__attribute__((target("amx-tile")))
static void amx_end(void) { _tile_release(); }

static const struct way avx512 = { ROWS, pack_a_avx512, pack_b_avx512, tile_avx512 };
static const struct way amx = { 32, pack_a_avx512, pack_b_avx512, tile_amx };

static const struct way *way_of(enum dot dot) { return dot == DOT_AMX ? &amx : dot == DOT_AVX512 ? &avx512 : &twin; }
#else
static void amx_begin(void) { }
static void amx_end(void) { }
static const struct way *way_of(enum dot dot) { return &twin; }
#endif

/* --- blocks */

/* t of the tile at (i, j) to C, as gemm_tile does. */
static void keep(const struct gemm_tile *g, const float *t, size_t i, size_t rows, size_t j, bool add, const real *bias)
{
	size_t cols = smaller(g->n - j, COLS);

	rows = smaller(g->m - i, rows);
	for (size_t a = 0; a < rows; a++) {
		real *c = g->c + (i + a) * g->ldc + j;

		for (size_t b = 0; b < cols; b++) {
			real v = g->alpha * t[a * COLS + b];

			v = bias ? v + bias[j + b] : v;
			c[b] = add ? c[b] + v : v;
		}
	}
}

/* Rows [i, i + m), columns [j, j + n), terms [l, l + k), packed. */
static void block(const struct way *w, const struct gemm_tile *g, size_t i, size_t m, size_t j, size_t n, size_t l,
	size_t k, const uint16_t *pa, const uint16_t *pb)
{
	size_t steps = up(k, TERMS) / TERMS;
	float t[COLS * COLS] __attribute__((aligned(64)));

	for (size_t p = 0; p < n; p += COLS)
		for (size_t q = 0; q < m; q += w->rows) {
			w->tile(steps, pa + q * steps * TERMS, pb + p * steps * TERMS, t);
			keep(g, t, i + q, w->rows, j + p, l > 0 || g->add, l + k == g->k ? g->bias : NULL);
		}
}

void gemm_bf16(enum dot dot, const struct gemm_tile *g, void *work)
{
	const struct way *w = way_of(dot);
	uint16_t *pb = work, *pa = pb + smaller(up(g->n, COLS), WIDE) * smaller(up(g->k, TERMS), DEEP);

	assert(g->m && g->n && g->k && dot != DOT_NONE);
	if (dot == DOT_AMX)
		amx_begin();
	for (size_t j = 0; j < g->n; j += WIDE)
		for (size_t l = 0; l < g->k; l += DEEP) {
			size_t n = smaller(WIDE, g->n - j), k = smaller(DEEP, g->k - l);

			w->pack_b(g->b + (g->trans_b ? j * g->ldb + l : l * g->ldb + j), g->ldb, g->trans_b, n, k, pb);
			for (size_t i = 0; i < g->m; i += MANY) {
				size_t m = smaller(MANY, g->m - i);

				w->pack_a(g->a + (g->trans_a ? l * g->lda + i : i * g->lda + l), g->lda, g->trans_a, m, k, w->rows,
					pa);
				block(w, g, i, m, j, n, l, k, pa, pb);
			}
		}
	if (dot == DOT_AMX)
		amx_end();
}
#else
size_t gemm_bf16_work(size_t m, size_t n, size_t k)
{
	return 0;
}

void gemm_bf16(enum dot dot, const struct gemm_tile *g, void *work)
{
	assert(!"no products of halves in double");
}
#endif
