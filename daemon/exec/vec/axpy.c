/* "x y -> y": y = y + scale * x, in place; a blank output starts as a copy of input y, or zero without one. Of an x
 * that has not come nothing is added. */
#include "kernels/vec.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	struct vec_arg *y = &c->out[0];

	if (c->nin > 1 && c->in[1].p != y->p)
		vec_copy(c->par, vec_len(y), vec_real(&c->in[1]), vec_real(y));
	else if (c->nin == 1 && (y->blank || !y->add))
		vec_fill(c->par, vec_len(y), 0, vec_real(y));
	if (c->in[0].p)
		vec_axpy(c->par, vec_len(y), c->scale, vec_real(&c->in[0]), vec_real(y));
	return 0;
}

const struct vec_ops fn_axpy = { "axpy", "y + scale * x", 1, 1, run, 1 };
