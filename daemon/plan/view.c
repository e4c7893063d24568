/* From a view to plans: how each begins, and those of all members. */
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

int plan_members(const struct planner_ops *s, const struct view *v, struct plan *ret, json_t **ret_values,
	struct err *e)
{
	const struct plan_results none = { 0 };
	struct view x = *v;
	json_t *settled = NULL;
	int rc = s->settle ? s->settle(v, &settled, e) : 0;

	if (settled)
		x.values = settled;
	for (x.me = 0; x.me < v->nmembers && !rc; x.me++) {
		rc = s->plan(&x, &none, &ret[x.me], e);
		for (uint32_t k = x.me; rc && k-- > 0; )
			plan_free(&ret[k]);
	}
	if (ret_values)
		*ret_values = rc ? NULL : settled;
	if (rc || !ret_values)
		json_decref(settled);
	return rc;
}
