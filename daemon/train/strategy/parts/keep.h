/* Redundancy of a pipeline: whose state a member keeps beside that of its own stage, so that every stage that learns
 * has as many holders as the run wants copies (pipe.copies). A stage with so many replicas needs nobody else. */
#ifndef TRAIN_STRATEGY_KEEP_H
#define TRAIN_STRATEGY_KEEP_H
#include "train/strategy/parts/stage.h"

/* Finds pipe.keep: once before the cuts are known (pipe.cut), when every stage is thought to learn, and once after. */
void keep_find(struct pipe *x);
/* Does every stage have enough holders? -1 and e: not with these stages and replicas. */
int keep_enough(const struct pipe *x, struct err *e);
/* Does a member of stage s (each of its replicas) hold the state of stage t for it? Its own is another matter. */
bool keeps(const struct pipe *x, uint32_t s, uint32_t t);
/* All that it holds beside its own, in ascending order; how many. */
#define KEPT_MAX (STAGES_MAX + 1)
uint32_t keep_list(const struct pipe *x, uint32_t s, uint32_t *ret);

#endif
