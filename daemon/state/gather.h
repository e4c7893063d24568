/* A shard from checkpoints of any shards: what each holder wrote of one epoch, whoever holds what now. */
#ifndef STATE_GATHER_H
#define STATE_GATHER_H
#include "state/shard.h"

/* Fills s from the files, which must be of one epoch; where several have an element the first does. Each file is read
 * whole and its hash checked, before s is touched. Blocking. ERR_NOT_FOUND names the elements that none has,
 * ERR_MISMATCH a tensor of another shape, type or epoch (clocks that differ), ERR_CORRUPT a damaged file; s is then as
 * it was, but for ERR_IO. */
int shard_gather(struct shard *s, struct files *f, const char *const *path, size_t n, struct err *e);

#endif
