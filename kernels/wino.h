/* Winograd's minimal filtering for 3x3 convolutions (Lavin and Gray, "Fast Algorithms for Convolutional
 * Neural Networks", 2015, arXiv 1509.09308): F(2x2, 3x3) needs 16 multiplications where the sum of products needs 36,
 * F(4x4, 3x3) needs 36 of 144. Interpolation points 0, 1, -1 (2, -2), infinity. With stride 2 a tile of 4x4 outputs
 * needs 81 of 144: a filter F(4, 2) on the even elements, one product for each odd one.
 *
 * Accuracy in float, relative L2 error against double: F(2x2) 2e-7 to 1e-6, like the direct sum; F(4x4) 1e-6 to 5e-6.
 * The bits of a result depend on the instruction set, never on the number of workers. Nothing here allocates. */
#ifndef KERNELS_WINO_H
#define KERNELS_WINO_H
#include <stdbool.h>
#include "kernels/par.h"

/* Images are [batch, channels, height, width], weights [oc, ic, 3, 3], zeros `pad` wide (0 to 2) around the input. m: 2
 * or 4, the side of an output tile. stride: 1 (also 0), or 2 with pad 1 and m 4. */
struct wino { size_t batch, ic, oc, ih, iw; int pad, m, stride; };

void wino_out(const struct wino *g, size_t *ret_oh, size_t *ret_ow);    /* the output's size */

/* Bytes of scratch for `parts` workers, 64-byte aligned. */
size_t wino_work(const struct wino *g, int parts, bool backward);
/* bias: [oc] or NULL. y is only written. */
void wino_forward(const struct par *par, const struct wino *g, const real *x, const real *w, const real *bias, real *y,
	void *work);
/* dx is only written: the same convolution with the weights turned by half a circle and pad' = 2 - pad (stride 1). */
void wino_backward_data(const struct par *par, const struct wino *g, const real *dy, const real *w, real *dx,
	void *work);
/* Adds to dw [oc, ic, 3, 3]. Sums run over blocks of tiles and then over blocks, so that long sums stay accurate. */
void wino_backward_weights(const struct par *par, const struct wino *g, const real *x, const real *dy, real *dw,
	void *work);

#endif
