/* "x -> y": the last elements of x, as many as y has: the running statistics behind a vector of weights. */
#include <string.h>
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	if (c->in[0].bytes < c->out[0].bytes)
		return kerr_set(c->e, "tail: %zu bytes of %zu", c->out[0].bytes, c->in[0].bytes);
	memcpy(c->out[0].p, (char *)c->in[0].p + c->in[0].bytes - c->out[0].bytes, c->out[0].bytes);
	return 0;
}

const struct vec_ops fn_tail = { "tail", "the last elements of a vector", 1, 1, run };
