/* Between the passes and their plan. */
#ifndef TRAIN_MEMORY_PASSES_INT_H
#define TRAIN_MEMORY_PASSES_INT_H
#include "train/memory.h"

#define ALIGN(n) (((uint64_t)(n) + 63) / 64 * 64)

uint32_t passes_turn(const struct passes *s);           /* the first BWD; passes_dead: by FWD k, free() it: */
bool *passes_dead(const struct passes *s);              /* what it hands on is read by nobody before it is made again */
bool passes_forgets(const struct passes *s, const struct pass *x);      /* nobody reads its input behind it */
uint64_t passes_work(const struct pass *x);             /* bytes of scratch */

#endif
