/* For test_pipeline_real.c and test_pipeline_on_real.c: what units agree on, and what is held against one process. */
#ifndef TESTS_PIPE_AGREE_H
#define TESTS_PIPE_AGREE_H
#include "pipe_world.h"

static inline void compare(const struct peer *p, const real *got, const real *want, bool exact)
{
	double most = sizeof(real) == 8 ? 1e-12 : 1e-5, sum = 0;

	for (uint64_t i = 0; i < p->n; i++) {
		double a = (double)got[i], b = (double)want[p->lo + i];

		sum += fabs(b);
		if (exact ? a != b : !(fabs(a - b) <= most * (1 + fabs(b))))
			fail_msg("member %u, element %llu: %.17g, one process has %.17g", p->rank, (unsigned long long)i, a, b);
	}
	assert_true(sum > 1e-6);
}

/* What unit u gives of what is wanted: one of its members speaks for each part. */
static inline const real *given(const struct world *w, const struct sum *to, uint32_t u)
{
	const real *found = NULL;

	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t i = 0; i < w->peer[k].nsums; i++) {
			const struct sum *x = &w->peer[k].sum[i];

			if (!x->in || w->peer[k].of.unit != u || to->lo < x->from || to->lo + to->n > x->from + x->n_in)
				continue;
			assert_null(found);
			found = (const real *)x->in + (to->lo - x->from);
		}
	assert_non_null(found);
	return found;
}

static inline double weight_of(const struct world *w, uint32_t u)
{
	for (uint32_t k = 0; k < w->n; k++)
		if (w->peer[k].of.unit == u)
			return (double)samples_of(w, w->peer[k].of.first, w->peer[k].of.n) / (double)samples_of(w, 0, w->micro);
	return 0;
}

/* All who have a SUM get the mean of what is given to it. When all have it they go on. */
static inline void agree(struct world *w, uint32_t spoilt)
{
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t i = 0; i < w->peer[k].nsums; i++) {
			const struct sum *to = &w->peer[k].sum[i];
			real *sum = xcalloc(to->bytes / sizeof(real) + 1, sizeof(*sum));

			assert_int_equal(to->bytes, to->n * sizeof(real));
			for (uint32_t u = 0; u < w->units; u++) {
				const real *x = given(w, to, u);

				for (uint64_t j = 0; j < to->n; j++)
					sum[j] = w->units == 1 ? x[j] : sum[j] + (real)((double)x[j] * weight_of(w, u));
			}
			memcpy(to->out, sum, to->bytes);
			free(sum);
		}
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t i = 0; i < w->peer[k].nsums; i++)
			if (w->peer[k].sum[i].stage == spoilt)
				((real *)w->peer[k].sum[i].out)[1] = (real)NAN;
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t n = w->peer[k].nsums; n; n = --w->peer[k].nsums)
			exec_done(w->peer[k].sum[n - 1].w, NULL, NULL);
}

#endif
