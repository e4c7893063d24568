/* The table of topologies, and what "auto" is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/topo.h"

static const struct topo_ops *const all[] = {
#define TOPO(x) &topo_##x,
#include "avg/topo/list.h"
#undef TOPO
};
#define ALL (sizeof all / sizeof *all)

void topo_plan_free(struct topo_plan *p)
{
	free(p->row);
	free(p->size);
	free(p->owner);
	free(p->sub);
	grid_free(&p->grid);
	*p = (struct topo_plan){ 0 };
}

const struct topo_ops *topo_find(const char *name)
{
	for (size_t i = 0; name && i < ALL; i++)
		if (!strcmp(all[i]->name, name))
			return all[i];
	return NULL;
}

const char *topo_names(char *out, size_t max)
{
	size_t at = (size_t)snprintf(out, max, "auto");
	for (size_t i = 0; i < ALL && at < max; i++)
		at += (size_t)snprintf(out + at, max - at, " %s", all[i]->name);
	return out;
}

const struct topo_ops *topo_auto(size_t n, size_t group, bool robust)
{
	return n > group && !robust ? &topo_two_level : &topo_flat;
}
