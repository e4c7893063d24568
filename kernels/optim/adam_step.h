/* The common kernel of adam and adamw, which differ in where weight decay enters, and the keys of all of the family. */
#ifndef KERNELS_OPTIM_ADAM_STEP_H
#define KERNELS_OPTIM_ADAM_STEP_H
#include "kernels/optim.h"

enum { ADAM_LR, ADAM_BETA1, ADAM_BETA2, ADAM_EPS, ADAM_WEIGHT_DECAY, ADAM_KEYS };

void adam_step(const struct par *par, int decoupled, const double *hyper, const struct optim_clock *clock,
	real *const *state, real *param, const real *grad, size_t lo, size_t n);

#define ADAM_KEY_ROWS(small, decay, decay_help) \
	[ADAM_LR] = { "lr", 0.001, 0, 1e6, 0, 0, "learning rate" }, \
	[ADAM_BETA1] = { "beta1", 0.9, 0, 1, 1, 0, "decay of the mean of gradients" }, \
	[ADAM_BETA2] = { "beta2", 0.999, 0, 1, 1, 0, "decay of the mean of squared gradients" }, \
	[ADAM_EPS] = { "eps", small, 0, 1, 0, 0, "added to the denominator" }, \
	[ADAM_WEIGHT_DECAY] = { "weight_decay", decay, 0, 1e6, 0, 0, decay_help }

#endif
