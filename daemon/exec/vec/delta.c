/* "mean sent w -> w": the delta rule (hivemind's, E9): w = mean + (w - sent), so that what was learned since `sent` was
 * taken is kept. With nothing learned since it is the mean, to the bit. A mean that is not finite changes nothing.
 * Running statistics are the mean: a variance that moved by what another has lost could become negative. */
#include <string.h>
#include "kernels/vec.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	const real *mean = vec_real(&c->in[0]), *sent = vec_real(&c->in[1]);
	real *w = vec_real(&c->out[0]);
	size_t n = vec_len(&c->out[0]), params = vec_params(c, &c->out[0]);

	if (c->in[0].bytes != c->out[0].bytes || c->in[1].bytes != c->out[0].bytes)
		return kerr_set(c->e, "delta: %zu and %zu bytes into %zu", c->in[0].bytes, c->in[1].bytes, c->out[0].bytes);
	if (vec_goes_on(c, 0, 2) < 0)
		return -1;
	if (vec_nonfinite(c->par, n, mean) < n)
		return 0;
	vec_sub(c->par, params, w, sent, w);
	vec_axpy(c->par, params, 1, mean, w);
	memcpy(w + params, mean + params, (n - params) * sizeof(*w));
	return 0;
}

const struct vec_ops fn_delta = { "delta", "mean + (w - sent)", 3, 1, run };
