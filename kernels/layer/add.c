/* The sum of two to eight inputs of one shape: residual branches. The gradient of each is that of the sum, so backward
 * moves no number: the executor hands it on. */
#include "kernels/isa.h"
#include "kernels/layer.h"

struct args { const real *a, *b; real *to; };

ISA_BODY sum_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *a = s->a, *b = s->b;
	real *y = s->to;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = a[i] + b[i];
}
ISA_KERNEL(sum);

static int shape(struct layer *l, struct kerr *e)
{
	char a[64], b[64];

	l->out = l->in;
	for (int k = 1; k < l->nin; k++) {
		const struct shape *s = &l->ins[k];
		bool same = s->nd == l->in.nd;

		for (int i = 0; same && i < s->nd; i++)
			same = s->d[i] == l->in.d[i];
		if (!same)
			return kerr_set(e, "add: input %d has shape %s and input 0 has %s", k, shape_text(s, b, sizeof b),
				shape_text(&l->in, a, sizeof a));
	}
	return 0;
}

static void forward(const struct par *par, const struct layer_call *c)
{
	for (int k = 1; k < c->l->nin; k++)
		isa_run(par, &sum, &(struct args){ k > 1 ? c->y : c->xs[0], c->xs[k], c->y },
			c->batch * shape_count(&c->l->out), 1024, 32768);
}

static uint64_t other(const struct layer *l)
{
	return (uint64_t)shape_count(&l->out) * (uint64_t)(l->nin - 1);
}

const struct layer_ops layer_add = {
	.name = "add", .help = "sum of inputs of one shape", .inputs_min = 2, .inputs_max = LAYER_INPUTS_MAX,
	.in_place = true, .spread = true, .fuse = FUSE_PLUS, .other = other, .shape = shape, .forward = forward,
};
