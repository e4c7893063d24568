/* Half precision with a common power of two per 1024 elements, which brings the largest to [2^14, 2^15): neither large
 * nor tiny gradients leave the format's range. A block: the factor that decoding multiplies by (float), the halves. */
#include "kernels/codec/half.h"

#define HEAD 4
#define MOST 0x46ffe000u            /* the last half below 2^15: times the largest factor it is finite */

static size_t bytes(size_t n) { return 2 * n + HEAD * blocks_of(n, HALF_BLOCK); }

static void encode(const struct par *par, size_t n, const real *x, uint8_t *out)
{
	for (size_t b = 0; b < blocks_of(n, HALF_BLOCK); b++, out += HEAD + 2 * HALF_BLOCK) {
		const real *at = x + b * HALF_BLOCK;
		size_t len = block_len(n, HALF_BLOCK, b);
		uint32_t most = most_bits(at, len);
		int up = 14 + 127 - (int)(most >> 23);                  /* 2^up times the block */

		up = most >= FINITE ? 0 : up > 126 ? 126 : up;
		put_float(out, float_of((uint32_t)(127 - up) << 23));
		half_encode(par, len, at, float_of((uint32_t)(127 + up) << 23), MOST, vec_to_f16, out + HEAD);
	}
}

static void decode(const struct par *par, size_t n, const uint8_t *in, real *y)
{
	for (size_t b = 0; b < blocks_of(n, HALF_BLOCK); b++, in += HEAD + 2 * HALF_BLOCK)
		half_decode(par, block_len(n, HALF_BLOCK, b), in + HEAD, get_float(in), vec_from_f16, y + b * HALF_BLOCK);
}

const struct codec_ops codec_fp16_scaled = { .name = "fp16_scaled",
	.help = "half precision, scaled by a power of two per 1024 elements: no overflow, no loss of tiny blocks",
	.block = HALF_BLOCK, .lossy = 1, .bytes = bytes, .encode = encode, .decode = decode };
