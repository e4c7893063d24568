/* resize: to [height, width], or the shorter side to a size. Bilinear with antialiasing, in the integers of Pillow
 * (Resample.c: weights of 22 bits, first along rows, then along columns, each rounded to a byte), so that the bytes are
 * those that torchvision's Resize gives for the same picture, on every machine. */
#include <stdlib.h>
#include "common/mem.h"
#include "train/step.h"

#define BITS 22
#define SIDE_MAX 16384

/* Output pixel i is the weighted sum of n[i] inputs from first[i] on; its weights stand at weight + i * stride. */
struct weights { size_t stride; uint32_t *first, *n; int32_t *weight; };

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", "size", NULL };

	return read_known(o, at, known, e) < 0 || step_read_size(st, o, at, e) < 0 ? -1 : 0;
}

static void weights_make(struct weights *k, size_t in, size_t out)
{
	double scale = (double)in / (double)out, filter = scale < 1 ? 1 : scale, support = filter;
	double *w;

	k->stride = (size_t)support * 2 + 3;
	k->first = xcalloc(out, sizeof(*k->first));
	k->n = xcalloc(out, sizeof(*k->n));
	k->weight = xcalloc(out * k->stride, sizeof(*k->weight));
	w = xcalloc(k->stride, sizeof(*w));
	for (size_t i = 0; i < out; i++) {
		double center = ((double)i + 0.5) * scale, sum = 0;
		long lo = (long)(center - support + 0.5), hi = (long)(center + support + 0.5);

		lo = lo < 0 ? 0 : lo;
		hi = hi > (long)in ? (long)in : hi;
		for (long x = lo; x < hi; x++) {
			double far = ((double)x - center + 0.5) * (1 / filter);

			far = far < 0 ? -far : far;
			w[x - lo] = far < 1 ? 1 - far : 0;
			sum += w[x - lo];
		}
		k->first[i] = (uint32_t)lo;
		k->n[i] = (uint32_t)(hi - lo);
		for (long x = 0; x < hi - lo; x++)
			k->weight[i * k->stride + (size_t)x] = (int32_t)(0.5 + (sum != 0 ? w[x] / sum : 0) * (1 << BITS));
	}
	free(w);
}

static void weights_free(struct weights *k)
{
	free(k->first);
	free(k->n);
	free(k->weight);
}

static uint8_t byte_of(int32_t v)
{
	v >>= BITS;
	return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v;
}

/* Along rows: h rows of `in` pixels become h rows of `out`. */
static void rows(const struct weights *k, const uint8_t *from, size_t h, size_t in, size_t out, uint8_t *to)
{
	for (size_t r = 0; r < h; r++, from += in, to += out)
		for (size_t i = 0; i < out; i++) {
			const int32_t *w = k->weight + i * k->stride;
			const uint8_t *x = from + k->first[i];
			int32_t v = 1 << (BITS - 1);

			for (uint32_t j = 0; j < k->n[i]; j++)
				v += x[j] * w[j];
			to[i] = byte_of(v);
		}
}

/* Along columns: a whole row of sums at a time. */
static void columns(const struct weights *k, const uint8_t *from, size_t w, size_t out, int32_t *sum, uint8_t *to)
{
	for (size_t i = 0; i < out; i++, to += w) {
		for (size_t c = 0; c < w; c++)
			sum[c] = 1 << (BITS - 1);
		for (uint32_t j = 0; j < k->n[i]; j++) {
			const uint8_t *x = from + (k->first[i] + j) * w;
			int32_t weight = k->weight[i * k->stride + j];

			for (size_t c = 0; c < w; c++)
				sum[c] += x[c] * weight;
		}
		for (size_t c = 0; c < w; c++)
			to[c] = byte_of(sum[c]);
	}
}

static void across(struct sample *s, size_t w)
{
	struct weights k;
	uint8_t *to = sample_room(s, s->c * s->h * w);

	weights_make(&k, s->w, w);
	rows(&k, s->p, s->c * s->h, s->w, w, to);
	weights_free(&k);
	s->p = to;
	s->w = w;
}

static void down(struct sample *s, size_t h)
{
	struct weights k;
	uint8_t *to = sample_room(s, s->c * h * s->w);
	int32_t *sum = xcalloc(s->w, sizeof(*sum));

	weights_make(&k, s->h, h);
	for (size_t c = 0; c < s->c; c++)
		columns(&k, (const uint8_t *)s->p + c * s->h * s->w, s->w, h, sum, to + c * h * s->w);
	weights_free(&k);
	free(sum);
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
