/* What may change while a run is going: the optimizer's hyperparameters and clip_norm; and the schedule of lr.
 * Everybody must step with the same bits, so the schedule uses + - * / only: libm differs between machines in the
 * last bit. */
#include <string.h>
#include "common/text.h"
#include "train/spec_int.h"

/* cos on [0, pi] by its series around the middle: sin(pi/2 - x), |argument| <= pi/2, error below 1e-15. */
static double cosine(double x)
{
	double y = 1.57079632679489661923 - x, y2 = y * y, term = y, sum = y;

	for (int k = 1; k < 13; k++) {
		term = term * y2 / (double)(2 * k * (2 * k + 1));
		sum = k % 2 ? sum - term : sum + term;
	}
	return sum;
}

static double power(double x, uint64_t n)
{
	double r = 1;

	for (; n; n >>= 1, x *= x)
		if (n & 1)
			r *= x;
	return r;
}

double spec_lr_factor(const struct spec *s, uint64_t epoch)
{
	const struct spec_schedule *c = &s->schedule;
	double t, floor_ = c->min;

	if (epoch < c->warmup) {
		double from = c->kind == SCHEDULE_WARMUP_DECAY ? c->min : 0;
		uint64_t at = c->kind == SCHEDULE_WARMUP_DECAY ? epoch : epoch + 1;     /* lr 0 would be a lost epoch */

		return from + (1 - from) * ((double)at / (double)c->warmup);
	}
	switch (c->kind) {
	case SCHEDULE_STEP:
		return power(c->gamma, (epoch - c->warmup) / c->every);
	case SCHEDULE_COSINE:
		if (epoch >= c->total)
			return floor_;
		t = (double)(epoch - c->warmup) / (double)(c->total - c->warmup);
		return floor_ + (1 - floor_) * 0.5 * (1 + cosine(3.14159265358979323846 * t));
	case SCHEDULE_WARMUP_DECAY:
		if (epoch >= c->total)
			return floor_;
		t = (double)(c->total - epoch) / (double)(c->total - c->warmup);
		return floor_ + (1 - floor_) * t;
	default:
		return 1;
	}
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
