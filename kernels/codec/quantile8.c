/* A byte that names one of 256 numbers: the means of the 256 quantile groups of each 16384 elements, so that each
 * stands for as many elements. A block: the numbers ascending (256 floats), the bytes; a rest of up to 256 elements
 * travels as floats. */
#include "kernels/codec/block.h"

#define BLOCK 16384
#define LEVELS 256
#define HEAD (4 * LEVELS)
#define DIGIT 11

static size_t rest_bytes(size_t n) { return n <= LEVELS ? 4 * n : HEAD + n; }
static size_t bytes(size_t n) { return n / BLOCK * (HEAD + BLOCK) + (n % BLOCK ? rest_bytes(n % BLOCK) : 0); }

/* Ascending, by three counts over eleven bits each of a key whose order is that of floats. */
static void sort(uint32_t *k, size_t n, uint32_t *t)
{
	for (int shift = 0; shift < 32; shift += DIGIT) {
		uint32_t at[1 << DIGIT] = { 0 }, sum = 0, *swap = k;

		for (size_t i = 0; i < n; i++)
			at[k[i] >> shift & ((1 << DIGIT) - 1)]++;
		for (int d = 0; d < 1 << DIGIT; d++) {
			uint32_t count = at[d];

			at[d] = sum;
			sum += count;
		}
		for (size_t i = 0; i < n; i++)
			t[at[k[i] >> shift & ((1 << DIGIT) - 1)]++] = k[i];
		k = t;
		t = swap;
	}
}

static void numbers(const real *x, size_t n, float *ret_level)
{
	uint32_t key[BLOCK], sorted[BLOCK];

	for (size_t i = 0; i < n; i++) {
		uint32_t u = bits_of((float)x[i]);

		key[i] = u >> 31 ? ~u : u | 0x80000000u;
	}
	sort(key, n, sorted);                   /* an odd number of passes: the result is in the second */
	for (size_t q = 0; q < LEVELS; q++) {
		size_t lo = q * n / LEVELS, hi = (q + 1) * n / LEVELS;
		double sum = 0;

		for (size_t i = lo; i < hi; i++)
			sum += (double)float_of(sorted[i] >> 31 ? sorted[i] ^ 0x80000000u : ~sorted[i]);
		ret_level[q] = (float)(sum / (double)(hi - lo));
	}
}

/* The nearest number: how many borders between neighbours lie below x. */
INLINE uint8_t nearest_level(const float *border, float x)
{
	uint32_t at = 0;

	for (uint32_t step = LEVELS / 2; step; step /= 2)
		at += border[at + step - 1] < x ? step : 0;
	return (uint8_t)at;
}

static void encode_block(size_t n, const real *x, uint8_t *out)
{
	float level[LEVELS], border[LEVELS];
	bool finite = most_bits(x, n) < FINITE;

	for (int q = 0; q < LEVELS; q++)
		level[q] = float_of(0x7fc00000u);
	if (finite)
		numbers(x, n, level);
	memcpy(out, level, HEAD);
	if (!finite) {
		memset(out + HEAD, 0, n);
		return;
	}
	for (int q = 0; q < LEVELS; q++)
		border[q] = q + 1 < LEVELS ? (float)(((double)level[q] + (double)level[q + 1]) / 2) : level[q];
	for (size_t i = 0; i < n; i++)
		out[HEAD + i] = nearest_level(border, (float)x[i]);
}

static void encode(const struct par *par, size_t n, const real *x, uint8_t *out)
{
	for (size_t at = 0; at < n; at += BLOCK, out += HEAD + BLOCK) {
		size_t len = n - at < BLOCK ? n - at : BLOCK;

		if (len <= LEVELS)
			codec_find("none")->encode(par, len, x + at, out);
		else
			encode_block(len, x + at, out);
	}
}

static void decode(const struct par *par, size_t n, const uint8_t *in, real *y)
{
	float level[LEVELS];

	for (size_t at = 0; at < n; at += BLOCK, in += HEAD + BLOCK) {
		size_t len = n - at < BLOCK ? n - at : BLOCK;

		if (len <= LEVELS) {
			codec_find("none")->decode(par, len, in, y + at);
			continue;
		}
		memcpy(level, in, HEAD);
		for (size_t i = 0; i < len; i++)
			y[at + i] = (real)level[in[HEAD + i]];
	}
}

const struct codec_ops codec_quantile8 = { .name = "quantile8",
	.help = "bytes that name one of 256 numbers, the means of the quantiles of each 16384 elements",
	.block = BLOCK, .lossy = 1, .bytes = bytes, .encode = encode, .decode = decode };
