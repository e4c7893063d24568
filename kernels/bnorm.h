/* The passes of batch normalization over memory, alone or together with what stands around it in residual networks:
 * the sum with another branch and the rectifier. Results are those of the layers one after the other, bit for bit.
 *
 * Tensors are [batch, channels, plane]. Sums run in lanes over at most a few hundred elements in `real`, and over those
 * in double; the order depends on the shape alone. Every channel is computed by one worker. */
#ifndef KERNELS_BNORM_H
#define KERNELS_BNORM_H
#include <stdbool.h>
#include "kernels/par.h"

struct bnorm_stat { real mean, rstd; };         /* of a channel; rstd = 1 / sqrt(variance + eps) */

struct bnorm {
	size_t batch, channels, plane;
	const real *x;
	const real *weight, *bias;      /* [channels], or NULL: 1 and 0 */
	double eps, momentum;
	bool train;                     /* statistics of this batch; else those in run */
	real *run;                      /* running means [channels], then variances */
	bool move;                      /* training: they move */
	struct bnorm_stat *stat;        /* [channels]; forward leaves them (NULL: nowhere), backward reads them */
	bool rectify;                   /* forward: max(y, 0) at the end; backward: dy is of what that gave */
	/* forward */
	const real *plus;               /* added before the rectifier, or NULL. May be y */
	real *y;                        /* x itself, or apart from it */
	/* backward: y = rectify(normalized x), without plus */
	const real *dy;
	real *dx;                       /* NULL: not wanted; may be dy */
	real *dweight, *dbias;          /* added to; NULL: not wanted */
};

void bnorm_forward(const struct par *par, const struct bnorm *n);
void bnorm_backward(const struct par *par, const struct bnorm *n);

#endif
