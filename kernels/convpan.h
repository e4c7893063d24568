/* Convolutions as matrix products over panels of sixteen pixels, which are taken out of the image as they are needed:
 * the columns of a whole image are never written. For kernels that tiles (kernels/wino.h) do not fit: the first layers
 * of networks for images, kernels of one pixel.
 *
 * Images are [batch, channels, height, width], weights [oc, ic, k, k]. Sums of weight gradients run over some rows of
 * an image and then over those. Bits depend on the instruction set, never on the number of workers. */
#ifndef KERNELS_CONVPAN_H
#define KERNELS_CONVPAN_H
#include <stdbool.h>
#include "kernels/par.h"

struct convpan { size_t batch, ic, oc, ih, iw, oh, ow, k, stride, pad; };

size_t convpan_work(const struct convpan *g, int parts, bool backward); /* bytes, 64-byte aligned */
/* bias: [oc] or NULL. y is only written; dw is added to. */
void convpan_forward(const struct par *par, const struct convpan *g, const real *x, const real *w, const real *bias,
	real *y, void *work);
void convpan_backward_weights(const struct par *par, const struct convpan *g, const real *x, const real *dy, real *dw,
	void *work);

#endif
