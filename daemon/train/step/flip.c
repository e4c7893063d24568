/* flip: in training left and right change places with chance 1/2. */
#include <string.h>
#include "common/rng.h"
#include "train/step.h"

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", NULL };

	return read_known(o, at, known, e);
}

static void mirror_bytes(uint8_t *x, size_t w)
{
	size_t a = 0, b = w;

	for (; b - a >= 16; a += 8, b -= 8) {
		uint64_t left, right;

		memcpy(&left, x + a, 8);
		memcpy(&right, x + b - 8, 8);
		left = __builtin_bswap64(left);
		right = __builtin_bswap64(right);
		memcpy(x + a, &right, 8);
		memcpy(x + b - 8, &left, 8);
	}
	for (; b - a >= 2; a++, b--) {
		uint8_t t = x[a];

		x[a] = x[b - 1];
		x[b - 1] = t;
	}
}

static void mirror_reals(real *x, size_t w)
{
	for (size_t c = 0; c < w / 2; c++) {
		real t = x[c];

		x[c] = x[w - 1 - c];
		x[w - 1 - c] = t;
	}
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	if (!train || !(rng_at(key, 0) & 1))
		return 0;
	for (size_t r = 0; r < s->c * s->h; r++) {
		if (s->bytes)
			mirror_bytes((uint8_t *)s->p + r * s->w, s->w);
		else
			mirror_reals((real *)s->p + r * s->w, s->w);
	}
	return 0;
}

const struct step_ops step_flip = { "flip", "left and right change places with chance 1/2, in training",
	true, false, false, read_, run, NULL, true };
