/* bfloat16, two bytes an element. Finite numbers stay finite. */
#include "kernels/codec/half.h"

#define MOST 0x7f7f0000u

static size_t bytes(size_t n) { return 2 * n; }

static void encode(const struct par *par, size_t n, const real *x, uint8_t *out)
{
	half_encode_all(par, n, x, MOST, vec_to_bf16, out);
}

static void decode(const struct par *par, size_t n, const uint8_t *in, real *y)
{
	half_decode_all(par, n, in, vec_from_bf16, y);
}

const struct codec_ops codec_bf16 = { .name = "bf16",
	.help = "the upper half of a float: relative error at most 2^-8", .block = 1, .lossy = 1,
	.bytes = bytes, .encode = encode, .decode = decode };
