/* The registry of strategies. */
#include <stdio.h>
#include <string.h>
#include "train/strategy.h"

#define STRATEGY(x) extern const struct planner_ops strategy_##x;
#include "train/strategy/list.h"
#undef STRATEGY

static const struct planner_ops *const list[] = {
#define STRATEGY(x) &strategy_##x,
#include "train/strategy/list.h"
#undef STRATEGY
	NULL
};

const struct planner_ops *strategy_find(const char *name)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

const struct planner_ops *strategy_at(int i)
{
	return i >= 0 && i < (int)(sizeof(list) / sizeof(*list)) - 1 ? list[i] : NULL;
}

const char *strategy_names(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; list[i] && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", list[i]->name);
	return out;
}
