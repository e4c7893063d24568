/* Several pipelines side by side: how many there are, who is in which, and which micro-batches of an epoch each makes.
 * All have the same cuts, and nothing passes between them but the round (design: a unit is what contributes as a
 * whole). Unit u has the members u * pipe.members and those behind it; whoever is left over is a spare. */
#ifndef TRAIN_STRATEGY_UNITS_H
#define TRAIN_STRATEGY_UNITS_H
#include "train/strategy/parts/stage.h"

#define UNITS_SETTLED "units"           /* in a view's values: so many there are, for as long as the generation runs */

/* Finds pipe.units: as many as there are members for, at most the spec's "replicas", and each with a micro-batch for
 * every replica of its widest stage; or those that are settled. pipe.members and pipe.widest are given. */
void units_find(struct pipe *x, const struct view *v);
/* How many pipelines the spec asks for at most; UINT32_MAX: it does not say. */
uint32_t units_most(const struct view *v);
/* Micro-batches of the epoch, of all units together. */
uint64_t units_epoch(const struct view *v);
/* What unit u makes of it, by the speed of its slowest member; first and n count micro-batches. */
struct planner_unit units_share(const struct pipe *x, const struct view *v, uint32_t u);
/* The least and the greatest share of any. */
void units_range(const struct pipe *x, const struct view *v, uint64_t *ret_least, uint64_t *ret_most);

#endif
