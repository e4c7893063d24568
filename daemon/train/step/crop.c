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

/* round(n / 2) as Python does, which torchvision uses: halves to even. */
static long half(long n)
{
	return n % 2 ? (n - 1) / 2 + ((n - 1) / 2) % 2 : n / 2;
}

/* Where the piece begins in the unpadded image of h x w; -1: it does not fit. */
static int where(const struct spec_step *st, size_t h, size_t w, uint64_t key, bool train, long *ret_y, long *ret_x)
{
	size_t pad = train ? st->pixels : 0;

	if (h + 2 * pad < st->h || w + 2 * pad < st->w)
		return -1;
	*ret_y = train ? (long)(rng_at(key, 0) % (h + 2 * pad - st->h + 1)) - (long)pad : half((long)h - (long)st->h);
	*ret_x = train ? (long)(rng_at(key, 1) % (w + 2 * pad - st->w + 1)) - (long)pad : half((long)w - (long)st->w);
	return 0;
}

/* What of [at, at + n) lies in [0, of); at least one, so that an image is never empty. */
static void clip(long at, size_t n, size_t of, size_t *ret_at, size_t *ret_n)
{
	long lo = at < 0 ? 0 : at, hi = at + (long)n < (long)of ? at + (long)n : (long)of;

	lo = lo < (long)of ? lo : (long)of - 1;
	hi = hi > lo ? hi : lo + 1;
	*ret_at = (size_t)lo;
	*ret_n = (size_t)(hi - lo);
}

static bool window(const struct spec_step *st, size_t h, size_t w, uint64_t key, bool train, struct window *ret)
{
	long y, x;

	if (where(st, h, w, key, train, &y, &x) < 0)
		return false;
	clip(y, st->h, h, &ret->y, &ret->h);
	clip(x, st->w, w, &ret->x, &ret->w);
	return true;
}

/* n values; zero is one of `unit` bytes. */
static void fill(char *to, size_t n, size_t unit, const void *zero)
{
	if (unit == 1)
		memset(to, *(const uint8_t *)zero, n);
	for (size_t i = 0; unit != 1 && i < n; i++)
		memcpy(to + i * unit, zero, unit);
}

/* The piece begins at (y, x) of the whole image; what lies outside of it is zero. */
static void cut(const struct sample *s, size_t plane, long y, long x, size_t h, size_t w, char *to, const void *zero)
{
	size_t unit = sample_unit(s), full = s->full_w;
	const char *from = (const char *)s->p + plane * s->h * s->w * unit;
	long lo = x < 0 ? -x : 0, hi = (long)full - x < (long)w ? (long)full - x : (long)w;

	for (long r = 0; r < (long)h; r++, to += w * unit) {
		bool in = y + r >= 0 && y + r < (long)s->full_h && hi > lo;
		long from_y = y + r - (long)s->top, from_x = x + lo - (long)s->left;

		if (!in) {
			fill(to, w, unit, zero);
			continue;
		}
		fill(to, (size_t)lo, unit, zero);
		fill(to + (size_t)hi * unit, w - (size_t)hi, unit, zero);
		memcpy(to + (size_t)lo * unit, from + ((size_t)from_y * s->w + (size_t)from_x) * unit,
			(size_t)(hi - lo) * unit);
	}
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	size_t unit = sample_unit(s);
	static const uint8_t black;
	long y, x;
	char *to;

	if (where(st, s->full_h, s->full_w, key, train, &y, &x) < 0)
		return err_set(e, ERR_MISMATCH, "crop: an image of %zux%zu has no piece of %ux%u; resize it first", s->full_h,
			s->full_w, st->h, st->w);
	if (y >= 0 && x >= 0 && (size_t)y + st->h <= s->full_h && (size_t)x + st->w <= s->full_w) {
		sample_cut(s, &(struct window){ (size_t)y, (size_t)x, st->h, st->w });
		return 0;
	}
	to = sample_room(s, s->c * st->h * st->w * unit);
	for (size_t c = 0; c < s->c; c++)
		cut(s, c, y, x, st->h, st->w, to + c * st->h * st->w * unit,
			s->bytes ? (const void *)&black : &s->zero[c < STEP_CHANNELS ? c : 0]);
	s->p = to;
	s->h = st->h;
	s->w = st->w;
	sample_whole(s);
	return 0;
}

const struct step_ops step_crop = { "crop", "a piece of the image: anywhere in training, else the middle",
	true, true, false, read_, run, window, true };
