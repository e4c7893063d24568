/* What follows in `model export`: its next step, or its end, or another try; and which elements a checkpoint has. */
#include "run/export.h"

#define TRIES 4

void export_soon(struct export *x)
{
	env_after(x->rs->ctx.env, &x->timer, 0);
}

static void leave(struct export *x, const struct err *e, bool again)
{
	x->fail = *e;
	x->again = again && ++x->tries < TRIES;
	x->step = EXPORT_DROPS;
	export_soon(x);
}

void export_fail(struct export *x, const struct err *e) { leave(x, e, false); }

void export_again(struct export *x, const struct err *e) { leave(x, e, true); }

uint64_t export_reach(const struct saved_epoch *s, uint64_t at, uint64_t *ret_next)
{
	uint64_t to = at;
	for (uint32_t k = 0; k < s->n; k++) {
		struct extent h = s->held[k];
		if (h.lo <= at && at < h.hi && h.hi > to)
			to = h.hi;
		if (h.lo > at && h.lo < h.hi && h.lo < *ret_next)
			*ret_next = h.lo;
	}
	return to;
}

bool export_covers(const struct saved_epoch *s, struct extent x)
{
	uint64_t none = x.hi;
	return export_reach(s, x.lo, &none) >= x.hi;
}

/* A checkpoint is on the disk. */
void export_saved(struct reply *r, json_t *result, const struct err *e)
{
	struct export *x = container_of(r, struct export, saves);
	json_decref(result);
	if (e)
		export_fail(x, e);
	else
		export_soon(x);
}
