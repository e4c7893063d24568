/* bfloat16, two bytes an element. Finite numbers stay finite. */
#include "kernels/codec/half.h"

#define MOST 0x7f7f0000u

static size_t bytes(size_t n) { return 2 * n; }

static void encode(const struct par *par, size_t n, const real *x, uint8_t *out)
{
	for (size_t at = 0; at < n; at += HALF_BLOCK)
		half_encode(par, n - at < HALF_BLOCK ? n - at : HALF_BLOCK, x + at, 1, MOST, vec_to_bf16, out + 2 * at);
}

static void decode(const struct par *par, size_t n, const uint8_t *in, real *y)
{
	for (size_t at = 0; at < n; at += HALF_BLOCK)
		half_decode(par, n - at < HALF_BLOCK ? n - at : HALF_BLOCK, in + 2 * at, 1, vec_from_bf16, y + at);
}

const struct codec_ops codec_bf16 = { .name = "bf16",
	.help = "the upper half of a float: relative error at most 2^-8", .block = 1, .lossy = 1,
	.bytes = bytes, .encode = encode, .decode = decode };
