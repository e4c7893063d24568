/* Half bytes: -7 to 7 sevenths of the largest magnitude of each 128 elements. For outer gradients (Douillard et al.,
 * Streaming DiLoCo, arXiv 2501.18512, section 3.3 sends 4 bits); gradients of every step want error feedback. A
 * block: the largest magnitude (float), then two elements a byte, level + 8, the first in the low half. */
#include "kernels/codec/block.h"

#define BLOCK 128
#define HEAD 4
#define LEVELS 7
#define TINY 0x0d800000u                /* 2^-100: smaller blocks are zeros, so that no factor overflows */

static size_t bytes(size_t n)
{
	return n / BLOCK * (HEAD + BLOCK / 2) + (n % BLOCK ? HEAD + (n % BLOCK + 1) / 2 : 0);
}

INLINE uint32_t level(float x, float by) { return (uint32_t)(nearest(x * by) + 8); }

ISA_BODY encode_isa_body(const void *v, size_t lo, size_t hi)
{
	const struct codec_args *s = v;

	for (size_t b = lo; b < hi; b++) {
		const real *restrict x = s->x + b * BLOCK;
		uint8_t *restrict out = s->out + b * (BLOCK / 2 + HEAD);
		size_t n = block_len(s->n, BLOCK, b);
		uint32_t most = most_bits(x, n);
		bool plain = most >= TINY && most < FINITE;
		float by = plain ? LEVELS / float_of(most) : 0;

		put_float(out, most >= FINITE ? float_of(0x7fc00000u) : plain ? float_of(most) : 0);
		out += HEAD;
		if (!plain) {
			memset(out, 0x88, (n + 1) / 2);
			continue;
		}
		for (size_t i = 0; i < n / 2; i++)
			out[i] = (uint8_t)(level((float)x[2 * i], by) | level((float)x[2 * i + 1], by) << 4);
		if (n % 2)
			out[n / 2] = (uint8_t)(level((float)x[n - 1], by) | 0x80);
	}
}
ISA_KERNEL(encode_isa);

ISA_BODY decode_isa_body(const void *v, size_t lo, size_t hi)
{
	const struct codec_args *s = v;

	for (size_t b = lo; b < hi; b++) {
		const uint8_t *restrict in = s->in + b * (BLOCK / 2 + HEAD);
		real *restrict y = s->y + b * BLOCK;
		size_t n = block_len(s->n, BLOCK, b);
		float by = get_float(in) * (1.0f / LEVELS);

		in += HEAD;
		for (size_t i = 0; i < n / 2; i++) {
			y[2 * i] = (real)((float)((int)(in[i] & 15) - 8) * by);
			y[2 * i + 1] = (real)((float)((int)(in[i] >> 4) - 8) * by);
		}
		if (n % 2)
			y[n - 1] = (real)((float)((int)(in[n / 2] & 15) - 8) * by);
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

const struct codec_ops codec_blockwise4 = { .name = "blockwise4",
	.help = "half bytes, scaled by the largest magnitude of each 128 elements: error at most 1/14 of it",
	.block = BLOCK, .lossy = 1, .bytes = bytes, .encode = encode, .decode = decode };
