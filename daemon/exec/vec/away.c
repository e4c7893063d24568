/* "anchor w -> sent", "anchor w -> sent n": how far this peer has gone since the last round, as a gradient: anchor - w.
 * Where a round is for a part of the parameters it is that part, and zeros behind it up to the length of sent. Running
 * statistics stand behind it as they are. n: samples of this epoch that stand behind it. */
#include <string.h>
#include "kernels/vec.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	size_t lo = c->env.part_lo, n = c->env.part_n, len = vec_params(c, &c->out[0]);
	size_t params = vec_params(c, &c->in[1]), tail = vec_len(&c->in[1]) - params;
	real *sent = vec_real(&c->out[0]);

	if (c->in[0].bytes != c->in[1].bytes || params < lo + n || len < n)
		return kerr_set(c->e, "away: elements %zu to %zu of %zu and %zu bytes into %zu", lo, lo + n, c->in[0].bytes,
			c->in[1].bytes, c->out[0].bytes);
	vec_sub(c->par, n, vec_real(&c->in[0]) + lo, vec_real(&c->in[1]) + lo, sent);
	memset(sent + n, 0, (len - n) * sizeof(*sent));
	memcpy(sent + len, vec_real(&c->in[1]) + params, tail * sizeof(*sent));
	if (c->nout > 1)
		*vec_scalar(&c->out[1]) = (double)c->env.samples;
	return 0;
}

const struct vec_ops fn_away = { "away", "anchor - w, the outer gradient", 2, 1, run };
