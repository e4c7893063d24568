/* Checkpoints that others read: kept for them a while (saved.h). */
#include "run/saved.h"

struct saved_lease *lends_lease(struct lends *d, const struct saved_ask *is)
{
	uint64_t now = env_now(d->rs->ctx.env);
	struct saved_lease *free_one = NULL;
	for (size_t i = 0; i < LEASES; i++) {
		struct saved_lease *x = &d->lease[i];
		if (x->until_us > now && x->epoch == is->epoch && id_eq(&x->run, &is->run))
			return x;
		if (x->until_us <= now && !free_one)
			free_one = x;
	}
	if (free_one)
		*free_one = (struct saved_lease){ .run = is->run, .epoch = is->epoch };
	return free_one;
}

uint64_t lends_epoch(const struct lends *d, const struct id *run)
{
	for (size_t i = 0; i < LEASES; i++)
		if (d->lease[i].until_us > env_now(d->rs->ctx.env) && id_eq(&d->lease[i].run, run))
			return d->lease[i].epoch;
	return 0;
}
