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

static inline const struct sum *giver(const struct world *w, uint32_t stage)
{
	const struct sum *found = NULL;

	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t i = 0; i < w->peer[k].nsums; i++)
			if (w->peer[k].sum[i].stage == stage && w->peer[k].sum[i].in) {
				assert_null(found);             /* one of each stage speaks */
				found = &w->peer[k].sum[i];
			}
	assert_non_null(found);
	return found;
}

/* All who have a SUM of a stage get what is given to it. When all have it they go on. */
static inline void agree(struct world *w, uint32_t spoilt)
{
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t i = 0; i < w->peer[k].nsums; i++) {
			const struct sum *to = &w->peer[k].sum[i], *from = giver(w, to->stage);

			assert_int_equal(to->bytes, from->bytes);
			memmove(to->out, from->in, to->bytes);
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
