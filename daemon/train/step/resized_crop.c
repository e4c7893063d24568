/* resized_crop: in training a piece of random area and ratio, resized to the size; else the shorter side is resized to
 * 8/7 of the size, and the middle is taken. As torchvision's RandomResizedCrop (get_params: ten tries, then the middle
 * with the nearest ratio) and its usual Resize(256), CenterCrop(224). exp and log are made of + - * / alone, so that
 * every machine takes the same piece. */
#include <math.h>
#include "common/rng.h"
#include "train/step.h"

#define TRIES 10

/* (1 + x/2^16 + ...)^(2^16): relative error under 1e-11 for the ratios that are allowed. */
static double exp_(double x)
{
	double t = x / 65536, y = 1 + t * (1 + t / 2 * (1 + t / 3));

	for (int i = 0; i < 16; i++)
		y *= y;
	return y;
}

static double log_(double y)
{
	double x = 0;

	for (int i = 0; i < 60; i++)
		x += 2 * (y - exp_(x)) / (y + exp_(x));
	return x;
}

static int read_pair(const json_t *o, const struct place *at, const char *key, double lo, double hi, double *ret,
	struct err *e)
{
	const struct place p = place_key(at, key);
	const json_t *v = json_object_get(o, key);

	if (!v)
		return 0;
	if (!json_is_array(v) || json_array_size(v) != 2)
		return place_err(&p, e, "must be [from, to], and is %s", json_kind(v));
	for (size_t i = 0; i < 2; i++) {
		const struct place q = place_index(&p, i);

		if (read_number(json_array_get(v, i), &q, lo, hi, &ret[i], e) < 0)
			return -1;
	}
	return ret[0] <= ret[1] ? 0 : place_err(&p, e, "%g to %g: the first must not be the larger", ret[0], ret[1]);
}

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", "size", "scale", "ratio", NULL };

	st->area[0] = 0.08;
	st->area[1] = 1;
	st->ratio[0] = 3.0 / 4;
	st->ratio[1] = 4.0 / 3;
	if (read_known(o, at, known, e) < 0 || step_read_size(st, o, at, e) < 0 ||
	    read_pair(o, at, "scale", 1e-4, 1, st->area, e) < 0 || read_pair(o, at, "ratio", 0.01, 100, st->ratio, e) < 0)
		return -1;
	if (!st->w)
		st->w = st->h;
	st->log_ratio[0] = log_(st->ratio[0]);
	st->log_ratio[1] = log_(st->ratio[1]);
	return 0;
}

static double unit(uint64_t key, uint64_t i)
{
	return (double)(rng_at(key, i) >> 11) * 0x1p-53;
}

static void middle(const struct spec_step *st, size_t h, size_t w, struct window *ret)
{
	double ratio = (double)w / (double)h;

	ret->w = w;
	ret->h = h;
	if (ratio < st->ratio[0])
		ret->h = (size_t)((double)w / st->ratio[0] + 0.5);
	else if (ratio > st->ratio[1])
		ret->w = (size_t)((double)h * st->ratio[1] + 0.5);
	ret->h = ret->h < 1 ? 1 : ret->h > h ? h : ret->h;
	ret->w = ret->w < 1 ? 1 : ret->w > w ? w : ret->w;
	ret->y = (h - ret->h) / 2;
	ret->x = (w - ret->w) / 2;
}

static bool window(const struct spec_step *st, size_t h, size_t w, uint64_t key, bool train, struct window *ret)
{
	if (!train)
		return false;
	for (uint64_t i = 0; i < TRIES; i++) {
		double area = (double)h * (double)w * (st->area[0] + (st->area[1] - st->area[0]) * unit(key, 4 * i));
		double r = exp_(st->log_ratio[0] + (st->log_ratio[1] - st->log_ratio[0]) * unit(key, 4 * i + 1));

		ret->w = (size_t)(sqrt(area * r) + 0.5);
		ret->h = (size_t)(sqrt(area / r) + 0.5);
		if (!ret->w || ret->w > w || !ret->h || ret->h > h)
			continue;
		ret->y = rng_at(key, 4 * i + 2) % (h - ret->h + 1);
		ret->x = rng_at(key, 4 * i + 3) % (w - ret->w + 1);
		return true;
	}
	middle(st, h, w, ret);
	return true;
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	struct window v;
	size_t h, w;

	if (window(st, s->full_h, s->full_w, key, train, &v)) {
		sample_cut(s, &v);
		return sample_resize(s, st->h, st->w, e);
	}
	/* 8/7 of the size, so that the size fits into it whatever its shape */
	h = (size_t)st->h * 8 / 7;
	w = (size_t)st->w * 8 / 7;
	if (s->w * h <= s->h * w)
		h = (s->h * w + s->w / 2) / s->w;
	else
		w = (s->w * h + s->h / 2) / s->h;
	if (sample_resize(s, h, w, e) < 0)
		return -1;
	v = (struct window){ (s->h - st->h) / 2, (s->w - st->w) / 2, st->h, st->w };
	sample_cut(s, &v);
	return 0;
}

const struct step_ops step_resized_crop = { "resized_crop",
	"in training a piece of random size, resized; else resized to 8/7 and the middle of it",
	true, true, true, read_, run, window, true };
