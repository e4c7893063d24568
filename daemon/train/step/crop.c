/* crop: a piece of the image of a given size. In training anywhere in the image with `padding` pixels of the raw value
 * 0 around it (torchvision's RandomCrop), else the middle of the image itself (its CenterCrop). */
#include <string.h>
#include "common/rng.h"
#include "train/step.h"

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", "size", "padding", NULL };

	if (read_known(o, at, known, e) < 0 || step_read_size(st, o, at, e) < 0 ||
	    read_u32(o, at, "padding", 0, 1024, &st->pixels, e) < 0)
		return -1;
	if (!st->w)
		st->w = st->h;
	return 0;
}

/* The piece begins at (y, x) of the unpadded image; what lies outside is zero. */
static void cut(const struct sample *s, size_t plane, long y, long x, size_t h, size_t w, char *to, const void *zero)
{
	size_t unit = sample_unit(s);
	const char *from = (const char *)s->p + plane * s->h * s->w * unit;
	long lo = x < 0 ? -x : 0, hi = (long)s->w - x < (long)w ? (long)s->w - x : (long)w;

	for (long r = 0; r < (long)h; r++, to += w * unit) {
		bool in = y + r >= 0 && y + r < (long)s->h && hi > lo;

		for (long c = 0; c < (long)w; c++)
			if (!in || c < lo || c >= hi)
				memcpy(to + (size_t)c * unit, zero, unit);
		if (in)
			memcpy(to + (size_t)lo * unit, from + ((size_t)(y + r) * s->w + (size_t)(x + lo)) * unit,
				(size_t)(hi - lo) * unit);
	}
}

/* round(n / 2) as Python does, which torchvision uses: halves to even. */
static long half(long n)
{
	return n % 2 ? (n - 1) / 2 + ((n - 1) / 2) % 2 : n / 2;
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	size_t unit = sample_unit(s), pad = train ? st->pixels : 0;
	static const uint8_t black;
	long y, x;
	char *to;

	if (s->h + 2 * pad < st->h || s->w + 2 * pad < st->w)
		return err_set(e, ERR_MISMATCH, "crop: an image of %zux%zu has no piece of %ux%u; resize it first", s->h, s->w,
			st->h, st->w);
	y = train ? (long)(rng_at(key, 0) % (s->h + 2 * pad - st->h + 1)) - (long)pad : half((long)s->h - (long)st->h);
	x = train ? (long)(rng_at(key, 1) % (s->w + 2 * pad - st->w + 1)) - (long)pad : half((long)s->w - (long)st->w);
	to = sample_room(s, s->c * st->h * st->w * unit);
	for (size_t c = 0; c < s->c; c++)
		cut(s, c, y, x, st->h, st->w, to + c * st->h * st->w * unit,
			s->bytes ? (const void *)&black : &s->zero[c < STEP_CHANNELS ? c : 0]);
	s->p = to;
	s->h = st->h;
	s->w = st->w;
	return 0;
}

const struct step_ops step_crop = { "crop", "a piece of the image: anywhere in training, else the middle",
	true, true, false, read_, run };
