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

int spec_one_batch(struct spec *s, const json_t *local, struct err *e)
{
	const struct place top = { "local" }, at = place_key(&top, "batch");
	const json_t *said = json_object_get(s->plan, "micro_batch_size"), *mine = json_object_get(local, "batch");

	if (!strategy_find(s->strategy)->crew)
		return 0;
	if (!said)
		return json_object_set_new((json_t *)s->plan, "micro_batch_size", json_integer(s->local.batch));
	if (json_is_string(said)) {             /* chosen for each generation, by all members for all */
		s->local.batch = 1;
		return 0;
	}
	if ((uint64_t)json_integer_value(said) > s->target_batch)
		return place_err(&at, e, "of all members is %lld (plan.micro_batch_size), and the target batch %llu",
			(long long)json_integer_value(said), (unsigned long long)s->target_batch);
	if (mine && json_integer_value(mine) != json_integer_value(said))
		return place_err(&at, e, "is %lld, and the run's plan.micro_batch_size is %lld: all members have micro-batches "
			"of one size", (long long)json_integer_value(mine), (long long)json_integer_value(said));
	s->local.batch = (uint32_t)json_integer_value(said);
	return 0;
}
