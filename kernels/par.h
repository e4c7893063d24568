/* How kernels execute: the first argument of every one. A team of n workers that the caller owns (the train lane's;
 * kernels start no thread), the instruction set they may use, and the door to the matrix products.
 *
 * Elementwise kernels, optimizers and reductions give the same bytes for every n, every cpu and every blas.
 * Forward and backward results depend on n only through the stated split and on the blas. */
#ifndef KERNELS_PAR_H
#define KERNELS_PAR_H
#include "kernels/real.h"

struct blas;

enum cpu { CPU_PLAIN, CPU_AVX2, CPU_AVX512 };   /* CPU_PLAIN: baseline of the architecture */

/* Instructions that multiply pairs of bfloat16 (kernels/gemm_bf16.h). DOT_TWIN: AMX in plain C, for tests. */
enum dot { DOT_NONE, DOT_AVX512, DOT_AMX, DOT_TWIN };

struct par {
	int n;                                  /* workers, at least 1 */
	enum cpu cpu;                           /* from cpu_pick(); zero is always correct, only slower */
	enum dot dot;                           /* for products of rounded operands; DOT_NONE: as all others */
	const struct blas *blas;                /* NULL: the plain reference (fixed order, deterministic) */
	/* Calls fn(arg, part, n) once for every part in 0..n-1, in any order, perhaps at once; returns when all are
	 * done. NULL: one after the other. A part never calls run again. */
	void (*run)(const struct par *, void (*fn)(void *arg, int part, int parts), void *arg);
	void *team;                             /* the owner's */
	/* A clock for those who ask where time goes (model_call.ns); kernels have none of their own. NULL: there is none */
	uint64_t (*now_ns)(void);
};

/* Best instruction set of this CPU, not above `limit`: NULL or "" or "auto" (no limit), "avx512", "avx2", "plain"
 * (HIVEMIND_CPU's value). Unknown word: -1 and e. */
int cpu_pick(const char *limit, enum cpu *ret_cpu, struct kerr *e);
const char *cpu_name(enum cpu cpu);
/* The best of this CPU, and that the kernel lets this process use; DOT_NONE when limit is a word. */
enum dot dot_pick(const char *limit);
const char *dot_name(enum dot dot);             /* "amx" */

struct par par_serial(enum cpu cpu, const struct blas *blas);   /* n = 1 */

void par_run(const struct par *par, void (*fn)(void *arg, int part, int parts), void *arg);
/* The elements [*ret_lo, *ret_hi) of part `part`, cut at multiples of grain; may be empty. */
void par_slice(size_t n, size_t grain, int part, int parts, size_t *ret_lo, size_t *ret_hi);

#endif
