/* What recurrent layers share: [steps, in] -> the hidden states [steps, hidden], or the last one alone, unrolled over
 * the steps and backward through all of them (Werbos, "Backpropagation Through Time", Proc. IEEE 78(10), 1990).
 *
 * h_t = cell(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh), h_{-1} = 0. The products with all x_t are one; those with the
 * state are one a step, over the batch. Backward goes down the steps, and then all gradients are one product each. The
 * layer's file has what happens to one value: `cell` and `slope`, over batch times hidden values of step t. */
#ifndef KERNELS_RECUR_H
#define KERNELS_RECUR_H
#include "kernels/isa.h"
#include "kernels/layer.h"

enum { RECUR_OUT, RECUR_LAST, RECUR_BIAS, RECUR_OWN };  /* attributes; the layer's own come behind */

/* Rows of one step of one sample: how far apart samples and steps are, in elements. */
struct recur_rows { real *at; size_t sample, step; };

struct recur {
	const struct layer *l;
	size_t batch, steps, in, hidden, gates;
	size_t t;                               /* whose turn it is */
	const real *w_ih, *w_hh, *b_ih, *b_hh;  /* biases NULL: none */
	struct recur_rows gate;                 /* [gates hidden]: sums, which cell makes into what slope reads */
	struct recur_rows h, cell;              /* [hidden]; cell: the layer's second state; at NULL: it has none */
	struct recur_rows dy;                   /* at NULL: what comes from above is in dh already */
	struct recur_rows dgate;                /* of the sums: slope writes it */
	real *dh, *dcell;                       /* [batch, hidden]: what flows back from step t + 1 */
};

static inline __attribute__((always_inline)) real *recur_row(const struct recur_rows *r, size_t b, size_t t)
{
	return r->at + b * r->sample + t * r->step;
}

/* For the loops of cell and slope: value `at` of batch times hidden is value *ret_j of sample *ret_b; returns where the
 * run of its sample ends in [*ret_j, hidden]. */
static inline __attribute__((always_inline)) size_t recur_run(const struct recur *r, size_t at, size_t hi,
	size_t *ret_b, size_t *ret_j)
{
	*ret_b = at / r->hidden;
	*ret_j = at % r->hidden;
	return hi - at < r->hidden - *ret_j ? *ret_j + (hi - at) : r->hidden;
}

int recur_shape(struct layer *l, size_t gates, struct kerr *e);
void recur_init(const struct layer *l, uint64_t key, real *param);
/* Sizes and parameters of a call. */
struct recur recur_of(const struct layer_call *c, size_t gates);
/* The states of all steps, and y; the places of gate, h and cell are the caller's. work: what recur_work says, 64-byte
 * aligned, behind what the caller has taken of c->work. worth: values that are worth a thread. */
void recur_forward(const struct par *par, struct recur *r, const struct layer_call *c, const struct isa *cell,
	size_t worth, void *work);
/* Reads the same places, and leaves them as they are. */
void recur_backward(const struct par *par, struct recur *r, const struct layer_call *c, const struct isa *slope,
	size_t worth, void *work);
size_t recur_work(const struct layer *l, size_t gates, size_t batch, int parts, bool backward);
uint64_t recur_macs(const struct layer *l, size_t gates);
uint64_t recur_inner(const struct layer *l, size_t gates);     /* of those: with the state */

#endif
