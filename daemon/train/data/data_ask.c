/* A data set as it is made of a source, and what is asked of it: how many samples, how large, in which order. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/rng.h"
#include "train/data/data_int.h"

struct data *data_of(struct data_source *src, struct files *f, const struct spec *s)
{
	struct data *d = xcalloc(1, sizeof(*d));

	d->source = src;
	d->held = src->split ? 0 : (uint64_t)(s->validation_split * (double)src->count[DATA_TRAIN]);
	d->seed = s->seed;
	d->key_split = rng_mix(s->seed, KEY_SPLIT);
	d->key_order = rng_mix(s->seed, KEY_ORDER);
	if (s->independent)
		d->key_order = rng_mix(d->key_order, s->order_key);
	d->nx = shape_count(&s->input);
	d->ny = s->objective.n;
	d->target = s->loss->target;
	d->shape = s->input;
	d->nsteps = s->nsteps;
	d->labels = src->labels ? src->labels : 1;
	d->f = f;
	d->broken_max = s->broken_max;
	atomic_init(&d->broken_allowed, s->broken_max);
	for (int part = 0; part < DATA_PARTS; part++)
		d->bad[part] = xcalloc(src->count[part] / 8 + 1, 1);
	memcpy(d->step, s->step, sizeof(d->step));
	d->materialize = -1;
	return d;
}

struct data *data_ref(struct data *d)
{
	d->refs++;
	return d;
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
	return d->target == TARGET_CLASS ? d->labels * sizeof(int32_t) : d->ny * sizeof(real);
}

uint64_t data_split_index(const struct data *d, uint64_t i)
{
	return d->held ? rng_permute(d->key_split, d->source->count[DATA_TRAIN], i) : i;
}

uint64_t data_index(const struct data *d, uint64_t position)
{
	uint64_t n = data_count(d, DATA_TRAIN);

	return data_split_index(d, d->held + rng_permute(rng_mix(d->key_order, position / n), n, position % n));
}

size_t data_source_y_bytes(const struct data *d)
{
	const struct data_source *s = d->source;

	return s->target == TARGET_CLASS ? d->labels * sizeof(int32_t) : shape_count(&s->y) * sizeof(real);
}

uint64_t data_cache_entry(const struct data *d, enum data_part part, uint64_t index)
{
	return (part == DATA_TRAIN ? 0 : d->source->count[DATA_TRAIN]) + index;
}

void data_lock(struct data *d)
{
	while (atomic_flag_test_and_set_explicit(&d->telling, memory_order_acquire))
		;                               /* for the time of a copy */
}

void data_unlock(struct data *d)
{
	atomic_flag_clear_explicit(&d->telling, memory_order_release);
}
