/* "anchor w -> sent": how far this peer has gone since the last round, as a gradient: anchor - w. */
#include "kernels/vec.h"
#include "train/vec.h"

static int run(struct vec_call *c)
{
	if (c->in[0].bytes != c->out[0].bytes || c->in[1].bytes != c->out[0].bytes)
		return kerr_set(c->e, "away: %zu and %zu bytes into %zu", c->in[0].bytes, c->in[1].bytes, c->out[0].bytes);
	vec_sub(c->par, vec_len(&c->out[0]), vec_real(&c->in[0]), vec_real(&c->in[1]), vec_real(&c->out[0]));
	return 0;
}

const struct vec_ops fn_away = { "away", "anchor - w, the outer gradient", 2, 1, run };
