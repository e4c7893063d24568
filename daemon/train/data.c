/* Data sets: the registry of kinds, the split into training and validation, the order of training positions, and the
 * preparation of samples. What comes out is a pure function of (data, spec, positions). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/id.h"
#include "common/mem.h"
#include "common/rng.h"
#include "train/data.h"

#define DATA(x) extern const struct data_ops data_##x;
#include "train/data/list.h"
#undef DATA

static const struct data_ops *const kinds[] = {
#define DATA(x) &data_##x,
#include "train/data/list.h"
#undef DATA
	NULL
};

/* Parts of the seed, so that order, split and augmentation are independent of each other. */
enum { KEY_SPLIT = 0x5b11, KEY_ORDER = 0x04de, KEY_STEP = 0x57e9 };

struct data {
	struct data_source *source;
	uint64_t held;                          /* of the training files, held out for validation by the split */
	uint64_t key_split, key_order, seed;
	size_t nx, ny;                          /* reals of one sample; targets of one sample (TARGET_REAL) */
	enum target target;                     /* what the loss wants */
	int nsteps;
	struct spec_step step[SPEC_STEPS_MAX];
	struct shape shape;
};

const struct data_ops *data_find(const char *name)
{
	for (int i = 0; kinds[i]; i++)
		if (!strcmp(kinds[i]->name, name))
			return kinds[i];
	return NULL;
}

const struct data_ops *data_at(int i)
{
	return i >= 0 && i < (int)(sizeof(kinds) / sizeof(*kinds)) - 1 ? kinds[i] : NULL;
}

const char *data_names(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; kinds[i] && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", kinds[i]->name);
	return out;
}

static void wait_nobody(void *arg, uint64_t us, bool backward)
{
}

/* The outputs of the model: class labels must be below, real targets must be as many. */
static int outputs(const struct spec *s, size_t *ret_n, struct err *e)
{
	const struct layer_host host = { .wait = wait_nobody };
	struct model *m = spec_model(s, &host, e);

	if (!m)
		return -1;
	*ret_n = shape_count(&m->out);
	model_free(m);
	return 0;
}

static int check_source(const struct data_source *d, const struct spec *s, size_t nout, struct err *e)
{
	char have[64], want[64];

	if (shape_count(&d->shape) != shape_count(&s->input))
		return err_set(e, ERR_MISMATCH, "data %s: a sample is %s, and input: %s is asked for", s->data_name,
			shape_text(&d->shape, have, sizeof(have)), shape_text(&s->input, want, sizeof(want)));
	if (!d->count[DATA_TRAIN])
		return err_set(e, ERR_INVALID, "data %s: there are no training samples", s->data_name);
	if (d->target == TARGET_CLASS && s->loss->target == TARGET_CLASS && d->classes > nout)
		return err_set(e, ERR_MISMATCH, "data %s: label %llu occurs, and the model has %zu outputs (labels 0 to %zu)",
			s->data_name, (unsigned long long)d->classes - 1, nout, nout - 1);
	if (d->target == TARGET_CLASS && s->loss->target == TARGET_REAL && d->classes > (nout == 1 ? 2 : nout))
		return err_set(e, ERR_MISMATCH, "data %s: %llu classes, and the model has %zu outputs", s->data_name,
			(unsigned long long)d->classes, nout);
	if (d->target == TARGET_REAL && s->loss->target == TARGET_CLASS)
		return err_set(e, ERR_MISMATCH, "data %s has real targets, and the loss %s wants classes", s->data_name,
			s->loss->name);
	if (d->target == TARGET_REAL && shape_count(&d->y) != nout)
		return err_set(e, ERR_MISMATCH, "data %s: a target is %s, and the model has %zu outputs", s->data_name,
			shape_text(&d->y, have, sizeof(have)), nout);
	if (s->has_data_digest && memcmp(d->digest, s->data_digest, 32)) {
		struct id a, b;
		char ha[9], hb[9];

		memcpy(a.b, d->digest, 32);
		memcpy(b.b, s->data_digest, 32);
		return err_set(e, ERR_MISMATCH, "data.digest: the data set %s here (manifest %s) is not the run's (%s): "
			"get the same files as the run's author", s->data_name, id_short(&a, ha), id_short(&b, hb));
	}
	return 0;
}

struct data *data_open(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	const struct data_ops *ops = data_find(s->data_kind);
	struct data_source *src;
	struct data *d;
	size_t nout;

	assert(ops);
	if (outputs(s, &nout, e) < 0)
		return NULL;
	src = ops->open(f, path, s, e);
	if (!src)
		return NULL;
	src->ops = ops;
	if (check_source(src, s, nout, e) < 0) {
		ops->close(src);
		return NULL;
	}
	d = xcalloc(1, sizeof(*d));
	d->source = src;
	d->held = (uint64_t)(s->validation_split * (double)src->count[DATA_TRAIN]);
	d->seed = s->seed;
	d->key_split = rng_mix(s->seed, KEY_SPLIT);
	d->key_order = rng_mix(s->seed, KEY_ORDER);
	d->nx = shape_count(&s->input);
	d->ny = nout;
	d->target = s->loss->target;
	d->shape = s->input;
	d->nsteps = s->nsteps;
	memcpy(d->step, s->step, sizeof(d->step));
	if (!data_count(d, DATA_TRAIN)) {
		(void)err_set(e, ERR_INVALID, "validation.split: nothing is left to train on (%llu samples in all)",
			(unsigned long long)src->count[DATA_TRAIN]);
		data_free(d);
		return NULL;
	}
	return d;
}

void data_free(struct data *d)
{
	if (!d)
		return;
	d->source->ops->close(d->source);
	free(d);
}

uint64_t data_count(const struct data *d, enum data_part part)
{
	if (part == DATA_TRAIN)
		return d->source->count[DATA_TRAIN] - d->held;
	return d->held ? d->held : d->source->count[DATA_VALIDATION];
}

const uint8_t *data_digest(const struct data *d)
{
	return d->source->digest;
}

const struct data_source *data_source(const struct data *d)
{
	return d->source;
}

size_t data_x_bytes(const struct data *d)
{
	return d->nx * sizeof(real);
}

size_t data_y_bytes(const struct data *d)
{
	return d->target == TARGET_CLASS ? sizeof(int32_t) : d->ny * sizeof(real);
}

/* Sample i of the held out ones (i < held), then of those that are trained on. */
static uint64_t split_index(const struct data *d, uint64_t i)
{
	return d->held ? rng_permute(d->key_split, d->source->count[DATA_TRAIN], i) : i;
}

uint64_t data_index(const struct data *d, uint64_t position)
{
	uint64_t n = data_count(d, DATA_TRAIN);

	return split_index(d, d->held + rng_permute(rng_mix(d->key_order, position / n), n, position % n));
}

/* One channel of an image moved by (dy, dx); `zero` moves in. In place, rows in the order that does not overwrite. */
static void shift_channel(real *x, size_t h, size_t w, long dy, long dx, real zero)
{
	for (size_t k = 0; k < h; k++) {
		size_t r = dy > 0 ? h - 1 - k : k;
		long from = (long)r - dy;
		size_t n = w - (size_t)labs(dx);
		real *to = x + r * w;

		if (from < 0 || from >= (long)h || (size_t)labs(dx) >= w) {
			for (size_t c = 0; c < w; c++)
				to[c] = zero;
			continue;
		}
		memmove(to + (dx > 0 ? dx : 0), x + (size_t)from * w + (dx < 0 ? -dx : 0), n * sizeof(*x));
		for (size_t c = 0; c < (size_t)labs(dx); c++)
			to[dx > 0 ? c : w - 1 - c] = zero;
	}
}

static void flip_rows(real *x, size_t rows, size_t w)
{
	for (size_t r = 0; r < rows; r++, x += w)
		for (size_t c = 0; c < w / 2; c++) {
			real t = x[c];

			x[c] = x[w - 1 - c];
			x[w - 1 - c] = t;
		}
}

/* All steps on one sample. Chance comes from (seed, step, position), never from the order of reading. */
static void prepare(const struct data *d, enum data_part part, uint64_t position, real *x)
{
	size_t w = d->shape.d[d->shape.nd - 1], h = d->shape.nd > 1 ? d->shape.d[d->shape.nd - 2] : 1;
	real zero = 0;

	for (int i = 0; i < d->nsteps; i++) {
		const struct spec_step *s = &d->step[i];
		uint64_t key = rng_mix(rng_mix(d->seed, KEY_STEP + (uint64_t)i), position);

		if (s->kind == STEP_NORMALIZE) {
			real mean = (real)s->mean, scale = (real)(1 / s->std);

			for (size_t k = 0; k < d->nx; k++)
				x[k] = (x[k] - mean) * scale;
			zero = (zero - mean) * scale;
		} else if (part != DATA_TRAIN) {
			continue;               /* the others augment */
		} else if (s->kind == STEP_SHIFT) {
			uint64_t span = 2 * (uint64_t)s->pixels + 1;
			long dy = (long)(rng_at(key, 0) % span) - (long)s->pixels;
			long dx = (long)(rng_at(key, 1) % span) - (long)s->pixels;

			for (size_t c = 0; c < d->nx / (h * w); c++)
				shift_channel(x + c * h * w, h, w, dy, dx, zero);
		} else if (rng_at(key, 0) & 1) {
			flip_rows(x, d->nx / w, w);
		}
	}
}

/* Class labels for a loss that wants numbers: one of n, or the label itself for a single output. From the last sample
 * backwards, because the labels lie at the beginning of the same memory. */
static void one_hot(const struct data *d, size_t n, void *y)
{
	const int32_t *label = y;
	real *out = y;

	for (size_t i = n; i-- > 0; ) {
		int32_t l = label[i];

		if (d->ny == 1) {
			out[i] = (real)l;
			continue;
		}
		memset(out + i * d->ny, 0, d->ny * sizeof(real));
		out[i * d->ny + (size_t)l] = 1;
	}
}

int data_read(struct data *d, enum data_part part, const uint64_t *position, size_t n, real *x, void *y, struct err *e)
{
	uint64_t index[64];
	enum data_part from = part == DATA_VALIDATION && d->held ? DATA_TRAIN : part;

	for (size_t at = 0; at < n; ) {
		size_t k = n - at < 64 ? n - at : 64;
		void *to = (char *)y + at * data_y_bytes(d);

		for (size_t i = 0; i < k; i++) {
			uint64_t p = position[at + i];

			assert(part == DATA_TRAIN || p < data_count(d, part));
			index[i] = part == DATA_TRAIN ? data_index(d, p) : split_index(d, p);
		}
		if (d->source->ops->read(d->source, from, index, k, x + at * d->nx, to, e) < 0)
			return -1;
		if (d->target == TARGET_REAL && d->source->target == TARGET_CLASS)
			one_hot(d, k, to);
		for (size_t i = 0; i < k; i++)
			prepare(d, part, position[at + i], x + (at + i) * d->nx);
		at += k;
	}
	return 0;
}
