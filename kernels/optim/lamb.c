/* LAMB (You et al. 2019, algorithm 2, phi the identity), Adam with a rate for each tensor:
 *   m, v as in Adam;  r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + wd p;  p = p - lr (||p|| / ||r||) r
 * A tensor with a norm of 0 takes the step r itself. r is computed twice instead of kept: the same bits, no memory. */
#include <math.h>
#include "kernels/isa.h"
#include "kernels/optim/adam_step.h"
#include "kernels/tree.h"

struct args { real b1, b2, c2, wd, mean, root, eps, rate; real *p, *m, *v; const real *w, *g;
	size_t n, chunk; double *part; };

static inline __attribute__((always_inline)) real wanted(const struct args *s, real m, real v, real w)
{
#ifdef REAL_DOUBLE
	return (m * s->mean) / (__builtin_sqrt(v) / s->root + s->eps) + s->wd * w;
#else
	return (m * s->mean) / (__builtin_sqrtf(v) / s->root + s->eps) + s->wd * w;
#endif
}

/* One block: the moments, and the sum of squares of r. */
static inline __attribute__((always_inline)) double block(const struct args *args, size_t at, size_t n)
{
	const struct args s = *args;
	real r[TREE_BLOCK], *restrict m = s.m + at, *restrict v = s.v + at;
	const real *restrict g = s.g + at, *restrict w = s.w + at;

	for (size_t i = 0; i < n; i++) {
		m[i] = m[i] + s.b1 * (g[i] - m[i]);
		v[i] = optim_square(v[i]) * s.b2 + (s.c2 * g[i]) * g[i];
		r[i] = wanted(&s, m[i], v[i], w[i]);
	}
	return tree_block_dot(r, r, n);
}

ISA_BODY moments_body(const void *a, size_t lo, size_t hi)
{
	const struct args *s = a;

	for (size_t c = lo; c < hi; c++) {
		struct tree w = { .top = 0 }, r = { .top = 0 };
		size_t at = c * s->chunk, end = at + s->chunk < s->n ? at + s->chunk : s->n;

		for (; at < end; at += TREE_BLOCK) {
			size_t len = end - at < TREE_BLOCK ? end - at : TREE_BLOCK;

			tree_push(&w, tree_block_dot(s->w + at, s->w + at, len));
			tree_push(&r, block(s, at, len));
		}
		s->part[2 * c] = tree_total(&w);
		s->part[2 * c + 1] = tree_total(&r);
	}
}
ISA_KERNEL(moments);

ISA_BODY lamb_body(const void *a, size_t lo, size_t hi)
{
	const struct args s = *(const struct args *)a;
	real *restrict p = s.p;
	const real *restrict m = s.m, *restrict v = s.v;

	for (size_t i = lo; i < hi; i++)
		p[i] = p[i] - s.rate * wanted(&s, m[i], v[i], p[i]);
}
ISA_KERNEL(lamb);

static struct args args_of(const double *h, const struct optim_clock *clock, real *const *state, size_t lo)
{
	return (struct args){ .b1 = (real)(1 - h[ADAM_BETA1]), .b2 = (real)h[ADAM_BETA2], .c2 = (real)(1 - h[ADAM_BETA2]),
		.wd = (real)h[ADAM_WEIGHT_DECAY], .mean = (real)(1 / (1 - clock->power[0])),
		.root = (real)sqrt(1 - clock->power[1]), .eps = (real)h[ADAM_EPS], .m = state[0] + lo, .v = state[1] + lo };
}

static void measure(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	const real *param, const real *grad, size_t lo, size_t n, size_t chunk, double *part)
{
	struct args s = args_of(h, clock, state, lo);

	s.w = param + lo;
	s.g = grad + lo;
	s.n = n;
	s.chunk = chunk;
	s.part = part;
	isa_run(par, &moments, &s, (n + chunk - 1) / chunk, 1, 32);
}

static double ratio(const double *h, const double sum[2])
{
	return sum[0] > 0 && sum[1] > 0 ? sqrt(sum[0]) / sqrt(sum[1]) : 1;
}

static void apply(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	real *param, const real *grad, size_t lo, size_t n, double r)
{
	struct args s = args_of(h, clock, state, lo);

	s.p = param + lo;
	s.rate = (real)(h[ADAM_LR] * r);
	isa_run(par, &lamb, &s, n, 1024, 32768);
}

const struct optim_ops optim_lamb = {
	.name = "lamb", .help = "Adam with a rate for each tensor from its norm (large batches)",
	.nkeys = ADAM_KEYS, .nstates = 2, .power_key = { ADAM_BETA1, ADAM_BETA2 },
	.key = { ADAM_KEY_ROWS(1e-6, 0.01, "decay of the parameters, inside the step") },
	.state = { "exp_avg", "exp_avg_sq" }, .measure = measure, .ratio = ratio, .apply = apply,
};
