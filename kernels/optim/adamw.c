/* AdamW (torch.optim.AdamW): Adam with weight decay taken off the parameters directly. */
#include "kernels/optim/adam_step.h"

static void step(const struct par *par, const double *h, const struct optim_clock *clock, real *const *state,
	real *param, const real *grad, size_t lo, size_t n)
{
	adam_step(par, 1, h, clock, state, param, grad, lo, n);
}

const struct optim_ops optim_adamw = {
	.name = "adamw", .help = "Adam with decoupled weight decay",
	.nkeys = ADAM_KEYS, .nstates = 2, .power_key = { ADAM_BETA1, ADAM_BETA2 },
	.key = { ADAM_KEY_ROWS(1e-8, 0.01, "decay of the parameters, times lr") },
	.state = { "exp_avg", "exp_avg_sq" }, .step = step,
};
