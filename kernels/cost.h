/* How many operations a model takes (row N01): counted from the shapes, and counted again while it runs.
 *
 * A multiply-add counts two. exp, erf, tanh, a division, a square root and a comparison count one. Convolutions count
 * as if they were computed directly, however they are. Backward: a layer with parameters takes its multiply-adds once
 * for their gradient and once more for its input's, when that is wanted (those with a recurrent layer's own state,
 * always); one without twice; everything else counts twice. What optimizers do is not in it. */
#ifndef KERNELS_COST_H
#define KERNELS_COST_H
#include "kernels/model.h"

struct cost { uint64_t macs, other; };
static inline uint64_t cost_flops(const struct cost *c) { return 2 * c->macs + c->other; }

/* Add one pass of a layer over a batch. */
void cost_forward(const struct layer *l, size_t batch, struct cost *add);
void cost_backward(const struct layer *l, size_t batch, bool dparam, bool dx, struct cost *add);
/* Of a piece; backward: of model_backward, with or without dx. */
struct cost cost_of(const struct model *m, int a, int b, size_t batch, bool backward, bool want_dx);
/* The same op by op: adds to add[i - a]. */
void cost_each(const struct model *m, int a, int b, size_t batch, bool backward, bool want_dx, struct cost *add);

#endif
