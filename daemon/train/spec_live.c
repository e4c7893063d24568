/* What may change while a run is going: the optimizer's hyperparameters and clip_norm. */
#include <string.h>
#include "common/text.h"
#include "train/spec_int.h"

double spec_lr_factor(const struct spec *s, uint64_t epoch)
{
	return schedule_factor(&s->schedule, s->target_batch, epoch);
}

json_t *spec_live(const struct spec *s)
{
	json_t *o = json_object();

	for (int i = 0; i < s->optim->nkeys; i++)
		(void)json_object_set_new(o, s->optim->key[i].name, json_real(s->hyper[i]));
	(void)json_object_set_new(o, "clip_norm", json_real(s->clip_norm));
	return o;
}

static int live_set(const struct spec *s, const char *key, const json_t *v, double *hyper, double *clip, struct err *e)
{
	const char *names[OPTIM_KEYS_MAX + 2];
	const struct place top = { "" }, at = place_key(&top, key);
	int i = optim_key_index(s->optim, key), n = 0;
	struct kerr why;
	double x = json_is_true(v) ? 1 : 0;

	if (!strcmp(key, "clip_norm"))
		return read_number(v, &at, 0, 1e30, clip, e);
	if (i < 0) {
		const char *near;

		for (; n < s->optim->nkeys; n++)
			names[n] = s->optim->key[n].name;
		names[n++] = "clip_norm";
		names[n] = NULL;
		near = text_nearest(key, names);
		return place_err(&at, e, "cannot be changed while the run is going%s%s%s", near ? "; did you mean \"" : "",
			near ? near : "", near ? "\"?" : "; clip_norm and the optimizer's hyperparameters can");
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
