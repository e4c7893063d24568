/* Optimizers: slice kernels over the flat parameter vector. Formulas and names are PyTorch's. Bit-exact on every
 * CPU and for every par->n (rules of vec.h); stepping k slices is bitwise stepping the whole. To add one: a file
 * optim/NAME.c and a line in optim/list.h.
 *
 * One step of a run:
 *     optim_tick(ops, hyper, &clock);                        once
 *     optim_step(&call);                                     the whole vector
 * or, when slices have different owners (cut with optim_cut):
 *     optim_measure(&call, lo, n, part);                     every slice; then each owner gets all parts
 *     optim_apply(&call, lo, n, part);                       every slice, in any order
 * State vectors are as long as the parameters and start as zeros. Checkpoints hold them under ops->state[i], and
 * the clock. */
#ifndef KERNELS_OPTIM_H
#define KERNELS_OPTIM_H
#include "kernels/model.h"
#include "kernels/par.h"

#define OPTIM_KEYS_MAX 12
#define OPTIM_STATES_MAX 4

/* One hyperparameter. Allowed: min <= v <= max (open_max: v < max). A flag is 0 or 1. */
struct optim_key { const char *name; double def, min, max; int open_max, flag; const char *help; };

/* What advances once per step and belongs to the state. power[]: products of the betas, by repeated multiplication
 * in double (no pow: bit-exact). */
struct optim_clock { uint64_t step; double power[2]; };

struct optim_ops {
	const char *name, *help;
	int nkeys, nstates;
	struct optim_key key[OPTIM_KEYS_MAX];   /* key[0] is always lr */
	const char *state[OPTIM_STATES_MAX];    /* "exp_avg", ... */
	int power_key[2];                       /* which keys power[] multiplies up; -1: none */
	/* hyper: nkeys values in the order of key[]. state: nstates whole vectors; param, grad whole vectors; only
	 * the elements [lo, lo + n) are touched. grad is read only. state entries may be NULL when the ops do not
	 * use them with these values (optim_uses_state). */
	void (*step)(const struct par *par, const double *hyper, const struct optim_clock *clock, real *const *state,
		real *param, const real *grad, size_t lo, size_t n);
	/* Optimizers whose rate depends on norms of whole tensors (LARS, LAMB) have these three instead of step.
	 * measure: one range of one tensor, which begins at a chunk of it; advances the state, and for each chunk of
	 * `chunk` elements writes two sums of squares to part[2 * i], part[2 * i + 1]. ratio: from the sums over the
	 * tensor. apply: the step itself. plain_vectors: tensors of one dimension keep ratio 1 and are not measured. */
	void (*measure)(const struct par *par, const double *hyper, const struct optim_clock *clock,
		real *const *state, const real *param, const real *grad, size_t lo, size_t n, size_t chunk, double *part);
	double (*ratio)(const double *hyper, const double sum[2]);
	void (*apply)(const struct par *par, const double *hyper, const struct optim_clock *clock, real *const *state,
		real *param, const real *grad, size_t lo, size_t n, double ratio);
	int plain_vectors;
	/* Is state i needed with these values? NULL: all are. */
	int (*uses_state)(const double *hyper, int i);
};

const struct optim_ops *optim_find(const char *name);           /* NULL: unknown */
const struct optim_ops *optim_at(int i);                        /* i-th of the list; NULL past the end */
const char *optim_names(char *out, size_t cap);                 /* "adagrad adam ..." for error texts */

void optim_defaults(const struct optim_ops *o, double *ret_hyper);
int optim_key_index(const struct optim_ops *o, const char *key);        /* -1: unknown */
/* Checks name and range; e says what is allowed. hyper is unchanged on error. */
int optim_set(const struct optim_ops *o, double *hyper, const char *key, double value, struct kerr *e);
/* Checks what concerns several values together (nesterov needs momentum > 0 and dampening = 0). */
int optim_check(const struct optim_ops *o, const double *hyper, struct kerr *e);
int optim_uses_state(const struct optim_ops *o, const double *hyper, int i);

/* One step. Tensors: in order of offset, without gaps, together the whole vector (model->param, model->nparams).
 * Tensors of one dimension (biases, scales and shifts of norms) take no weight decay unless decay_all. */
struct optim_call {
	const struct par *par;
	const struct optim_ops *ops;
	const double *hyper;
	const struct optim_clock *clock;        /* after optim_tick */
	real *const *state;
	real *param; const real *grad;
	const struct model_param *tensor; int ntensors;
	int decay_all;
};
void optim_step(const struct optim_call *c);
/* The greatest place <= at where a slice may begin or end; for optimizers without measure any place is one. */
size_t optim_cut(const struct optim_call *c, size_t at);
size_t optim_parts(const struct optim_call *c);         /* length of part[]; 0: nothing to measure */
/* Fills the parts of this slice and no others: the owners' parts put together are the whole. */
void optim_measure(const struct optim_call *c, size_t lo, size_t n, double *part);
void optim_apply(const struct optim_call *c, size_t lo, size_t n, const double *part);

/* For the kernels: an average or a sum of squares that peers have averaged in few bits, or by the delta rule, may have
 * come below zero; then it is zero. Not a number stays so. */
static inline __attribute__((always_inline)) real optim_square(real v)
{
	return v < 0 ? 0 : v;
}

void optim_clock_init(struct optim_clock *c);                   /* step 0, powers 1 */
void optim_tick(const struct optim_ops *o, const double *hyper, struct optim_clock *c);

#endif
