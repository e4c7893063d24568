/* Tiles of Winograd's convolution for three instruction sets. The transforms are arithmetic of the compiler's
 * vectors; products and transpositions are intrinsics where there are any. */
#include "kernels/wino_tile.h"
#include <assert.h>
#include <string.h>
#include "kernels/isa.h"
#if defined(__x86_64__) && !defined(REAL_DOUBLE)
#include <immintrin.h>
#define X86 1
#else
#define X86 0
#endif

#define L WINO_LANES
#define LANES for (int j = 0; j < L; j++)

/* --- plain */

static void gather_plain(int side, const real *src, size_t ld, const uint32_t *off, real (*ret)[L])
{
	for (int r = 0; r < side; r++)
		LANES
			for (int i = 0; i < side; i++)
				ret[r * side + i][j] = src[off[j] + (size_t)r * ld + (size_t)i];
}

static void scatter_plain(int m, real (*y)[L], real *dst, size_t ld, const size_t *off, const uint8_t *rows,
	const uint8_t *cols, int n)
{
	for (int t = 0; t < n; t++)
		for (int r = 0; r < rows[t]; r++)
			for (int i = 0; i < cols[t]; i++)
				dst[off[t] + (size_t)r * ld + (size_t)i] = y[r * m + i][t];
}

typedef real four __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));

static inline __attribute__((always_inline)) void product_rows(int rows, const struct wino_product *p, const real *a,
	real *c)
{
	four s[2][L / 4];
	const real *b = p->b;

	memset(s, 0, sizeof(s));
	for (size_t l = 0; l < p->n; l++, b += p->ldb)
		for (int i = 0; i < rows; i++) {
			real v = a[(size_t)i * p->lda + l];

			for (int j = 0; j < L / 4; j++)
				s[i][j] += ((const four *)b)[j] * v;
		}
	for (int i = 0; i < rows; i++)
		for (int j = 0; j < L / 4; j++) {
			four *to = (four *)(c + (size_t)i * p->ldc) + j;

			if (p->add)
				s[i][j] = *to + s[i][j];
			*to = s[i][j];
		}
}

static void product_plain(const struct wino_product *p)
{
	int i = 0;

	for (; i + 2 <= p->rows; i += 2)
		product_rows(2, p, p->a + (size_t)i * p->lda, p->c + (size_t)i * p->ldc);
	if (i < p->rows)
		product_rows(1, p, p->a + (size_t)i * p->lda, p->c + (size_t)i * p->ldc);
}

static void turn_plain(const real *x, size_t from, real *ret, size_t step)
{
	for (size_t i = 0; i < L; i++)
		for (size_t j = 0; j < L; j++)
			ret[j * step + i] = x[i * from + j];
}

#define NAME(x) x##_plain
#define TARGET 
#define WIDTH 4
#include "kernels/wino_transform.h"

#if X86
/* --- AVX2 */

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx2,fma," ISA_AVX512)))
#define INLINE static inline __attribute__((always_inline, target("avx2,fma")))

INLINE void turn_8(__m256 r[8])
{
	__m256 t[8], s[8];

	for (int i = 0; i < 4; i++) {
		t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
		t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
	}
	for (int h = 0; h < 2; h++) {
		s[4 * h] = _mm256_shuffle_ps(t[4 * h], t[4 * h + 2], 0x44);
		s[4 * h + 1] = _mm256_shuffle_ps(t[4 * h], t[4 * h + 2], 0xee);
		s[4 * h + 2] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0x44);
		s[4 * h + 3] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0xee);
	}
	for (int i = 0; i < 4; i++) {
		r[i] = _mm256_permute2f128_ps(s[i], s[4 + i], 0x20);
		r[4 + i] = _mm256_permute2f128_ps(s[i], s[4 + i], 0x31);
	}
}

INLINE void gather_body(int side, const real *src, size_t ld, const uint32_t *off, real (*ret)[L])
{
	for (int r = 0; r < side; r++) {
		for (int h = 0; h < L; h += 8) {
			__m256 v[8];

			for (int t = 0; t < 8; t++)
				v[t] = _mm256_loadu_ps(src + off[h + t] + (size_t)r * ld);
			turn_8(v);
			for (int i = 0; i < side && i < 8; i++)
				_mm256_storeu_ps(&ret[r * side + i][h], v[i]);
		}
		if (side > 8)
			LANES
				ret[r * side + 8][j] = src[off[j] + (size_t)r * ld + 8];
	}
}

AVX2 static void gather_avx2(int side, const real *src, size_t ld, const uint32_t *off, real (*ret)[L])
{
	if (side == 6)
		gather_body(6, src, ld, off, ret);
	else if (side == 4)
		gather_body(4, src, ld, off, ret);
	else if (side == 9)
		gather_body(9, src, ld, off, ret);
	else if (side == 5)
		gather_body(5, src, ld, off, ret);
	else
		gather_body(2, src, ld, off, ret);
}

INLINE void scatter_row_8(real (*y)[L], int q, real *to, const size_t *off)
{
	__m256 v[8];

	for (int i = 0; i < 8; i++)
		v[i] = _mm256_loadu_ps(&y[i][q]);
	turn_8(v);
	for (int i = 0; i < 8; i++)
		_mm256_storeu_ps(to + off[q + i], v[i]);
}

INLINE void scatter_row_4(real (*y)[L], int q, real *to, const size_t *off)
{
	__m128 v0 = _mm_loadu_ps(&y[0][q]), v1 = _mm_loadu_ps(&y[1][q]);
	__m128 v2 = _mm_loadu_ps(&y[2][q]), v3 = _mm_loadu_ps(&y[3][q]);

	_MM_TRANSPOSE4_PS(v0, v1, v2, v3);
	_mm_storeu_ps(to + off[q], v0);
	_mm_storeu_ps(to + off[q + 1], v1);
	_mm_storeu_ps(to + off[q + 2], v2);
	_mm_storeu_ps(to + off[q + 3], v3);
}

/* Whole tiles of four or eight columns leave as many at a time. */
AVX2 static void scatter_avx2(int m, real (*y)[L], real *dst, size_t ld, const size_t *off, const uint8_t *rows,
	const uint8_t *cols, int n)
{
	int step = m == 8 ? 8 : 4;

	for (int q = 0; q < n; q += step) {
		int whole = m == 2 ? -1 : 0;

		for (int t = q; t < q + step && t < n; t++)
			whole += rows[t] == m && cols[t] == m;
		for (int t = q; whole != step && t < q + step && t < n; t++)
			for (int r = 0; r < rows[t]; r++)
				for (int i = 0; i < cols[t]; i++)
					dst[off[t] + (size_t)r * ld + (size_t)i] = y[r * m + i][t];
		for (int r = 0; whole == step && m == 4 && r < 4; r++)
			scatter_row_4(y + r * 4, q, dst + (size_t)r * ld, off);
		for (int r = 0; whole == step && m == 8 && r < 8; r++)
			scatter_row_8(y + r * 8, q, dst + (size_t)r * ld, off);
	}
}

INLINE void product_body(int rows, const struct wino_product *p)
{
	__m256 s0[6], s1[6];                    /* indexed by constants only: they stay in registers */
	const real *a = p->a, *b = p->b;
	size_t lda = p->lda, ldb = p->ldb, n = p->n;

#pragma GCC unroll 6
	for (int i = 0; i < rows; i++)
		s0[i] = s1[i] = _mm256_setzero_ps();
	for (size_t l = 0; l < n; l++) {
		__m256 b0 = _mm256_loadu_ps(b + l * ldb), b1 = _mm256_loadu_ps(b + l * ldb + 8);

#pragma GCC unroll 6
		for (int i = 0; i < rows; i++) {
			__m256 v = _mm256_broadcast_ss(a + (size_t)i * lda + l);

			s0[i] = _mm256_fmadd_ps(v, b0, s0[i]);
			s1[i] = _mm256_fmadd_ps(v, b1, s1[i]);
		}
	}
#pragma GCC unroll 6
	for (int i = 0; i < rows; i++) {
		real *to = p->c + (size_t)i * p->ldc;

		if (p->add) {
			s0[i] = _mm256_add_ps(_mm256_loadu_ps(to), s0[i]);
			s1[i] = _mm256_add_ps(_mm256_loadu_ps(to + 8), s1[i]);
		}
		_mm256_storeu_ps(to, s0[i]);
		_mm256_storeu_ps(to + 8, s1[i]);
	}
}

AVX2 static void product_avx2(const struct wino_product *p)
{
	switch (p->rows) {
	case 6: product_body(6, p); break;
	case 5: product_body(5, p); break;
	case 4: product_body(4, p); break;
	case 3: product_body(3, p); break;
	case 2: product_body(2, p); break;
	default: product_body(1, p);
	}
}

AVX2 static void turn_avx2(const real *x, size_t from, real *ret, size_t step)
{
	for (size_t p = 0; p < L; p += 8)
		for (size_t q = 0; q < L; q += 8) {
			__m256 v[8];

			for (size_t i = 0; i < 8; i++)
				v[i] = _mm256_loadu_ps(x + (p + i) * from + q);
			turn_8(v);
			for (size_t i = 0; i < 8; i++)
				_mm256_storeu_ps(ret + (q + i) * step + p, v[i]);
		}
}

#define NAME(x) x##_avx2
#define TARGET AVX2
#define WIDTH 8
#include "kernels/wino_transform.h"

/* --- AVX-512: one register holds sixteen lanes */

#define ROWS_512 12
#define INLINE_512 static inline __attribute__((always_inline, target("avx2,fma," ISA_AVX512)))

/* Two panels: each number of a is loaded once for two multiplications, else loads are what it waits for. Rows are
 * addressed three to a pointer. */
INLINE_512 void product_pair_512(int rows, const struct wino_product *p)
{
	__m512 s0[ROWS_512], s1[ROWS_512];
	const real *b0 = p->b, *b1 = p->b + p->bn, *a[ROWS_512 / 3];
	size_t lda = p->lda, ldb = p->ldb;

#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		real *to = p->c + (size_t)i * p->ldc;

		__builtin_prefetch(to, 1);
		__builtin_prefetch(to + p->cn, 1);
		s0[i] = s1[i] = _mm512_setzero_ps();
		if (i % 3 == 0)
			a[i / 3] = p->a + (size_t)i * lda;
	}
#pragma GCC unroll 2
	for (size_t l = 0; l < p->n; l++, b0 += ldb, b1 += ldb) {
		__m512 v0 = _mm512_loadu_ps(b0), v1 = _mm512_loadu_ps(b1);

#pragma GCC unroll 12
		for (int i = 0; i < rows; i++) {
			__m512 v = _mm512_set1_ps(a[i / 3][(size_t)(i % 3) * lda + l]);

			s0[i] = _mm512_fmadd_ps(v, v0, s0[i]);
			s1[i] = _mm512_fmadd_ps(v, v1, s1[i]);
		}
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		real *to = p->c + (size_t)i * p->ldc, *next = to + p->cn;

		_mm512_storeu_ps(to, p->add ? _mm512_add_ps(_mm512_loadu_ps(to), s0[i]) : s0[i]);
		_mm512_storeu_ps(next, p->add ? _mm512_add_ps(_mm512_loadu_ps(next), s1[i]) : s1[i]);
	}
}

INLINE_512 void product_one_512(int rows, const struct wino_product *p)
{
	__m512 s[ROWS_512];
	const real *a = p->a, *b = p->b;
	size_t lda = p->lda, ldb = p->ldb;

#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		s[i] = _mm512_setzero_ps();
	for (size_t l = 0; l < p->n; l++) {
		__m512 v = _mm512_loadu_ps(b + l * ldb);

#pragma GCC unroll 12
		for (int i = 0; i < rows; i++)
			s[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[(size_t)i * lda + l]), v, s[i]);
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		real *to = p->c + (size_t)i * p->ldc;

		_mm512_storeu_ps(to, p->add ? _mm512_add_ps(_mm512_loadu_ps(to), s[i]) : s[i]);
	}
}

AVX512 static void product_avx512(const struct wino_product *p)
{
	switch (p->panels == 2 ? ROWS_512 + p->rows : p->rows) {
#define CASE(r) case r: product_one_512(r, p); break; case ROWS_512 + (r): product_pair_512(r, p); break;
	CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#undef CASE
	}
}

#define NAME(x) x##_avx512
#define TARGET AVX512
#define WIDTH L
#include "kernels/wino_transform.h"
#endif

const struct wino_tile *wino_tile(enum cpu cpu)
{
	static const struct wino_tile plain = { 6, 1, gather_plain, scatter_plain, in_plain, out_plain, grad_plain,
		weight_plain,
		dweight_plain, product_plain, turn_plain };
#if X86
	static const struct wino_tile avx2 = { 6, 1, gather_avx2, scatter_avx2, in_avx2, out_avx2, grad_avx2, weight_avx2,
		dweight_avx2, product_avx2, turn_avx2 };
	static const struct wino_tile avx512 = { ROWS_512, 2, gather_avx2, scatter_avx2, in_avx512, out_avx512, grad_avx512,
		weight_avx512, dweight_avx512, product_avx512, turn_avx2 };

	if (cpu != CPU_PLAIN && __builtin_cpu_supports("fma"))
		return cpu == CPU_AVX512 ? &avx512 : &avx2;
#endif
	(void)cpu;
	return &plain;
}

void wino_products(const struct wino_tile *isa, const struct wino_product *p, bool by_rows)
{
	struct wino_product x = *p;
	int all = by_rows ? p->rows : p->panels, each = by_rows ? p->panels : p->rows;
	int *outer = by_rows ? &x.rows : &x.panels, *inner = by_rows ? &x.panels : &x.rows;

	for (int i = 0; i < all; i += *outer) {
		*outer = wino_even((size_t)(all - i), by_rows ? isa->rows : isa->panels);
		for (int k = 0; k < each; k += *inner) {
			size_t row = (size_t)(by_rows ? i : k), panel = (size_t)(by_rows ? k : i);

			*inner = wino_even((size_t)(each - k), by_rows ? isa->panels : isa->rows);
			x.a = p->a + row * p->lda;
			x.b = p->b + panel * p->bn;
			x.c = p->c + row * p->ldc + panel * p->cn;
			isa->product(&x);
		}
	}
}
