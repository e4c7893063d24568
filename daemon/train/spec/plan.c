/* "plan" in a spec: what a strategy is told beside numbers (plan/planner.h). The strategy itself judges it. */
#include <string.h>
#include "train/spec/int.h"
#include "train/strategy.h"

bool spec_plan_has(const struct planner_ops *p, const char *key)
{
	for (const char *const *k = p->values; k && *k; k++)
		if (!strcmp(*k, key))
			return true;
	return false;
}

/* A key that another strategy knows: say which. */
static int foreign(const json_t *o, const struct place *at, const struct planner_ops *own, struct err *e)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)o, key, v)
		for (int i = 0; !spec_plan_has(own, key) && strategy_at(i); i++) {
			const struct place here = place_key(at, key);

			if (spec_plan_has(strategy_at(i), key))
				return place_err(&here, e, "belongs to strategy %s, and this run's strategy is %s",
					strategy_at(i)->name, own->name);
		}
	return 0;
}

int spec_read_plan(struct spec *s, const json_t *shared, struct err *e)
{
	static const char *const none[] = { NULL };
	const struct place top = { "" }, at = place_key(&top, "plan");
	const struct planner_ops *p = strategy_find(s->strategy);
	struct err why;

	s->plan = json_object_get(shared, "plan");
	if (s->plan && (read_object(s->plan, &at, e) < 0 || foreign(s->plan, &at, p, e) < 0 ||
	    read_known(s->plan, &at, p->values ? p->values : none, e) < 0))
		return -1;
	return p->check && p->check(s->plan, &why) < 0 ? place_err(&at, e, "%s", why.text) : 0;
}
