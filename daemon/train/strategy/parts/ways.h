/* PipeDream-2BW's planner (arXiv 2006.09503, 3.3): of all ways to lay a pipeline over the members, the fastest that
 * they can hold. A way is how many pipelines stand side by side (w), into how many stages each is cut (d), how many
 * samples a micro-batch has (b), and whether stages go forward again (remat). */
#ifndef TRAIN_STRATEGY_WAYS_H
#define TRAIN_STRATEGY_WAYS_H
#include "plan/planner.h"

struct way { uint32_t units, stages, batch; bool remat; };      /* stages 0: the list that the spec says */

/* Do values leave something to choose? */
bool ways_open(const json_t *values);
/* The samples of a micro-batch that settled values say; 0: what the profile has. */
uint32_t ways_batch(const json_t *values);
/* Chooses exhaustively, by what the predictor says of an epoch (ways_int.h), what v->values leave open: "stages", the
 * number of pipelines (at most "replicas"), "micro_batch_size" (powers of two), "remat". Of equally fast ones that with
 * fewer stages, then with fewer pipelines, with greater micro-batches, without remat. *ret: new values in which nothing
 * is open but the cuts, with PLANNER_CHOSEN: {"replicas", "stages", "micro_batch_size", "remat", "samples_per_s",
 * "bytes", "memory_bytes" (of the member that has least beside it; 0: it says none), "ways", "text"}. Pure. -1 and e:
 * no way can be; how many bytes the nearest one lacks, if that is why.
 * GPT-2 of 24 layers, 8 members: see man/hivemind-spec.5. */
int ways_choose(const struct view *v, json_t **ret, struct err *e);

#endif
