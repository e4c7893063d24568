/* Tensors that layers of two stages use: one shard, which both hold. It is the beginning of the flat vector, up to the
 * end of the last of them, so that a pipeline can have some when the layers to which they belong are in its first stage
 * and the others that use them in its last one. */
#ifndef TRAIN_STRATEGY_TIED_H
#define TRAIN_STRATEGY_TIED_H
#include "plan/planner.h"

/* Elements of it, when a cut before this op parts the layers that use them; 0: none are parted there. */
uint64_t tied_elements(const struct profile *m, uint32_t cut);

/* Ops whose parameters another one uses, and that one. */
struct tie { uint32_t owner, user; };
struct ties { uint32_t n; struct tie *v; };
struct ties ties_of(const struct profile *m);           /* free(v) */
/* May ops a..b (inclusive) be stage s of n? */
bool ties_allow(const struct ties *t, uint32_t s, uint32_t n, uint32_t a, uint32_t b);
/* The first that stage s of n would part from what is neither in the first stage nor in the last one; NULL: it may. */
const struct tie *ties_broken(const struct ties *t, uint32_t s, uint32_t n, uint32_t a, uint32_t b);

#endif
