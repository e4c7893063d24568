/* Paper plan 12: tensor parallelism t = 2. Each peer runs a rewritten local graph whose weights are slices of global
 * tensors; f and g are strict sums in the middle of a layer; the vocabulary-parallel loss needs a max. */
#include "plan_kit.h"

#define T 2
#define LAYERS 4
#define B 32            /* tokens of a micro-batch */
#define HIDDEN 64
#define ACT (B * HIDDEN * 4)
#define PARAM (12 * HIDDEN * HIDDEN * 4)        /* bytes of a layer in all */

static void layer_buffers(struct plan *p, uint32_t l)
{
	char tensor[32];
	snprintf(tensor, sizeof tensor, "h.%u.mlp.fc.weight", l);
	struct plan_buf b = { .class = PLAN_WEIGHT, .bytes = PARAM / T, .initial = true };
	uint32_t w = plan_buf(p, &b, "w%u.%u", l, p->me);
	plan_extent(p, w, PLAN_TENSOR, tensor, p->me * 4 * HIDDEN / T, (p->me + 1) * 4 * HIDDEN / T);
	b.class = PLAN_OPTIMIZER;
	plan_buf(p, &b, "opt%u.%u", l, p->me);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = PARAM / T }, "dw%u", l);
	for (int half = 0; half < 2; half++) {
		struct plan_buf x = { .class = PLAN_ACTIVATION, .bytes = ACT };
		plan_buf(p, &x, "h%u.%d", l, half);
		plan_buf(p, &x, "kept%u.%d", l, half);
		x.class = PLAN_ACTIVATION_GRAD;
		plan_buf(p, &x, "g%u.%d", l, half);
	}
}

/* Half 0 is attention, half 1 the MLP: local op 2l and 2l + 1. The sum follows the row-split product (g forward, f
 * back). */
static void layers(struct plan *p, uint32_t tp)
{
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint32_t half = 0; half < 2; half++) {
			char in[32] = "x";
			if (l + half > 0)
				snprintf(in, sizeof in, "h%u.%u", half ? l : l - 1, !half);
			plan_piece(plan_do(p, PLAN_FWD, 0, "%s! w%u.%u -> h%u.%u save:kept%u.%u", in, l, p->me, l, half, l,
				half),
				2 * l + half, 2 * l + half)->keep = PLAN_KEEP_ALL;
			plan_coll(p, PLAN_SUM, 0, tp, "h%u.%u -> h%u.%u", l, half, l, half);
		}
}

/* max of the logits, sum of the exponentials, logit of the target: three small collectives instead of one of all
 * logits. */
static void loss(struct plan *p, uint32_t tp)
{
	uint32_t max = plan_group(p, "tp.max", PLAN_OP_MAX, true, false);
	for (uint32_t r = 0; r < T; r++)
		plan_join(p, max, r, 0);
	plan_vec(p, 0, "rowmax", "h%u.1 -> m", LAYERS - 1);
	plan_coll(p, PLAN_SUM, 0, max, "m -> m");
	plan_vec(p, 0, "sumexp", "h%u.1 m -> z", LAYERS - 1);
	plan_coll(p, PLAN_SUM, 0, tp, "z -> z");
	plan_vec(p, 0, "target", "h%u.1 -> y", LAYERS - 1);
	plan_coll(p, PLAN_SUM, 0, tp, "y -> y");
	plan_vec(p, 0, "xent", "h%u.1! m! z! y! -> g%u.1", LAYERS - 1, LAYERS - 1);
}

static void backward(struct plan *p, uint32_t tp)
{
	for (uint32_t l = LAYERS; l-- > 0;)
		for (uint32_t half = 2; half-- > 0;) {
			char out[32] = "g0";
			if (l + half > 0)
				snprintf(out, sizeof out, "g%u.%u", half ? l : l - 1, !half);
			plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept%u.%u! w%u.%u g%u.%u! -> %s dw%u+", l, half, l, p->me, l,
				half, out, l),
				2 * l + half, 2 * l + half);
			plan_coll(p, PLAN_SUM, 0, tp, "%s -> %s", out, out);
		}
	plan_do(p, PLAN_DROP, 0, "g0");
	for (uint32_t l = 0; l < LAYERS; l++)
		plan_vec(p, 0, "opt", "dw%u! w%u.%u opt%u.%u -> w%u.%u' opt%u.%u'", l, l, p->me, l, p->me, l, p->me, l, p->me);
	plan_do(p, PLAN_COMMIT, 0, "->")->scope = PLAN_SHARD;
}

static void build(struct kit *k)
{
	kit_open(k, T);
	kit_chain(k, 2 * LAYERS, 100, 200, ACT, PARAM / 2);
	k->conf.link = (struct predict_link){ 20, 0.0002 };
	for (uint32_t r = 0; r < T; r++) {
		struct plan *p = &k->plan[r];
		plan_init(p, "tensor", r, T, k->member);
		uint32_t tp = plan_group(p, "tp.sum", PLAN_OP_SUM, true, false);
		for (uint32_t q = 0; q < T; q++)
			plan_join(p, tp, q, 0);
		for (uint32_t l = 0; l < LAYERS; l++)
			layer_buffers(p, l);
		plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = ACT, .depth = 2 }, "x");
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = ACT }, "g0");
		for (const char *s = "mzy"; *s; s++)
			plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = B * 4 }, "%c", *s);
		plan_section(p, PLAN_BODY);
		p->iterations = 3;
		plan_do(p, PLAN_LOAD, 0, "-> x");
		layers(p, tp);
		loss(p, tp);
		backward(p, tp);
	}
}

static void four_sums_a_layer(void **state)
{
	struct kit k;
	build(&k);
	kit_check(&k);
	kit_predict(&k);
	for (uint32_t r = 0; r < T; r++) {
		const struct predict_peer *x = &k.out.peer[r];
		uint64_t weights = 0;
		/* two forward and two backward per layer, three small ones for the loss */
		assert_int_equal(x->ran[PLAN_SUM], 3 * (4 * LAYERS + 3));
		/* 2 (t-1)/t of what is summed leaves each peer */
		assert_int_equal(x->sent[PLAN_ACTIVATION], 3 * 2 * LAYERS * ACT);
		assert_int_equal(x->sent[PLAN_ACTIVATION_GRAD], 3 * 2 * LAYERS * ACT);
		assert_int_equal(x->sent[PLAN_SCALAR], 3 * 3 * B * 4);
		for (uint32_t b = 0; b < k.plan[r].nbufs; b++)
			weights += k.plan[r].buf[b].class == PLAN_WEIGHT ? k.plan[r].buf[b].bytes : 0;
		assert_int_equal(weights, LAYERS * PARAM / T);
	}
	/* nothing hides the sums: each costs two latencies and its bytes, 42 us; the loss's 40, two of them together; the
	 * last sum of a step is beside the next step's first layer */
	uint64_t step = LAYERS * 2 * 300 + 4 * LAYERS * (40 + 2) + 2 * 40;
	assert_int_equal(k.out.us, 3 * step - 2 * 42);
	kit_close(&k);
}

/* All members or the step is planned again: nobody can be left out, so the group must not outgrow its copies. */
static void strict_groups_have_a_limit(void **state)
{
	struct kit k;
	struct err e = {0};
	enum plan_rule rule;
	build(&k);
	struct check_conf c = { .death_chance = 0.2, .predict = k.conf };
	assert_int_equal(plan_check(k.list, k.n, &c, &rule, &e), -1);
	assert_int_equal(rule, RULE_STRICT);
	c.death_chance = 0.05;
	assert_int_equal(plan_check(k.list, k.n, &c, &rule, &e), 0);
	/* one that calls a collective which its partner does not */
	plan_free(&k.plan[1]);
	struct kit other;
	build(&other);
	k.plan[1] = other.plan[1];
	for (uint32_t i = 0; i < k.plan[1].ninstrs; i++)
		if (k.plan[1].instr[i].kind == PLAN_SUM) {
			plan_when(&k.plan[1].instr[i], 2, 0);
			break;
		}
	kit_refused(&k, RULE_UNMATCHED);
	plan_free(&other.plan[0]);
	profile_free(&other.profile);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(four_sums_a_layer),
		cmocka_unit_test(strict_groups_have_a_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
