/* "acc -> acc unit": turns the sum of the epoch into this peer's mean. It stays a sum in units of all samples so
 * far, so that a round that fails can go on from here. "acc! -> sent parcel": the same as a copy, for a round that goes
 * on beside the next epoch's micro-batches. scale: it is the mean of so many peers' sums, and the sum over them is
 * meant. The running statistics behind it are as they are. */
#include "kernels/vec.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	double n = (double)c->env.samples, unit = c->scale > 0 ? c->env.unit * c->scale : c->env.unit;

	if (c->in[0].p != c->out[0].p)
		vec_copy(c->par, vec_len(&c->out[0]), vec_real(&c->in[0]), vec_real(&c->out[0]));
	if (unit != n)
		vec_scale(c->par, vec_params(c, &c->out[0]), unit / n, vec_real(&c->out[0]));
	*vec_scalar(&c->out[1]) = n;
	return 0;
}

const struct vec_ops fn_mean = { "mean", "the epoch's gradient sum as a mean over samples", 1, 2, run };
