/* Matrix products by tiles of our own (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM
 * TOMS 2008): what OpenBLAS cannot do, a bias added where the sum is stored, weights read where they lie when there are
 * few rows, and the same bits for every cut of the work. On a Zen 3 core 1.07 to 1.6 times OpenBLAS 0.3.21 up to 96
 * rows, 1.0 to 1.3 times in the heads of attention, 0.95 to 1.02 times for large matrices (tests/bench/tile).
 *
 * Each element is a sum over blocks of k of sums by fused multiply-adds in the order of k; the blocks depend on k
 * alone. So the bits depend on the instruction set, never on the slice or the place in a tile. */
#ifndef KERNELS_GEMM_TILE_H
#define KERNELS_GEMM_TILE_H
#include <stdbool.h>
#include "kernels/par.h"

/* C = alpha op(A) op(B) (+ C when add) (+ bias, one value per column of C), row-major, op(X) = X^T when trans. */
struct gemm_tile {
	bool trans_a, trans_b, add;
	size_t m, n, k;
	real alpha;
	const real *a, *b;
	real *c;
	size_t lda, ldb, ldc;
	const real *bias;                       /* NULL: none */
};

/* Rows of C up to which it pays to read the other operand where it lies. At 8 to 64 rows these products are 1.1 to 1.6
 * times as fast as OpenBLAS's, at 96 as fast, and above its packing pays. */
#define GEMM_TILE_FEW 96

bool gemm_tile_has(enum cpu cpu);       /* false in double and where the CPU has no fused multiply-add */
/* Bytes of scratch for products with n columns or rows and sums of k terms at most; 64-byte aligned. */
size_t gemm_tile_work(size_t m, size_t n, size_t k);
void gemm_tile(enum cpu cpu, const struct gemm_tile *g, void *work);
/* g becomes its columns that are this part's; false: none are. */
bool gemm_tile_part(struct gemm_tile *g, int part, int parts);

#endif
