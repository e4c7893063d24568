/* What strategies with a whole model on one peer share: buffers, micro-batches, the optimizer step.
 *
 * Keys. An epoch has as many micro-batches as it needs, which nobody knows before, so weights, optimizer state and
 * gradient sums have one key for ever (per = the greatest) and are written in place; what belongs to a micro-batch
 * has its index. */
#ifndef TRAIN_STRATEGY_REPLICA_H
#define TRAIN_STRATEGY_REPLICA_H
#include "plan/planner.h"

/* Numbers in view.settings, exact for this model and batch: bytes of saved, scratch of FWD and BWD, output,
 * optimizer, running statistics. */
void replica_buffers(struct plan *p, const struct view *v, bool accumulate);
/* The body: n micro-batches. local: each is a step of its own, else gradients are summed up in acc, where those of
 * view.samples lie. */
void replica_micro_batches(struct plan *p, const struct view *v, uint64_t n, bool local);
/* The same with a working copy of the parameters, which is not what the optimizer changes. */
void replica_beside(struct plan *p, const struct view *v, uint64_t n);
void replica_step(struct plan *p);              /* optimizer step with acc, digest */
/* A blocking round of all members: gradients, or (local) parameters, and (both) the optimizer's state. Samples may be
 * none: then this peer only takes the mean. */
void replica_round(struct plan *p, const struct view *v, bool local, bool both);
/* The micro-batch that ends the epoch and the round in one program, in which the gradient is given while it is made, in
 * parts of so many bytes or more. false: the model is not to be cut so, and nothing is in the plan. */
bool replica_buckets(struct plan *p, const struct view *v, uint64_t bytes);
/* Micro-batches until this peer has what it needs for an epoch (at most `most`); 0: it waits. */
uint64_t replica_left(const struct view *v, uint64_t most);
/* Beside a round, whose end ends them: what is missing of the epoch, or of the next one when this one is being given to
 * the round. Many are rounded up to a power of two, so that few shapes of programs are checked. */
uint64_t replica_beside_round(const struct view *v);
uint32_t replica_group(struct plan *p, const struct view *v);   /* all members, elastic, mean */
void replica_buffer(struct plan *p, const char *name, enum plan_class class, uint64_t bytes, bool initial);
uint64_t replica_bytes(const struct view *v);   /* of the parameters and the running statistics behind them */
uint64_t replica_part_bytes(const struct view *v, uint64_t parts);      /* of one of so many, and all the statistics */
bool replica_flag(const struct view *v, const char *setting);

#endif
