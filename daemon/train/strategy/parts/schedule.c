/* The registry of schedules, and what they share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/strategy/parts/schedule.h"

#define SCHEDULE(x) extern const struct turns_ops turns_##x;
#include "train/strategy/parts/schedule/list.h"
#undef SCHEDULE

static const struct turns_ops *const list[] = {
#define SCHEDULE(x) &turns_##x,
#include "train/strategy/parts/schedule/list.h"
#undef SCHEDULE
	NULL
};

const struct turns_ops *turns_find(const char *name)
{
	for (int i = 0; name && list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

const char *turns_names(char *out, uint32_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; list[i] && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", list[i]->name);
	return out;
}

uint32_t turns_stash(const struct turns_ops *s, const struct turns_at *at)
{
	struct turn *turn = xcalloc(2 * (size_t)at->n + 1, sizeof(*turn));
	uint32_t now = 0, most = 0;

	s->order(at, turn);
	for (uint32_t i = 0; i < 2 * at->n; i++) {
		now = turn[i].back ? now - 1 : now + 1;
		most = now > most ? now : most;
	}
	free(turn);
	return most;
}
