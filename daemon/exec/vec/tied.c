/* "part g -> g": adds to the gradient sum of an epoch, scale times, what another member of the pipeline has summed up
 * of a part of it, in the same units. */
#include "kernels/vec.h"
#include "exec/vec.h"

static int run(struct vec_call *c)
{
	const struct vec_arg *part = &c->in[0];
	struct vec_arg *g = &c->out[0];
	size_t n = (size_t)(part->hi - part->lo);

	if (vec_goes_on(c, 0, 1) < 0)
		return -1;
	if (!part->part || !g->part || part->lo < g->lo || part->hi > g->hi || part->bytes != n * sizeof(real))
		return kerr_set(c->e, "tied: elements %zu to %zu are no part of %zu to %zu", (size_t)part->lo, (size_t)part->hi,
			(size_t)g->lo, (size_t)g->hi);
	vec_axpy(c->par, n, c->scale, vec_real(part), vec_real(g) + (part->lo - g->lo));
	return 0;
}

const struct vec_ops fn_tied = { "tied", "adds another member's part of a gradient", 2, 1, run };
