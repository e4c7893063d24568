/* Signed bytes, linear between -1 and 1 times the largest magnitude of each 256 elements (block-wise quantisation:
 * Dettmers et al., 8-bit Optimizers via Block-wise Quantization, arXiv 2110.02861, section 2.1). A block: the largest
 * magnitude (float), the bytes. */
#include "kernels/codec/block.h"

#define BLOCK 256
#define HEAD 4
#define LEVELS 127
#define TINY 0x0d800000u                /* 2^-100: smaller blocks are zeros, so that no factor overflows */

static size_t bytes(size_t n) { return n + HEAD * blocks_of(n, BLOCK); }

ISA_BODY encode_isa_body(const void *v, size_t lo, size_t hi)
{
	const struct codec_args *s = v;

	for (size_t b = lo; b < hi; b++) {
		const real *restrict x = s->x + b * BLOCK;
		uint8_t *restrict out = s->out + b * (BLOCK + HEAD);
		size_t n = block_len(s->n, BLOCK, b);
		uint32_t most = most_bits(x, n);
		float by = most < TINY || most >= FINITE ? 0 : LEVELS / float_of(most);

		put_float(out, most >= FINITE ? float_of(0x7fc00000u) : most < TINY ? 0 : float_of(most));
		out += HEAD;
		for (size_t i = 0; i < n; i++)
			out[i] = by != 0 ? (uint8_t)nearest((float)x[i] * by) : 0;
	}
}
ISA_KERNEL(encode_isa);

ISA_BODY decode_isa_body(const void *v, size_t lo, size_t hi)
{
	const struct codec_args *s = v;

	for (size_t b = lo; b < hi; b++) {
		const uint8_t *restrict in = s->in + b * (BLOCK + HEAD);
		real *restrict y = s->y + b * BLOCK;
		size_t n = block_len(s->n, BLOCK, b);
		float by = get_float(in) * (1.0f / LEVELS);

		in += HEAD;
		for (size_t i = 0; i < n; i++)
			y[i] = (real)((float)(int8_t)in[i] * by);
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

const struct codec_ops codec_blockwise8 = { .name = "blockwise8",
	.help = "signed bytes, scaled by the largest magnitude of each 256 elements: error at most 1/254 of it",
	.block = BLOCK, .lossy = 1, .bytes = bytes, .encode = encode, .decode = decode };
