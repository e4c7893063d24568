/* "g! batch loss [stats] [loss_scale] [h!] -> acc+ unit [sum+]": adds a micro-batch's mean gradient to the epoch's sum,
 * in units of the first one: equal micro-batches add up without a rounding of their own, and one alone keeps its bits
 * (row C02). One whose loss is not finite adds nothing. unit: samples of the unit. A sum whose unit is 0 is nothing
 * yet, whatever lies there: a round that this peer had nothing for, and that failed, leaves such a one. scale: the unit
 * is so many samples, whoever's is the first: sums of several peers are alike. Behind the sum stand the running
 * statistics (stats) as they are now: nothing of an abandoned micro-batch gets there. h, sum: the same of parameters
 * that lie apart. loss_scale: g is divided by it, and what is not finite in g makes the sum infinite, which all members
 * of the round find in its mean (VEC opt). */
#include <math.h>
#include <string.h>
#include "common/planted.h"
#include "kernels/vec.h"
#include "exec/batch.h"
#include "exec/vec.h"

struct adding { double unit, factor; bool nothing /* there is no sum yet */, bad, over /* g is not finite */; };

static void add(struct vec_call *c, const struct adding *how, const real *g, struct vec_arg *acc,
	const struct vec_arg *stats)
{
	size_t tail = stats ? vec_len(stats) : 0, len = vec_len(acc) - tail;
	bool blank = acc->blank || how->nothing;

	if (how->over)
		vec_fill(c->par, len, PLANTED(OVERFLOW_DROPPED) ? 0 : INFINITY, vec_real(acc));
	else if (blank && how->bad)
		vec_fill(c->par, len, 0, vec_real(acc));
	else if (blank && g != vec_real(acc))    /* in place: it is there already */
		vec_copy(c->par, len, g, vec_real(acc));
	else if (!blank && !how->bad)
		vec_axpy(c->par, len, how->factor, g, vec_real(acc));
	if (blank && !how->bad && !how->over && how->factor != 1)
		vec_scale(c->par, len, how->factor, vec_real(acc));
	if (tail)
		memcpy(vec_real(acc) + len, stats->p, stats->bytes);
}

static int run(struct vec_call *c)
{
	struct vec_arg *acc = &c->out[0], *apart = c->nout > 2 ? &c->in[c->nin - 1] : NULL;
	double n = (double)c->in[1].batch->n, first = c->scale > 0 ? c->scale : n;
	struct adding how = { .nothing = !(c->env.unit > 0), .bad = !isfinite(*vec_scalar(&c->in[2])) };
	const struct vec_arg *stats = c->nin > 3 && c->in[3].class == PLAN_WEIGHT ? &c->in[3] : NULL;
	double scale = vec_scale_of(c->in, c->nin, 3);

	how.unit = acc->blank || how.nothing ? first : c->env.unit;
	how.factor = n / how.unit;
	if (scale > 0) {
		how.factor /= scale;
		how.over = !how.bad && vec_nonfinite(c->par, vec_len(&c->in[0]), vec_real(&c->in[0])) < vec_len(&c->in[0]);
	}
	if (apart && (apart->bytes != c->out[2].bytes || apart->class != PLAN_WEIGHT_GRAD))
		return kerr_set(c->e, "accumulate: what lies apart has %zu bytes, and its sum %zu", apart->bytes,
			c->out[2].bytes);
	add(c, &how, vec_real(&c->in[0]), acc, stats);
	if (apart)
		add(c, &how, vec_real(apart), &c->out[2], NULL);
	*vec_scalar(&c->out[1]) = how.unit;
	return 0;
}

const struct vec_ops fn_accumulate = { "accumulate", "adds a micro-batch's gradient to the epoch's", 3, 2, run };
