/* Convolutions of any kind as matrix products with columns (im2col): stride, border, dilation, groups. Small images go
 * through a product several at a time, so that it is wide enough; the team shares the batch.
 *
 * Images are [batch, channels, height, width], weights [oc, ic / groups, kh, kw], then perhaps a bias [oc]. The
 * gradient of weights depends on the number of workers in its last bits (gradients are summed in their order), nothing
 * else does. Nothing allocates. */
#ifndef KERNELS_CONVCOL_H
#define KERNELS_CONVCOL_H
#include <stdbool.h>
#include "kernels/par.h"

#define CONVCOL_KERNEL_MAX 255

struct convcol { size_t batch, ic, oc, ih, iw, oh, ow, kh, kw, stride, pad_h, pad_w, dilation, groups; bool bias; };

size_t convcol_work(const struct convcol *g, int parts, bool backward); /* bytes, 64-byte aligned */
/* y is only written. */
void convcol_forward(const struct par *par, const struct convcol *g, const real *x, const real *param, real *y,
	void *work);
/* dx (NULL: not wanted) is only written; dparam (NULL: not wanted) is added to. */
void convcol_backward(const struct par *par, const struct convcol *g, const real *x, const real *dy, const real *param,
	real *dx, real *dparam, void *work);

#endif
