/* "w -> digest": XXH3-128 of a vector's bytes, by which peers see that they are equal. */
#include "common/hash.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	if (c->out[0].bytes < 16)
		return kerr_set(c->e, "a digest has 16 bytes");
	xxh128_of(c->in[0].p, c->in[0].bytes, c->out[0].p);
	return 0;
}

const struct vec_ops fn_digest = { "digest", "XXH3-128 of a vector", 1, 1, run };
