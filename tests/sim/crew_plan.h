/* A strategy for the crew's scenarios: a chain of layers cut over all members, one flush of micro-batches through them,
 * every cut's state held by as many members as the redundancy says. Who has no room is told how much is missing. */
#ifndef TESTS_SIM_CREW_PLAN_H
#define TESTS_SIM_CREW_PLAN_H
#include "plan/planner.h"

/* The one that is right, one of another version, and one that never can. */
extern const struct planner_ops cut_ops, cut_other_ops, cut_cannot_ops;
void cut_profile(struct profile *m, uint32_t layers, uint64_t us, uint64_t act_bytes, uint64_t param_bytes);
/* Called with every plan that is made: whose profile it is made from (its need_arg), the generation, and for whom. */
void cut_watch(void (*made)(void *who, uint64_t generation, uint32_t rank, uint32_t n));

#endif
