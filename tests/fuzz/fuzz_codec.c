/* Encoded vectors as they come from other machines. First byte: which encoding; second and third: how many elements;
 * the rest are the bytes, in memory of just that size. Whatever they say, so many floats come out and nothing else is
 * touched; floats that came out can be encoded and decoded again, and what was not finite stays so. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int codecs(void)
{
	int n = 0;

	while (codec_at(n))
		n++;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	const struct codec_ops *c = size ? codec_at(data[0] % codecs()) : NULL;
	size_t n, bytes;

	if (size < 3)
		return 0;
	n = (size_t)data[1] | (size_t)(data[2] & 0x7f) << 8;
	while (c->bytes(n) > size - 3)          /* as many as there are bytes for */
		n = n / 2;
	bytes = c->bytes(n);
	if (c->bytes(n + 1) < bytes)
		abort();                        /* more elements never take fewer bytes */
	uint8_t *wire = malloc(bytes ? bytes : 1);
	float *x = malloc((n ? n : 1) * sizeof *x), *y = malloc((n ? n : 1) * sizeof *y);
	memcpy(wire, data + 3, bytes);
	c->decode(&par, n, wire, x);
	c->encode(&par, n, x, wire);
	c->decode(&par, n, wire, y);
	for (size_t i = 0; i < n; i++)
		if (!isfinite(x[i]) && isfinite(y[i]))
			abort();
	free(wire);
	free(x);
	free(y);
	return 0;
}
