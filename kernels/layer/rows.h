/* What normalizations share: sums of rows in eight lanes of double, so that they are accurate and vectorize. */
#ifndef KERNELS_LAYER_ROWS_H
#define KERNELS_LAYER_ROWS_H
#include <math.h>
#include "kernels/layer.h"

#define ROWS_LANES 8
#define ROWS static inline __attribute__((always_inline))     /* into the kernels of each instruction set */

ROWS double rows_fold(const double *v)
{
	return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

ROWS double rows_sum(const real *x, size_t n)
{
	double v[ROWS_LANES] = { 0 };
	size_t i = 0;

	for (; i + ROWS_LANES <= n; i += ROWS_LANES)
		for (int j = 0; j < ROWS_LANES; j++)
			v[j] += (double)x[i + j];
	for (int j = 0; i < n; i++, j++)
		v[j] += (double)x[i];
	return rows_fold(v);
}

/* Sum of (x - mean) (y - mean of y is not taken off). */
ROWS double rows_dot(const real *x, double mean, const real *y, size_t n)
{
	double v[ROWS_LANES] = { 0 };
	size_t i = 0;

	for (; i + ROWS_LANES <= n; i += ROWS_LANES)
		for (int j = 0; j < ROWS_LANES; j++)
			v[j] += ((double)x[i + j] - mean) * (double)y[i + j];
	for (int j = 0; i < n; i++, j++)
		v[j] += ((double)x[i] - mean) * (double)y[i];
	return rows_fold(v);
}

/* Sum of (x - mean)^2. */
ROWS double rows_square(const real *x, double mean, size_t n)
{
	double v[ROWS_LANES] = { 0 };
	size_t i = 0;

	for (; i + ROWS_LANES <= n; i += ROWS_LANES)
		for (int j = 0; j < ROWS_LANES; j++)
			v[j] += ((double)x[i + j] - mean) * ((double)x[i + j] - mean);
	for (int j = 0; i < n; i++, j++)
		v[j] += ((double)x[i] - mean) * ((double)x[i] - mean);
	return rows_fold(v);
}

/* What a normalization keeps of a row for backward. */
struct rows_stat { real mean, rstd; };

/* A row that is far from what a later layer expects is nothing special: eps keeps the root away from 0. */
ROWS struct rows_stat rows_stat(const real *x, size_t n, double eps, bool centered)
{
	double mean = centered ? rows_sum(x, n) / (double)n : 0, var = rows_square(x, mean, n) / (double)n;

	return (struct rows_stat){ (real)mean, (real)(1 / sqrt(var + eps)) };
}

#endif
