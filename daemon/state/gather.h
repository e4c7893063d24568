/* Shards from checkpoints of any shards: what each holder wrote of one epoch, whoever holds what now. */
#ifndef STATE_GATHER_H
#define STATE_GATHER_H
#include "state/shard.h"

/* Fills so many shards of one layout from the files, which must be of one epoch; where several have an element the
 * first does. Each file is read whole and its hash checked, once, before any shard is touched. Blocking. ERR_NOT_FOUND
 * names the elements that none has, ERR_MISMATCH a tensor of another shape, type or epoch (clocks that differ),
 * ERR_CORRUPT a damaged file; they are then as they were, but for ERR_IO. */
int shard_gather(struct shard *s, uint32_t shards, struct files *f, const char *const *path, size_t n, struct err *e);

#endif
