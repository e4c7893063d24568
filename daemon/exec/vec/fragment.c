/* "mean anchor momentum w -> anchor momentum w skipped": streaming DiLoCo's outer step on one fragment (arXiv
 * 2501.18512, algorithm 2) on elements [part_lo, part_lo + part_n) of the vectors.
 * Where steps went on beside the round (overlap), w = mix w + (1 - mix) anchor, else w = anchor. A mean that is not
 * finite moves neither anchor nor momentum. Running statistics, all of them behind every fragment, become the mean. */
#include <string.h>
#include "exec/vec/outer.h"

static int run(struct vec_call *c)
{
	const struct plan_results *s = &c->env.settings;
	size_t lo = c->env.part_lo, n = c->env.part_n, len = vec_len(&c->in[0]), at = vec_params(c, &c->in[0]), bad;
	size_t params = vec_params(c, &c->out[0]), tail = len - at;
	double mix = plan_result(s, "overlap", 0) > 0 ? plan_result(s, "mix", 0) : 0;
	const real *d = vec_real(&c->in[0]);
	real *anchor = vec_real(&c->out[0]) + lo, *m = vec_real(&c->out[1]) + lo, *w = vec_real(&c->out[2]) + lo;

	if (at < n || params < lo + n || c->out[1].bytes != c->out[0].bytes ||
	    c->out[2].bytes != c->out[0].bytes)
		return kerr_set(c->e, "fragment: elements %zu to %zu of %zu, with %zu of a mean", lo, lo + n,
			vec_len(&c->out[0]), vec_len(&c->in[0]));
	for (uint32_t k = 0; k < 3; k++)
		if (vec_goes_on(c, k, k + 1) < 0)
			return -1;
	bad = vec_nonfinite(c->par, len, d);
	*vec_scalar(&c->out[3]) = bad < len ? 1 + (double)(lo + bad) : 0;
	if (bad == len) {
		outer_step(c, n, d, anchor, m);
		memcpy(vec_real(&c->out[0]) + params, d + at, tail * sizeof(*d));
		memcpy(vec_real(&c->out[2]) + params, d + at, tail * sizeof(*d));
	}
	if (mix > 0) {
		vec_scale(c->par, n, mix, w);
		vec_axpy(c->par, n, 1 - mix, anchor, w);
	} else {
		vec_copy(c->par, n, anchor, w);
	}
	return 0;
}

const struct vec_ops fn_fragment = { "fragment", "streaming DiLoCo's outer step on one fragment", 4, 4, run };
