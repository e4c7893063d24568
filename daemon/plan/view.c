/* How a plan begins: what of the view everybody's plan of one generation says. */
#include <stdlib.h>
#include "common/mem.h"
#include "plan/planner.h"

void plan_begin(struct plan *ret, const char *strategy, const struct view *v)
{
	struct id *member = xcalloc(v->nmembers, sizeof *member);

	for (uint32_t k = 0; k < v->nmembers; k++)
		member[k] = v->member[k].id;
	plan_init(ret, strategy, v->me, v->nmembers, member);
	ret->first = v->first;
	ret->generation = v->generation;
	free(member);
}
