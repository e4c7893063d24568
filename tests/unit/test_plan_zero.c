/* Paper plan 5: ZeRO-3. Weights, gradients and optimizer state in shards; a layer's weights are gathered before its
 * forward and again before its backward into a ring (prefetch), gradients are scattered; a buddy holds every shard's
 * copy. */
#include "plan_kit.h"

#define N 4
#define L 6
#define P 8192          /* fp32 bytes of one layer */
#define ACT 1000

struct zero { uint32_t prefetch; bool buddy, journal; };

static void state(struct plan *p, const struct zero *z, uint32_t r, uint32_t owner)
{
	for (uint32_t l = 0; l < L; l++) {
		struct plan_buf b = { .class = PLAN_WEIGHT, .bytes = P / N, .per = 2 * L, .initial = true,
			.journal = z->journal };
		char name[32];
		snprintf(name, sizeof name, "layer%u", l);
		for (int k = 0; k < 2; k++) {
			uint32_t id = plan_buf(p, &b, k == 0 ? "w%u.%u" : "opt%u.%u", l, owner);
			plan_extent(p, id, PLAN_TENSOR, name, owner * (P / 4 / N), (owner + 1) * (P / 4 / N));
			plan_holder(p, id, owner);
			if (z->buddy)
				plan_holder(p, id, (owner + 1) % N);
			b.class = PLAN_OPTIMIZER;
			b.bytes = 2 * P / N;
		}
	}
}

static void buffers(struct plan *p, const struct zero *z, uint32_t r)
{
	state(p, z, r, r);
	if (z->buddy)
		state(p, z, r, (r + N - 1) % N);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = P, .depth = 1 + z->prefetch }, "full");
	for (uint32_t l = 0; l <= L; l++) {
		struct plan_buf b = { .class = l > 0 ? PLAN_ACTIVATION : PLAN_BATCH, .bytes = ACT, .per = 2 * L };
		plan_buf(p, &b, "x%u", l);
		b.class = PLAN_ACTIVATION_GRAD;
		plan_buf(p, &b, "g%u", l);
		if (l == L)
			break;
		b.class = PLAN_WEIGHT_GRAD;
		b.bytes = P / N;
		plan_buf(p, &b, "ds%u.%u", l, r);
	}
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = P, .depth = 2 }, "dw");
}

/* The optimizer comes before the buddy's copy arrives, which can fail: the journal keeps the committed shard until
 * COMMIT. */
static void copies(struct plan *p, uint32_t r)
{
	uint32_t from = (r + N - 1) % N;
	for (uint32_t l = 0; l < L; l++) {
		plan_send(p, 2 * L - 1, (r + 1) % N, "w%u.%u'", l, r);
		plan_send(p, 2 * L - 1, (r + 1) % N, "opt%u.%u'", l, r);
		plan_recv(p, 2 * L - 1, from, "w%u.%u'", l, from);
		plan_recv(p, 2 * L - 1, from, "opt%u.%u'", l, from);
	}
}

static void plan_zero(struct plan *p, const struct zero *z, uint32_t r)
{
	uint32_t g = plan_group(p, "all", PLAN_OP_MEAN, true, false);
	for (uint32_t q = 0; q < N; q++)
		plan_join(p, g, q, 0);
	buffers(p, z, r);
	p->redundancy = z->buddy ? 2 : 1;
	p->step = 2 * L;
	p->iterations = 3;
	plan_section(p, PLAN_BODY);
	plan_do(p, PLAN_LOAD, 0, "-> x0");
	for (uint32_t l = 0; l < L; l++) {
		plan_coll(p, PLAN_GATHER, l, g, "w%u.%u -> full", l, r);
		plan_piece(plan_do(p, PLAN_FWD, l, "x%u full! -> x%u", l, l + 1), l, l);
	}
	plan_vec(p, L, "loss", "x%u! -> g%u", L, L);
	for (uint32_t l = L, v = L; l-- > 0; v++) {
		plan_coll(p, PLAN_GATHER, v, g, "w%u.%u -> full", l, r);
		plan_piece(plan_do(p, PLAN_BWD, v, "x%u! full! g%u! -> g%u dw", l, l + 1, l), l, l);
		plan_coll(p, PLAN_SCATTER, v, g, "dw! -> ds%u.%u", l, r);
	}
	plan_do(p, PLAN_DROP, 2 * L - 1, "g0");
	for (uint32_t l = 0; l < L; l++)
		plan_vec(p, 2 * L - 1, "opt", "ds%u.%u! w%u.%u opt%u.%u -> w%u.%u' opt%u.%u'", l, r, l, r, l, r, l, r, l, r);
	if (z->buddy)
		copies(p, r);
	plan_do(p, PLAN_COMMIT, 0, "->")->scope = PLAN_GROUP;
}

static void build(struct kit *k, const struct zero *z, double us_per_byte)
{
	kit_open(k, N);
	kit_chain(k, L, 400, 800, ACT, P);
	k->conf.link = (struct predict_link){ 0, us_per_byte };
	for (uint32_t r = 0; r < N; r++) {
		plan_init(&k->plan[r], "zero3", r, N, k->member);
		plan_zero(&k->plan[r], z, r);
	}
}

static void bytes_and_memory(void **s)
{
	struct kit k;
	uint64_t psi = (uint64_t)L * P, steps = 3;
	build(&k, &(struct zero){ .prefetch = 1 }, 0.01);
	kit_check(&k);
	kit_predict(&k);
	for (uint32_t r = 0; r < N; r++) {
		const struct predict_peer *x = &k.out.peer[r];
		/* 3 (N-1)/N of the model a step: two gathers and a scatter; 1.5 times data parallelism's 2 (N-1)/N */
		assert_int_equal(x->sent[PLAN_WEIGHT] + x->sent[PLAN_WEIGHT_GRAD], steps * 3 * (N - 1) * psi / N);
		assert_int_equal(x->received[PLAN_WEIGHT], steps * 2 * (N - 1) * psi / N);
		/* 16 bytes a parameter in all, divided by N; the working set is the ring of whole layers and activations */
		uint64_t shards = (4 + 8 + 4) * (psi / 4) / N, work = 2 * P + 2 * P + (L + 1 + 2) * ACT;
		assert_true(x->peak[0] <= shards + work);
		assert_true(x->peak[0] > shards);
		assert_int_equal(kit_values(&k, r, "full"), 2);
	}
	kit_close(&k);
}

/* What prefetching hides: waiting of the train lane. */
static void prefetch_hides_gathers(void **s)
{
	uint64_t stall[3];
	for (uint32_t prefetch = 0; prefetch < 3; prefetch++) {
		struct kit k;
		build(&k, &(struct zero){ .prefetch = prefetch }, 0.04);
		kit_predict(&k);
		kit_show(&k);
		stall[prefetch] = k.out.us - k.out.peer[0].busy_us[plan_find_lane(&k.plan[0], "train")];
		kit_close(&k);
	}
	assert_true(stall[1] < stall[0]);
	assert_true(2 * stall[2] < stall[0]);
}

static void a_dead_peer_must_not_take_the_only_shard(void **s)
{
	struct kit k;
	struct zero buddy = { .prefetch = 1, .buddy = true, .journal = true };
	build(&k, &buddy, 0.01);
	kit_check(&k);
	kit_predict(&k);
	/* the journal is counted: own and buddy shards twice */
	assert_true(k.out.peer[0].peak[0] >= 4 * 12ull * (L * P / 4) / N);
	kit_close(&k);

	build(&k, &(struct zero){ .prefetch = 1 }, 0.01);
	for (uint32_t r = 0; r < N; r++)
		k.plan[r].redundancy = 2;
	kit_refused(&k, RULE_HOLDERS);
	kit_close(&k);

	buddy.journal = false;
	build(&k, &buddy, 0.01);
	kit_refused(&k, RULE_COMMIT);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_and_memory),
		cmocka_unit_test(prefetch_hides_gathers),
		cmocka_unit_test(a_dead_peer_must_not_take_the_only_shard),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
