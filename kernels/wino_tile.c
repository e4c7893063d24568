/* Tiles of Winograd's convolution for three instruction sets. The transforms are plain loops over lanes, which the
 * compiler vectorizes; products and transpositions are intrinsics where there are any. */
#include "kernels/wino_tile.h"
#include <assert.h>
#include <string.h>
#include "kernels/isa.h"
#include "kernels/wino_1d.h"
#if defined(__x86_64__) && !defined(REAL_DOUBLE)
#include <immintrin.h>
#define X86 1
#else
#define X86 0
#endif

/* --- transforms of both dimensions: columns of from[n][n] into tmp[to][n], then its rows into ret[to][to] */

#define TWO_D(one, kind, n, to, src, ss, dst, step) do { \
		real tmp[WINO_E][L]; \
		for (int i = 0; i < (n); i++) \
			one(kind, (src) + (size_t)i * (ss), (size_t)(n) * (ss), tmp[i], (size_t)(n) * L); \
		for (int i = 0; i < (to); i++) \
			one(kind, tmp[i * (n)], L, (dst) + (size_t)(i * (to)) * (step), step); \
	} while (0)

/* kind is a constant where these are called, so that loops over tiles unroll. */
BODY in_body(int kind, real (*d)[L], real *ret, size_t step)
{
	TWO_D(in_1d, kind, wino_shape[kind].in, wino_shape[kind].side, d[0], (size_t)L, ret, step);
}
BODY out_body(int kind, const real *x, real (*ret)[L])
{
	TWO_D(out_1d, kind, wino_shape[kind].side, wino_shape[kind].out, x, (size_t)L, ret[0], (size_t)L);
}
BODY grad_body(int kind, real (*y)[L], real *ret, size_t step)
{
	TWO_D(grad_1d, kind, wino_shape[kind].out, wino_shape[kind].side, y[0], (size_t)L, ret, step);
}
BODY weight_body(int kind, real (*w)[L], real *ret, size_t step)
{
	TWO_D(weight_1d, kind, 3, wino_shape[kind].weights, w[0], (size_t)L, ret, step);
}
BODY dweight_body(int kind, const real *u, size_t step, real (*ret)[L])
{
	TWO_D(dweight_1d, kind, wino_shape[kind].weights, 3, u, step, ret[0], (size_t)L);
}

#define EACH(kind, call) do { \
		switch (kind) { \
		case WINO_F2: call(WINO_F2); break; \
		case WINO_F4: call(WINO_F4); break; \
		case WINO_STRIDED: call(WINO_STRIDED); break; \
		case WINO_SPREAD: call(WINO_SPREAD); break; \
		} \
	} while (0)

#define IN(k) in_body(k, d, ret, step)
#define OUT(k) out_body(k, x, ret)
#define GRAD(k) grad_body(k, y, ret, step)
#define WEIGHT(k) weight_body(k, w, ret, step)
#define DWEIGHT(k) dweight_body(k, u, step, ret)
#define TRANSFORMS(isa, attribute) \
	attribute static void in_##isa(enum wino_kind kind, real (*d)[L], real *ret, size_t step) { EACH(kind, IN); } \
	attribute static void out_##isa(enum wino_kind kind, const real *x, real (*ret)[L]) { EACH(kind, OUT); } \
	attribute static void grad_##isa(enum wino_kind kind, real (*y)[L], real *ret, size_t step) { EACH(kind, GRAD); } \
	attribute static void weight_##isa(enum wino_kind kind, real (*w)[L], real *ret, size_t step) \
	{ EACH(kind, WEIGHT); } \
	attribute static void dweight_##isa(enum wino_kind kind, const real *u, size_t step, real (*ret)[L]) \
	{ EACH(kind, DWEIGHT); }

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

static void product_plain(const real *a, size_t lda, const real *b, size_t ldb, size_t n, int rows, real *c,
	size_t ldc, bool add)
{
	for (int i = 0; i < rows; i++) {
		real sum[L] = { 0 };

		for (size_t l = 0; l < n; l++)
			LANES
				sum[j] += a[(size_t)i * lda + l] * b[l * ldb + (size_t)j];
		LANES
			c[(size_t)i * ldc + (size_t)j] = add ? c[(size_t)i * ldc + (size_t)j] + sum[j] : sum[j];
	}
}

static void turn_plain(const real *x, size_t from, real *ret, size_t step)
{
	for (size_t i = 0; i < L; i++)
		for (size_t j = 0; j < L; j++)
			ret[j * step + i] = x[i * from + j];
}

TRANSFORMS(plain, )

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

INLINE void product_body(int rows, const real *a, size_t lda, const real *b, size_t ldb, size_t n, real *c, size_t ldc,
	bool add)
{
	__m256 s0[6], s1[6];                    /* indexed by constants only: they stay in registers */

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
		real *to = c + (size_t)i * ldc;

		if (add) {
			s0[i] = _mm256_add_ps(_mm256_loadu_ps(to), s0[i]);
			s1[i] = _mm256_add_ps(_mm256_loadu_ps(to + 8), s1[i]);
		}
		_mm256_storeu_ps(to, s0[i]);
		_mm256_storeu_ps(to + 8, s1[i]);
	}
}

AVX2 static void product_avx2(const real *a, size_t lda, const real *b, size_t ldb, size_t n, int rows, real *c,
	size_t ldc, bool add)
{
	switch (rows) {
	case 6: product_body(6, a, lda, b, ldb, n, c, ldc, add); break;
	case 5: product_body(5, a, lda, b, ldb, n, c, ldc, add); break;
	case 4: product_body(4, a, lda, b, ldb, n, c, ldc, add); break;
	case 3: product_body(3, a, lda, b, ldb, n, c, ldc, add); break;
	case 2: product_body(2, a, lda, b, ldb, n, c, ldc, add); break;
	default: product_body(1, a, lda, b, ldb, n, c, ldc, add);
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

TRANSFORMS(avx2, AVX2)

/* --- AVX-512: one register holds sixteen lanes */

#define ROWS_512 12

static inline __attribute__((always_inline, target("avx2,fma," ISA_AVX512))) void product_body_512(int rows,
	const real *a, size_t lda, const real *b, size_t ldb, size_t n, real *c, size_t ldc, bool add)
{
	__m512 s[ROWS_512];

#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		s[i] = _mm512_setzero_ps();
	for (size_t l = 0; l < n; l++) {
		__m512 v = _mm512_loadu_ps(b + l * ldb);

#pragma GCC unroll 12
		for (int i = 0; i < rows; i++)
			s[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[(size_t)i * lda + l]), v, s[i]);
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		real *to = c + (size_t)i * ldc;

		_mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), s[i]) : s[i]);
	}
}

AVX512 static void product_avx512(const real *a, size_t lda, const real *b, size_t ldb, size_t n, int rows, real *c,
	size_t ldc, bool add)
{
	if (rows == ROWS_512) {
		product_body_512(ROWS_512, a, lda, b, ldb, n, c, ldc, add);
		return;
	}
	for (; rows >= 4; rows -= 4, a += 4 * lda, c += 4 * ldc)
		product_body_512(4, a, lda, b, ldb, n, c, ldc, add);
	for (; rows > 0; rows--, a += lda, c += ldc)
		product_body_512(1, a, lda, b, ldb, n, c, ldc, add);
}

TRANSFORMS(avx512, AVX512)
#endif

const struct wino_tile *wino_tile(enum cpu cpu)
{
	static const struct wino_tile plain = { 6, gather_plain, scatter_plain, in_plain, out_plain, grad_plain,
		weight_plain,
		dweight_plain, product_plain, turn_plain };
#if X86
	static const struct wino_tile avx2 = { 6, gather_avx2, scatter_avx2, in_avx2, out_avx2, grad_avx2, weight_avx2,
		dweight_avx2, product_avx2, turn_avx2 };
	static const struct wino_tile avx512 = { ROWS_512, gather_avx2, scatter_avx2, in_avx512, out_avx512, grad_avx512,
		weight_avx512, dweight_avx512, product_avx512, turn_avx2 };

	if (cpu != CPU_PLAIN && __builtin_cpu_supports("fma"))
		return cpu == CPU_AVX512 ? &avx512 : &avx2;
#endif
	(void)cpu;
	return &plain;
}
