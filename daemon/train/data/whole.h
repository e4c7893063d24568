/* One file read whole, for kinds that hold their data in memory. */
#ifndef TRAIN_DATA_WHOLE_H
#define TRAIN_DATA_WHOLE_H
#include "train/data/data.h"

struct manifest;
struct whole { char *p; size_t n; uint64_t stamp; };    /* p[n] is 0; stamp: of its time of change */
/* 1: path is not there. Adds name, size, first and last 4 KiB to the manifest. */
int whole_read(struct files *f, const char *path, const char *name, struct whole *ret, struct manifest *m,
	struct err *e);
void whole_free(struct whole *w);
/* path itself, or path/NAME.SUFFIX of a folder: train, and for validation test, val, validation; path/train.txt. A
 * single file has no validation part (its p is NULL). */
int whole_parts(struct files *f, const char *path, const char *suffix, struct whole ret[DATA_PARTS], struct manifest *m,
	struct err *e);

#endif
