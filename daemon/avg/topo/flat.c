/* Everybody sends every column to its owner: every member that can sums one, as much as its bandwidth says. */
#include <stdlib.h>
#include "avg/part.h"
#include "avg/topo.h"
#include "common/mem.h"

static int plan(const struct topo_view *v, struct topo_plan *ret)
{
	double *w = xcalloc(v->n, sizeof *w);
	if (part_shares(v->bw, v->n, w)) {
		free(w);
		return -1;
	}
	*ret = (struct topo_plan){ .rows = 1, .cols = v->n, .size = xcalloc(v->n, sizeof *ret->size),
		.owner = xcalloc(v->n, sizeof *ret->owner) };
	part_sizes(w, v->n, v->len, v->min, ret->size);
	for (size_t i = 0; i < v->n; i++)
		ret->owner[i] = (uint16_t)i;
	free(w);
	return 0;
}

const struct topo_ops topo_flat = { .name = "flat", .plan = plan, .robust = true };
