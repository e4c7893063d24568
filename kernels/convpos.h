/* Convolutions of small images, position by position: output position p takes from input position q what the tap
 * between them, if there is one, gives. For each such pair one matrix product over the batch; the border of zeros costs
 * nothing. A 3x3 kernel on an image of 1x1 has one tap of nine, on 2x2 four.
 *
 * Images are [batch, channels, height, width], weights [oc, ic, k, k]. Sums of weight gradients run over the batch
 * and then over positions. Bits depend on the instruction set, never on the number of workers. Nothing allocates. */
#ifndef KERNELS_CONVPOS_H
#define KERNELS_CONVPOS_H
#include <stdbool.h>
#include "kernels/par.h"

#define CONVPOS_MAX 64          /* positions of an image, in and out, and taps */

struct convpos { size_t batch, ic, oc, ih, iw, oh, ow, k, stride, pad, dilation; };

/* Do the maximums hold? */
bool convpos_fits(const struct convpos *g);
/* Multiply-adds with which a sum of products would do against those done here, times 100 (400: a quarter). */
size_t convpos_gain(const struct convpos *g);
size_t convpos_work(const struct convpos *g, bool backward);    /* bytes, 64-byte aligned, for any number of workers */
/* bias: [oc] or NULL. y, dx are only written; dw is added to. */
void convpos_forward(const struct par *par, const struct convpos *g, const real *x, const real *w, const real *bias,
	real *y, void *work);
void convpos_backward_data(const struct par *par, const struct convpos *g, const real *dy, const real *w, real *dx,
	void *work);
void convpos_backward_weights(const struct par *par, const struct convpos *g, const real *x, const real *dy, real *dw,
	void *work);

#endif
