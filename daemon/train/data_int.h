/* Inside data: data.c (kinds, checks, order), data_read.c (samples). */
#ifndef TRAIN_DATA_INT_H
#define TRAIN_DATA_INT_H
#include <stdatomic.h>
#include "train/data.h"
#include "train/step.h"

/* Parts of the seed, so that order, split and augmentation are independent of each other. */
enum { KEY_SPLIT = 0x5b11, KEY_ORDER = 0x04de, KEY_STEP = 0x57e9, KEY_SOURCE = 0x50c3 };

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
};

/* Sample i of the held out ones (i < held), then of those that are trained on. */
uint64_t data_split_index(const struct data *d, uint64_t i);

#endif
