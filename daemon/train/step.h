/* Steps of preparation: what happens to a sample between its file and the batch, in the order of the spec's
 * data.steps. Chance depends on (seed, step, position) alone, never on the order of reading: another peer that gets
 * the same position makes the same sample.
 *
 * To add one: step/NAME.c with `const struct step_ops step_NAME` and a line in step/list.h. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H
#include "env.h"
#include "train/spec/spec.h"
#include "train/spec/read.h"

struct window { size_t y, x, h, w; };           /* rows y to y + h - 1, columns x to x + w - 1 */

/* What preparing takes, by stage: READ, DECODE, one for each step, BATCH. One worker's own, while it reads. */
enum { STAGE_READ, STAGE_DECODE, STAGE_STEPS, STAGES_MAX = STAGE_STEPS + SPEC_STEPS_MAX + 1 };
struct meter { struct files *f; uint64_t at; struct { uint64_t ns, bytes, n; } stage[STAGES_MAX]; };
void meter_start(struct meter *m);
void meter_mark(struct meter *m, int stage, uint64_t n, uint64_t bytes);        /* what came out; m may be NULL */

/* A sample on its way: planes of h rows of w values (one plane, one row for what is no image). As bytes 0..255 from
 * image files until a step wants reals. When the first step cuts a piece out of the image, p may be no more than that
 * piece (and some of its surroundings) of the whole one, of full_h x full_w: nothing else was decoded. */
struct sample {
	size_t c, h, w;
	size_t full_h, full_w, top, left;       /* p's first value is (top, left) of the whole */
	bool bytes;
	void *p;                                /* c * h * w values; may be somebody else's memory */
	void *room[2]; size_t cap[2];           /* owned; p is in at most one of them */
	real zero[STEP_CHANNELS];               /* what the raw value 0 has become, by plane */
	real *out;                              /* where the last step may write the reals at once; NULL: nowhere */
	/* of whoever fills samples in, kept from one to the next */
	const struct spec_step *first; uint64_t key; bool train;        /* the first step, for sample_window; NULL: none */
	uint8_t *file; size_t file_cap;
	void *decoder;
	struct meter *meter;                    /* NULL: nobody measures */
};
/* Memory for a next version of the sample, apart from p. Small and bounded: aborts when there is none. */
void *sample_room(struct sample *s, size_t bytes);
uint8_t *sample_file(struct sample *s, size_t bytes);   /* a room for the file as it is read */
void sample_reals(struct sample *s);            /* bytes become reals */
void sample_free(struct sample *s);             /* the rooms */
void sample_whole(struct sample *s);            /* p is all there is: of its size */
/* The piece of an image of h x w that the first step will read; the whole, when it wants that. */
void sample_window(const struct sample *s, size_t h, size_t w, struct window *ret);
void sample_cut(struct sample *s, const struct window *v);      /* inside of the whole; then that is the whole */
/* Bytes only; resize.c says how. ERR_CORRUPT: too large. */
int sample_resize(struct sample *s, size_t h, size_t w, struct err *e);
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
	/* NULL: it reads the whole image. Else *ret is all that run will read of one of h x w; false: the whole. */
	bool (*window)(const struct spec_step *st, size_t h, size_t w, uint64_t key, bool train, struct window *ret);
	/* what it makes of a sample depends on chance (in training) */
	bool random;
};
const struct step_ops *step_find(const char *name);     /* NULL: unknown */
const char *step_names(char *out, size_t cap);

/* "size": one number (w stays 0) or [height, width]. */
int step_read_size(struct spec_step *st, const json_t *o, const struct place *at, struct err *e);

#endif
