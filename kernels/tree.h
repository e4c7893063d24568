/* The one order of all sums (rules of vec.h): blocks of 1024 elements with 16 lanes in double, lanes and blocks summed
 * by fixed binary trees. Blocks are cut into at most 256 chunks of 2^k blocks, each a whole subtree, so that a team or
 * several owners of slices can share the work without changing the result. */
#ifndef KERNELS_TREE_H
#define KERNELS_TREE_H
#include "kernels/real.h"

#define TREE_BLOCK 1024
#define TREE_LANES 16
#define TREE_CHUNKS 256

/* A binary counter of partial sums: pushing n values gives the left-complete binary tree over them. */
struct tree { double sum[64]; int top; size_t count; };

static inline __attribute__((always_inline)) void tree_push(struct tree *t, double s)
{
	t->sum[t->top++] = s;
	for (size_t m = ++t->count; !(m & 1); m >>= 1) {
		t->sum[t->top - 2] += t->sum[t->top - 1];
		t->top--;
	}
}

static inline __attribute__((always_inline)) double tree_total(struct tree *t)
{
	if (t->top == 0)
		return 0;
	while (t->top > 1) {
		t->sum[t->top - 2] += t->sum[t->top - 1];
		t->top--;
	}
	return t->sum[0];
}

static inline __attribute__((always_inline)) double lanes_total(double *lane)
{
	for (int w = TREE_LANES / 2; w > 0; w /= 2)
		for (int j = 0; j < w; j++)
			lane[j] += lane[j + w];
	return lane[0];
}

static inline __attribute__((always_inline)) double tree_block_dot(const real *x, const real *y, size_t n)
{
	double lane[TREE_LANES] = { 0 };
	size_t i = 0;

	for (; i + TREE_LANES <= n; i += TREE_LANES)
		for (int j = 0; j < TREE_LANES; j++)
			lane[j] += (double)x[i + j] * (double)y[i + j];
	for (int j = 0; i + j < n; j++)
		lane[j] += (double)x[i + j] * (double)y[i + j];
	return lanes_total(lane);
}

/* How many chunks n elements make; *ret_blocks: blocks in each of them (the last may have fewer). */
static inline size_t tree_cut(size_t n, size_t *ret_blocks)
{
	size_t blocks = n / TREE_BLOCK + (n % TREE_BLOCK != 0), chunk = 1;

	while ((blocks + chunk - 1) / chunk > TREE_CHUNKS)
		chunk *= 2;
	*ret_blocks = chunk;
	return (blocks + chunk - 1) / chunk;
}

#endif
