/* The floats as they are. */
#include "kernels/codec/block.h"
#include "kernels/vec.h"

static size_t bytes(size_t n) { return 4 * n; }

static void encode(const struct par *par, size_t n, const real *x, uint8_t *out)
{
	for (size_t i = 0; i < n; i++)
		put_float(out + 4 * i, (float)x[i]);
}

static void decode(const struct par *par, size_t n, const uint8_t *in, real *x)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (real)get_float(in + 4 * i);
}

const struct codec_ops codec_none = { .name = "none", .help = "32-bit floats as they are", .block = 1, .bytes = bytes,
	.encode = encode, .decode = decode };
