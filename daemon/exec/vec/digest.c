/* "w -> digest": of a vector, by which peers see that they are equal (state/digest.h). */
#include "exec/vec.h"
#include "state/digest.h"

static int run(struct vec_call *c)
{
	if (c->out[0].bytes < STATE_DIGEST)
		return kerr_set(c->e, "a digest has %d bytes", STATE_DIGEST);
	digest_of(c->in[0].p, vec_len(&c->in[0]), sizeof(real), c->out[0].p);
	return 0;
}

const struct vec_ops fn_digest = { "digest", "tree of XXH3-128 over a vector", 1, 1, run };
