/* Steps of preparation: what happens to a sample between its file and the batch, in the order of the spec's
 * data.steps. Chance depends on (seed, step, position) alone, never on the order of reading: another peer that gets
 * the same position makes the same sample.
 *
 * To add one: step/NAME.c with `const struct step_ops step_NAME` and a line in step/list.h. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H
#include "train/spec.h"
#include "train/spec_read.h"

/* A sample on its way: planes of h rows of w values (one plane, one row for what is no image). As bytes 0..255 from
 * image files until a step wants reals. */
struct sample {
	size_t c, h, w;
	bool bytes;
	void *p;                                /* c * h * w values; may be somebody else's memory */
	void *room[2]; size_t cap[2];           /* owned; p is in at most one of them */
	real zero[STEP_CHANNELS];               /* what the raw value 0 has become, by plane */
};
/* Memory for a next version of the sample, apart from p. Small and bounded: aborts when there is none. */
void *sample_room(struct sample *s, size_t bytes);
void sample_reals(struct sample *s);            /* bytes become reals */
void sample_free(struct sample *s);             /* the rooms */
static inline size_t sample_count(const struct sample *s) { return s->c * s->h * s->w; }
static inline size_t sample_unit(const struct sample *s) { return s->bytes ? 1 : sizeof(real); }

struct step_ops {
	const char *name, *help;
	bool image;                             /* needs an input of two dimensions or more */
	bool sizes;                             /* changes the size */
	bool bytes;                             /* works on bytes only: not behind normalize, not for real data */
	int (*read)(struct spec_step *st, const json_t *o, const struct place *at, struct err *e);
	/* train: augment. -1: this sample cannot be prepared (e says why). */
	int (*run)(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e);
};
const struct step_ops *step_find(const char *name);     /* NULL: unknown */
const char *step_names(char *out, size_t cap);

/* "size": one number (w stays 0) or [height, width]. */
int step_read_size(struct spec_step *st, const json_t *o, const struct place *at, struct err *e);

#endif
