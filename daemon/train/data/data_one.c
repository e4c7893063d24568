/* One sample as the source has it, and the steps of its preparation: a pure function of (data, spec, position). */
#include <string.h>
#include "common/rng.h"
#include "train/data/data_int.h"

uint64_t data_step_key(const struct data *d, int i, uint64_t position)
{
	return rng_mix(rng_mix(d->seed, KEY_STEP + (uint64_t)i), position);
}

int data_steps(const struct data *d, enum data_part part, uint64_t position, struct sample *s, int from, int to,
	struct err *e)
{
	real *out = s->out;

	for (int i = from; i < to; i++) {       /* a last step that keeps the size may write to the batch */
		s->out = i + 1 == d->nsteps && sample_count(s) == d->nx ? out : NULL;
		if (d->step[i].ops->run(&d->step[i], s, data_step_key(d, i, position), part == DATA_TRAIN, e) < 0)
			return -1;
		meter_mark(s->meter, STAGE_STEPS + i, 1, sample_count(s) * sample_unit(s));
	}
	s->out = out;
	return 0;
}

/* The shape of a sample as planes, rows and columns. */
static void planes(const struct shape *h, struct sample *s)
{
	s->w = h->d[h->nd - 1];
	s->h = h->nd > 1 ? h->d[h->nd - 2] : 1;
	s->c = shape_count(h) / (s->w * s->h);
}

/* Values that are whole numbers 0..255, for steps that want bytes. */
static void as_bytes(struct sample *s)
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

void data_row(const struct data *d, struct sample *s)
{
	const struct shape *h = &d->source->shape;

	planes(shape_count(h) == d->nx ? &d->shape : h, s);
	s->bytes = false;
	sample_whole(s);
	memset(s->zero, 0, sizeof(s->zero));
	if (d->source->bytes && wants_bytes(d))
		as_bytes(s);
}

int data_source_one(struct data *d, enum data_part part, uint64_t index, struct sample *s, void *y, struct err *e)
{
	const struct data_source *src = d->source;

	memset(s->zero, 0, sizeof(s->zero));
	if (src->ops->image)
		return src->ops->image(d->source, part, index, s, y, e);
	s->p = NULL;
	s->p = sample_room(s, shape_count(&src->shape) * sizeof(real));
	if (src->ops->read(d->source, part, &index, 1, s->p, y, e) < 0)
		return -1;
	data_row(d, s);
	return 0;
}
