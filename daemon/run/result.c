/* What a validation has come to: shown, kept, and, of runs that end with an accuracy, perhaps the best. */
#include <math.h>
#include "run/int.h"

void run_take_result(struct run *r, const struct trainer_validated *v)
{
	r->val_took_us = v->took_us;
	r->val_done_us = env_now(r->rs->ctx.env);
	r->val_at = v->epoch;
	r->val_loss = v->loss;
	r->val_accuracy = v->accuracy;
	if (!isnan(v->accuracy) && !(r->best_accuracy >= v->accuracy))
		r->best_accuracy = v->accuracy;
	if (r->rs->ctx.store)
		store_epoch_validated(r->rs->ctx.store, r->hex, v->epoch, v->loss, v->accuracy);
}
