/* One body, three instruction sets: ISA_KERNEL(name) compiles name_body for the baseline, AVX2 and AVX-512 and makes
 * the table `name`. Bodies are plain C; with -ffp-contract=off the compiler may choose the width but not the order
 * of operations, so all three give the same bytes. */
#ifndef KERNELS_ISA_H
#define KERNELS_ISA_H
#include "kernels/par.h"

struct isa { void (*fn[3])(const void *args, size_t lo, size_t hi); };  /* indexed by enum cpu */

#ifdef __clang__
#define ISA_AVX512 "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define ISA_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif

/* Operands of elementwise loops are the same vector or do not overlap: no iteration waits for another. */
#ifdef __clang__
#define ISA_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ISA_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define ISA_BODY static inline __attribute__((always_inline)) void
#ifdef __x86_64__
#define ISA_KERNEL(name) \
	static void name##_plain(const void *args, size_t lo, size_t hi) { name##_body(args, lo, hi); } \
	__attribute__((target("avx2"))) \
	static void name##_avx2(const void *args, size_t lo, size_t hi) { name##_body(args, lo, hi); } \
	__attribute__((target(ISA_AVX512))) \
	static void name##_avx512(const void *args, size_t lo, size_t hi) { name##_body(args, lo, hi); } \
	static const struct isa name = { { name##_plain, name##_avx2, name##_avx512 } }
#else
#define ISA_KERNEL(name) \
	static void name##_plain(const void *args, size_t lo, size_t hi) { name##_body(args, lo, hi); } \
	static const struct isa name = { { name##_plain, name##_plain, name##_plain } }
#endif

/* Runs the kernel over [0, n), cut at multiples of grain; serially when that is not worth waking the team. */
void isa_run(const struct par *par, const struct isa *k, const void *args, size_t n, size_t grain, size_t serial_max);

#endif
