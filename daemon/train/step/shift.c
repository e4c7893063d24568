/* shift: in training an image moves by up to `pixels` in both directions; the raw value 0 moves in. */
#include <stdlib.h>
#include <string.h>
#include "common/rng.h"
#include "train/step.h"

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", "pixels", NULL };

	st->pixels = 1;
	return read_known(o, at, known, e) < 0 || read_u32(o, at, "pixels", 1, 1024, &st->pixels, e) < 0 ? -1 : 0;
}

/* One channel, in place, rows in the order that does not overwrite. */
static void shift_plane(char *x, size_t unit, size_t h, size_t w, long dy, long dx, const void *zero)
{
	for (size_t k = 0; k < h; k++) {
		size_t r = dy > 0 ? h - 1 - k : k;
		long from = (long)r - dy;
		size_t n = w - (size_t)labs(dx);
		char *to = x + r * w * unit;

		if (from < 0 || from >= (long)h || (size_t)labs(dx) >= w) {
			for (size_t c = 0; c < w; c++)
				memcpy(to + c * unit, zero, unit);
			continue;
		}
		memmove(to + (dx > 0 ? (size_t)dx * unit : 0), x + ((size_t)from * w + (dx < 0 ? (size_t)-dx : 0)) * unit,
			n * unit);
		for (size_t c = 0; c < (size_t)labs(dx); c++)
			memcpy(to + (dx > 0 ? c : w - 1 - c) * unit, zero, unit);
	}
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	uint64_t span = 2 * (uint64_t)st->pixels + 1;
	long dy = (long)(rng_at(key, 0) % span) - (long)st->pixels, dx = (long)(rng_at(key, 1) % span) - (long)st->pixels;
	static const uint8_t black;

	for (size_t c = 0; train && c < s->c; c++)
		shift_plane((char *)s->p + c * s->h * s->w * sample_unit(s), sample_unit(s), s->h, s->w, dy, dx,
			s->bytes ? (const void *)&black : &s->zero[c < STEP_CHANNELS ? c : 0]);
	return 0;
}

const struct step_ops step_shift = { "shift", "moves images by up to some pixels, in training",
	true, false, false, read_, run, NULL, true };
