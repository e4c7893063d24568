/* SGD with momentum (torch.optim.SGD):
 *   g = g + wd p;  first step: b = g, later: b = mu b + (1 - dampening) g;  g = b, or g + mu b with nesterov;
 *   p = p - lr g */
#include "kernels/isa.h"
#include "kernels/optim.h"

enum { LR, MOMENTUM, DAMPENING, NESTEROV, WEIGHT_DECAY };

struct args { real lr, mu, keep, wd; int nesterov, first; real *p, *b; const real *g; };

ISA_BODY plain_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	real *restrict p = s->p, lr = s->lr, wd = s->wd;
	const real *restrict g = s->g;

	for (size_t i = lo; i < hi; i++) {
		real d = g[i];

		if (wd != 0)
			d = d + wd * p[i];
		p[i] = p[i] - lr * d;
	}
}
ISA_KERNEL(plain);

ISA_BODY heavy_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	real *restrict p = s->p, *restrict b = s->b, lr = s->lr, wd = s->wd, mu = s->mu, keep = s->keep;
	const real *restrict g = s->g;
	int nesterov = s->nesterov, first = s->first;

	for (size_t i = lo; i < hi; i++) {
		real d = g[i], m;

		if (wd != 0)
			d = d + wd * p[i];
		m = first ? d : mu * b[i] + keep * d;
		b[i] = m;
		d = nesterov ? d + mu * m : m;
		p[i] = p[i] - lr * d;
	}
}
ISA_KERNEL(heavy);

static void step(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	real *param, const real *grad, size_t lo, size_t n)
{
	struct args s = { .lr = (real)h[LR], .mu = (real)h[MOMENTUM], .keep = (real)(1 - h[DAMPENING]),
		.wd = (real)h[WEIGHT_DECAY], .nesterov = h[NESTEROV] != 0, .first = clock->step <= 1,
		.p = param + lo, .g = grad + lo };

	if (h[MOMENTUM] != 0)
		s.b = state[0] + lo;
	isa_run(par, s.b ? &heavy : &plain, &s, n, 1024, 32768);
}

static int uses_state(const double *h, int i)
{
	return h[MOMENTUM] != 0;
}

const struct optim_ops optim_sgd = {
	.name = "sgd", .help = "stochastic gradient descent with momentum",
	.nkeys = 5, .nstates = 1, .power_key = { -1, -1 },
	.key = {
		[LR] = { "lr", 0.01, 0, 1e6, 0, 0, "learning rate" },
		[MOMENTUM] = { "momentum", 0, 0, 1, 1, 0, "momentum factor" },
		[DAMPENING] = { "dampening", 0, 0, 1, 0, 0, "dampening of the momentum" },
		[NESTEROV] = { "nesterov", 0, 0, 1, 0, 1, "Nesterov momentum" },
		[WEIGHT_DECAY] = { "weight_decay", 0, 0, 1e6, 0, 0, "L2 penalty" },
	},
	.state = { "momentum_buffer" }, .step = step, .uses_state = uses_state,
};
