/* The 16-bit encodings: a block is scaled, clamped to what the format holds and cast (vec.h), through its own buffers
 * because the bytes on the wire are aligned to nothing. */
#ifndef KERNELS_CODEC_HALF_H
#define KERNELS_CODEC_HALF_H
#include "kernels/codec/block.h"
#include "kernels/vec.h"

#define HALF_BLOCK 1024

typedef void half_cast_fn(const struct par *, size_t n, const real *x, uint16_t *h);
typedef void half_back_fn(const struct par *, size_t n, const uint16_t *h, real *x);

/* most: the largest finite number of the format. n <= HALF_BLOCK. */
INLINE void half_encode(const struct par *par, size_t n, const real *x, float scale, uint32_t most, half_cast_fn *cast,
	uint8_t *out)
{
	struct par one = par_serial(par->cpu, NULL);
	real t[HALF_BLOCK];
	uint16_t h[HALF_BLOCK];

	for (size_t i = 0; i < n; i++) {
		uint32_t u = bits_of((float)x[i] * scale), mag = u & 0x7fffffffu;

		mag = mag > most && mag < FINITE ? most : mag;
		t[i] = (real)float_of((u & 0x80000000u) | mag);
	}
	cast(&one, n, t, h);
	memcpy(out, h, 2 * n);
}

INLINE void half_decode(const struct par *par, size_t n, const uint8_t *in, float scale, half_back_fn *back, real *y)
{
	struct par one = par_serial(par->cpu, NULL);
	uint16_t h[HALF_BLOCK];

	memcpy(h, in, 2 * n);
	back(&one, n, h, y);
	for (size_t i = 0; i < n; i++)
		y[i] = (real)((float)y[i] * scale);
}

/* Any n, block by block. */
INLINE void half_encode_all(const struct par *par, size_t n, const real *x, uint32_t most, half_cast_fn *cast,
	uint8_t *out)
{
	for (size_t at = 0; at < n; at += HALF_BLOCK)
		half_encode(par, n - at < HALF_BLOCK ? n - at : HALF_BLOCK, x + at, 1, most, cast, out + 2 * at);
}

INLINE void half_decode_all(const struct par *par, size_t n, const uint8_t *in, half_back_fn *back, real *y)
{
	for (size_t at = 0; at < n; at += HALF_BLOCK)
		half_decode(par, n - at < HALF_BLOCK ? n - at : HALF_BLOCK, in + 2 * at, 1, back, y + at);
}

#endif
