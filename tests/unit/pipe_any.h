/* For test_pipeline.c and test_partition.c: plans of all members in a kit, and models of any shape. */
#ifndef TESTS_PIPE_ANY_H
#define TESTS_PIPE_ANY_H
#include "plan_kit.h"
#include "pipe_kit.h"
#include "common/rng.h"

#define ACT 1000
#define PARAM 4000

static inline void all_plans(struct kit *k, const struct pipe_kit *p)
{
	struct err e = { 0 };

	kit_plans_free(k);
	for (uint32_t r = 0; r < k->n; r++)
		if (pipe_plan(p, r, &k->plan[r], &e) < 0)
			fail_msg("member %u: %s", r, e.text);
}

struct any { struct kit k; struct pipe_kit x; struct rng r; uint32_t stages, members, replicas[8], m; };

static inline uint64_t up_to(struct rng *r, uint64_t n) { return n ? rng_below(r, n + 1) : 0; }

static inline void any_model(struct any *a, uint32_t nops)
{
	struct profile *m = &a->k.profile;

	*m = (struct profile){ .batch = 1 + (uint32_t)up_to(&a->r, 3), .nops = nops, .batch_bytes = 5000,
		.label_bytes = 100, .state_vectors = (uint32_t)up_to(&a->r, 2) };
	m->op = xcalloc(nops, sizeof(*m->op));
	for (uint32_t o = 0; o < nops; o++) {
		struct profile_op *p = &m->op[o];

		*p = (struct profile_op){ .out_bytes = 4 * (1 + up_to(&a->r, 999)), .saved_bytes = up_to(&a->r, 999),
			.param_lo = m->params, .nvariants = 1, .npreds = o > 0, .pred[0] = o > 0 ? o - 1 : 0,
			.stats_bytes = up_to(&a->r, 3) ? 0 : 4 * up_to(&a->r, 9) };
		(void)snprintf(p->name, sizeof(p->name), "layer%u", o);
		p->param_bytes = up_to(&a->r, 2) ? 4 * (1 + up_to(&a->r, 999)) : 0;
		p->variant[0].fwd_us = 1 + up_to(&a->r, 99);
		p->variant[0].bwd_us = 1 + up_to(&a->r, 199);
		m->params += p->param_bytes / 4;
		m->stats_bytes += p->stats_bytes;
	}
}

static inline void any_close(struct any *a)
{
	kit_close(&a->k);
	pipe_close(&a->x);
}

#endif
