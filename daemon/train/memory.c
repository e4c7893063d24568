/* The registry of memory passes, and what they have in common: the cuts of a stretch, shared out among its segments. */
#include "train/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

#define MEMORY(x) extern const struct memory_ops memory_##x;
#include "train/memory/list.h"
#undef MEMORY

static const struct memory_ops *const list[] = {
#define MEMORY(x) &memory_##x,
#include "train/memory/list.h"
#undef MEMORY
	NULL
};

const struct memory_ops *memory_find(const char *name)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(list[i]->name, name))
			return list[i];
	return NULL;
}

const char *memory_names(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; list[i] && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", list[i]->name);
	return out;
}

uint32_t *memory_parts(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how, uint32_t *ret_n)
{
	uint32_t *unit = xcalloc((size_t)(b - a) + 2, sizeof(*unit));

	unit[0] = a;
	*ret_n = 1 + (how ? how->ops->cuts(m, a, b, how, unit + 1) : 0);
	unit[*ret_n] = b + 1;
	return unit;
}

uint32_t memory_units(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how)
{
	uint32_t n;

	free(memory_parts(m, a, b, how, &n));
	return n;
}

uint32_t memory_segments(uint32_t units, const struct memory_pass *how)
{
	uint32_t k = !how ? 1 : how->segments ? how->segments : how->ops->usual(units);

	return k < units ? k : units;
}

void memory_passes(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how, struct passes *ret)
{
	uint32_t n, *unit = memory_parts(m, a, b, how, &n), k = memory_segments(n, how);
	uint32_t *first = xcalloc((size_t)k + 1, sizeof(*first));

	for (uint32_t i = 0; i <= k; i++)
		first[i] = unit[memory_unit(n, k, i)];
	*ret = (struct passes){ .a = a, .b = b };
	for (uint32_t i = 0; i < k; i++)
		passes_add(ret, PLAN_FWD, first[i], first[i + 1] - 1, i + 1 < k ? PLAN_KEEP_INPUT : PLAN_KEEP_ALL, false);
	for (uint32_t i = k; i-- > 0; ) {
		if (i + 1 < k)
			passes_add(ret, PLAN_FWD, first[i], first[i + 1] - 1, PLAN_KEEP_ALL, true);
		passes_add(ret, PLAN_BWD, first[i], first[i + 1] - 1, PLAN_KEEP_NONE, false);
	}
	free(first);
	free(unit);
	passes_size(m, ret);
}

uint64_t memory_peak(const struct profile *m, const struct memory_pass *how, uint64_t *ret_kept)
{
	struct passes s;
	uint64_t peak;

	memory_passes(m, 0, m->nops - 1, how, &s);
	peak = passes_peak(&s, 0, ret_kept);
	passes_free(&s);
	return peak;
}
