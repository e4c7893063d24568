/* Cuts a model into stages, each for one member or for several replicas of it. */
#ifndef TRAIN_STRATEGY_PARTITION_H
#define TRAIN_STRATEGY_PARTITION_H
#include "plan/planner.h"

#define STAGES_MAX 256

/* Ops a..b (both inclusive) on the members rank .. rank + replicas - 1. */
struct stage { uint32_t a, b, rank, replicas; };

struct cutting {
	const struct view *v;
	uint32_t n; struct stage *stage;        /* rank and replicas are given */
	/* Bytes that a member of stage s needs to hold ops a..b. */
	uint64_t (*bytes)(void *arg, uint32_t s, uint32_t a, uint32_t b); void *arg;
};
/* Finds a and b of all stages. The slowest stage is as fast as it can be, exactly: a stage takes the time of its ops on
 * the slowest of its members, or that of what it sends, whichever is longer, shared among its replicas; every stage
 * fits the memory of its members. Of equally fast ones, that which sends the fewest bytes. -1 and e: there is none. */
int partition(const struct cutting *c, struct err *e);
/* Are the cuts that somebody else has chosen (a and b are given) such that every stage can be held? */
int partition_fits(const struct cutting *c, struct err *e);

#endif
