/* "x y -> scalar": the inner product, in double. */
#include "kernels/vec.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	if (c->in[0].bytes != c->in[1].bytes)
		return kerr_set(c->e, "dot: %zu bytes and %zu", c->in[0].bytes, c->in[1].bytes);
	*vec_scalar(&c->out[0]) = vec_dot(c->par, vec_len(&c->in[0]), vec_real(&c->in[0]), vec_real(&c->in[1]));
	return 0;
}

const struct vec_ops fn_dot = { "dot", "the inner product", 2, 1, run };
