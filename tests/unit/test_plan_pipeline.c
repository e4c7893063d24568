/* Paper plan 1: 1F1B with flush (bubble and stash), and PipeDream: weight stashing, vertical sync. */
#include "plan_kit.h"

#define ACT 1000
#define PARAM 4000

struct stage { uint32_t s, p; bool flush, vertical; uint32_t m; };

static void buffers(struct plan *p, const struct stage *x)
{
	uint32_t per = x->flush ? x->m : 1, s = x->s;
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = ACT, .depth = 2 }, "a0");
	for (uint32_t k = s > 0 ? s : 1; k <= s + 1 && k < x->p; k++) {
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = ACT, .depth = 2 }, "a%u", k);
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = ACT, .depth = 2 }, "g%u", k);
	}
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 10 * ACT, .depth = x->p - s }, "kept");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = PARAM, .per = per }, "dw");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = PARAM, .per = per, .initial = true,
		.depth = x->flush ? 1 : x->vertical ? x->p + 1 : x->p - s }, "w%u", s);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_OPTIMIZER, .bytes = 2 * PARAM, .per = per, .initial = true },
		"opt%u", s);
}

static void forward(struct plan *p, const struct stage *x, int64_t mb)
{
	uint32_t s = x->s;
	char out[64] = "";
	if (s == 0)
		plan_do(p, PLAN_LOAD, mb, "-> a0");
	else
		plan_recv(p, mb, s - 1, "a%u", s);
	if (s + 1 < x->p)
		snprintf(out, sizeof out, " a%u", s + 1);
	const char *age = x->flush ? "" : x->vertical && s > 0 ? "~0" : "<=*";
	plan_piece(plan_do(p, PLAN_FWD, mb, "a%u! w%u%s ->%s save:kept", s, s, age, out), s, s)->keep = PLAN_KEEP_ALL;
	if (s + 1 < x->p)
		plan_send(p, mb, s + 1, "a%u!", s + 1);
}

static void backward(struct plan *p, const struct stage *x, int64_t mb)
{
	uint32_t s = x->s;
	char in[64] = "", out[64] = "";
	if (s + 1 < x->p) {
		plan_recv(p, mb, s + 1, "g%u", s + 1);
		snprintf(in, sizeof in, " g%u!", s + 1);
	}
	if (s > 0)
		snprintf(out, sizeof out, " g%u", s);
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept! w%u%s%s ->%s dw%s", s, x->flush ? "" : "~0", in, out,
		x->flush ? "+" : ""), s, s);
	if (s > 0)
		plan_send(p, mb, s - 1, "g%u!", s);
	if (x->flush)
		return;
	plan_vec(p, mb, "opt", "dw! w%u opt%u -> w%u' opt%u'", s, s, s, s);
	plan_do(p, PLAN_COMMIT, mb, "w%u' opt%u'", s, s);
}

/* One stage: warm forwards, one forward and one backward in turn, the rest of the backwards. */
static void plan_stage(struct plan *p, const struct stage *x, uint64_t n)
{
	uint32_t warm = x->p - 1 - x->s < n ? x->p - 1 - x->s : (uint32_t)n;
	buffers(p, x);
	for (uint32_t i = 0; i < warm; i++)
		forward(p, x, i);
	plan_section(p, PLAN_BODY);
	p->iterations = n - warm;
	forward(p, x, warm);
	backward(p, x, 0);
	plan_section(p, PLAN_EPILOGUE);
	for (uint32_t i = 0; i < warm; i++)
		backward(p, x, i);
	if (x->flush) {
		plan_vec(p, (int64_t)warm - 1, "opt", "dw! w%u opt%u -> w%u' opt%u'", x->s, x->s, x->s, x->s);
		plan_do(p, PLAN_COMMIT, warm, "->");
	}
}

static void pipeline(struct kit *k, uint32_t stages, uint64_t n, bool flush, bool vertical)
{
	for (uint32_t s = 0; s < stages; s++) {
		struct stage x = { s, stages, flush, vertical, (uint32_t)n };
		plan_init(&k->plan[s], flush ? "1f1b" : "pipedream", s, stages, k->member);
		plan_stage(&k->plan[s], &x, n);
	}
}

static void flush_bubble_and_stash(void **state)
{
	static const uint32_t depth[] = { 2, 3, 4, 8 }, micro[] = { 1, 2, 4, 8, 16 };
	static const uint64_t back[] = { 30, 60, 50 };
	for (int a = 0; a < 4; a++)
		for (int b = 0; b < 5; b++)
			for (int c = 0; c < 3; c++) {
				struct kit k;
				uint32_t p = depth[a], m = micro[b];
				kit_open(&k, p);
				kit_chain(&k, p, 30, back[c], ACT, PARAM);
				pipeline(&k, p, m, true, false);
				kit_check(&k);
				kit_predict(&k);
				assert_int_equal(k.out.us, (m + p - 1) * (30 + back[c]));
				for (uint32_t s = 0; s < p; s++) {
					kit_near(k.out.peer[s].bubble, (double)(p - 1) / (m + p - 1), 1e-12);
					assert_int_equal(kit_values(&k, s, "kept"), m < p - s ? m : p - s);
				}
				/* each boundary carries an activation and its gradient per micro-batch */
				assert_int_equal(k.out.peer[0].sent[PLAN_ACTIVATION], m * ACT);
				assert_int_equal(k.out.peer[0].received[PLAN_ACTIVATION_GRAD], m * ACT);
				assert_int_equal(k.out.unread, 0);
				kit_close(&k);
			}
}

static void stashing_versions_and_delay(void **state)
{
	static const uint32_t stages[] = { 2, 3, 4, 6 };
	for (int a = 0; a < 4; a++) {
		struct kit k;
		uint32_t p = stages[a], lane;
		uint64_t n = 60;
		kit_open(&k, p);
		kit_chain(&k, p, 100, 200, ACT, PARAM);
		pipeline(&k, p, n, false, false);
		kit_check(&k);
		kit_predict(&k);
		kit_show(&k);
		for (uint32_t s = 0; s < p; s++) {
			char w[16];
			snprintf(w, sizeof w, "w%u", s);
			/* versions held: S - s; the gradient of micro-batch j changes version j and was made with j - (S - 1 - s)
			 * */
			assert_int_equal(kit_values(&k, s, w), p - s);
			for (int64_t j = p; j < (int64_t)n; j++) {
				const struct predict_span *f = kit_span(&k, s, PLAN_FWD, j), *b = kit_span(&k, s, PLAN_BWD, j);
				assert_int_equal(j - b->version, p - 1 - s);
				assert_int_equal(f->version, b->version);
			}
			lane = plan_find_lane(&k.plan[s], "train");
			assert_true(prediction_idle(&k.out, s, lane, 300 * p, k.out.us - 300 * p) < 0.05);
		}
		kit_close(&k);
	}
}

static void vertical_sync(void **state)
{
	struct kit k;
	uint32_t p = 4;
	kit_open(&k, p);
	kit_chain(&k, p, 100, 200, ACT, PARAM);
	pipeline(&k, p, 40, false, true);
	kit_check(&k);
	kit_predict(&k);
	for (int64_t j = p; j < 40; j++)
		for (uint32_t s = 0; s < p; s++) {
			assert_int_equal(kit_span(&k, s, PLAN_FWD, j)->version, kit_span(&k, 0, PLAN_FWD, j)->version);
			assert_int_equal(kit_span(&k, s, PLAN_BWD, j)->version, j - (int64_t)(p - 1));
		}
	kit_close(&k);
}

/* Without the stash the ring is one value deep: the update would overwrite what the backward still needs. */
static void short_ring_is_refused(void **state)
{
	struct kit k;
	kit_open(&k, 3);
	kit_chain(&k, 3, 100, 200, ACT, PARAM);
	pipeline(&k, 3, 40, false, false);
	k.plan[0].buf[plan_find(&k.plan[0], "w0")].depth = 2;
	kit_refused(&k, RULE_CYCLE);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flush_bubble_and_stash),
		cmocka_unit_test(stashing_versions_and_delay),
		cmocka_unit_test(vertical_sync),
		cmocka_unit_test(short_ring_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
