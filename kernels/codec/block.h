/* What the encodings share: bits of floats, the largest magnitude of a block, blocks as the unit of a team's work.
 * Magnitudes are compared as integers: that is the order of finite floats, NaN comes last, and it vectorises. */
#ifndef KERNELS_CODEC_BLOCK_H
#define KERNELS_CODEC_BLOCK_H
#include <stdbool.h>
#include <string.h>
#include "kernels/codec.h"
#include "kernels/isa.h"

#define INLINE static inline __attribute__((always_inline))
#define FINITE 0x7f800000u              /* magnitudes below it are finite */
#define SERIAL_BLOCKS(block) (32768 / (block))

struct codec_args { size_t n; const real *x; uint8_t *out; const uint8_t *in; real *y; };

INLINE uint32_t bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return u;
}

INLINE float float_of(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

INLINE float get_float(const uint8_t *p)
{
	float f;

	memcpy(&f, p, sizeof f);
	return f;
}

INLINE void put_float(uint8_t *p, float f) { memcpy(p, &f, sizeof f); }

INLINE uint32_t most_bits(const real *x, size_t n)
{
	int32_t m = 0;

	for (size_t i = 0; i < n; i++) {
		int32_t a = (int32_t)(bits_of((float)x[i]) & 0x7fffffffu);

		m = a > m ? a : m;
	}
	return (uint32_t)m;
}

/* To the nearest whole number, even on ties, of |v| < 2^22: the adder does it. */
INLINE int32_t nearest(float v) { return (int32_t)(bits_of(v + 12582912.0f) - bits_of(12582912.0f)); }

INLINE size_t blocks_of(size_t n, size_t block) { return (n + block - 1) / block; }
/* One after the other, or by the team: each block is one's own work. */
INLINE void blocks_run(const struct par *par, const struct isa *k, size_t block, const struct codec_args *a)
{
	isa_run(par, k, a, blocks_of(a->n, block), 1, SERIAL_BLOCKS(block));
}

INLINE size_t block_len(size_t n, size_t block, size_t b) { return n - b * block < block ? n - b * block : block; }

#endif
