/* The data of a peer that computes nothing: the spec says how many samples there are and what a sample is, and nobody
 * reads any. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/data_int.h"

static int read_(struct data_source *d, enum data_part part, const uint64_t *index, size_t n, real *x, void *y,
	struct err *e)
{
	(void)d, (void)part, (void)index, (void)n, (void)x, (void)y;
	return err_set(e, ERR_STATE, "this peer takes part without data (--aux)");
}

static void close_(struct data_source *d)
{
	free(d);
}

static const struct data_ops absent = { .name = "absent", .unplaced = true, .read = read_, .close = close_ };

bool data_is_absent(const struct data *d)
{
	return d->source->ops == &absent;
}

struct data *data_absent(const struct spec *s, struct err *e)
{
	struct data_source *d;

	if (!s->has_data_digest || !s->data_samples) {
		(void)err_set(e, ERR_INVALID, "data.%s: the run does not say it, so nobody can take part without the data: "
			"give --data, too", s->has_data_digest ? "samples" : "digest");
		return NULL;
	}
	d = xcalloc(1, sizeof(*d));
	d->ops = &absent;
	d->count[DATA_TRAIN] = s->data_samples;
	d->shape = s->input;
	d->target = s->loss->target;
	d->labels = d->target == TARGET_CLASS ? s->objective.rows : 0;
	d->classes = d->target == TARGET_CLASS ? s->objective.n : 0;
	d->split = true;                        /* the samples are those that are left */
	memcpy(d->digest, s->data_digest, sizeof(d->digest));
	return data_of(d, NULL, s);
}
