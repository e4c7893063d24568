/* What strategies with a whole model on one peer share: buffers, micro-batches, the optimizer step.
 *
 * Keys. An epoch has as many micro-batches as it needs, which nobody knows before, so weights, optimizer state and
 * gradient sums have one key for ever (per = the greatest) and are written in place; what belongs to a micro-batch
 * has its index. */
#ifndef TRAIN_STRATEGY_REPLICA_H
#define TRAIN_STRATEGY_REPLICA_H
#include "plan/planner.h"

/* Numbers in view.settings, exact for this model and batch: bytes of saved, scratch of FWD and BWD, output,
 * optimizer. */
void replica_buffers(struct plan *p, const struct view *v, bool accumulate);
/* The body: n micro-batches. local: each is a step of its own, else gradients are summed up in acc. */
void replica_micro_batches(struct plan *p, const struct view *v, uint64_t n, bool local);
void replica_step(struct plan *p);              /* optimizer step with acc, digest */
bool replica_flag(const struct view *v, const char *setting);

#endif
