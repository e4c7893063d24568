/* Tiles of Winograd's convolution for three instruction sets. The transforms are plain loops over lanes, which the
 * compiler vectorizes; products and transpositions are intrinsics where there are any. */
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
#define BODY static inline __attribute__((always_inline)) void
#define LANES for (int j = 0; j < L; j++)

/* --- transforms of one dimension: elements ds and os apart */

BODY in_1d(int m, const real *restrict d, size_t ds, real *restrict o, size_t os)
{
	if (m == 2) {
		LANES {
			real d0 = d[j], d1 = d[ds + (size_t)j], d2 = d[2 * ds + (size_t)j], d3 = d[3 * ds + (size_t)j];

			o[j] = d0 - d2;
			o[os + (size_t)j] = d1 + d2;
			o[2 * os + (size_t)j] = d2 - d1;
			o[3 * os + (size_t)j] = d1 - d3;
		}
		return;
	}
	LANES {
		real d0 = d[j], d1 = d[ds + (size_t)j], d2 = d[2 * ds + (size_t)j], d3 = d[3 * ds + (size_t)j];
		real d4 = d[4 * ds + (size_t)j], d5 = d[5 * ds + (size_t)j];
		real even = d4 - 4 * d2, odd = d3 - 4 * d1, far = d4 - d2, side = 2 * (d3 - d1);

		o[j] = 4 * d0 - 5 * d2 + d4;
		o[os + (size_t)j] = even + odd;
		o[2 * os + (size_t)j] = even - odd;
		o[3 * os + (size_t)j] = far + side;
		o[4 * os + (size_t)j] = far - side;
		o[5 * os + (size_t)j] = 4 * d1 - 5 * d3 + d5;
	}
}

BODY out_1d(int m, const real *restrict x, size_t xs, real *restrict o, size_t os)
{
	if (m == 2) {
		LANES {
			real x0 = x[j], x1 = x[xs + (size_t)j], x2 = x[2 * xs + (size_t)j], x3 = x[3 * xs + (size_t)j];

			o[j] = x0 + x1 + x2;
			o[os + (size_t)j] = x1 - x2 - x3;
		}
		return;
	}
	LANES {
		real x1 = x[xs + (size_t)j], x2 = x[2 * xs + (size_t)j], x3 = x[3 * xs + (size_t)j], x4 = x[4 * xs + (size_t)j];
		real a = x1 + x2, b = x1 - x2, c = x3 + x4, d = x3 - x4;

		o[j] = x[j] + a + c;
		o[os + (size_t)j] = b + 2 * d;
		o[2 * os + (size_t)j] = a + 4 * c;
		o[3 * os + (size_t)j] = b + 8 * d + x[5 * xs + (size_t)j];
	}
}

/* The transpose of out_1d: m elements to a. */
BODY grad_1d(int m, const real *restrict y, size_t ys, real *restrict o, size_t os)
{
	if (m == 2) {
		LANES {
			real y0 = y[j], y1 = y[ys + (size_t)j];

			o[j] = y0;
			o[os + (size_t)j] = y0 + y1;
			o[2 * os + (size_t)j] = y0 - y1;
			o[3 * os + (size_t)j] = -y1;
		}
		return;
	}
	LANES {
		real y0 = y[j], y1 = y[ys + (size_t)j], y2 = y[2 * ys + (size_t)j], y3 = y[3 * ys + (size_t)j];
		real a = y0 + y2, b = y1 + y3, c = y0 + 4 * y2, d = 2 * y1 + 8 * y3;

		o[j] = y0;
		o[os + (size_t)j] = a + b;
		o[2 * os + (size_t)j] = a - b;
		o[3 * os + (size_t)j] = c + d;
		o[4 * os + (size_t)j] = c - d;
		o[5 * os + (size_t)j] = y3;
	}
}

BODY weight_1d(int m, const real *restrict w, size_t ws, real *restrict o, size_t os)
{
	if (m == 2) {
		LANES {
			real w0 = w[j], w1 = w[ws + (size_t)j], w2 = w[2 * ws + (size_t)j];
			real a = (real)0.5 * (w0 + w2), b = (real)0.5 * w1;

			o[j] = w0;
			o[os + (size_t)j] = a + b;
			o[2 * os + (size_t)j] = a - b;
			o[3 * os + (size_t)j] = w2;
		}
		return;
	}
	LANES {
		real w0 = w[j], w1 = w[ws + (size_t)j], w2 = w[2 * ws + (size_t)j];
		real a = (w0 + w2) * (real)(-1.0 / 6), b = w1 * (real)(-1.0 / 6);
		real c = w0 * (real)(1.0 / 24) + w2 * (real)(1.0 / 6), d = w1 * (real)(1.0 / 12);

		o[j] = w0 * (real)0.25;
		o[os + (size_t)j] = a + b;
		o[2 * os + (size_t)j] = a - b;
		o[3 * os + (size_t)j] = c + d;
		o[4 * os + (size_t)j] = c - d;
		o[5 * os + (size_t)j] = w2;
	}
}

/* The transpose of weight_1d: a elements to three. */
BODY dweight_1d(int m, const real *restrict u, size_t us, real *restrict o, size_t os)
{
	if (m == 2) {
		LANES {
			real u1 = u[us + (size_t)j], u2 = u[2 * us + (size_t)j], a = (real)0.5 * (u1 + u2);

			o[j] = u[j] + a;
			o[os + (size_t)j] = (real)0.5 * (u1 - u2);
			o[2 * os + (size_t)j] = a + u[3 * us + (size_t)j];
		}
		return;
	}
	LANES {
		real u1 = u[us + (size_t)j], u2 = u[2 * us + (size_t)j], u3 = u[3 * us + (size_t)j], u4 = u[4 * us + (size_t)j];
		real a = (u1 + u2) * (real)(-1.0 / 6), b = (u1 - u2) * (real)(-1.0 / 6), c = u3 + u4, d = u3 - u4;

		o[j] = u[j] * (real)0.25 + a + c * (real)(1.0 / 24);
		o[os + (size_t)j] = b + d * (real)(1.0 / 12);
		o[2 * os + (size_t)j] = a + c * (real)(1.0 / 6) + u[5 * us + (size_t)j];
	}
}

/* Both dimensions: columns of from[n][n] into tmp[to][n], then its rows into ret[to][to]. */
#define TWO_D(one, n, to, src, ss, dst, step) do { \
		real tmp[WINO_E][L]; \
		for (int i = 0; i < (n); i++) \
			one(m, (src) + (size_t)i * (ss), (size_t)(n) * (ss), tmp[i], (size_t)(n) * L); \
		for (int i = 0; i < (to); i++) \
			one(m, tmp[i * (n)], L, (dst) + (size_t)(i * (to)) * (step), step); \
	} while (0)

BODY in_body(int m, real (*d)[L], real *ret, size_t step) { TWO_D(in_1d, m + 2, m + 2, d[0], (size_t)L, ret, step); }
BODY out_body(int m, const real *x, real (*ret)[L]) { TWO_D(out_1d, m + 2, m, x, (size_t)L, ret[0], (size_t)L); }
BODY grad_body(int m, real (*y)[L], real *ret, size_t step) { TWO_D(grad_1d, m, m + 2, y[0], (size_t)L, ret, step); }
BODY weight_body(int m, real (*w)[L], real *ret, size_t step) { TWO_D(weight_1d, 3, m + 2, w[0], (size_t)L, ret, step);
	}
BODY dweight_body(int m, const real *u, size_t step, real (*ret)[L])
{
	TWO_D(dweight_1d, m + 2, 3, u, step, ret[0], (size_t)L);
}

/* m is a constant in each branch, so that loops over tiles unroll. */
#define TRANSFORMS(isa, attribute) \
	attribute static void in_##isa(int m, real (*d)[L], real *ret, size_t step) \
	{ if (m == 4) in_body(4, d, ret, step); else in_body(2, d, ret, step); } \
	attribute static void out_##isa(int m, const real *x, real (*ret)[L]) \
	{ if (m == 4) out_body(4, x, ret); else out_body(2, x, ret); } \
	attribute static void grad_##isa(int m, real (*y)[L], real *ret, size_t step) \
	{ if (m == 4) grad_body(4, y, ret, step); else grad_body(2, y, ret, step); } \
	attribute static void weight_##isa(int m, real (*w)[L], real *ret, size_t step) \
	{ if (m == 4) weight_body(4, w, ret, step); else weight_body(2, w, ret, step); } \
	attribute static void dweight_##isa(int m, const real *u, size_t step, real (*ret)[L]) \
	{ if (m == 4) dweight_body(4, u, step, ret); else dweight_body(2, u, step, ret); }

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
	for (int r = 0; r < side; r++)
		for (int h = 0; h < L; h += 8) {
			__m256 v[8];

			for (int t = 0; t < 8; t++)
				v[t] = _mm256_loadu_ps(src + off[h + t] + (size_t)r * ld);
			turn_8(v);
			for (int i = 0; i < side; i++)
				_mm256_storeu_ps(&ret[r * side + i][h], v[i]);
		}
}

AVX2 static void gather_avx2(int side, const real *src, size_t ld, const uint32_t *off, real (*ret)[L])
{
	if (side == 6)
		gather_body(6, src, ld, off, ret);
	else if (side == 4)
		gather_body(4, src, ld, off, ret);
	else
		gather_body(2, src, ld, off, ret);
}

/* Whole tiles of four columns leave four at a time. */
AVX2 static void scatter_avx2(int m, real (*y)[L], real *dst, size_t ld, const size_t *off, const uint8_t *rows,
	const uint8_t *cols, int n)
{
	for (int q = 0; q < n; q += 4) {
		int whole = 0;

		for (int t = q; t < q + 4 && t < n; t++)
			whole += rows[t] == m && cols[t] == m;
		if (m != 4 || whole != 4) {
			for (int t = q; t < q + 4 && t < n; t++)
				for (int r = 0; r < rows[t]; r++)
					for (int i = 0; i < cols[t]; i++)
						dst[off[t] + (size_t)r * ld + (size_t)i] = y[r * m + i][t];
			continue;
		}
		for (int r = 0; r < 4; r++) {
			__m128 v0 = _mm_loadu_ps(&y[r * 4][q]), v1 = _mm_loadu_ps(&y[r * 4 + 1][q]);
			__m128 v2 = _mm_loadu_ps(&y[r * 4 + 2][q]), v3 = _mm_loadu_ps(&y[r * 4 + 3][q]);
			real *to = dst + (size_t)r * ld;

			_MM_TRANSPOSE4_PS(v0, v1, v2, v3);
			_mm_storeu_ps(to + off[q], v0);
			_mm_storeu_ps(to + off[q + 1], v1);
			_mm_storeu_ps(to + off[q + 2], v2);
			_mm_storeu_ps(to + off[q + 3], v3);
		}
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
