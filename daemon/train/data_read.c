/* Samples out of a data set: reading, the steps of preparation, targets. What comes out is a pure function of (data,
 * spec, positions). A sample that cannot be read is replaced by the next one of the files that can, so every peer puts
 * the same one in its place. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/rng.h"
#include "train/data_int.h"

#define TRIES_MAX 1000
#define READ_MAX 64                             /* samples at once */

/* Counts each broken sample once; -1 when there are more than the spec allows. */
static int broken(struct data *d, enum data_part part, uint64_t index, struct err *e)
{
	uint8_t bit = (uint8_t)(1 << index % 8);
	uint64_t n;

	if (atomic_fetch_or(&d->bad[part][index / 8], bit) & bit)
		return 0;
	n = atomic_fetch_add(&d->broken, 1) + 1;
	if (!atomic_flag_test_and_set(&d->telling)) {   /* two at once: one is named, both are counted */
		d->broken_error = *e;
		atomic_flag_clear(&d->telling);
	}
	if (n > d->broken_max)
		return err_wrap(e, "%llu broken samples, and data.broken_max is %llu", (unsigned long long)n,
			(unsigned long long)d->broken_max);
	return 0;
}

uint64_t data_broken(struct data *d, struct err *ret_latest)
{
	uint64_t n = atomic_load(&d->broken);

	if (n && !atomic_flag_test_and_set(&d->telling)) {
		*ret_latest = d->broken_error;
		atomic_flag_clear(&d->telling);
	}
	return n;
}

static uint64_t step_key(const struct data *d, int i, uint64_t position)
{
	return rng_mix(rng_mix(d->seed, KEY_STEP + (uint64_t)i), position);
}

static int steps(const struct data *d, enum data_part part, uint64_t position, struct sample *s, struct err *e)
{
	real *out = s->out;

	for (int i = 0; i < d->nsteps; i++) {   /* a last step that keeps the size may write to the batch */
		s->out = i + 1 == d->nsteps && sample_count(s) == d->nx ? out : NULL;
		if (d->step[i].ops->run(&d->step[i], s, step_key(d, i, position), part == DATA_TRAIN, e) < 0)
			return -1;
	}
	s->out = out;
	if (sample_count(s) != d->nx)
		return err_set(e, ERR_MISMATCH,
			"data: a sample is [%zu, %zu, %zu] after the steps, and %zu numbers are asked for: "
			"resize or crop it to the input's size", s->c, s->h, s->w, d->nx);
	return 0;
}

/* The prepared sample at its place in the batch. */
static void finish(const struct sample *s, size_t n, real *x)
{
	const uint8_t *b = s->p;

	if (!s->bytes && s->p != x)
		memcpy(x, s->p, n * sizeof(*x));
	for (size_t i = 0; s->bytes && i < n; i++)
		x[i] = (real)b[i];
}

/* The shape of a sample as planes, rows and columns. */
static void planes(const struct shape *h, struct sample *s)
{
	s->w = h->d[h->nd - 1];
	s->h = h->nd > 1 ? h->d[h->nd - 2] : 1;
	s->c = shape_count(h) / (s->w * s->h);
}

/* Values that are whole numbers 0..255, for steps that want bytes. */
static void sample_bytes(struct sample *s)
{
	const real *from = s->p;
	size_t n = sample_count(s);
	uint8_t *to = sample_room(s, n);

	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)from[i];
	s->p = to;
	s->bytes = true;
}

static bool wants_bytes(const struct data *d)
{
	for (int i = 0; i < d->nsteps; i++)
		if (d->step[i].ops->bytes)
			return true;
	return false;
}

/* Sources of images: one at a time, each of its own size. */
static int read_images(struct data *d, enum data_part part, enum data_part from, const uint64_t *position,
	const uint64_t *index, size_t n, real *x, void *y, struct err *e)
{
	struct sample s = { .first = d->nsteps ? &d->step[0] : NULL, .train = part == DATA_TRAIN };
	uint64_t count = d->source->count[from];
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		uint64_t k = index[i];
		int tries = 0;

		do {
			memset(s.zero, 0, sizeof(s.zero));
			s.key = step_key(d, 0, position[i]);
			rc = d->source->ops->image(d->source, from, k, &s, (int32_t *)y + i, e);
			if (!rc || e->code != ERR_CORRUPT)
				break;
			rc = broken(d, from, k, e);
			k = (k + 1) % count;
		} while (!rc && ++tries < TRIES_MAX);
		if (!rc && tries == TRIES_MAX)
			rc = -1;                        /* e names the last of a thousand in a row */
		s.out = x + i * d->nx;
		if (!rc)
			rc = steps(d, part, position[i], &s, e);
		if (!rc)
			finish(&s, d->nx, x + i * d->nx);
	}
	sample_free(&s);
	return rc;
}

static int rows_of(struct data *d, enum data_part from, const uint64_t *position, const uint64_t *index, size_t n,
	real *x, void *y, struct err *e)
{
	uint64_t key[READ_MAX];

	if (!d->source->ops->read_keyed)
		return d->source->ops->read(d->source, from, index, n, x, y, e);
	for (size_t i = 0; i < n; i++)
		key[i] = rng_mix(rng_mix(d->seed, KEY_SOURCE), position[i]);
	return d->source->ops->read_keyed(d->source, from, index, key, n, x, y, e);
}

/* Sources of samples of one shape: all at once, in their place when the steps keep the size. */
static int read_rows(struct data *d, enum data_part part, enum data_part from, const uint64_t *position,
	const uint64_t *index, size_t n, real *x, void *y, struct err *e)
{
	struct sample s = { .room = { NULL } };
	size_t nx = shape_count(&d->source->shape);
	real *raw = nx == d->nx ? x : xmalloc(n * nx * sizeof(*raw));
	int rc = rows_of(d, from, position, index, n, raw, y, e);

	for (size_t i = 0; i < n && !rc; i++) {
		planes(nx == d->nx ? &d->shape : &d->source->shape, &s);
		s.p = raw + i * nx;
		s.bytes = false;
		s.out = x + i * d->nx;
		sample_whole(&s);
		memset(s.zero, 0, sizeof(s.zero));
		if (d->source->bytes && wants_bytes(d))
			sample_bytes(&s);
		rc = steps(d, part, position[i], &s, e);
		if (!rc)
			finish(&s, d->nx, x + i * d->nx);
	}
	if (raw != x)
		free(raw);
	sample_free(&s);
	return rc;
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
	uint64_t index[READ_MAX];
	enum data_part from = part == DATA_VALIDATION && d->held ? DATA_TRAIN : part;

	for (size_t at = 0; at < n; ) {
		size_t k = n - at < READ_MAX ? n - at : READ_MAX;
		void *to = (char *)y + at * data_y_bytes(d);

		for (size_t i = 0; i < k; i++) {
			uint64_t p = position[at + i];

			assert(part == DATA_TRAIN || p < data_count(d, part));
			index[i] = part == DATA_TRAIN ? data_index(d, p) : data_split_index(d, p);
		}
		if ((d->source->ops->image ? read_images : read_rows)(d, part, from, position + at, index, k, x + at * d->nx,
			to, e) < 0)
			return -1;
		if (d->target == TARGET_REAL && d->source->target == TARGET_CLASS)
			one_hot(d, k, to);
		at += k;
	}
	return 0;
}
