/* Who holds a stage. Its members in all pipelines do; where these are too few, stages keep for each other in windows of
 * as many neighbours as a pipeline must have copies: 0 and 1, 2 and 3 ..., and those left over at the end go with the
 * ones before them. With one pipeline that is so many times the state of the model in all, exactly. */
#include "train/strategy/parts/keep.h"

/* The first of the stages whose members hold stage t; pipe.copies of them do. */
static uint32_t window(const struct pipe *x, uint32_t t)
{
	uint32_t at = t / x->copies * x->copies, last = x->n - x->copies;

	return at < last ? at : last;
}

static bool has_state(const struct pipe *x, uint32_t t)
{
	return !x->cut || stage_learns(x, t);
}

static bool needs_others(const struct pipe *x, uint32_t t)
{
	return x->stage[t].replicas < x->copies && (has_state(x, t) || (t == 0 && x->tied));
}

/* A member's stages are those in whose windows it is, its own, and all between: what it holds of the model has no
 * holes. */
void keep_find(struct pipe *x)
{
	for (uint32_t s = 0; s < x->n; s++)
		x->keep[s] = (struct plan_range){ s, s };
	for (uint32_t t = 0; x->n >= x->copies && t < x->n; t++)
		for (uint32_t k = 0; needs_others(x, t) && k < x->copies; k++) {
			struct plan_range *r = &x->keep[window(x, t) + k];

			r->a = t < r->a ? t : r->a;
			r->b = t > r->b ? t : r->b;
		}
}

int keep_enough(const struct pipe *x, struct err *e)
{
	for (uint32_t t = 0; x->n < x->copies && t < x->n; t++)
		if (needs_others(x, t))
			return err_set(e, ERR_INVALID, "redundancy %u needs %u members that hold each stage, and stage %u of %u "
				"has %u: more stages or replicas", x->copies, x->copies, t, x->n, x->stage[t].replicas);
	return 0;
}

bool keeps(const struct pipe *x, uint32_t s, uint32_t t)
{
	if (t == STAGE_TIED)
		return x->tied && (s == 0 || s + 1 == x->n || x->keep[s].a == 0);
	return t != s && t >= x->keep[s].a && t <= x->keep[s].b && has_state(x, t);
}

uint32_t keep_list(const struct pipe *x, uint32_t s, uint32_t *ret)
{
	uint32_t n = 0;

	for (uint32_t t = 0; t < x->n; t++)
		if (keeps(x, s, t))
			ret[n++] = t;
	if (keeps(x, s, STAGE_TIED))
		ret[n++] = STAGE_TIED;
	return n;
}
