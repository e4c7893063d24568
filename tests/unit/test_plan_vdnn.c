/* Paper plan 8: vDNN. A layer's input moves to host memory while the layer runs and comes back one layer ahead of its
 * backward; which layers do that (all, or convolutions only) and which algorithm they use are the planner's choices. */
#include "plan_kit.h"

#define L 12
#define ACT 1000000
#define PARAM 50000
#define WORK 3000000

static bool conv(uint32_t i)
{
	return i % 3 == 0;
}

struct vdnn { bool all; uint32_t ring; const char *algorithm; bool file, saves; };

static bool moves(const struct vdnn *v, uint32_t i)
{
	return v->all || conv(i);
}

static void buffers(struct plan *p, const struct vdnn *v)
{
	for (uint32_t i = 0; i <= L; i++) {
		struct plan_buf b = { .class = i > 0 ? PLAN_ACTIVATION : PLAN_BATCH, .bytes = ACT, .per = 2 * L };
		if (i == L || !moves(v, i))
			plan_buf(p, &b, "keep%u", i);
		b.tier = plan_tier(p, v->file ? "file" : "host", 0);
		if (i < L && moves(v, i))
			plan_buf(p, &b, "host%u", i);
	}
	/* what is on its way out; what has come back; one slot more removes the wait at the end of the layer (vDNN++) */
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = ACT, .depth = v->ring }, "out");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = ACT, .depth = 2 }, "back");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = ACT, .depth = 2 }, "g");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = L * PARAM, .per = 2 * L, .initial = true }, "w");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = L * PARAM, .per = 2 * L }, "dw");
}

static void name(char *s, const struct vdnn *v, uint32_t i)
{
	snprintf(s, 16, i < L && moves(v, i) ? "out" : "keep%u", i);
}

static struct plan_instr *layer(struct plan_instr *x, const struct vdnn *v, uint32_t i)
{
	plan_piece(x, i, i);
	if (conv(i) && v->algorithm[0]) {
		memcpy(x->variant, v->algorithm, strlen(v->algorithm) + 1);
		x->work_bytes = WORK;
	}
	return x;
}

static void plan_vdnn(struct plan *p, const struct vdnn *v)
{
	char x[16], y[16];
	uint32_t out = plan_lane(p, "copy-out", 1, 1), in = plan_lane(p, "copy-in", 1, 1);
	buffers(p, v);
	plan_section(p, PLAN_BODY);
	p->iterations = 2;
	p->step = 2 * L;
	name(x, v, 0);
	plan_do(p, PLAN_LOAD, 0, "-> %s", x);
	for (uint32_t i = 0; i < L; i++, memcpy(x, y, sizeof x)) {
		bool mine = moves(v, i);
		name(y, v, i + 1);
		/* ring "out" has one value per layer: key = layer, written one ahead */
		layer(plan_do(p, PLAN_FWD, i, "%s w -> %s%s", x, y, y[0] == 'o' ? "'" : ""), v, i);
		/* the copy runs beside the layer; the value goes when both have ended */
		if (mine)
			plan_do(p, PLAN_MOVE, i, "out -> host%u", i)->lane = out;
		if (mine)
			plan_do(p, PLAN_DROP, i, "out");
	}
	plan_vec(p, 0, "loss", "keep%u! -> g", L);
	for (uint32_t i = L; i-- > 0;) {
		int64_t visit = L - 1 - i;
		if (moves(v, i))
			plan_do(p, PLAN_MOVE, visit, "host%u! -> back", i)->lane = in;
		layer(plan_do(p, PLAN_BWD, visit, moves(v, i) ? "back! w g! -> g' dw+" : "keep%u! w g! -> g' dw+", i), v, i);
	}
	plan_do(p, PLAN_DROP, L, "g");
	plan_vec(p, 2 * L - 1, "opt", "dw! w -> w'");
	plan_do(p, PLAN_COMMIT, 2 * L - 1, "w'");
	if (v->saves)
		memcpy(plan_do(p, PLAN_SAVE, 2 * L - 1, "w'")->fn, "weights", 8);
}

static void run(struct kit *k, const struct vdnn *v, double us_per_byte, uint64_t budget)
{
	kit_open(k, 1);
	kit_chain(k, L, 1000, 2000, ACT, PARAM);
	for (uint32_t i = 0; i < L; i++) {
		k->profile.op[i].nvariants = 2;
		k->profile.op[i].variant[1] = (struct profile_variant){ "im2col", 600, 1200, WORK };
	}
	kit_fn(k, "MOVE", 0, us_per_byte);
	kit_fn(k, "SAVE", 700, us_per_byte);
	plan_init(&k->plan[0], "vdnn", 0, 1, k->member);
	plan_vdnn(&k->plan[0], v);
	k->plan[0].tier[0].budget = budget;
}

static uint64_t moved(const struct kit *k)
{
	return k->out.peer[0].ran[PLAN_MOVE];
}

static void only_the_chosen_inputs_move(void **state)
{
	for (int all = 0; all < 2; all++) {
		struct kit k;
		run(&k, &(struct vdnn){ all, 2, "" }, 0.0005, 0);
		kit_check(&k);
		kit_predict(&k);
		kit_show(&k);
		/* out and back, two iterations; conv policy: layers 0 3 6 9 */
		assert_int_equal(moved(&k), 2 * 2 * (all ? L : 4));
		assert_int_equal(k.out.peer[0].peak[1], (all ? L : 4) * (uint64_t)ACT);
		if (all) {
			/* two layers' data at a time: forward what leaves and what is made, backward what came back and the next
			 * with the two gradients of the layer that runs; and the next batch, which is loaded meanwhile */
			uint64_t weights = 2 * (uint64_t)L * PARAM;
			assert_true(k.out.peer[0].peak[0] <= weights + 5 * (uint64_t)ACT);
			assert_int_equal(kit_values(&k, 0, "out"), 2);
			assert_int_equal(kit_values(&k, 0, "back"), 2);
		}
		/* copies of 500 us hide behind layers of 1000 us: nothing but the first load back is waited for */
		assert_true(k.out.us <= 2 * (L * 3000 + 1000));
		kit_close(&k);
	}
}

static void memory_is_the_point(void **state)
{
	struct kit k;
	run(&k, &(struct vdnn){ true, 2, "" }, 0.0005, 0);
	kit_predict(&k);
	uint64_t small = k.out.peer[0].peak[0];
	kit_close(&k);
	/* everything kept: 13 activations and two gradients */
	uint64_t full = (L + 1 + 2) * (uint64_t)ACT + 2 * (uint64_t)L * PARAM;
	assert_true(small * 10 < full * 4);
	run(&k, &(struct vdnn){ true, 2, "" }, 0.0005, full * 4 / 10);
	kit_check(&k);
	kit_close(&k);
	run(&k, &(struct vdnn){ false, 2, "" }, 0.0005, full * 4 / 10);
	kit_refused(&k, RULE_PEAK);
	kit_close(&k);
}

/* Slow copies: a layer waits until the ring has a place; one slot more (vDNN++) is faster at the same policy. */
static void one_slot_more_removes_the_wait(void **state)
{
	uint64_t us[2];
	for (int more = 0; more < 2; more++) {
		struct kit k;
		run(&k, &(struct vdnn){ false, 1 + more, "" }, 0.0025, 0);
		kit_check(&k);
		kit_predict(&k);
		us[more] = k.out.us;
		kit_close(&k);
	}
	/* nothing waits with two places; with one, layers 2, 5 and 8 wait 500 us each for the copy of a convolution
	 * before */
	assert_int_equal(us[1], 2 * L * 3000);
	assert_true(us[0] >= us[1] + 5 * 500);
}

/* The algorithm is a plan choice: faster with scratch memory, or within the budget without. */
static void algorithms(void **state)
{
	struct kit k;
	run(&k, &(struct vdnn){ true, 2, "" }, 0.0001, 0);
	kit_predict(&k);
	uint64_t us = k.out.us, peak = k.out.peer[0].peak[0];
	kit_close(&k);
	run(&k, &(struct vdnn){ true, 2, "im2col" }, 0.0001, 0);
	kit_check(&k);
	kit_predict(&k);
	assert_int_equal(us - k.out.us, 2 * 4 * (400 + 800));
	assert_true(k.out.peer[0].peak[0] > peak);
	k.plan[0].tier[0].budget = peak;
	kit_refused(&k, RULE_PEAK);
	kit_close(&k);
}

/* Where it goes is a plan choice, too: the bytes are in the other tier, and nothing else changes. What is saved is in
 * nobody's way but of who writes it next. */
static void to_a_file(void **state)
{
	const uint64_t save = 700 + L * PARAM / 2000;
	struct kit k;
	run(&k, &(struct vdnn){ true, 2, "" }, 0.0005, 0);
	kit_predict(&k);
	uint64_t us = k.out.us, peak = k.out.peer[0].peak[0], away = k.out.peer[0].peak[1];
	kit_close(&k);
	for (int saves = 0; saves < 2; saves++) {
		run(&k, &(struct vdnn){ true, 2, "", true, saves }, 0.0005, 0);
		kit_check(&k);
		kit_predict(&k);
		assert_int_equal(k.out.us, us + (saves ? save : 0));
		assert_int_equal(k.out.peer[0].peak[0], peak);
		assert_int_equal(k.out.peer[0].peak[1], 0);
		assert_int_equal(k.out.peer[0].peak[2], away);
		assert_int_equal(k.out.peer[0].ran[PLAN_SAVE], saves ? 2 : 0);
		if (saves) {
			const struct predict_span *s = kit_span(&k, 0, PLAN_SAVE, 2 * L - 1);
			assert_int_equal(s->end_us - s->start_us, save);
		}
		k.plan[0].tier[2].budget = away - 1;
		kit_refused(&k, RULE_PEAK);
		kit_close(&k);
	}
	run(&k, &(struct vdnn){ true, 2, "", true }, 0.0005, 0);
	k.plan[0].buf[plan_find(&k.plan[0], "back")].tier = 2;
	kit_refused(&k, RULE_SHAPE);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_chosen_inputs_move),
		cmocka_unit_test(memory_is_the_point),
		cmocka_unit_test(one_slot_more_removes_the_wait),
		cmocka_unit_test(algorithms),
		cmocka_unit_test(to_a_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
