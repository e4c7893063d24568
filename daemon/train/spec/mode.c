/* The strategy's settings while a run is going: what a change of "averaging" comes to, and whether it may be made. */
#include <stdio.h>
#include <string.h>
#include "train/spec/int.h"
#include "train/strategy.h"

static const struct planner_key *find(const struct spec *s, const char *key)
{
	const struct planner_ops *p = strategy_find(s->strategy);

	for (uint32_t k = 0; k < p->nkeys; k++)
		if (!strcmp(p->key[k].name, key))
			return &p->key[k];
	return NULL;
}

/* What live says, else the spec, else the default. */
static double value_of(const struct spec *s, const json_t *live, const struct planner_key *k)
{
	const json_t *v = json_object_get(live, k->name);

	if (!v)
		v = json_object_get(json_object_get(s->shared, "averaging"), k->name);
	return json_is_number(v) ? json_number_value(v) : v ? json_is_true(v) : k->def;
}

static void settings_of(const struct spec *s, const json_t *live, struct plan_result *out)
{
	const struct planner_ops *p = strategy_find(s->strategy);

	for (uint32_t k = 0; k < p->nkeys; k++) {
		(void)snprintf(out[k].name, sizeof(out[k].name), "%s", p->key[k].name);
		out[k].value = value_of(s, live, &p->key[k]);
	}
}

int spec_mode_set(const struct spec *s, const char *key, const json_t *v, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, key);
	const struct planner_key *k = find(s, key);
	double x;

	if (!k)
		return 1;
	if (k->kind == PLANNER_FLAG)
		return json_is_boolean(v) ? 0 : place_err(&at, e, "must be true or false, and is %s", json_kind(v));
	if (read_number(v, &at, k->min, k->max, &x, e) < 0)
		return -1;
	if (k->kind == PLANNER_COUNT && !json_is_integer(v))
		return place_err(&at, e, "must be a whole number");
	return 0;
}

bool spec_mode_fits(const struct spec *s, const json_t *live)
{
	struct plan_result now[PLANNER_KEYS_MAX];

	settings_of(s, live, now);
	for (uint32_t k = 0; k < s->nsettings; k++)
		if (now[k].value != s->setting[k].value)
			return false;
	return true;
}

/* The optimizer's vectors are each peer's own while parameters part, and everybody's otherwise. */
static int same_state(const struct spec *s, const struct planner_mode *to, struct err *e)
{
	bool any = s->scale_interval > 0;       /* the scale of the loss is part of it */

	for (int i = 0; i < s->optim->nstates; i++)
		any = any || optim_uses_state(s->optim, s->hyper, i);
	if (to->both != s->mode.both)
		return err_set(e, ERR_INVALID, "average_optimizer cannot be changed while the run is going: it changes what "
			"peers send");
	if (s->mode.local && !to->local && any && !s->mode.both)
		return err_set(e, ERR_INVALID, "the %s state of each peer is its own now, and without steps of its own all "
			"must have the same: start another run with these weights (run start --weights)", s->optim->name);
	if (to->nstate != s->mode.nstate)
		return err_set(e, ERR_INVALID, "this would need state that the run was started without");
	for (uint32_t k = 0; k < to->nstate; k++)
		if (strcmp(to->state[k], s->mode.state[k]))
			return err_set(e, ERR_INVALID, "this would need %s, which the run was started without", to->state[k]);
	return 0;
}

static int mode_of(const struct spec *s, const struct plan_result *v, struct planner_mode *ret, struct err *e)
{
	const struct planner_ops *p = strategy_find(s->strategy);

	*ret = (struct planner_mode){ .equality = "alone" };
	if (p->mode && p->mode(&(struct plan_results){ p->nkeys, (struct plan_result *)v }, s->plan, ret, e) < 0)
		return -1;
	return spec_topology_fits(s, ret, e) < 0 || spec_scale_fits(s, ret, e) < 0 ? -1 : spec_track_fits(s, ret, e);
}

int spec_mode_check(const struct spec *s, const json_t *live, struct err *e)
{
	struct plan_result v[PLANNER_KEYS_MAX];
	struct planner_mode to;

	settings_of(s, live, v);
	if (mode_of(s, v, &to, e) < 0 || same_state(s, &to, e) < 0)
		return -1;
	if (json_object_get(live, "target_batch") && (to.steps || to.any))
		return err_set(e, ERR_INVALID, "target_batch: strategy %s counts steps", s->strategy);
	return 0;
}

int spec_mode_take(struct spec *s, const json_t *live, struct err *e)
{
	struct plan_result v[PLANNER_KEYS_MAX];
	struct planner_mode to;

	settings_of(s, live, v);
	if (mode_of(s, v, &to, e) < 0)
		return -1;
	s->mode = to;
	memcpy(s->setting, v, s->nsettings * sizeof(*v));
	return 0;
}
