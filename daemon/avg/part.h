/* How the vector is cut: the share of each reducer by its bandwidth, so that the slowest link is done first. */
#ifndef AVG_PART_H
#define AVG_PART_H
#include <stddef.h>
#include <stdint.h>

/* Shares w_i >= 0 with sum 1 that minimise max_i (1 + (n-2) w_i) / b_i (closed form: w_i = max(0, (xi b_i - 1)/(n-2)),
 * xi from sum = 1). b: bytes/s, 0 = takes no part; unknown ones are < 0 and count as the mean of the known (all
 * unknown: equal).
 * Nobody can: -1. n <= 2: proportional to b (any split costs the same). */
int part_shares(const double *b, size_t n, double *ret_w);
/* Whole sizes: at least min each or nothing, sum = len, largest remainders first (Hagenbach-Bischoff). */
void part_sizes(const double *w, size_t n, uint64_t len, uint64_t min, uint64_t *ret_size);
/* What a split costs: max_i (len - p_i + (n-1) p_i) / b_i; unknown as above. */
double part_cost(const double *b, const uint64_t *size, size_t n, uint64_t len);

#endif
