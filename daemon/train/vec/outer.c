/* "mean anchor momentum -> anchor momentum w skipped": DiLoCo's outer step (arXiv 2311.08105, algorithm 1), Nesterov's
 * momentum in PyTorch's form: m = mu m + d, anchor = anchor - lr (d + mu m); everybody goes on from the anchor. Vector
 * kernels only, so it is bit-exact on every CPU. A mean that is not finite moves nothing but w, back to the anchor. */
#include "kernels/vec.h"
#include "plan/planner.h"
#include "train/vec.h"

static int run(struct vec_call *c)
{
	const real *d = vec_real(&c->in[0]);
	real *anchor = vec_real(&c->out[0]), *m = vec_real(&c->out[1]);
	double lr = plan_result(&c->env.settings, "outer_lr", 0), mu = plan_result(&c->env.settings, "outer_momentum", 0);
	size_t n = vec_len(&c->out[0]), bad;

	if (c->in[0].bytes != c->out[0].bytes || c->out[1].bytes != c->out[0].bytes || c->out[2].bytes != c->out[0].bytes)
		return kerr_set(c->e, "outer works on whole vectors: %zu bytes of a mean, and the anchor has %zu",
			c->in[0].bytes, c->out[0].bytes);
	bad = vec_nonfinite(c->par, n, d);
	*vec_scalar(&c->out[3]) = bad < n ? 1 + (double)bad : 0;
	if (bad == n) {
		vec_scale(c->par, n, mu, m);
		vec_axpy(c->par, n, 1, d, m);
		vec_axpy(c->par, n, -lr, d, anchor);
		vec_axpy(c->par, n, -lr * mu, m, anchor);
	}
	vec_copy(c->par, n, anchor, vec_real(&c->out[2]));
	return 0;
}

const struct vec_ops fn_outer = { "outer", "DiLoCo's outer step: Nesterov on the mean of what peers moved", 3, 4, run };
