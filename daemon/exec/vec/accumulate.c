/* "g! batch loss [stats] -> acc+ unit": adds the mean gradient of a micro-batch to the sum of the epoch, in units of
 * the first micro-batch: equal micro-batches add up without a rounding of their own, and one alone keeps its bits
 * (row C02). A micro-batch whose loss is not finite adds nothing. unit: samples of the unit. A sum whose unit is 0 is
 * nothing yet, whatever lies in its memory: a round that this peer had nothing for, and that failed, leaves such a
 * one. scale: the unit is so many samples, whoever's micro-batch is the first: sums of several peers are alike.
 * Behind the sum stand the running statistics (stats) as they are now, so that nothing of an abandoned micro-batch
 * gets there. */
#include <math.h>
#include <string.h>
#include "kernels/vec.h"
#include "exec/batch.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	const real *g = vec_real(&c->in[0]);
	struct vec_arg *acc = &c->out[0];
	bool blank = acc->blank || !(c->env.unit > 0);
	double n = (double)c->in[1].batch->n, first = c->scale > 0 ? c->scale : n, unit = blank ? first : c->env.unit;
	double factor = n / unit;
	bool bad = !isfinite(*vec_scalar(&c->in[2]));
	const struct vec_arg *stats = c->nin > 3 ? &c->in[3] : NULL;
	size_t tail = stats ? vec_len(stats) : 0, len = vec_len(acc) - tail;

	if (blank && bad)
		vec_fill(c->par, len, 0, vec_real(acc));
	else if (blank && g != vec_real(acc))    /* in place: it is there already */
		vec_copy(c->par, len, g, vec_real(acc));
	else if (!blank && !bad)
		vec_axpy(c->par, len, factor, g, vec_real(acc));
	if (blank && !bad && factor != 1)
		vec_scale(c->par, len, factor, vec_real(acc));
	if (tail)
		memcpy(vec_real(acc) + len, stats->p, stats->bytes);
	*vec_scalar(&c->out[1]) = unit;
	return 0;
}

const struct vec_ops fn_accumulate = { "accumulate", "adds a micro-batch's gradient to the epoch's", 3, 2, run };
