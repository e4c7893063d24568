/* "x -> y": a copy. */
#include "kernels/vec.h"
#include "train/vec.h"

static int run(struct vec_call *c)
{
	if (c->in[0].bytes != c->out[0].bytes)
		return kerr_set(c->e, "copy: %zu bytes into %zu", c->in[0].bytes, c->out[0].bytes);
	vec_copy(c->par, vec_len(&c->out[0]), vec_real(&c->in[0]), vec_real(&c->out[0]));
	return 0;
}

const struct vec_ops fn_copy = { "copy", "a copy", 1, 1, run };
