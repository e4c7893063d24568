/* "mean anchor momentum -> anchor momentum w skipped": DiLoCo's outer step (arXiv 2311.08105, algorithm 1), then
 * everybody goes on from the anchor. A mean that is not finite moves nothing but w, back to the anchor. Running
 * statistics, which peers gave as they are, take no step: they are the mean. */
#include <string.h>
#include "exec/vec/outer.h"

static int run(struct vec_call *c)
{
	const real *d = vec_real(&c->in[0]);
	real *anchor = vec_real(&c->out[0]), *m = vec_real(&c->out[1]);
	size_t n = vec_len(&c->out[0]), params = vec_params(c, &c->out[0]), bad;

	if (c->in[0].bytes != c->out[0].bytes || c->out[1].bytes != c->out[0].bytes || c->out[2].bytes != c->out[0].bytes)
		return kerr_set(c->e, "outer works on whole vectors: %zu bytes of a mean, and the anchor has %zu",
			c->in[0].bytes, c->out[0].bytes);
	if (vec_goes_on(c, 0, 1) < 0 || vec_goes_on(c, 1, 2) < 0)
		return -1;
	bad = vec_nonfinite(c->par, n, d);
	*vec_scalar(&c->out[3]) = bad < n ? 1 + (double)bad : 0;
	if (bad == n) {
		outer_step(c, params, d, anchor, m);
		memcpy(anchor + params, d + params, (n - params) * sizeof(*anchor));
	}
	vec_copy(c->par, n, anchor, vec_real(&c->out[2]));
	return 0;
}

const struct vec_ops fn_outer = { "outer", "DiLoCo's outer step: Nesterov on the mean of what peers moved", 3, 4, run };
