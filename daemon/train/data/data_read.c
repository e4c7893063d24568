/* Samples out of a data set: reading, preparation, targets. What comes out is a pure function of (data,
 * spec, positions). A sample that cannot be read is replaced by the next one of the files that can, so every peer puts
 * the same one in its place. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/rng.h"
#include "train/data/decode.h"
#include "train/data/data_int.h"

#define TRIES_MAX 1000
#define READ_MAX 64                             /* samples at once */

static int too_many(struct data *d, uint64_t n, struct err *e)
{
	e->code = ERR_LIMIT;
	return err_wrap(e, "%llu broken samples, and data.broken_max is %llu", (unsigned long long)n,
		(unsigned long long)d->broken_max);
}

/* Counts each broken sample once; -1 when there are more than the spec allows. Validation goes on then: training is
 * what stops, at its next batch. */
static int broken(struct data *d, enum data_part for_part, enum data_part part, uint64_t index, struct err *e)
{
	uint8_t bit = (uint8_t)(1 << index % 8);
	uint64_t n;

	if (atomic_fetch_or(&d->bad[part][index / 8], bit) & bit)
		return 0;
	n = atomic_fetch_add(&d->broken, 1) + 1;
	data_lock(d);
	d->broken_error = *e;
	if (d->ntold < DATA_BROKEN_TOLD)
		(void)snprintf(d->told[d->ntold++], sizeof(d->told[0]), "%.150s", e->text);
	data_unlock(d);
	if (n <= atomic_load(&d->broken_allowed) || for_part == DATA_VALIDATION)
		return 0;
	return too_many(d, n, e);
}

uint64_t data_broken(struct data *d, struct err *ret_latest)
{
	uint64_t n = atomic_load(&d->broken);

	if (n) {
		data_lock(d);
		*ret_latest = d->broken_error;
		data_unlock(d);
	}
	return n;
}

void data_forgive(struct data *d)
{
	atomic_store(&d->broken_allowed, atomic_load(&d->broken) + d->broken_max);
}

/* What one worker measured, into what all have. */
static void add_up(struct data *d, const struct meter *m)
{
	for (int i = 0; i < STAGES_MAX; i++) {
		if (!m->stage[i].n && !m->stage[i].ns)
			continue;
		atomic_fetch_add_explicit(&d->stage[i].ns, m->stage[i].ns, memory_order_relaxed);
		atomic_fetch_add_explicit(&d->stage[i].bytes, m->stage[i].bytes, memory_order_relaxed);
		atomic_fetch_add_explicit(&d->stage[i].n, m->stage[i].n, memory_order_release);
	}
}

static void put_stage(struct data *d, int i, const char *name, json_t *stages)
{
	(void)json_array_insert_new(stages, 0, json_pack("{s:s,s:I,s:I,s:I}", "stage", name, "samples",
		(json_int_t)atomic_load(&d->stage[i].n), "bytes", (json_int_t)atomic_load(&d->stage[i].bytes), "took_us",
		(json_int_t)(atomic_load(&d->stage[i].ns) / 1000)));
}

json_t *data_json(struct data *d)
{
	json_t *stages = json_array(), *files = json_array(), *cache = data_cache_json(d), *o;

	/* The last first: workers add while this reads, and no stage may seem to have had more than those before it. */
	put_stage(d, STAGES_MAX - 1, "batch", stages);
	for (int i = d->nsteps - 1; i >= 0; i--)
		put_stage(d, STAGE_STEPS + i, d->step[i].ops->name, stages);
	if (d->source->ops->image)
		put_stage(d, STAGE_DECODE, "decode", stages);
	put_stage(d, STAGE_READ, "read", stages);
	data_lock(d);
	for (size_t i = 0; i < d->ntold; i++)
		(void)json_array_append_new(files, json_string(d->told[i]));
	data_unlock(d);
	o = json_pack("{s:o,s:I,s:I,s:o}", "stages", stages, "broken", (json_int_t)atomic_load(&d->broken), "broken_max",
		(json_int_t)d->broken_max, "broken_files", files);
	if (cache)
		(void)json_object_set_new(o, "cache", cache);
	return o;
}

/* The prepared sample at its place in the batch. */
static void finish(struct sample *s, size_t n, real *x)
{
	const uint8_t *b = s->p;

	if (!s->bytes && s->p != x)
		memcpy(x, s->p, n * sizeof(*x));
	for (size_t i = 0; s->bytes && i < n; i++)
		x[i] = (real)b[i];
	meter_mark(s->meter, STAGES_MAX - 1, 1, n * sizeof(*x));
}

/* The steps that are left, and the sample at its place in the batch. */
static int complete(const struct data *d, enum data_part part, uint64_t position, struct sample *s, int done, real *x,
	struct err *e)
{
	s->out = x;
	if (data_steps(d, part, position, s, done, d->nsteps, e) < 0)
		return -1;
	if (sample_count(s) != d->nx)
		return err_set(e, ERR_MISMATCH,
			"data: a sample is [%zu, %zu, %zu] after the steps, and %zu numbers are asked for: "
			"resize or crop it to the input's size", s->c, s->h, s->w, d->nx);
	finish(s, d->nx, x);
	return 0;
}

/* From the cache, if there is one and it is sound here. */
static int one(struct data *d, enum data_part part, uint64_t index, struct sample *s, void *y, int *ret_done,
	struct err *e)
{
	struct cache *c = atomic_load(&d->cache);

	*ret_done = c ? d->materialize : 0;
	if (c) {
		int rc = cache_get(c, data_cache_entry(d, part, index), s, y, e);

		meter_mark(s->meter, STAGE_READ, !rc, rc ? 0 : sample_count(s) * sample_unit(s));
		if (!rc || e->code == ERR_CORRUPT)
			return rc;
		data_cache_damaged(d, c, e);
		*ret_done = 0;
	}
	return data_source_one(d, part, index, s, y, e);
}

/* One at a time: images, each of its own size, and what is in a cache. */
static int read_each(struct data *d, enum data_part part, enum data_part from, const uint64_t *position,
	const uint64_t *index, size_t n, real *x, void *y, struct err *e)
{
	struct meter m = { .f = d->f };
	struct sample s = { .first = d->nsteps ? &d->step[0] : NULL, .train = part == DATA_TRAIN, .meter = &m };
	uint64_t count = d->source->count[from];
	size_t ny = data_source_y_bytes(d);
	int rc = 0;

	meter_start(&m);
	for (size_t i = 0; i < n && !rc; i++) {
		uint64_t k = index[i];
		int tries = 0, done;

		do {
			s.key = data_step_key(d, 0, position[i]);
			rc = one(d, from, k, &s, (char *)y + i * ny, &done, e);
			if (!rc || e->code != ERR_CORRUPT)
				break;
			rc = broken(d, part, from, k, e);
			k = (k + 1) % count;
		} while (!rc && ++tries < TRIES_MAX);
		if (!rc && tries == TRIES_MAX)
			rc = -1;                        /* e names the last of a thousand in a row */
		if (!rc)
			rc = complete(d, part, position[i], &s, done, x + i * d->nx, e);
	}
	add_up(d, &m);
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
	struct meter m = { .f = d->f };
	struct sample s = { .meter = &m };
	size_t nx = shape_count(&d->source->shape);
	real *raw = nx == d->nx ? x : xmalloc(n * nx * sizeof(*raw));
	int rc;

	meter_start(&m);
	rc = rows_of(d, from, position, index, n, raw, y, e);
	meter_mark(&m, STAGE_READ, rc ? 0 : n, n * nx * sizeof(*raw));
	for (size_t i = 0; i < n && !rc; i++) {
		s.p = raw + i * nx;
		data_row(d, &s);
		rc = complete(d, part, position[i], &s, 0, x + i * d->nx, e);
	}
	if (raw != x)
		free(raw);
	add_up(d, &m);
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
	uint64_t lost = data_broken(d, e);
	bool each;

	if (part == DATA_TRAIN && lost > atomic_load(&d->broken_allowed))
		return too_many(d, lost, e);
	for (size_t at = 0; at < n; ) {
		size_t k = n - at < READ_MAX ? n - at : READ_MAX;
		void *to = (char *)y + at * data_y_bytes(d);

		for (size_t i = 0; i < k; i++) {
			uint64_t p = position[at + i];

			assert(part == DATA_TRAIN || p < data_count(d, part));
			index[i] = part == DATA_TRAIN ? data_index(d, p) : data_split_index(d, p);
		}
		each = d->source->ops->image || atomic_load(&d->cache);
		if ((each ? read_each : read_rows)(d, part, from, position + at, index, k, x + at * d->nx, to, e) < 0)
			return -1;
		if (d->target == TARGET_REAL && d->source->target == TARGET_CLASS)
			one_hot(d, k, to);
		at += k;
	}
	return 0;
}

/* Planes of what the data's own pictures have: images of any size, or rows of bytes of one shape. */
static size_t planes_of(const struct data *d)
{
	const struct shape *h = d->source->ops->image ? &d->shape : &d->source->shape;

	if (h->nd < 2 || !(d->source->ops->image || d->source->bytes))
		return 0;
	return h->nd == 2 || h->d[0] == 1 ? 1 : h->nd == 3 && h->d[0] == 3 ? 3 : 0;
}

int data_prepare(struct data *d, const uint8_t *file, size_t n, real *x, struct err *e)
{
	struct sample s = { .first = d->nsteps ? &d->step[0] : NULL };
	size_t channels = planes_of(d);
	int rc = channels ? 0 : err_set(e, ERR_INVALID, "its data are no pictures");

	if (!rc)
		rc = image_decode(file, n, channels, &s, e);
	if (!rc && (rc = complete(d, DATA_VALIDATION, 0, &s, 0, x, e)) < 0 && e->code == ERR_MISMATCH)
		(void)err_set(e, ERR_MISMATCH, "the picture has %zux%zu pixels after the run's steps, and the model wants %zu "
			"numbers: give it pictures of the size of its data", s.w, s.h, d->nx);
	sample_free(&s);
	return rc;
}
