/* Paper plan 2: PipeDream-2BW. Gradients of m micro-batches are coalesced, two weight versions, a delay of exactly
 * one. */
#include "plan_kit.h"

#define ACT 1000
#define PARAM 4000

static void transfer(struct plan *p, uint32_t s, uint32_t stages)
{
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = ACT, .depth = 2 }, "a0");
	for (uint32_t k = s > 0 ? s : 1; k <= s + 1 && k < stages; k++) {
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = ACT, .depth = 2 }, "a%u", k);
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = ACT, .depth = 2 }, "g%u", k);
	}
}

static void forward(struct plan *p, uint32_t s, uint32_t stages, int64_t mb)
{
	char out[64] = "";
	if (s > 0)
		plan_recv(p, mb, s - 1, "a%u", s);
	else
		plan_do(p, PLAN_LOAD, mb, "-> a0");
	if (s + 1 < stages)
		snprintf(out, sizeof out, "a%u", s + 1);
	plan_piece(plan_do(p, PLAN_FWD, mb, "a%u! w%u=1 -> %s save:kept", s, s, out), s, s);
	if (s + 1 < stages)
		plan_send(p, mb, s + 1, "a%u!", s + 1);
}

static void backward(struct plan *p, uint32_t s, uint32_t stages, uint32_t m, int64_t mb)
{
	char in[64] = "", out[64] = "";
	if (s + 1 < stages) {
		plan_recv(p, mb, s + 1, "g%u", s + 1);
		snprintf(in, sizeof in, "g%u!", s + 1);
	}
	if (s > 0)
		snprintf(out, sizeof out, "g%u", s);
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept! w%u=1 %s -> %s dw+", s, in, out), s, s);
	if (s > 0)
		plan_send(p, mb, s - 1, "g%u!", s);
	plan_when(plan_vec(p, mb, "opt", "dw! w%u opt%u -> w%u' opt%u'", s, s, s, s), m, m - 1);
	plan_when(plan_do(p, PLAN_COMMIT, mb, "w%u' opt%u'", s, s), m, m - 1);
}

static void plan_2bw(struct plan *p, uint32_t s, uint32_t stages, uint32_t m, uint64_t n)
{
	uint32_t warm = stages - 1 - s;
	transfer(p, s, stages);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = ACT, .depth = stages - s }, "kept");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = PARAM, .per = m }, "dw");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = PARAM, .per = m, .initial = true, .depth = 2 },
		"w%u", s);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_OPTIMIZER, .bytes = PARAM, .per = m, .initial = true }, "opt%u", s);
	for (uint32_t i = 0; i < warm; i++)
		forward(p, s, stages, i);
	plan_section(p, PLAN_BODY);
	p->iterations = n - warm;
	forward(p, s, stages, warm);
	backward(p, s, stages, m, 0);
	plan_section(p, PLAN_EPILOGUE);
	for (uint32_t i = 0; i < warm; i++)
		backward(p, s, stages, m, i);
}

static void two_versions_delay_one(void **state)
{
	struct kit k;
	uint32_t stages = 4, m = 4, n = 48;
	kit_open(&k, stages);
	kit_chain(&k, stages, 100, 200, ACT, PARAM);
	for (uint32_t s = 0; s < stages; s++) {
		plan_init(&k.plan[s], "2bw", s, stages, k.member);
		plan_2bw(&k.plan[s], s, stages, m, n);
	}
	kit_check(&k);
	kit_predict(&k);
	kit_show(&k);
	for (uint32_t s = 0; s < stages; s++) {
		char w[16];
		snprintf(w, sizeof w, "w%u", s);
		assert_int_equal(kit_values(&k, s, w), 2);
		assert_int_equal(k.out.peer[s].ran[PLAN_COMMIT], n / m);
		for (int64_t j = 0; j < n; j++) {
			/* W(t+1) = W(t) - lr * grad(W(t-1)): batch t computes with the version before its own */
			int64_t want = j / m > 0 ? j / m - 1 : 0;
			assert_int_equal(kit_span(&k, s, PLAN_FWD, j)->version, want);
			assert_int_equal(kit_span(&k, s, PLAN_BWD, j)->version, want);
		}
		/* no flush: the updates make no bubble */
		uint32_t lane = plan_find_lane(&k.plan[s], "train");
		assert_true(prediction_idle(&k.out, s, lane, 300 * stages, k.out.us - 300 * stages) < 0.01);
	}
	/* the last stage never waits once it has begun */
	assert_int_equal(k.out.us, (stages - 1) * 300 + n * 300);
	kit_close(&k);
}

/* m < p would need a third version: the batch before is still in flight when the next one is made. */
static void too_few_micro_batches(void **state)
{
	struct kit k;
	uint32_t stages = 4, m = 1;
	kit_open(&k, stages);
	kit_chain(&k, stages, 100, 200, ACT, PARAM);
	for (uint32_t s = 0; s < stages; s++) {
		plan_init(&k.plan[s], "2bw", s, stages, k.member);
		plan_2bw(&k.plan[s], s, stages, m, 24);
	}
	kit_refused(&k, RULE_VALUE);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_versions_delay_one),
		cmocka_unit_test(too_few_micro_batches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
