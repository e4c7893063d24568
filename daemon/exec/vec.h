/* Functions of VEC instructions: what grows when strategies grow. To add one: vec/NAME.c with `const struct vec_ops
 * fn_NAME` and a line in vec/list.h; the instruction's fn is that name.
 *
 * They run in a lane, or on the loop when they take microseconds, and see only the call. Operands come in the order in
 * which the plan names them. */
#ifndef EXEC_VEC_H
#define EXEC_VEC_H
#include <stdbool.h>
#include "kernels/layer.h"
#include "kernels/model.h"
#include "kernels/optim.h"
#include "plan/planner.h"

struct batch;
#define TALLY 3                         /* numbers that VEC tally makes: losses, right answers, samples */
struct vec_arg {
	void *p; size_t bytes;
	enum plan_class class;
	const struct batch *batch;              /* of class BATCH: p is NULL then */
	bool add, blank;                        /* outputs: `+`; there is nothing yet to add to */
	/* Of a vector that is cut (its first extent in the plan is flat): elements lo .. hi - 1 of the parameters. */
	bool part; uint64_t lo, hi;
	bool lent;                              /* an input that others may read still */
};
/* What the owner lets them know; copied when the instruction starts. */
struct vec_env {
	const struct model *model;
	const struct loss_ops *loss;
	const struct loss *objective;           /* the loss with its options; NULL: plain, on the model's output */
	const struct optim_ops *optim;
	double hyper[OPTIM_KEYS_MAX], clip_norm;
	bool decay_all;                         /* weight decay of vectors too */
	bool state[OPTIM_STATES_MAX];           /* which of the optimizer's vectors are in use */
	bool counts;                            /* the loss knows right answers */
	/* Of the loss, from now on (0: it is not scaled), and after how many steps that were made it doubles. */
	double loss_scale; uint32_t scale_interval;
	double unit;                            /* samples that the gradient sum is a mean over */
	uint64_t samples;                       /* accumulated in this epoch */
	bool eval;
	struct plan_results settings;           /* the strategy's numbers */
	size_t part_lo, part_n;                 /* elements that the round is for: all, or one fragment */
};
struct vec_call {
	const struct par *par;
	struct vec_env env;
	double scale;
	uint32_t nin, nout;
	struct vec_arg *in, *out;
	struct kerr *e;
};
/* without: bits of the inputs that it can do without, where the plan says so (on_missing); their p is NULL then. */
struct vec_ops { const char *name, *help; uint32_t nin, nout; int (*run)(struct vec_call *c); uint32_t without; };
const struct vec_ops *vec_find(const char *name);       /* NULL: unknown */
const struct vec_ops *vec_at(int i);
/* The first operand of a class; NULL. */
struct vec_arg *vec_arg_of(struct vec_arg *v, uint32_t n, enum plan_class class);
/* The scale of the loss, as a scalar among operands from the from-th on says it; 0: none does. */
double vec_scale_of(const struct vec_arg *v, uint32_t n, uint32_t from);
/* What v begins with: a vector, or all parts of a gradient in their order, as one; how many operands. 0: these do not
 * lie end to end. */
uint32_t vec_joined(const struct vec_arg *v, uint32_t n, struct vec_arg *ret);
/* Output k goes on from input `from`: what a function changes in place starts as a copy of that, where the plan gives
 * it memory of its own (a ring of versions). -1 and c->e when their sizes differ. */
int vec_goes_on(struct vec_call *c, uint32_t k, uint32_t from);

static inline real *vec_real(const struct vec_arg *a) { return a->p; }
static inline size_t vec_len(const struct vec_arg *a) { return a->bytes / sizeof(real); }
/* Vectors of weights, of their gradients and what peers give of them end with the model's running statistics, which are
 * averaged like the rest, but no step is made with them: elements before those. */
static inline size_t vec_params(const struct vec_call *c, const struct vec_arg *a)
{
	return a->part ? (size_t)(a->hi - a->lo) : vec_len(a) - (c->env.model ? c->env.model->nbuffer : 0);
}
static inline double *vec_scalar(const struct vec_arg *a) { return a->p; }

#endif
