/* center_crop: the middle of the image, in training, too (torchvision's CenterCrop; a smaller image is an error). */
#include "train/step.h"

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", "size", NULL };

	if (read_known(o, at, known, e) < 0 || step_read_size(st, o, at, e) < 0)
		return -1;
	if (!st->w)
		st->w = st->h;
	return 0;
}

/* round(n / 2) as Python does: halves to even. */
static size_t half(size_t n)
{
	return n % 2 ? n / 2 + n / 2 % 2 : n / 2;
}

static bool window(const struct spec_step *st, size_t h, size_t w, uint64_t key, bool train, struct window *ret)
{
	if (h < st->h || w < st->w)
		return false;
	*ret = (struct window){ half(h - st->h), half(w - st->w), st->h, st->w };
	return true;
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	struct window v;

	if (!window(st, s->full_h, s->full_w, key, train, &v))
		return err_set(e, ERR_MISMATCH, "center_crop: an image of %zux%zu has no middle of %ux%u; resize it first",
			s->full_h, s->full_w, st->h, st->w);
	sample_cut(s, &v);
	return 0;
}

const struct step_ops step_center_crop = { "center_crop", "the middle of the image",
	true, true, false, read_, run, window, false };
