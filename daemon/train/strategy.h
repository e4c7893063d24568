/* The registry of strategies: planners of plan/planner.h. To add one: strategy/NAME.c with `const struct planner_ops
 * strategy_NAME` and a line in strategy/list.h. */
#ifndef TRAIN_STRATEGY_H
#define TRAIN_STRATEGY_H
#include "plan/planner.h"

#define STRATEGY_DEFAULT "hivemind"     /* of a spec that names none */

const struct planner_ops *strategy_find(const char *name);      /* NULL: unknown */
const struct planner_ops *strategy_at(int i);                   /* NULL past the end */
const char *strategy_names(char *out, size_t cap);

#endif
