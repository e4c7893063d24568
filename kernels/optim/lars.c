/* LARS (You, Gitman, Ginsburg 2017, algorithm 1), a rate for each tensor:
 *   rate = lr trust ||p|| / (||g|| + wd ||p||);  v = mu v + rate (g + wd p);  p = p - v
 * Tensors of one dimension, and those with a norm of 0, have rate = lr. */
#include <math.h>
#include "kernels/isa.h"
#include "kernels/optim.h"
#include "kernels/tree.h"

enum { LR, TRUST, MOMENTUM, WEIGHT_DECAY };

struct args { real rate, wd, mu; real *p, *v; const real *w, *g; size_t n, chunk; double *part; };

ISA_BODY norms_body(const void *a, size_t lo, size_t hi)
{
	const struct args *s = a;

	for (size_t c = lo; c < hi; c++) {
		struct tree w = { .top = 0 }, g = { .top = 0 };
		size_t at = c * s->chunk, end = at + s->chunk < s->n ? at + s->chunk : s->n;

		for (; at < end; at += TREE_BLOCK) {
			size_t len = end - at < TREE_BLOCK ? end - at : TREE_BLOCK;

			tree_push(&w, tree_block_dot(s->w + at, s->w + at, len));
			tree_push(&g, tree_block_dot(s->g + at, s->g + at, len));
		}
		s->part[2 * c] = tree_total(&w);
		s->part[2 * c + 1] = tree_total(&g);
	}
}
ISA_KERNEL(norms);

ISA_BODY lars_body(const void *a, size_t lo, size_t hi)
{
	const struct args *s = a;
	real *restrict p = s->p, *restrict v = s->v, rate = s->rate, wd = s->wd, mu = s->mu;
	const real *restrict g = s->g;

	for (size_t i = lo; i < hi; i++) {
		v[i] = mu * v[i] + rate * (g[i] + wd * p[i]);
		p[i] = p[i] - v[i];
	}
}
ISA_KERNEL(lars);

static void measure(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	const real *param, const real *grad, size_t lo, size_t n, size_t chunk, double *part)
{
	struct args s = { .w = param + lo, .g = grad + lo, .n = n, .chunk = chunk, .part = part };

	isa_run(par, &norms, &s, (n + chunk - 1) / chunk, 1, 32);
}

static double ratio(const double *h, const double sum[2])
{
	double w = sqrt(sum[0]), below = sqrt(sum[1]) + h[WEIGHT_DECAY] * w;

	return w > 0 && below > 0 ? h[TRUST] * w / below : 1;
}

static void apply(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	real *param, const real *grad, size_t lo, size_t n, double r)
{
	struct args s = { .rate = (real)(h[LR] * r), .wd = (real)h[WEIGHT_DECAY], .mu = (real)h[MOMENTUM],
		.p = param + lo, .v = state[0] + lo, .g = grad + lo };

	isa_run(par, &lars, &s, n, 1024, 32768);
}

const struct optim_ops optim_lars = {
	.name = "lars", .help = "momentum with a rate for each tensor from its norm (large batches)",
	.nkeys = 4, .nstates = 1, .power_key = { -1, -1 },
	.key = {
		[LR] = { "lr", 1, 0, 1e6, 0, 0, "learning rate" },
		[TRUST] = { "trust", 0.001, 0, 1e6, 0, 0, "how far a tensor moves, as a part of its norm" },
		[MOMENTUM] = { "momentum", 0.9, 0, 1, 1, 0, "momentum factor" },
		[WEIGHT_DECAY] = { "weight_decay", 0, 0, 1e6, 0, 0, "L2 penalty" },
	},
	.state = { "momentum_buffer" }, .measure = measure, .ratio = ratio, .apply = apply, .plain_vectors = 1,
};
