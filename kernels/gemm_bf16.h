/* Products of two operands that are rounded to bfloat16 while they are packed, by instructions that multiply pairs of
 * such numbers and add them up in single precision: the tiles of AMX (TDPBF16PS) or AVX512-BF16 (VDPBF16PS).
 *
 * Sums go over blocks of 512 terms. In a block AMX adds every 32 terms up, the even ones and the odd ones apart, then
 * both, and that to what is there; VDPBF16PS adds the odd term of a pair, then the even one. Numbers below 2^-126, what
 * is multiplied as well as what comes out, count as 0: the instructions have no others. So bits depend on which of the
 * two it is, never on the cut of the work. Intel, "Instruction Set Extensions Programming Reference", 319433. */
#ifndef KERNELS_GEMM_BF16_H
#define KERNELS_GEMM_BF16_H
#include "kernels/gemm_tile.h"

/* Bytes of scratch, 64-byte aligned, for all that are no larger. */
size_t gemm_bf16_work(size_t m, size_t n, size_t k);
/* dot is not DOT_NONE. Not in double. */
void gemm_bf16(enum dot dot, const struct gemm_tile *g, void *work);

#endif
