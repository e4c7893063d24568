/* The only door to OpenBLAS, with a plain-C reference behind the same signature.
 *
 * The daemon does not link OpenBLAS: blas_load() loads it when the first run starts. Debian's 0.3.21 does not know
 * recent CPUs and then chooses kernels five times slower than the machine can do; it reads OPENBLAS_CORETYPE when it
 * is loaded. So blas_settle(): load, ask for the core it chose, unload, and if that is worse than the CPU's features,
 * set the variable (2 ms). An OPENBLAS_CORETYPE set by the operator is respected and reported.
 * OpenBLAS always runs with one thread; gemm() splits the work over par. An OpenMP build is refused. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H
#include <stdbool.h>
#include "kernels/par.h"

struct blas_info {
	char library[32];       /* "openblas" or "reference" */
	char core[32];          /* what it runs: "SkylakeX", "Zen", ...; "plain" for the reference */
	char core_unset[32];    /* what it would have chosen by itself */
	char config[128];       /* its own description */
	bool forced;            /* we set OPENBLAS_CORETYPE */
	bool by_operator;       /* OPENBLAS_CORETYPE was already set */
	bool below_cpu;         /* still worse than the CPU: say so in status */
};

/* Sets what OpenBLAS reads in the environment when it is loaded. In the process's only thread, before there is another:
 * a thread that reads the environment while setenv moves it reads freed memory. Fills by_operator, forced, core_unset
 * (empty: not installed, or the operator's choice). */
void blas_settle(struct blas_info *ret_settled);
/* In any thread; the environment stays as it is. NULL and e: not installed, OpenMP build, symbol missing. */
struct blas *blas_load(const struct blas_info *settled, struct kerr *e);
struct blas *blas_open(struct kerr *e);                 /* both, for a program that has one thread */
void blas_close(struct blas *b);                        /* NULL is fine */
void blas_info(const struct blas *b, struct blas_info *ret_info);       /* b NULL: the reference */

/* C = alpha op(A) op(B) + beta C, row-major. op(A) is m x k, op(B) k x n, C m x n; op(X) = X^T when trans.
 * lda, ldb, ldc: elements from row to row as stored. beta 0: C is only written. Split over par by rows or columns
 * of C, so that each element is computed by one worker. */
void gemm(const struct par *par, bool trans_a, bool trans_b, size_t m, size_t n, size_t k, real alpha,
	const real *a, size_t lda, const real *b, size_t ldb, real beta, real *c, size_t ldc);

/* The reference: always plain C, in the calling thread; c = beta c, then c = c + (alpha a) b for k ascending. The same
 * bytes on every CPU. */
void gemm_reference(const struct par *par, bool trans_a, bool trans_b, size_t m, size_t n, size_t k, real alpha,
	const real *a, size_t lda, const real *b, size_t ldb, real beta, real *c, size_t ldc);

/* 2mnk floating-point operations: GFLOP/s = gemm_flops / seconds / 1e9. For `status`, time one call of
 * 512 x 512 x 512 on the train lane: kernels have no clock. */
static inline double gemm_flops(size_t m, size_t n, size_t k) { return 2.0 * (double)m * (double)n * (double)k; }

#endif
