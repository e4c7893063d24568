/* Inside the search for the best way: ways.c (which there are), ways_time.c (how long an epoch takes). */
#ifndef TRAIN_STRATEGY_WAYS_INT_H
#define TRAIN_STRATEGY_WAYS_INT_H
#include "train/strategy/parts/stage.h"
#include "train/strategy/parts/ways.h"

/* The view at the beginning of an epoch, whoever asks: what is chosen does not depend on where the run stands. */
struct view ways_begins(const struct view *v);
double ways_speed(const struct view *v, uint32_t rank);
/* Time of one epoch in the middle of training, of a pipe that has been cut: flushes of the pipeline that takes longest,
 * and the round in which all agree; or that which takes longer of both, when epochs run on into each other. -1 and e:
 * it cannot be predicted. */
double ways_epoch(struct pipe *x, struct err *e);

#endif
