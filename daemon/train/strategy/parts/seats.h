/* Who has which stage of a model: how many pipelines there are, their cuts, and in what flushes an epoch is made. */
#ifndef TRAIN_STRATEGY_SEATS_H
#define TRAIN_STRATEGY_SEATS_H
#include "train/strategy/parts/stage.h"

/* Everything of *x but the cuts: how many pipelines there can be at most. Nothing that v->values say is to be chosen.
 * -1 and e: too few members. */
int seats_find(struct pipe *x, const struct view *v, struct err *e);
/* The cuts for so many pipelines, of those that seats_find has found. -1 and e: there are none (pipe.lacks says of how
 * many bytes, unless pipe.quiet). */
int seats_cut(struct pipe *x, uint32_t units, struct err *e);
/* pipe.most, for a pipeline that makes so many micro-batches in an epoch. */
int seats_flush(struct pipe *x, uint64_t epoch, struct err *e);
uint64_t seats_flush_size(const struct pipe *x, uint64_t left); /* of a flush, when so many of them are left */
/* Bytes that the member takes who comes nearest to what it has, and that; *ret_has 0: nobody says what it has. */
uint64_t seats_bytes(struct pipe *x, uint64_t *ret_has);

#endif
