/* Paper plan 13: delayed averaging. The gradient of epoch e is averaged while e + 1 accumulates; it is applied at the
 * end of e + 1: one epoch of staleness, and an epoch takes the longer of computing and communicating, not their sum. */
#include "plan_kit.h"

#define M 4
#define PARAM 100000

/* Delayed, the update at the end of epoch e is the value of epoch e, and everybody reads the one before: age 1. */
static void micro_batch(struct plan *p, int64_t mb, const char *age)
{
	plan_do(p, PLAN_LOAD, mb, "-> x");
	plan_piece(plan_do(p, PLAN_FWD, mb, "x! w%s -> save:kept", age), 0, 0);
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept! w%s -> g+", age), 0, 0);
}

static void apply(struct plan *p, int64_t mb, const char *age)
{
	const char *next = age[0] ? "" : "'";
	plan_vec(p, mb, "opt", "g%s! w%s opt%s -> w%s opt%s", age, age, age, next, next);
	plan_do(p, PLAN_COMMIT, mb, "w%s opt%s", next, next)->scope = PLAN_GROUP;
}

static void plan_delayed(struct plan *p, bool delayed, uint64_t epochs)
{
	uint32_t g = plan_group(p, "swarm", PLAN_OP_MEAN, false, true);
	for (uint32_t k = 0; k < p->nmembers; k++)
		plan_join(p, g, k, 0);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = 1000, .depth = 2 }, "x");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 1000 }, "kept");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = PARAM, .per = M, .depth = delayed ? 2 : 1 },
		"g");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = PARAM, .per = M, .initial = true }, "w");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_OPTIMIZER, .bytes = PARAM, .per = M, .initial = true }, "opt");
	p->step = M;
	int64_t shift = delayed ? M : 0;
	const char *age = delayed ? "=1" : "";
	for (int64_t i = 0; i < shift; i++)
		micro_batch(p, i, age);
	if (delayed)
		plan_coll(p, PLAN_SUM, M - 1, g, "g -> g");
	plan_section(p, PLAN_BODY);
	p->iterations = epochs - delayed;
	for (int64_t i = 0; i < M; i++)
		micro_batch(p, shift + i, age);
	plan_coll(p, PLAN_SUM, shift + M - 1, g, "g -> g");
	apply(p, shift + M - 1, age);
	plan_section(p, PLAN_EPILOGUE);
	if (delayed)
		apply(p, 2 * M - 1, "=1");
}

static uint64_t run(struct kit *k, bool delayed, uint64_t epochs, double us_per_byte)
{
	kit_open(k, 2);
	kit_chain(k, 1, 5000, 10000, 1000, PARAM);
	k->conf.link = (struct predict_link){ 0, us_per_byte };
	for (uint32_t r = 0; r < 2; r++) {
		plan_init(&k->plan[r], "hivemind-delayed", r, 2, k->member);
		plan_delayed(&k->plan[r], delayed, epochs);
	}
	kit_check(k);
	kit_predict(k);
	kit_show(k);
	return k->out.us;
}

static void an_epoch_takes_the_longer_of_both(void **state)
{
	/* computing 60 ms; 2 (n-1)/n of 100 kB at 0.6 us/B: communicating 60 ms */
	uint64_t epochs = 20, us[2];
	for (int delayed = 0; delayed < 2; delayed++) {
		struct kit k;
		us[delayed] = run(&k, delayed, epochs, 0.6);
		assert_int_equal(k.out.peer[0].ran[PLAN_COMMIT], epochs);
		assert_int_equal(k.out.peer[0].sent[PLAN_WEIGHT_GRAD], epochs * PARAM);
		kit_close(&k);
	}
	kit_near((double)us[0], 20 * 120000.0, 1000);
	assert_true(us[1] <= 1.15 * epochs * 60000);
}

static void staleness_is_exactly_one_epoch(void **state)
{
	struct kit k;
	run(&k, true, 10, 0.6);
	for (size_t i = 0; i < k.out.nspans; i++) {
		const struct predict_span *s = &k.out.span[i];
		/* epoch e computes with what the end of e - 1 made, which has the gradient of e - 2: one behind plain
		 * averaging */
		int64_t e = s->index / M;
		if (s->kind == PLAN_BWD || s->kind == PLAN_VEC)
			assert_int_equal(s->version, e > 0 ? e - 1 : 0);
		if (s->kind != PLAN_VEC)
			continue;
		const struct predict_span *sum = kit_span(&k, s->peer, PLAN_SUM, s->index - M);
		assert_non_null(sum);
		assert_true(sum->end_us <= s->start_us);
	}
	assert_int_equal(kit_values(&k, 0, "g"), 2);
	assert_int_equal(kit_values(&k, 0, "w"), 1);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_epoch_takes_the_longer_of_both),
		cmocka_unit_test(staleness_is_exactly_one_epoch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
