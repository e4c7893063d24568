/* For test_pipeline.c and test_pipeline_real.c: the plans of all members of a pipeline, from one view. */
#ifndef TESTS_PIPE_KIT_H
#define TESTS_PIPE_KIT_H
#include "train/strategy.h"

#define PIPE_MAX 24

struct pipe_kit {
	const struct planner_ops *strategy;
	struct view v;
	struct view_member member[PIPE_MAX];
	json_t *values;
};

/* values: the spec's "plan", with ' for ". */
static inline void pipe_values(struct pipe_kit *k, const char *values, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, values);
	(void)vsnprintf(text, sizeof(text), values, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	json_decref(k->values);
	k->values = json_loads(text, 0, NULL);
	assert_non_null(k->values);
	k->v.values = k->values;
}

static inline void pipe_open(struct pipe_kit *k, const struct profile *m, uint32_t members, uint64_t target)
{
	*k = (struct pipe_kit){ .strategy = strategy_find("pipeline") };
	for (uint32_t r = 0; r < members; r++) {
		k->member[r].id.b[0] = (uint8_t)(r + 1);
		k->member[r].speed = 1;
	}
	k->v = (struct view){ .profile = m, .nmembers = members, .member = k->member, .generation = 1, .redundancy = 1,
		.target_batch = target, .granted = true };
}

static inline void pipe_close(struct pipe_kit *k) { json_decref(k->values); }

/* 0, or -1 and e: what the spec's reader and then the planner say. */
static inline int pipe_plan(const struct pipe_kit *k, uint32_t me, struct plan *ret, struct err *e)
{
	const struct plan_results none = { 0, NULL };
	struct view v = k->v;

	v.me = me;
	return k->strategy->check(k->values, e) < 0 ? -1 : k->strategy->plan(&v, &none, ret, e);
}

#endif
