/* IEEE half precision, two bytes an element. Finite numbers stay finite: what is too large becomes 65504. */
#include "kernels/codec/half.h"

#define MOST 0x477fe000u

static size_t bytes(size_t n) { return 2 * n; }

static void encode(const struct par *par, size_t n, const real *x, uint8_t *out)
{
	half_encode_all(par, n, x, MOST, vec_to_f16, out);
}

static void decode(const struct par *par, size_t n, const uint8_t *in, real *y)
{
	half_decode_all(par, n, in, vec_from_f16, y);
}

const struct codec_ops codec_fp16 = { .name = "fp16",
	.help = "IEEE half precision; larger numbers become 65504: relative error at most 2^-11 from 2^-14 on",
	.block = 1, .lossy = 1,
	.bytes = bytes, .encode = encode, .decode = decode };
