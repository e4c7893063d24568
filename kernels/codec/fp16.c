/* IEEE half precision, two bytes an element. Finite numbers stay finite: what is too large becomes 65504. */
#include "kernels/codec/half.h"

#define MOST 0x477fe000u

static size_t bytes(size_t n) { return 2 * n; }

static void encode(const struct par *par, size_t n, const real *x, uint8_t *out)
{
	for (size_t at = 0; at < n; at += HALF_BLOCK)
		half_encode(par, n - at < HALF_BLOCK ? n - at : HALF_BLOCK, x + at, 1, MOST, vec_to_f16, out + 2 * at);
}

static void decode(const struct par *par, size_t n, const uint8_t *in, real *y)
{
	for (size_t at = 0; at < n; at += HALF_BLOCK)
		half_decode(par, n - at < HALF_BLOCK ? n - at : HALF_BLOCK, in + 2 * at, 1, vec_from_f16, y + at);
}

const struct codec_ops codec_fp16 = { .name = "fp16",
	.help = "IEEE half precision; larger numbers become 65504: relative error at most 2^-11 from 2^-14 on",
	.block = 1, .lossy = 1,
	.bytes = bytes, .encode = encode, .decode = decode };
