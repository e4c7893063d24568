/* The transforms of Winograd's tiles in one dimension, for the sixteen lanes of a value; two dimensions are rows and
 * then columns. Only for wino_tile.c. Elements are ds, os, ... apart.
 *
 * Points: F2 0, 1, -1, infinity; F4 with 2 and -2 as well. A stride of two takes the input apart into its even
 * elements, for which the outer two weights are a filter F(4, 2) with the points 0, 1, -1, 2 and infinity, and its odd
 * ones, for which the middle weight is one product each: nine products where the sum needs twelve. */
#ifndef KERNELS_WINO_1D_H
#define KERNELS_WINO_1D_H
#include "kernels/wino_tile.h"

#define L WINO_LANES
#define BODY static inline __attribute__((always_inline)) void
#define LANES for (int j = 0; j < L; j++)
#define AT(x, i, step) x[(size_t)(i) * (step) + (size_t)j]

/* Five elements ds apart to the five of F(4, 2). */
BODY in_half(const real *restrict d, size_t ds, real *restrict o, size_t os)
{
	LANES {
		real d0 = AT(d, 0, ds), d1 = AT(d, 1, ds), d2 = AT(d, 2, ds), d3 = AT(d, 3, ds), d4 = AT(d, 4, ds);
		real a = d3 - d1, b = 2 * d1 - d2;

		AT(o, 0, os) = 2 * (d0 - d2) + a;
		AT(o, 1, os) = d3 - d2 - 2 * d1;
		AT(o, 2, os) = b + d3 - 2 * d2;
		AT(o, 3, os) = a;
		AT(o, 4, os) = b + d4 - 2 * d3;
	}
}

/* Five products to four sums. */
BODY out_half(const real *restrict x, size_t xs, real *restrict o, size_t os)
{
	LANES {
		real x1 = AT(x, 1, xs), x2 = AT(x, 2, xs), x3 = AT(x, 3, xs), a = x1 + x2, b = x1 - x2;

		AT(o, 0, os) = AT(x, 0, xs) + a + x3;
		AT(o, 1, os) = b + 2 * x3;
		AT(o, 2, os) = a + 4 * x3;
		AT(o, 3, os) = b + 8 * x3 + AT(x, 4, xs);
	}
}

BODY copy_1d(int n, const real *restrict d, size_t ds, real *restrict o, size_t os)
{
	for (int i = 0; i < n; i++)
		LANES
			AT(o, i, os) = AT(d, i, ds);
}

BODY in_1d(int kind, const real *restrict d, size_t ds, real *restrict o, size_t os)
{
	if (kind == WINO_STRIDED) {
		in_half(d, 2 * ds, o, os);
		copy_1d(4, d + ds, 2 * ds, o + 5 * os, os);
		return;
	}
	if (kind == WINO_SPREAD) {
		in_half(d, ds, o, os);
		copy_1d(4, d, ds, o + 5 * os, os);
		return;
	}
	if (kind == WINO_F2) {
		LANES {
			real d0 = d[j], d1 = d[ds + (size_t)j], d2 = d[2 * ds + (size_t)j], d3 = d[3 * ds + (size_t)j];

			o[j] = d0 - d2;
			o[os + (size_t)j] = d1 + d2;
			o[2 * os + (size_t)j] = d2 - d1;
			o[3 * os + (size_t)j] = d1 - d3;
		}
		return;
	}
	LANES {
		real d0 = d[j], d1 = d[ds + (size_t)j], d2 = d[2 * ds + (size_t)j], d3 = d[3 * ds + (size_t)j];
		real d4 = d[4 * ds + (size_t)j], d5 = d[5 * ds + (size_t)j];
		real even = d4 - 4 * d2, odd = d3 - 4 * d1, far = d4 - d2, side = 2 * (d3 - d1);

		o[j] = 4 * d0 - 5 * d2 + d4;
		o[os + (size_t)j] = even + odd;
		o[2 * os + (size_t)j] = even - odd;
		o[3 * os + (size_t)j] = far + side;
		o[4 * os + (size_t)j] = far - side;
		o[5 * os + (size_t)j] = 4 * d1 - 5 * d3 + d5;
	}
}

BODY out_1d(int kind, const real *restrict x, size_t xs, real *restrict o, size_t os)
{
	if (kind == WINO_STRIDED) {
		out_half(x, xs, o, os);
		for (int i = 0; i < 4; i++)
			LANES
				AT(o, i, os) += AT(x, i + 5, xs);
		return;
	}
	if (kind == WINO_SPREAD) {
		copy_1d(4, x + 5 * xs, xs, o, 2 * os);
		out_half(x, xs, o + os, 2 * os);
		return;
	}
	if (kind == WINO_F2) {
		LANES {
			real x0 = x[j], x1 = x[xs + (size_t)j], x2 = x[2 * xs + (size_t)j], x3 = x[3 * xs + (size_t)j];

			o[j] = x0 + x1 + x2;
			o[os + (size_t)j] = x1 - x2 - x3;
		}
		return;
	}
	LANES {
		real x1 = x[xs + (size_t)j], x2 = x[2 * xs + (size_t)j], x3 = x[3 * xs + (size_t)j], x4 = x[4 * xs + (size_t)j];
		real a = x1 + x2, b = x1 - x2, c = x3 + x4, d = x3 - x4;

		o[j] = x[j] + a + c;
		o[os + (size_t)j] = b + 2 * d;
		o[2 * os + (size_t)j] = a + 4 * c;
		o[3 * os + (size_t)j] = b + 8 * d + x[5 * xs + (size_t)j];
	}
}

/* The transpose of out_1d. */
BODY grad_1d(int kind, const real *restrict y, size_t ys, real *restrict o, size_t os)
{
	if (kind == WINO_STRIDED) {
		LANES {
			real y0 = AT(y, 0, ys), y1 = AT(y, 1, ys), y2 = AT(y, 2, ys), y3 = AT(y, 3, ys);
			real a = y0 + y2, b = y1 + y3;

			AT(o, 0, os) = y0;
			AT(o, 1, os) = a + b;
			AT(o, 2, os) = a - b;
			AT(o, 3, os) = y0 + 2 * y1 + 4 * y2 + 8 * y3;
			AT(o, 4, os) = y3;
		}
		copy_1d(4, y, ys, o + 5 * os, os);
		return;
	}
	if (kind == WINO_F2) {
		LANES {
			real y0 = y[j], y1 = y[ys + (size_t)j];

			o[j] = y0;
			o[os + (size_t)j] = y0 + y1;
			o[2 * os + (size_t)j] = y0 - y1;
			o[3 * os + (size_t)j] = -y1;
		}
		return;
	}
	LANES {
		real y0 = y[j], y1 = y[ys + (size_t)j], y2 = y[2 * ys + (size_t)j], y3 = y[3 * ys + (size_t)j];
		real a = y0 + y2, b = y1 + y3, c = y0 + 4 * y2, d = 2 * y1 + 8 * y3;

		o[j] = y0;
		o[os + (size_t)j] = a + b;
		o[2 * os + (size_t)j] = a - b;
		o[3 * os + (size_t)j] = c + d;
		o[4 * os + (size_t)j] = c - d;
		o[5 * os + (size_t)j] = y3;
	}
}

BODY weight_1d(int kind, const real *restrict w, size_t ws, real *restrict o, size_t os)
{
	if (kind == WINO_STRIDED || kind == WINO_SPREAD) {
		LANES {
			real w0 = AT(w, 0, ws), w2 = AT(w, 2, ws);
			real a = w0 * (real)(1.0 / 6), b = w2 * (real)(1.0 / 6);

			AT(o, 0, os) = (real)0.5 * w0;
			AT(o, 1, os) = (real)-0.5 * (w0 + w2);
			AT(o, 2, os) = b - a;
			AT(o, 3, os) = a + 2 * b;
			AT(o, 4, os) = w2;
			AT(o, 5, os) = AT(w, 1, ws);
		}
		return;
	}
	if (kind == WINO_F2) {
		LANES {
			real w0 = w[j], w1 = w[ws + (size_t)j], w2 = w[2 * ws + (size_t)j];
			real a = (real)0.5 * (w0 + w2), b = (real)0.5 * w1;

			o[j] = w0;
			o[os + (size_t)j] = a + b;
			o[2 * os + (size_t)j] = a - b;
			o[3 * os + (size_t)j] = w2;
		}
		return;
	}
	LANES {
		real w0 = w[j], w1 = w[ws + (size_t)j], w2 = w[2 * ws + (size_t)j];
		real a = (w0 + w2) * (real)(-1.0 / 6), b = w1 * (real)(-1.0 / 6);
		real c = w0 * (real)(1.0 / 24) + w2 * (real)(1.0 / 6), d = w1 * (real)(1.0 / 12);

		o[j] = w0 * (real)0.25;
		o[os + (size_t)j] = a + b;
		o[2 * os + (size_t)j] = a - b;
		o[3 * os + (size_t)j] = c + d;
		o[4 * os + (size_t)j] = c - d;
		o[5 * os + (size_t)j] = w2;
	}
}

/* The transpose of weight_1d. */
BODY dweight_1d(int kind, const real *restrict u, size_t us, real *restrict o, size_t os)
{
	if (kind == WINO_STRIDED) {
		LANES {
			real u1 = (real)0.5 * AT(u, 1, us), u2 = AT(u, 2, us) * (real)(1.0 / 6);
			real u3 = AT(u, 3, us) * (real)(1.0 / 6);

			AT(o, 0, os) = (real)0.5 * AT(u, 0, us) - u1 - u2 + u3;
			AT(o, 1, os) = AT(u, 5, us);
			AT(o, 2, os) = u2 - u1 + 2 * u3 + AT(u, 4, us);
		}
		return;
	}
	if (kind == WINO_F2) {
		LANES {
			real u1 = u[us + (size_t)j], u2 = u[2 * us + (size_t)j], a = (real)0.5 * (u1 + u2);

			o[j] = u[j] + a;
			o[os + (size_t)j] = (real)0.5 * (u1 - u2);
			o[2 * os + (size_t)j] = a + u[3 * us + (size_t)j];
		}
		return;
	}
	LANES {
		real u1 = u[us + (size_t)j], u2 = u[2 * us + (size_t)j], u3 = u[3 * us + (size_t)j], u4 = u[4 * us + (size_t)j];
		real a = (u1 + u2) * (real)(-1.0 / 6), b = (u1 - u2) * (real)(-1.0 / 6), c = u3 + u4, d = u3 - u4;

		o[j] = u[j] * (real)0.25 + a + c * (real)(1.0 / 24);
		o[os + (size_t)j] = b + d * (real)(1.0 / 12);
		o[2 * os + (size_t)j] = a + c * (real)(1.0 / 6) + u[5 * us + (size_t)j];
	}
}

#endif
