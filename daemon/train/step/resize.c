/* resize: to [height, width], or the shorter side to a size. Bilinear with antialiasing, in the integers of Pillow, so
 * that the bytes are those that torchvision's Resize gives for the same picture, on every machine. */
#include "train/data/resample.h"
#include "train/step.h"

#define SIDE_MAX 16384

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", "size", NULL };

	return read_known(o, at, known, e) < 0 || step_read_size(st, o, at, e) < 0 ? -1 : 0;
}

static void across(struct sample *s, size_t w)
{
	size_t rows = s->c * s->h, scratch = resample_scratch(s->w, w);
	struct weights k;
	uint8_t *to = sample_room(s, rows * w + scratch);

	weights_make(&k, s->w, w);
	resample_rows(&k, s->p, rows, to, to + rows * w);
	weights_free(&k);
	s->p = to;
	s->w = w;
}

static void down(struct sample *s, size_t h)
{
	struct weights k;
	uint8_t *to = sample_room(s, s->c * h * s->w);

	weights_make(&k, s->h, h);
	for (size_t c = 0; c < s->c; c++)
		resample_columns(&k, (const uint8_t *)s->p + c * s->h * s->w, s->w, to + c * h * s->w);
	weights_free(&k);
	s->p = to;
	s->h = h;
}

int sample_resize(struct sample *s, size_t h, size_t w, struct err *e)
{
	h = h ? h : 1;
	w = w ? w : 1;
	if (h > SIDE_MAX || w > SIDE_MAX)
		return err_set(e, ERR_CORRUPT, "resize: %zux%zu would become %zux%zu; a side has at most %d pixels", s->h,
			s->w, h, w, SIDE_MAX);
	if (w != s->w)
		across(s, w);
	if (h != s->h)
		down(s, h);
	sample_whole(s);
	return 0;
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	size_t h = st->h, w = st->w;

	if (!w && s->h <= s->w) {               /* the shorter side; the other as torchvision rounds it */
		w = (size_t)st->h * s->w / s->h;
	} else if (!w) {
		w = st->h;
		h = (size_t)st->h * s->h / s->w;
	}
	return sample_resize(s, h, w, e);
}

const struct step_ops step_resize = { "resize", "to a size, bilinear with antialiasing",
	true, true, true, read_, run, NULL, false };

int step_read_size(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	const struct place p = place_key(at, "size");
	const json_t *v = json_object_get(o, "size");
	double h, w = 0;

	if (json_is_array(v) && json_array_size(v) == 2) {
		if (read_number(json_array_get(v, 0), &p, 1, 4096, &h, e) < 0 ||
		    read_number(json_array_get(v, 1), &p, 1, 4096, &w, e) < 0)
			return -1;
	} else if (!json_is_integer(v)) {
		return place_err(&p, e, "must be a whole number or [height, width], and is %s", json_kind(v));
	} else if (read_number(v, &p, 1, 4096, &h, e) < 0) {
		return -1;
	}
	st->h = (uint32_t)h;
	st->w = (uint32_t)w;
	return 0;
}
