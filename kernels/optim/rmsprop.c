/* RMSProp (torch.optim.RMSprop):
 *   g = g + wd p;  v = alpha v + ((1 - alpha) g) g;  centered: a = a + (1 - alpha)(g - a)
 *   d = sqrt(v) or sqrt(v - a a), + eps;  p = p - lr g / d, or b = mu b + g / d; p = p - lr b */
#include "kernels/isa.h"
#include "kernels/optim.h"

enum { LR, ALPHA, EPS, WEIGHT_DECAY, MOMENTUM, CENTERED };

struct args { real lr, alpha, rest, eps, wd, mu; real *p, *v, *b, *a; const real *g; };

static inline __attribute__((always_inline)) real root(real x)
{
#ifdef REAL_DOUBLE
	return __builtin_sqrt(x);
#else
	return __builtin_sqrtf(x);
#endif
}

/* heavy and centered are constants at each call: four loops. */
static inline __attribute__((always_inline)) void loop(const struct args *s, size_t lo, size_t hi, int heavy,
	int centered)
{
	real *restrict p = s->p, *restrict v = s->v, *restrict b = s->b, *restrict a = s->a;
	const real *restrict g = s->g;
	real lr = s->lr, alpha = s->alpha, rest = s->rest, eps = s->eps, wd = s->wd, mu = s->mu;

	for (size_t i = lo; i < hi; i++) {
		real d = g[i], w;

		if (wd != 0)
			d = d + wd * p[i];
		v[i] = optim_square(v[i]) * alpha + (rest * d) * d;
		if (centered) {
			a[i] = a[i] + rest * (d - a[i]);
			w = root(optim_square(v[i] - a[i] * a[i])) + eps;
		} else {
			w = root(v[i]) + eps;
		}
		if (heavy) {
			b[i] = b[i] * mu + d / w;
			p[i] = p[i] - lr * b[i];
		} else {
			p[i] = p[i] - (lr * d) / w;
		}
	}
}

ISA_BODY rms_body(const void *v, size_t lo, size_t hi) { loop(v, lo, hi, 0, 0); }
ISA_KERNEL(rms);
ISA_BODY rms_heavy_body(const void *v, size_t lo, size_t hi) { loop(v, lo, hi, 1, 0); }
ISA_KERNEL(rms_heavy);
ISA_BODY rms_centered_body(const void *v, size_t lo, size_t hi) { loop(v, lo, hi, 0, 1); }
ISA_KERNEL(rms_centered);
ISA_BODY rms_both_body(const void *v, size_t lo, size_t hi) { loop(v, lo, hi, 1, 1); }
ISA_KERNEL(rms_both);

static int uses_state(const double *h, int i)
{
	return i == 0 || (i == 1 ? h[MOMENTUM] != 0 : h[CENTERED] != 0);
}

static void step(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	real *param, const real *grad, size_t lo, size_t n)
{
	struct args s = { .lr = (real)h[LR], .alpha = (real)h[ALPHA], .rest = (real)(1 - h[ALPHA]), .eps = (real)h[EPS],
		.wd = (real)h[WEIGHT_DECAY], .mu = (real)h[MOMENTUM], .p = param + lo, .v = state[0] + lo,
		.g = grad + lo };
	const struct isa *k = &rms;

	if (h[MOMENTUM] != 0) {
		s.b = state[1] + lo;
		k = &rms_heavy;
	}
	if (h[CENTERED] != 0) {
		s.a = state[2] + lo;
		k = s.b ? &rms_both : &rms_centered;
	}
	isa_run(par, k, &s, n, 1024, 32768);
}

const struct optim_ops optim_rmsprop = {
	.name = "rmsprop", .help = "gradients divided by the root of their running mean square",
	.nkeys = 6, .nstates = 3, .power_key = { -1, -1 },
	.key = {
		[LR] = { "lr", 0.01, 0, 1e6, 0, 0, "learning rate" },
		[ALPHA] = { "alpha", 0.99, 0, 1, 0, 0, "decay of the mean of squared gradients" },
		[EPS] = { "eps", 1e-8, 0, 1, 0, 0, "added to the denominator" },
		[WEIGHT_DECAY] = { "weight_decay", 0, 0, 1e6, 0, 0, "L2 penalty" },
		[MOMENTUM] = { "momentum", 0, 0, 1, 1, 0, "momentum factor" },
		[CENTERED] = { "centered", 0, 0, 1, 0, 1, "divide by the estimated standard deviation" },
	},
	.state = { "square_avg", "momentum_buffer", "grad_avg" }, .step = step, .uses_state = uses_state,
};
