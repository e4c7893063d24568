/* The round that ends an epoch, for one member of a pipeline. */
#ifndef TRAIN_STRATEGY_ROUND_H
#define TRAIN_STRATEGY_ROUND_H
#include "train/strategy/parts/stage.h"

/* The program that gives the epoch's gradient to the round, and steps behind its commit. */
void pipe_update(struct plan *p, const struct pipe *x);
/* The next program of a schedule that runs on: an epoch of `share` micro-batches, with the round of the one before
 * where that has all its `made`; the round alone; or nothing. */
void pipe_run_on(struct plan *p, const struct pipe *x, uint64_t made, uint64_t share);

#endif
