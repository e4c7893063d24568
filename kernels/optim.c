/* The list of optimizers, their hyperparameters and their clock. */
#include "kernels/optim.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/lookup.h"

#define OPTIM(name) extern const struct optim_ops optim_##name;
#include "kernels/optim/list.h"
#undef OPTIM

static const struct optim_ops *const all[] = {
#define OPTIM(name) &optim_##name,
#include "kernels/optim/list.h"
#undef OPTIM
};
LOOKUP(optim);

void optim_defaults(const struct optim_ops *o, double *ret_hyper)
{
	for (int i = 0; i < o->nkeys; i++)
		ret_hyper[i] = o->key[i].def;
}

int optim_key_index(const struct optim_ops *o, const char *key)
{
	for (int i = 0; i < o->nkeys; i++)
		if (!strcmp(o->key[i].name, key))
			return i;
	return -1;
}

static int unknown_key(const struct optim_ops *o, const char *key, struct kerr *e)
{
	char names[160];
	size_t at = 0;

	for (int i = 0; i < o->nkeys && at < sizeof names; i++)
		at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? " " : "", o->key[i].name);
	return kerr_set(e, "optimizer %s has no '%.40s'; it has: %s", o->name, key, names);
}

int optim_set(const struct optim_ops *o, double *hyper, const char *key, double value, struct kerr *e)
{
	int i = optim_key_index(o, key);
	const struct optim_key *k;

	if (i < 0)
		return unknown_key(o, key, e);
	k = &o->key[i];
	if (!isfinite(value) || value < k->min || value > k->max || (k->open_max && value >= k->max) ||
	    (k->flag && value != 0 && value != 1))
		return k->flag ? kerr_set(e, "optimizer %s: %s is a flag, 0 or 1, not %g", o->name, key, value) :
			kerr_set(e, "optimizer %s: %s = %g is outside %g %s %s %s %g", o->name, key, value, k->min,
			"<=", key, k->open_max ? "<" : "<=", k->max);
	hyper[i] = value;
	return 0;
}

int optim_check(const struct optim_ops *o, const double *hyper, struct kerr *e)
{
	int nesterov = optim_key_index(o, "nesterov"), momentum = optim_key_index(o, "momentum");
	int dampening = optim_key_index(o, "dampening");

	if (nesterov >= 0 && hyper[nesterov] != 0 && (hyper[momentum] <= 0 || hyper[dampening] != 0))
		return kerr_set(e, "optimizer %s: nesterov needs momentum > 0 and dampening = 0, not momentum = %g and "
			"dampening = %g", o->name, hyper[momentum], hyper[dampening]);
	return 0;
}

int optim_uses_state(const struct optim_ops *o, const double *hyper, int i)
{
	assert(i >= 0 && i < o->nstates);
	return o->uses_state ? o->uses_state(hyper, i) : 1;
}

void optim_clock_init(struct optim_clock *c)
{
	*c = (struct optim_clock){ .step = 0, .power = { 1, 1 } };
}

void optim_tick(const struct optim_ops *o, const double *hyper, struct optim_clock *c)
{
	c->step++;
	for (int i = 0; i < 2; i++)
		if (o->power_key[i] >= 0)
			c->power[i] *= hyper[o->power_key[i]];
}
