/* What may change while a run is going: the optimizer's hyperparameters, clip_norm, how vectors travel, who may say
 * so. */
#include <string.h>
#include "common/text.h"
#include "train/spec/int.h"

double spec_lr_factor_of(const struct spec *s, uint64_t target_batch, uint64_t epoch)
{
	return schedule_factor(&s->schedule, target_batch, epoch);
}

double spec_lr_factor(const struct spec *s, uint64_t epoch)
{
	return spec_lr_factor_of(s, s->target_batch, epoch);
}

uint64_t spec_live_target(const struct spec *s, const json_t *live)
{
	const json_t *v = json_object_get(live, "target_batch");

	return json_is_integer(v) && json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : s->target_batch;
}

/* 1: not this key. */
static int target_set(const struct spec *s, const char *key, const json_t *v, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, key);

	if (strcmp(key, "target_batch"))
		return 1;
	if (s->mode.steps || s->mode.any)
		return place_err(&at, e, "strategy %s counts steps: it has no target batch to reach", s->strategy);
	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1ll << 40)
		return place_err(&at, e, "must be a whole number of samples, 1 to 2^40");
	return 0;
}

static const char *const wire_key[] = { "codec", "robust", "error_feedback" };
#define WIRE_KEYS (sizeof(wire_key) / sizeof(*wire_key))

/* 1: not one of these. The averager reads them out of BEGIN itself. */
static int wire_set(const struct spec *s, const char *key, const json_t *v, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, key);
	enum robust robust;

	if (!strcmp(key, "codec"))
		return coding_check(v, e) < 0 ? -1 : spec_scale_wire(s, v, ROBUST_NONE, e);
	if (!strcmp(key, "robust"))
		return robust_parse(json_string_value(v), &robust, e) < 0 ? -1 : spec_scale_wire(s, NULL, robust, e);
	if (strcmp(key, "error_feedback"))
		return 1;
	return json_is_boolean(v) ? 0 : place_err(&at, e, "must be true or false, and is %s", json_kind(v));
}

json_t *spec_live(const struct spec *s)
{
	json_t *o = json_object(), *averaging = json_object_get(s->shared, "averaging");

	for (int i = 0; i < s->optim->nkeys; i++)
		(void)json_object_set_new(o, s->optim->key[i].name, json_real(s->hyper[i]));
	(void)json_object_set_new(o, "clip_norm", json_real(s->clip_norm));
	for (size_t i = 0; i < WIRE_KEYS; i++)  /* what the author does not mention is not live before somebody sets it */
		if (json_object_get(averaging, wire_key[i]))
			(void)json_object_set_new(o, wire_key[i], json_deep_copy(json_object_get(averaging, wire_key[i])));
	return o;
}

/* 1: not this key, which only a run has that ends with an accuracy. */
static int reached_set(const struct spec *s, const char *key, const json_t *v, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, key);

	if (strcmp(key, SPEC_REACHED) || s->stop_accuracy <= 0)
		return 1;
	if (!json_is_number(v) || !(json_number_value(v) >= s->stop_accuracy && json_number_value(v) <= 1))
		return place_err(&at, e, "must be an accuracy of at least %g", s->stop_accuracy);
	return 0;
}

/* What is no number of the optimizer's. 1: not one of these. */
static int other_set(const struct spec *s, const char *key, const json_t *v, struct err *e)
{
	int rc = wire_set(s, key, v, e);

	if (rc == 1)
		rc = reached_set(s, key, v, e);
	if (rc == 1)
		rc = target_set(s, key, v, e);
	if (rc == 1 && !strcmp(key, "admins")) {
		struct id admin[SPEC_ADMINS_MAX];
		size_t n;

		rc = spec_admins(v, admin, &n, e);
	}
	return rc == 1 ? spec_mode_set(s, key, v, e) : rc;
}

static int live_set(const struct spec *s, const char *key, const json_t *v, double *hyper, double *clip, struct err *e)
{
	const char *names[OPTIM_KEYS_MAX + WIRE_KEYS + PLANNER_KEYS_MAX + 4];
	const struct place top = { "" }, at = place_key(&top, key);
	int i = optim_key_index(s->optim, key), n = 0, other = other_set(s, key, v, e);
	struct kerr why;
	double x = json_is_true(v) ? 1 : 0;

	if (other <= 0)
		return other;
	if (!strcmp(key, "clip_norm"))
		return read_number(v, &at, 0, 1e30, clip, e);
	if (i < 0) {
		const char *near;

		for (; n < s->optim->nkeys; n++)
			names[n] = s->optim->key[n].name;
		names[n++] = "clip_norm";
		names[n++] = "target_batch";
		names[n++] = "admins";
		for (size_t k = 0; k < WIRE_KEYS; k++)
			names[n++] = wire_key[k];
		for (uint32_t k = 0; k < s->nsettings; k++)
			names[n++] = s->setting[k].name;
		names[n] = NULL;
		near = text_nearest(key, names);
		return place_err(&at, e, "cannot be changed while the run is going%s%s%s", near ? "; did you mean \"" : "",
			near ? near : "", near ? "\"?" :
			"; target_batch, admins, clip_norm, codec, robust, error_feedback, the optimizer's hyperparameters "
			"and the strategy's settings can");
	}
	if (!(json_is_boolean(v) && s->optim->key[i].flag) &&
	    read_number(v, &at, s->optim->key[i].min, s->optim->key[i].max, &x, e) < 0)
		return -1;
	if (optim_set(s->optim, hyper, key, x, &why) < 0)
		return place_err(&at, e, "%s", why.text);
	return 0;
}

int spec_live_apply(const struct spec *s, const json_t *live, double *ret_hyper, double *ret_clip_norm, struct err *e)
{
	const struct place top = { "" };
	double hyper[OPTIM_KEYS_MAX], clip = s->clip_norm;
	struct kerr why;
	const char *key;
	json_t *v;

	memcpy(hyper, s->hyper, sizeof(hyper));
	if (!json_is_object(live))
		return place_err(&top, e, "hyperparameters must be an object {\"lr\": 0.01}, and are %s", json_kind(live));
	json_object_foreach((json_t *)live, key, v)
		if (live_set(s, key, v, hyper, &clip, e) < 0)
			return -1;
	if (optim_check(s->optim, hyper, &why) < 0)
		return err_set(e, ERR_INVALID, "%s: %s", s->optim->name, why.text);
	for (int i = 0; i < s->optim->nstates; i++)
		if (optim_uses_state(s->optim, hyper, i) && !optim_uses_state(s->optim, s->hyper, i))
			return err_set(e, ERR_INVALID, "%s: this would need %s, which the run was started without",
				s->optim->name, s->optim->state[i]);
	memcpy(ret_hyper, hyper, sizeof(hyper));
	*ret_clip_norm = clip;
	return 0;
}

int spec_live_check(const struct spec *s, const json_t *patch, struct err *e)
{
	double hyper[OPTIM_KEYS_MAX], clip;

	return spec_live_apply(s, patch, hyper, &clip, e);
}
