/* "loss correct batch -> sums+": what an evaluation comes to: losses, right answers and samples, each summed up. */
#include "exec/batch.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	double *to = c->out[0].p;
	const struct batch *b = c->in[2].batch;
	const double one[TALLY] = { *vec_scalar(&c->in[0]), *vec_scalar(&c->in[1]), b ? b->n : 0 };

	if (c->out[0].bytes < sizeof(one))
		return kerr_set(c->e, "tally: %zu bytes for %zu", c->out[0].bytes, sizeof(one));
	for (int k = 0; k < TALLY; k++)
		to[k] = one[k] + (c->out[0].blank ? 0 : to[k]);
	return 0;
}

const struct vec_ops fn_tally = { "tally", "losses, right answers and samples of an evaluation", 3, 1, run };
