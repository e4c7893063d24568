/* "g batch loss [stats] [acc] -> g": of one part of a micro-batch's gradient what this peer gives to the round: that,
 * or, behind other micro-batches, the mean of all with their sum acc, rounded as "accumulate" and "mean" round it. acc
 * stays as it is: of a round that comes to nothing nothing is in it. A loss that is not finite adds nothing. The part
 * with which the parameters end has the running statistics behind it, as they are now. The samples of this micro-batch
 * count already. */
#include <math.h>
#include <string.h>
#include "kernels/vec.h"
#include "exec/batch.h"
#include "exec/vec.h"

static void add_up(const struct vec_call *c, size_t n, bool bad, const real *acc, real *g)
{
	double unit = c->env.unit, all = (double)c->env.samples;

	if (bad) {
		vec_copy(c->par, n, acc, g);
	} else {
		vec_scale(c->par, n, (double)c->in[1].batch->n / unit, g);
		vec_axpy(c->par, n, 1, acc, g);
	}
	if (unit != all)
		vec_scale(c->par, n, unit / all, g);
}

static int run(struct vec_call *c)
{
	const struct vec_arg *stats = NULL, *acc = NULL;
	struct vec_arg *g = &c->out[0];
	bool bad = !isfinite(*vec_scalar(&c->in[2]));
	size_t n = vec_params(c, g), tail = vec_len(g) - n;

	for (uint32_t k = 3; k < c->nin; k++)
		if (c->in[k].class == PLAN_WEIGHT)
			stats = &c->in[k];
		else
			acc = &c->in[k];
	if (c->in[0].p != g->p || (tail && (!stats || vec_len(stats) != tail)))
		return kerr_set(c->e, "bucket works in place, and %zu running statistics come from where there are %zu", tail,
			stats ? vec_len(stats) : 0);
	if (acc)
		add_up(c, n, bad, vec_real(acc) + g->lo, vec_real(g));
	else if (bad)
		vec_fill(c->par, n, 0, vec_real(g));
	if (tail)
		memcpy(vec_real(g) + n, stats->p, stats->bytes);
	return 0;
}

const struct vec_ops fn_bucket = { "bucket", "a part of the gradient as it is given to a round", 3, 1, run };
