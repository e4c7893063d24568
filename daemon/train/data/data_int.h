/* Inside data. Calls go down: data.c (kinds, checks), data_read.c (samples), data_cache.c (prepared ones), data_one.c
 * (one sample), the kinds, data_ask.c (what a data set is). */
#ifndef TRAIN_DATA_INT_H
#define TRAIN_DATA_INT_H
#include <stdatomic.h>
#include "train/data/cache.h"
#include "train/data/data.h"
#include "train/step.h"

/* Parts of the seed, so that order, split and augmentation are independent of each other. */
enum { KEY_SPLIT = 0x5b11, KEY_ORDER = 0x04de, KEY_STEP = 0x57e9, KEY_SOURCE = 0x50c3 };

#define DATA_CACHES_MAX 4
enum cache_state { CACHE_OFF, CACHE_MAKING, CACHE_READY, CACHE_FAILED };

struct data {
	struct data_source *source;
	int refs;                               /* beside the one of data_open */
	uint64_t held;                          /* of the training files, held out for validation by the split */
	uint64_t key_split, key_order, seed;
	size_t nx, ny;                          /* reals of one sample; targets of one sample (TARGET_REAL) */
	size_t labels;                          /* of one sample (TARGET_CLASS) */
	enum target target;                     /* what the loss wants */
	int nsteps;
	struct spec_step step[SPEC_STEPS_MAX];
	struct shape shape;
	struct files *f;
	/* samples that cannot be read: one bit each, how many, and what was said of the first; workers share it */
	uint64_t broken_max; _Atomic uint64_t broken_allowed;   /* of the spec; and that again after each data_forgive */
	_Atomic uint8_t *bad[DATA_PARTS];
	_Atomic uint64_t broken;
	atomic_flag telling; size_t ntold; char told[DATA_BROKEN_TOLD][160]; struct err broken_error;
	struct { _Atomic uint64_t ns, bytes, n; } stage[STAGES_MAX];
	/* prepared data (data_cache.c): after so many steps, -1: none. Readers see `cache`; the rest is the making job's,
	 * one at a time. A cache that was found damaged is not read any more and stays mapped until data_free. */
	int materialize;
	char cache_dir[512]; struct cache_id cache_id; uint64_t cache_max;
	_Atomic(struct cache *) cache; struct cache *caches[DATA_CACHES_MAX]; int ncaches;
	_Atomic int cache_state; enum cache_state cache_state_told; struct err cache_error;
	struct cache_maker *maker; _Atomic uint64_t made;      /* samples; shown on the loop, too */
};

/* data_ask.c */
/* Everything of it but a cache; src has been checked. */
struct data *data_of(struct data_source *src, struct files *f, const struct spec *s);

/* Sample i of the held out ones (i < held), then of those that are trained on. */
uint64_t data_split_index(const struct data *d, uint64_t i);

uint64_t data_cache_entry(const struct data *d, enum data_part part, uint64_t index);
size_t data_source_y_bytes(const struct data *d);       /* of one sample as the source has it */
void data_lock(struct data *d);                 /* told, broken_error, cache_error: for the time of a copy */
void data_unlock(struct data *d);

/* data_one.c */
uint64_t data_step_key(const struct data *d, int i, uint64_t position);
void data_row(const struct data *d, struct sample *s);  /* s->p: values of the source's shape, which s is from now on */
/* A sample as the source has it; ERR_CORRUPT: it is broken. */
int data_source_one(struct data *d, enum data_part part, uint64_t index, struct sample *s, void *y, struct err *e);
/* Steps [from, to). */
int data_steps(const struct data *d, enum data_part part, uint64_t position, struct sample *s, int from, int to,
	struct err *e);

/* data_cache.c */
void data_cache_open(struct data *d, const char *path, const struct spec *s);
void data_cache_close(struct data *d);
void data_cache_damaged(struct data *d, struct cache *c, const struct err *e);
json_t *data_cache_json(struct data *d);        /* NULL: none is asked for */

#endif
