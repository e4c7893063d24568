/* "x -> y", "x -> y n": a copy; n: samples of this epoch that stand behind it. */
#include "kernels/vec.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	if (c->in[0].bytes != c->out[0].bytes)
		return kerr_set(c->e, "copy: %zu bytes into %zu", c->in[0].bytes, c->out[0].bytes);
	vec_copy(c->par, vec_len(&c->out[0]), vec_real(&c->in[0]), vec_real(&c->out[0]));
	if (c->nout > 1)
		*vec_scalar(&c->out[1]) = (double)c->env.samples;
	return 0;
}

const struct vec_ops fn_copy = { "copy", "a copy", 1, 1, run };
