/* "y! batch -> dy loss correct [loss_scale]": the loss of a micro-batch as a sum over its samples, right answers, and
 * the gradient of the mean (without dy: evaluation). correct is negative for losses without that notion. loss_scale:
 * the gradient is so many times as large (kernels/scale.h). */
#include "kernels/layer.h"
#include "exec/batch.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	struct vec_arg *dy = vec_arg_of(c->out, c->nout, PLAN_ACTIVATION_GRAD);
	const struct batch *b = c->in[1].batch;
	struct loss plain = loss_plain(c->env.loss, &c->env.model->out);
	double right = 0, scale;
	uint32_t k = dy ? 1 : 0;

	if (c->nout < k + 2)
		return kerr_set(c->e, "loss needs outputs for the loss and for right answers");
	scale = c->nout > k + 2 ? c->env.loss_scale : 1;
	*vec_scalar(&c->out[k]) = loss_sum(c->par, c->env.objective ? c->env.objective : &plain, b->n, vec_real(&c->in[0]),
		b->y, scale / b->n, dy ? vec_real(dy) : NULL, &right);
	*vec_scalar(&c->out[k + 1]) = c->env.counts ? right : -1;
	if (c->nout > k + 2)
		*vec_scalar(&c->out[k + 2]) = scale;
	return 0;
}

const struct vec_ops fn_loss = { "loss", "loss, right answers and the gradient of the output", 2, 2, run };
