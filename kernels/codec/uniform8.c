/* Bytes, linear between the least and the greatest of each 4096 elements: error at most range / 510. A block: least,
 * greatest (floats), the bytes. In double, so that no range overflows and the bound is that of the levels alone. */
#include "kernels/codec/block.h"

#define BLOCK 4096
#define HEAD 8

static size_t bytes(size_t n) { return n + HEAD * blocks_of(n, BLOCK); }

/* Order of floats as order of integers, and back. */
INLINE int32_t ordered(int32_t u) { return u ^ (u >> 31 & 0x7fffffff); }

INLINE void range_of(const real *x, size_t n, float *ret_lo, float *ret_hi)
{
	int32_t lo = INT32_MAX, hi = INT32_MIN;

	for (size_t i = 0; i < n; i++) {
		int32_t k = ordered((int32_t)bits_of((float)x[i]));

		lo = k < lo ? k : lo;
		hi = k > hi ? k : hi;
	}
	*ret_lo = float_of((uint32_t)ordered(lo));
	*ret_hi = float_of((uint32_t)ordered(hi));
}

ISA_BODY encode_isa_body(const void *v, size_t first, size_t end)
{
	const struct codec_args *s = v;

	for (size_t b = first; b < end; b++) {
		const real *restrict x = s->x + b * BLOCK;
		uint8_t *restrict out = s->out + b * (BLOCK + HEAD);
		size_t n = block_len(s->n, BLOCK, b);
		bool finite = most_bits(x, n) < FINITE;
		float lo, hi;

		range_of(x, n, &lo, &hi);
		lo = finite ? lo : float_of(0x7fc00000u);
		put_float(out, lo);
		put_float(out + 4, hi);
		out += HEAD;
		double least = lo, by = finite && hi > lo ? 255 / ((double)hi - least) : 0;
		if (by == 0) {
			memset(out, 0, n);
			continue;
		}
		for (size_t i = 0; i < n; i++)
			out[i] = (uint8_t)(int32_t)(((double)(float)x[i] - least) * by + 0.5);
	}
}
ISA_KERNEL(encode_isa);

ISA_BODY decode_isa_body(const void *v, size_t first, size_t end)
{
	const struct codec_args *s = v;

	for (size_t b = first; b < end; b++) {
		const uint8_t *restrict in = s->in + b * (BLOCK + HEAD);
		real *restrict y = s->y + b * BLOCK;
		size_t n = block_len(s->n, BLOCK, b);
		double lo = get_float(in), by = ((double)get_float(in + 4) - lo) / 255;

		in += HEAD;
		for (size_t i = 0; i < n; i++)
			y[i] = (real)(float)(lo + (double)in[i] * by);
	}
}
ISA_KERNEL(decode_isa);

static void encode(const struct par *par, size_t n, const real *x, uint8_t *out)
{
	blocks_run(par, &encode_isa, BLOCK, &(struct codec_args){ .n = n, .x = x, .out = out });
}

static void decode(const struct par *par, size_t n, const uint8_t *in, real *y)
{
	blocks_run(par, &decode_isa, BLOCK, &(struct codec_args){ .n = n, .in = in, .y = y });
}

const struct codec_ops codec_uniform8 = { .name = "uniform8",
	.help = "bytes, linear over the range of each 4096 elements: error at most range / 510",
	.block = BLOCK, .lossy = 1, .bytes = bytes, .encode = encode, .decode = decode };
