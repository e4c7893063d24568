/* The plain matrix product: fixed order, deterministic, any CPU. C = beta C first; then for k ascending each element
 * gets c = c + (alpha a_ik) b_kj, whatever the tiling: tiles of 4 x 16 accumulators over packed panels of op(B). */
#include <assert.h>
#include <string.h>
#include "kernels/gemm.h"
#include "kernels/isa.h"

#define TILE_N 16
#define TILE_M 4
#define PANEL_K 256

struct args {
	bool trans_a, trans_b;
	size_t m, n, k;
	real alpha, beta;
	const real *a, *b;
	real *c;
	size_t lda, ldb, ldc;
};

static inline __attribute__((always_inline)) void pack(const struct args *s, size_t k0, size_t kn, size_t j0, size_t jn,
	real *panel)
{
	for (size_t p = 0; p < kn; p++)
		for (size_t j = 0; j < TILE_N; j++)
			panel[p * TILE_N + j] = j >= jn ? 0 : s->trans_b ? s->b[(j0 + j) * s->ldb + k0 + p] :
				s->b[(k0 + p) * s->ldb + j0 + j];
}

static inline __attribute__((always_inline)) void tile_row(const struct args *s, size_t i, size_t k0, size_t kn,
	size_t j0, size_t jn, const real *panel)
{
	real acc[TILE_N] = { 0 }, *c = s->c + i * s->ldc + j0;
	size_t step = s->trans_a ? s->lda : 1;
	const real *a = s->trans_a ? s->a + k0 * s->lda + i : s->a + i * s->lda + k0;

	for (size_t j = 0; j < jn; j++)
		acc[j] = c[j];
	for (size_t p = 0; p < kn; p++) {
		real f = s->alpha * a[p * step];

		for (int j = 0; j < TILE_N; j++)
			acc[j] = acc[j] + f * panel[p * TILE_N + j];
	}
	for (size_t j = 0; j < jn; j++)
		c[j] = acc[j];
}

static inline __attribute__((always_inline)) void tile(const struct args *s, size_t i, size_t k0, size_t kn, size_t j0,
	const real *panel)
{
	real acc0[TILE_N], acc1[TILE_N], acc2[TILE_N], acc3[TILE_N];
	real *c = s->c + i * s->ldc + j0;
	size_t step = s->trans_a ? s->lda : 1, row = s->trans_a ? 1 : s->lda;
	const real *a = s->trans_a ? s->a + k0 * s->lda + i : s->a + i * s->lda + k0;

	memcpy(acc0, c, sizeof acc0);
	memcpy(acc1, c + s->ldc, sizeof acc1);
	memcpy(acc2, c + 2 * s->ldc, sizeof acc2);
	memcpy(acc3, c + 3 * s->ldc, sizeof acc3);
	for (size_t p = 0; p < kn; p++) {
		real f0 = s->alpha * a[p * step], f1 = s->alpha * a[p * step + row];
		real f2 = s->alpha * a[p * step + 2 * row], f3 = s->alpha * a[p * step + 3 * row];
		const real *b = panel + p * TILE_N;

		for (int j = 0; j < TILE_N; j++) {
			acc0[j] = acc0[j] + f0 * b[j];
			acc1[j] = acc1[j] + f1 * b[j];
			acc2[j] = acc2[j] + f2 * b[j];
			acc3[j] = acc3[j] + f3 * b[j];
		}
	}
	memcpy(c, acc0, sizeof acc0);
	memcpy(c + s->ldc, acc1, sizeof acc1);
	memcpy(c + 2 * s->ldc, acc2, sizeof acc2);
	memcpy(c + 3 * s->ldc, acc3, sizeof acc3);
}

/* Columns [lo, hi) of C. */
ISA_BODY columns_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	real panel[PANEL_K * TILE_N];

	for (size_t i = 0; i < s->m && s->beta != 1; i++)
		for (size_t j = lo; j < hi; j++)
			s->c[i * s->ldc + j] = s->beta == 0 ? 0 : s->beta * s->c[i * s->ldc + j];
	for (size_t k0 = 0; k0 < s->k; k0 += PANEL_K) {
		size_t kn = s->k - k0 < PANEL_K ? s->k - k0 : PANEL_K;

		for (size_t j0 = lo; j0 < hi; j0 += TILE_N) {
			size_t jn = hi - j0 < TILE_N ? hi - j0 : TILE_N, i = 0;

			pack(s, k0, kn, j0, jn, panel);
			for (; jn == TILE_N && i + TILE_M <= s->m; i += TILE_M)
				tile(s, i, k0, kn, j0, panel);
			for (; i < s->m; i++)
				tile_row(s, i, k0, kn, j0, jn, panel);
		}
	}
}
ISA_KERNEL(columns);

void gemm_reference(const struct par *par, bool trans_a, bool trans_b, size_t m, size_t n, size_t k, real alpha,
	const real *a, size_t lda, const real *b, size_t ldb, real beta, real *c, size_t ldc)
{
	struct args s = { trans_a, trans_b, m, n, k, alpha, beta, a, b, c, lda, ldb, ldc };

	assert(!n || !m || ldc >= n);
	columns.fn[par->cpu](&s, 0, n);
}
