/* What "plan" of a spec says to strategy pipeline. */
#ifndef TRAIN_STRATEGY_SAID_H
#define TRAIN_STRATEGY_SAID_H
#include "plan/planner.h"
#include "train/strategy/parts/schedule.h"

#define SAMPLES_MAX (1 << 20)           /* of a micro-batch */
#define MICRO_MAX 1024                  /* of a program, which has some ten instructions for each */
#define SAID_AUTO "auto"                /* of stages, micro_batch_size, remat: to be chosen (choose.h) */

/* 0, or -1 and e. */
int said_check(const json_t *values, struct err *e);
const struct turns_ops *said_schedule(const json_t *values);    /* NULL: unknown */
enum said_remat { REMAT_NONE, REMAT_BOUNDARY, REMAT_AUTO, REMAT_UNKNOWN };
enum said_remat said_remat(const json_t *values);
bool said_auto(const json_t *values, const char *key);

#endif
