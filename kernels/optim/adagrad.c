/* Adagrad (torch.optim.Adagrad):
 *   g = g + wd p;  s = s + g g;  p = p - (lr / (1 + (t - 1) lr_decay)) g / (sqrt(s) + eps)
 * The sum starts at initial_accumulator_value, which step 1 puts in. */
#include "kernels/isa.h"
#include "kernels/optim.h"

enum { LR, LR_DECAY, WEIGHT_DECAY, INITIAL, EPS };

struct args { real lr, wd, start, eps; real *p, *s; const real *g; };

ISA_BODY adagrad_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	real *restrict p = s->p, *restrict sum = s->s, lr = s->lr, wd = s->wd, start = s->start, eps = s->eps;
	const real *restrict g = s->g;

	for (size_t i = lo; i < hi; i++) {
		real d = g[i], t;

		if (wd != 0)
			d = d + wd * p[i];
		sum[i] = (optim_square(sum[i]) + start) + d * d;
#ifdef REAL_DOUBLE
		t = __builtin_sqrt(sum[i]);
#else
		t = __builtin_sqrtf(sum[i]);
#endif
		p[i] = p[i] - (lr * d) / (t + eps);
	}
}
ISA_KERNEL(adagrad);

static void step(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	real *param, const real *grad, size_t lo, size_t n)
{
	double t = clock->step > 1 ? (double)(clock->step - 1) : 0;
	struct args s = { .lr = (real)(h[LR] / (1 + t * h[LR_DECAY])), .wd = (real)h[WEIGHT_DECAY],
		.start = clock->step <= 1 ? (real)h[INITIAL] : 0, .eps = (real)h[EPS],
		.p = param + lo, .s = state[0] + lo, .g = grad + lo };

	isa_run(par, &adagrad, &s, n, 1024, 32768);
}

const struct optim_ops optim_adagrad = {
	.name = "adagrad", .help = "gradients divided by the root of their sum of squares",
	.nkeys = 5, .nstates = 1, .power_key = { -1, -1 },
	.key = {
		[LR] = { "lr", 0.01, 0, 1e6, 0, 0, "learning rate" },
		[LR_DECAY] = { "lr_decay", 0, 0, 1e6, 0, 0, "decay of the learning rate" },
		[WEIGHT_DECAY] = { "weight_decay", 0, 0, 1e6, 0, 0, "L2 penalty" },
		[INITIAL] = { "initial_accumulator_value", 0, 0, 1e6, 0, 0, "start of the sum of squares" },
		[EPS] = { "eps", 1e-10, 0, 1, 0, 0, "added to the denominator" },
	},
	.state = { "sum" }, .step = step,
};
