/* Part sizes by water-filling. A member with share w sends (1 + (n-2) w) |g|: its own parts to the others' reducers and
 * its results to everybody; equal finishing times mean 1 + (n-2) w_i = xi b_i for all who reduce. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg/part.h"
#include "common/mem.h"

static int known(const double *b, size_t n, double *ret)
{
	double sum = 0;
	size_t k = 0, some = 0;
	for (size_t i = 0; i < n; i++) {
		k += b[i] > 0;
		sum += b[i] > 0 ? b[i] : 0;
		some += b[i] != 0;
	}
	for (size_t i = 0; i < n; i++)
		ret[i] = b[i] < 0 ? (k ? sum / (double)k : 1) : b[i];
	return some ? 0 : -1;
}

static int descending(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;
	return a < b ? 1 : a > b ? -1 : 0;
}

/* The k fastest share: xi (sum of their b) = (n-2) + k; k is right when the slowest of them still gets something. */
static double level(double *sorted, size_t n)
{
	double sum = 0, xi = 0;
	for (size_t k = 1; k <= n && sorted[k - 1] > 0; k++) {
		double next = ((double)(n - 2) + (double)k) / (sum + sorted[k - 1]);
		if (k > 1 && next * sorted[k - 1] <= 1)
			break;
		sum += sorted[k - 1];
		xi = next;
	}
	return xi;
}

int part_shares(const double *b, size_t n, double *ret_w)
{
	double *v = xcalloc(2 * n + 1, sizeof *v), *sorted = v + n, sum = 0;
	if (known(b, n, v)) {
		free(v);
		return -1;
	}
	memcpy(sorted, v, n * sizeof *v);
	qsort(sorted, n, sizeof *v, descending);
	double xi = n > 2 ? level(sorted, n) : 0;
	for (size_t i = 0; i < n; i++) {
		ret_w[i] = n > 2 ? fmax(0, (xi * v[i] - 1) / (double)(n - 2)) : v[i];
		if (v[i] <= 0)
			ret_w[i] = 0;
		sum += ret_w[i];
	}
	for (size_t i = 0; i < n; i++)
		ret_w[i] /= sum;
	free(v);
	return 0;
}

void part_sizes(const double *w, size_t n, uint64_t len, uint64_t min, uint64_t *ret_size)
{
	double sum = 0;
	uint64_t given = 0;
	size_t best = 0;
	for (size_t i = 0; i < n; i++)
		if (w[i] > w[best])
			best = i;
	for (size_t i = 0; i < n; i++) {
		ret_size[i] = 0;
		if (i == best || w[i] * (double)len >= (double)min)
			sum += w[i];
	}
	for (size_t i = 0; i < n; i++) {
		if (i != best && w[i] * (double)len < (double)min)
			continue;
		ret_size[i] = (uint64_t)floor(w[i] / sum * (double)len);
		given += ret_size[i];
	}
	while (given > len) {                   /* rounding of the quotient itself; never more than a few */
		ret_size[best]--;
		given--;
	}
	for (; given < len; given++) {          /* Hagenbach-Bischoff: the next seat to the largest w / (seats + 1) */
		size_t to = best;
		double q = -1;
		for (size_t i = 0; i < n; i++)
			if (ret_size[i] && w[i] / (double)(ret_size[i] + 1) > q) {
				q = w[i] / (double)(ret_size[i] + 1);
				to = i;
			}
		ret_size[to]++;
	}
}

double part_cost(const double *b, const uint64_t *size, size_t n, uint64_t len)
{
	double *v = xcalloc(n + 1, sizeof *v), worst = 0;
	known(b, n, v);
	for (size_t i = 0; i < n; i++) {
		double load = (double)(len - size[i]) + (double)(n - 1) * (double)size[i];
		worst = fmax(worst, load / fmax(v[i], 1e-9));
	}
	free(v);
	return worst;
}
