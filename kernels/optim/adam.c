/* Adam (torch.optim.Adam):
 *   g = g + wd p (AdamW instead: the term in brackets)
 *   m = m + (1 - beta1)(g - m);  v = beta2 v + ((1 - beta2) g) g
 *   p = p - ((lr / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + eps) [+ lr wd p])
 * The corrections are taken in double from the clock; the element loop is in real. Decay is taken off rather than
 * multiplied by 1 - lr wd, whose rounding in single precision would be the same in every step and add up. */
#include "kernels/optim/adam_step.h"
#include <math.h>
#include "kernels/isa.h"

struct args { real decay, wd, b1, b2, c2, root, eps, size; real *p, *m, *v; const real *g; };

ISA_BODY adam_body(const void *a, size_t lo, size_t hi)
{
	const struct args *s = a;
	real *restrict p = s->p, *restrict m = s->m, *restrict v = s->v;
	const real *restrict g = s->g;
	real decay = s->decay, wd = s->wd, b1 = s->b1, b2 = s->b2, c2 = s->c2;
	real root = s->root, eps = s->eps, size = s->size;

	for (size_t i = lo; i < hi; i++) {
		real w = p[i], d = g[i], t;

		if (wd != 0)
			d = d + wd * w;
		m[i] = m[i] + b1 * (d - m[i]);
		v[i] = optim_square(v[i]) * b2 + (c2 * d) * d;
#ifdef REAL_DOUBLE
		t = __builtin_sqrt(v[i]);
#else
		t = __builtin_sqrtf(v[i]);
#endif
		t = (size * m[i]) / (t / root + eps);
		p[i] = w - (decay != 0 ? decay * w + t : t);
	}
}
ISA_KERNEL(adam);

void adam_step(const struct par *par, int decoupled, const double *h, const struct optim_clock *clock,
	real *const *state, real *param, const real *grad, size_t lo, size_t n)
{
	struct args s = {
		.decay = decoupled ? (real)(h[ADAM_LR] * h[ADAM_WEIGHT_DECAY]) : 0,
		.wd = decoupled ? 0 : (real)h[ADAM_WEIGHT_DECAY],
		.b1 = (real)(1 - h[ADAM_BETA1]), .b2 = (real)h[ADAM_BETA2], .c2 = (real)(1 - h[ADAM_BETA2]),
		.root = (real)sqrt(1 - clock->power[1]), .eps = (real)h[ADAM_EPS],
		.size = (real)(h[ADAM_LR] / (1 - clock->power[0])),
		.p = param + lo, .m = state[0] + lo, .v = state[1] + lo, .g = grad + lo };

	isa_run(par, &adam, &s, n, 1024, 32768);
}

static void step(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	real *param, const real *grad, size_t lo, size_t n)
{
	adam_step(par, 0, h, clock, state, param, grad, lo, n);
}

const struct optim_ops optim_adam = {
	.name = "adam", .help = "Adam: moments of the gradient, bias-corrected",
	.nkeys = ADAM_KEYS, .nstates = 2, .power_key = { ADAM_BETA1, ADAM_BETA2 },
	.key = { ADAM_KEY_ROWS(1e-8, 0, "L2 penalty") },
	.state = { "exp_avg", "exp_avg_sq" }, .step = step,
};
