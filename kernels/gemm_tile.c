/* Products by tiles: panels of both operands are packed so that a tile reads them in order, or are read where they lie
 * when packing would cost more than it saves. */
#include "kernels/gemm_tile.h"
#include <assert.h>
#include <string.h>
#include "kernels/isa.h"

#if defined(__x86_64__) && !defined(REAL_DOUBLE)
#include <immintrin.h>

/* One panel of columns of C: m rows, n <= cols. Element (i, l) of A: a[i / rows * step + i % rows * ra + l * ka], row l
 * of B: b + l * kb. turned: what is computed is the transpose of C, and the bias goes by its rows. */
struct strip {
	size_t m, n, k;
	const real *a, *b, *bias, *ahead;       /* ahead: the next packed panel of B, to be fetched; NULL: none */
	size_t ra, ka, step, kb;
	real *c, alpha;
	size_t ldc;
	bool add, turned;
};

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* A tile at the edge, or a turned one, t[rows][cols], which becomes something else on the way. */
static inline __attribute__((always_inline)) void strip_rest(const struct strip *s, size_t i0, size_t rows, real *t,
	size_t cols)
{
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < cols; j++)
			t[i * cols + j] *= s->alpha;
	for (size_t i = 0; i < rows && s->bias; i++)
		for (size_t j = 0; j < s->n; j++)
			t[i * cols + j] += s->bias[s->turned ? i0 + i : j];
	for (size_t j = 0; j < s->n && s->turned; j++) {
		real *c = s->c + j * s->ldc + i0;

		for (size_t i = 0; i < rows; i++)
			c[i] = s->add ? c[i] + t[i * cols + j] : t[i * cols + j];
	}
	for (size_t i = 0; i < rows && !s->turned; i++) {
		real *c = s->c + (i0 + i) * s->ldc;

		for (size_t j = 0; j < s->n; j++)
			c[j] = s->add ? c[j] + t[i * cols + j] : t[i * cols + j];
	}
}

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx2,fma," ISA_AVX512)))

#define NAME(x) x##_avx2
#define TARGET AVX2
#define VEC __m256
#define LANES 8
#define ROWS 6
#define ZERO _mm256_setzero_ps
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SPREAD _mm256_broadcast_ss
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
#define MUL _mm256_mul_ps
#include "kernels/gemm_tile_body.h"
#undef NAME
#undef TARGET
#undef VEC
#undef LANES
#undef ROWS
#undef ZERO
#undef LOAD
#undef STORE
#undef SPREAD
#undef FMA
#undef ADD
#undef MUL

#define NAME(x) x##_avx512
#define TARGET AVX512
#define VEC __m512
#define LANES 16
#define ROWS 14
#define ZERO _mm512_setzero_ps
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SPREAD(p) _mm512_set1_ps(*(p))
#define FMA _mm512_fmadd_ps
#define ADD _mm512_add_ps
#define MUL _mm512_mul_ps
#include "kernels/gemm_tile_body.h"

/* Rows of eight, transposed: ret[l * step + i] = x[i * from + l] for l < 8, i < rows. Writes zeros up to i = 8; lines
 * in the order of l, so that the next one mends what these leave in it. */
static inline __attribute__((always_inline)) AVX2 void turn(int rows, const real *x, size_t from, real *ret,
	size_t step)
{
	__m256 r[8], t[8], s[8];

#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		r[i] = i < rows ? _mm256_loadu_ps(x + (size_t)i * from) : _mm256_setzero_ps();
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
		t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
	}
#pragma GCC unroll 2
	for (int h = 0; h < 2; h++) {
		s[4 * h] = _mm256_shuffle_ps(t[4 * h], t[4 * h + 2], 0x44);
		s[4 * h + 1] = _mm256_shuffle_ps(t[4 * h], t[4 * h + 2], 0xee);
		s[4 * h + 2] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0x44);
		s[4 * h + 3] = _mm256_shuffle_ps(t[4 * h + 1], t[4 * h + 3], 0xee);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		_mm256_storeu_ps(ret + (size_t)i * step, _mm256_permute2f128_ps(s[i], s[4 + i], 0x20));
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		_mm256_storeu_ps(ret + (size_t)(i + 4) * step, _mm256_permute2f128_ps(s[i], s[4 + i], 0x31));
}

/* ret[l * width + i] = x[i * ld + l] for i < n, l < k, and zeros for the other i. A width that is no multiple of eight
 * has its last six rows first, because they spoil the start of the next line, and some elements behind the last. */
AVX2 static void pack_turned(const real *x, size_t ld, size_t n, size_t k, size_t width, real *ret)
{
	size_t whole = n == width ? k / 8 * 8 : 0, eights = width / 8 * 8;

	assert(width % 8 == 0 || width % 8 == 6);
	for (size_t l = 0; l < whole && eights < width; l += 8)
		turn(6, x + eights * ld + l, ld, ret + l * width + eights, width);
	for (size_t i = 0; i < eights; i += 8)
		for (size_t l = 0; l < whole; l += 8)
			turn(8, x + i * ld + l, ld, ret + l * width + i, width);
	for (size_t l = whole; l < k; l++)
		for (size_t j = 0; j < width; j++)
			ret[l * width + j] = j < n ? x[j * ld + l] : 0;
}

#define SLACK 16                                /* behind a packed panel */
#define AHEAD 16                                /* rows: each lies in a page of its own */
#define ABREAST 48                              /* panels filled together: rows are far apart in memory */

/* Whole panels next to each other: ret[p * step + l * width + i] = x[l * ld + p * width + i]. */
static inline __attribute__((always_inline)) AVX2 void pack_rows(const real *x, size_t ld, size_t panels, size_t k,
	size_t width, real *ret)
{
	size_t step = width * k + SLACK;

	for (size_t l = 0; l < k; l++)
		for (size_t p = 0; p < panels; p++) {
			__builtin_prefetch(x + (l + AHEAD) * ld + p * width);
			memcpy(ret + p * step + l * width, x + l * ld + p * width, width * sizeof(real));
		}
}

/* Element (i, l) of n lines along k is x[l * ld + i]; those from n to a whole panel are zeros. */
AVX2 static void pack_straight(const real *x, size_t ld, size_t n, size_t k, size_t width, real *ret)
{
	size_t step = width * k + SLACK, i = 0;

	for (size_t p; (p = smaller((n - i) / width, ABREAST)); i += p * width, ret += p * step)
		switch (width) {
		case 6: pack_rows(x + i, ld, p, k, 6, ret); break;
		case 14: pack_rows(x + i, ld, p, k, 14, ret); break;
		case 16: pack_rows(x + i, ld, p, k, 16, ret); break;
		case 32: pack_rows(x + i, ld, p, k, 32, ret); break;
		default: assert(!"no tile is as wide");
		}
	for (size_t l = 0; l < k && i < n; l++)
		for (size_t j = 0; j < width; j++)
			ret[l * width + j] = i + j < n ? x[l * ld + i + j] : 0;
}

/* Panels of `width` of n lines along k. by_k: element (i, l) is x[l * ld + i], else x[i * ld + l]. */
static void pack(const real *x, bool by_k, size_t ld, size_t n, size_t k, size_t width, real *ret)
{
	if (by_k)
		pack_straight(x, ld, n, k, width, ret);
	for (size_t i = 0; i < n && !by_k; i += width, ret += width * k + SLACK)
		pack_turned(x + i * ld, ld, smaller(n - i, width), k, width, ret);
}

/* --- blocks */

#define DEEP 384                                /* of k in a panel: with 16 columns three quarters of 32 KiB */
#define MANY 168                                /* rows of packed A: a quarter of a MiB; a multiple of 6 and of 14 */
#define FEW GEMM_TILE_FEW
#define PANELS_A 8                              /* of B: as many uses pay for packing A */
#define WIDE 768                                /* columns of packed B */

static size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Equal blocks of k, in length a multiple of 8. */
static size_t deep(size_t k)
{
	size_t blocks = (k + DEEP - 1) / DEEP;

	return up((k + blocks - 1) / blocks, 8);
}

size_t gemm_tile_work(size_t m, size_t n, size_t k)
{
	size_t most = m > n ? m : n, rows = smaller(up(most, 42), MANY), cols = smaller(up(most, 32), WIDE);
	size_t d = smaller(up(k, 8), DEEP);     /* of all sums up to k: blocks of a longer one may be shorter */

	return (rows * d + (rows / 6 + 1) * SLACK + cols * d + (cols / 16 + 1) * SLACK) * sizeof(real);
}

struct walk {
	const struct gemm_tile *g;
	void (*strip)(const struct strip *);
	size_t rows, cols;                      /* of a tile */
	size_t m, n;                            /* of what is computed: C, or its transpose */
	bool turned, a_by_k, b_by_k;
	const real *a, *b;
	size_t lda, ldb;
	bool pack_a, pack_b;
	real *pa, *pb;
};

/* Rows [i, i + m), columns [j, j + n), terms [l, l + k). */
static void block(const struct walk *w, size_t i, size_t m, size_t j, size_t n, size_t l, size_t k)
{
	const struct gemm_tile *g = w->g;
	struct strip s = { .m = m, .k = k, .alpha = g->alpha, .ldc = g->ldc, .turned = w->turned, .add = l > 0 || g->add };
	const real *bias = l + k == g->k ? g->bias : NULL;

	s.a = w->pack_a ? w->pa : w->a + (w->a_by_k ? l * w->lda + i : i * w->lda + l);
	s.ra = w->pack_a || w->a_by_k ? 1 : w->lda;
	s.ka = w->pack_a ? w->rows : w->a_by_k ? w->lda : 1;
	s.step = w->pack_a ? w->rows * k + SLACK : w->rows * s.ra;
	for (size_t p = 0; p < n; p += w->cols) {
		size_t at = j + p;

		s.n = smaller(n - p, w->cols);
		s.b = w->pack_b ? w->pb + p / w->cols * (w->cols * k + SLACK) : w->b + l * w->ldb + at;
		s.ahead = w->pack_b && p + w->cols < n ? s.b + w->cols * k + SLACK : NULL;
		s.kb = w->pack_b ? w->cols : w->ldb;
		s.c = w->turned ? g->c + at * g->ldc + i : g->c + i * g->ldc + at;
		s.bias = bias ? bias + (w->turned ? i : at) : NULL;
		w->strip(&s);
	}
}

static void walk(const struct walk *w)
{
	size_t d = deep(w->g->k), wide = w->pack_b ? WIDE : w->n, many = MANY;

	for (size_t j = 0; j < w->n; j += wide) {
		size_t n = smaller(wide, w->n - j);

		for (size_t l = 0; l < w->g->k; l += d) {
			size_t k = smaller(d, w->g->k - l);

			if (w->pack_b)
				pack(w->b + (w->b_by_k ? l * w->ldb + j : j * w->ldb + l), w->b_by_k, w->ldb, n, k, w->cols, w->pb);
			for (size_t i = 0; i < w->m; i += many) {
				size_t m = smaller(many, w->m - i);

				if (w->pack_a)
					pack(w->a + (w->a_by_k ? l * w->lda + i : i * w->lda + l), w->a_by_k, w->lda, m, k, w->rows,
						w->pa);
				block(w, i, m, j, n, l, k);
			}
		}
	}
}

/* Few rows against a transposed matrix, which would have to be turned panel by panel for little use: its rows are read
 * where they lie, and the few rows are packed instead. */
static bool turns(const struct gemm_tile *g)
{
	return g->trans_b && g->m <= FEW && g->k >= 256 && g->n > g->m;
}

void gemm_tile(enum cpu cpu, const struct gemm_tile *g, void *work)
{
	bool wide = cpu == CPU_AVX512, turned = turns(g);
	struct walk w = { .g = g, .strip = wide ? strip_avx512 : strip_avx2, .rows = wide ? 14 : 6, .cols = wide ? 32 : 16,
		.m = g->m, .n = g->n, .turned = turned, .a_by_k = g->trans_a, .b_by_k = !g->trans_b, .a = g->a, .b = g->b,
		.lda = g->lda, .ldb = g->ldb };

	assert(g->m && g->n && g->k && gemm_tile_has(cpu));
	if (turned) {
		w.m = g->n;
		w.n = g->m;
		w.a_by_k = !g->trans_b;
		w.b_by_k = g->trans_a;
		w.a = g->b;
		w.b = g->a;
		w.lda = g->ldb;
		w.ldb = g->lda;
	}
	w.pack_a = w.n >= PANELS_A * w.cols && (w.a_by_k || w.lda % 256 == 0);
	w.pack_b = !w.b_by_k || w.n % w.cols || w.m > FEW || (w.ldb > 512 && w.ldb % 256 == 0);        /* rows in one set */
	w.pb = work;
	w.pa = w.pb + smaller(up(w.n, w.cols), WIDE) * deep(g->k) + (smaller(up(w.n, w.cols), WIDE) / w.cols + 1) * SLACK;
	walk(&w);
}

bool gemm_tile_has(enum cpu cpu)
{
	return cpu != CPU_PLAIN && __builtin_cpu_supports("fma");
}
#else
bool gemm_tile_has(enum cpu cpu)
{
	return false;
}

size_t gemm_tile_work(size_t m, size_t n, size_t k)
{
	return 0;
}

void gemm_tile(enum cpu cpu, const struct gemm_tile *g, void *work)
{
	assert(!"no tiles here");
}
#endif

bool gemm_tile_part(struct gemm_tile *g, int part, int parts)
{
	size_t lo, hi;

	par_slice(g->n, 32, part, parts, &lo, &hi);
	g->n = hi - lo;
	g->b += g->trans_b ? lo * g->ldb : lo;
	g->c += lo;
	g->bias = g->bias ? g->bias + lo : NULL;
	return lo < hi;
}
