/* Nesterov's momentum in PyTorch's form on n parameters, of what peers moved: m = mu m + d, anchor -= lr (d + mu m),
 * where lr and mu are outer_lr and outer_momentum. Vector kernels only, so it is bit-exact on every CPU. */
#ifndef EXEC_VEC_OUTER_H
#define EXEC_VEC_OUTER_H
#include "kernels/vec.h"
#include "plan/planner.h"
#include "exec/vec.h"

static inline void outer_step(struct vec_call *c, size_t n, const real *d, real *anchor, real *m)
{
	double lr = plan_result(&c->env.settings, "outer_lr", 0), mu = plan_result(&c->env.settings, "outer_momentum", 0);

	vec_scale(c->par, n, mu, m);
	vec_axpy(c->par, n, 1, d, m);
	vec_axpy(c->par, n, -lr, d, anchor);
	vec_axpy(c->par, n, -lr * mu, m, anchor);
}

#endif
