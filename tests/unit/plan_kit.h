/* What the paper plans share: members, sleep-layer profiles (instrument T3), predicting and checking.
 * */
#ifndef TEST_PLAN_KIT_H
#define TEST_PLAN_KIT_H
#include <math.h>
#include "t.h"
#include "plan/check.h"
#include "plan/predict.h"
#include "common/mem.h"

#define KIT_MAX 64

struct kit {
	struct id member[KIT_MAX];
	struct plan plan[KIT_MAX];
	const struct plan *list[KIT_MAX];
	uint32_t n;
	struct profile profile;
	struct predict_conf conf;
	struct prediction out;
};

static inline void kit_open(struct kit *k, uint32_t n)
{
	*k = (struct kit){ .n = n };
	for (uint32_t i = 0; i < n; i++) {
		k->member[i].b[0] = (uint8_t)(i + 1);
		k->list[i] = &k->plan[i];
	}
	k->conf.profile = &k->profile;
	k->conf.spans = true;
}

/* A chain of n equal sleep layers. */
static inline void kit_chain(struct kit *k, uint32_t n, uint64_t fwd_us, uint64_t bwd_us, uint64_t act, uint64_t param)
{
	k->profile.batch = 1;
	k->profile.nops = n;
	k->profile.op = xcalloc(n, sizeof *k->profile.op);
	for (uint32_t i = 0; i < n; i++)
		k->profile.op[i] = (struct profile_op){ .out_bytes = act, .saved_bytes = act, .param_bytes = param,
			.param_lo = i * param / 4, .nvariants = 1, .variant[0] = { "", fwd_us, bwd_us, 0 }, .npreds = i > 0,
			.pred[0] = i > 0 ? i - 1 : 0 };
	k->profile.params = n * param / 4;
}

static inline void kit_fn(struct kit *k, const char *name, uint64_t us, double us_per_byte)
{
	k->profile.fn = xrealloc(k->profile.fn, (k->profile.nfns + 1) * sizeof *k->profile.fn);
	struct profile_fn *f = &k->profile.fn[k->profile.nfns++];
	*f = (struct profile_fn){ .us = us, .us_per_byte = us_per_byte };
	memcpy(f->name, name, strlen(name) + 1);
}

/* Through JSON and back, so that every paper plan proves that its text says all of it. */
static inline void kit_json(struct kit *k)
{
	for (uint32_t i = 0; i < k->n; i++) {
		struct plan back;
		struct err e = {0};
		json_t *j = plan_to_json(&k->plan[i]);
		if (plan_from_json(&back, j, &e) < 0)
			fail_msg("plan %u from JSON: %s", i, e.text);
		assert_true(plan_equal(&k->plan[i], &back));
		plan_free(&back);
		json_decref(j);
	}
}

static inline void kit_check(struct kit *k)
{
	struct check_conf c = { .predict = k->conf };
	struct err e = {0};
	enum plan_rule rule;
	if (plan_check(k->list, k->n, &c, &rule, &e) < 0)
		fail_msg("%s", e.text);
	kit_json(k);
}

static inline void kit_refused(struct kit *k, enum plan_rule rule)
{
	struct check_conf c = { .predict = k->conf };
	struct err e = {0};
	enum plan_rule got = RULE_NONE;
	int rc = plan_check(k->list, k->n, &c, &got, &e);
	if (rc == 0 || got != rule)
		fail_msg("refused by %s, not %s: %s", plan_rule_name(got), plan_rule_name(rule), e.text);
	assert_true(strlen(e.text) > 30);
}

#ifdef KIT_EXEC
#include "exec_kit.h"
#else
static inline void kit_execute(struct kit *k) { }
#endif

static inline void kit_predict(struct kit *k)
{
	struct err e = {0};
	prediction_free(&k->out);
	if (predict(k->list, k->n, &k->conf, &k->out, &e) < 0)
		fail_msg("%s", e.text);
	if (k->out.stuck)
		fail_msg("stuck: %s", (const char *)k->out.why.p);
	if (!k->conf.hooks)
		kit_execute(k);                 /* programs test_exec_*: the executor must agree */
}

static inline uint32_t kit_values(struct kit *k, uint32_t peer, const char *buf)
{
	uint32_t b = plan_find(&k->plan[peer], buf);
	assert_true(b != PLAN_NONE);
	return k->out.peer[peer].values[b];
}

/* For people: KIT_SHOW=1 draws the timeline. */
static inline void kit_show(struct kit *k)
{
	struct buf b = {0};
	if (!getenv("KIT_SHOW"))
		return;
	plan_print(&k->plan[0], &b);
	plan_gantt(&k->out, k->list, 160, &b);
	fprintf(stderr, "%s", (const char *)b.p);
	buf_free(&b);
}

static inline void kit_plans_free(struct kit *k)
{
	for (uint32_t i = 0; i < k->n; i++)
		plan_free(&k->plan[i]);
}

static inline void kit_close(struct kit *k)
{
	if (k->conf.hooks && k->out.npeers > 0)
		kit_execute(k);                 /* hooks count what they do: after the test has looked */
	kit_plans_free(k);
	prediction_free(&k->out);
	profile_free(&k->profile);
}

static inline void kit_near(double got, double want, double tolerance)
{
	if (!(fabs(got - want) <= tolerance))
		fail_msg("%.6f, expected %.6f", got, want);
}

/* The n-th span of a kind and index on a peer, or NULL. */
static inline const struct predict_span *kit_span(const struct kit *k, uint32_t peer, enum plan_kind kind,
	int64_t index)
{
	for (size_t i = 0; i < k->out.nspans; i++)
		if (k->out.span[i].peer == peer && k->out.span[i].kind == kind && k->out.span[i].index == index)
			return &k->out.span[i];
	return NULL;
}

#endif
