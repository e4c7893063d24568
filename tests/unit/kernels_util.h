/* What the kernel tests share: seeded data, teams that split without threads, models from one-line specs. */
#ifndef TESTS_KERNELS_UTIL_H
#define TESTS_KERNELS_UTIL_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/layer.h"
#include "kernels/model.h"

/* Runs the parts last to first: results must not depend on the order. */
static inline void backwards_run(const struct par *par, void (*fn)(void *arg, int part, int parts), void *arg)
{
	for (int i = par->n - 1; i >= 0; i--)
		fn(arg, i, par->n);
}

static inline struct par team(int n, enum cpu cpu, const struct blas *blas)
{
	return (struct par){ .n = n, .cpu = cpu, .blas = blas, .run = backwards_run };
}

static inline real *reals(size_t n)
{
	real *x = aligned_alloc(64, (n * sizeof(real) + 64) / 64 * 64);

	assert_non_null(x);
	return x;
}

static inline real *noise(uint64_t key, double bound, size_t n)
{
	real *x = reals(n);

	rand_uniform(key, bound, n, x);
	return x;
}

static inline void *bytes(size_t n)
{
	void *p = aligned_alloc(64, (n + 64) / 64 * 64);

	assert_non_null(p);
	memset(p, 0xff, n);     /* NaN: what is not written shows */
	return p;
}

#endif
