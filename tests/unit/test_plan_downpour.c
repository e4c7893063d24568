/* Paper plan 9: Downpour SGD, 4 workers and 2 parameter shards. Asynchronous twice: workers push whenever they are
 * ready and read the newest weights that have come; servers apply whatever arrives first and answer its sender. */
#include "plan_kit.h"

#define SHARDS 2
#define SHARD 40000
#define STEPS 40

struct downpour { uint32_t workers; uint32_t stale; };

static void weights(struct plan *p, uint32_t s, uint32_t depth)
{
	uint32_t w = plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = SHARD, .initial = true,
		.depth = depth },
		"w%u", s);
	plan_extent(p, w, PLAN_FLAT, "", s * SHARD / 4, (s + 1) * SHARD / 4);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = SHARD, .depth = 2 }, "d%u", s);
}

static void worker(struct plan *p, const struct downpour *x)
{
	char age[8] = "<=*";
	if (x->stale > 0)
		snprintf(age, sizeof age, "<=%u", x->stale % 100);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = 1000, .depth = 2 }, "x");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 1000 }, "kept");
	for (uint32_t s = 0; s < SHARDS; s++)
		weights(p, s, 3);
	plan_section(p, PLAN_BODY);
	p->iterations = STEPS;
	plan_do(p, PLAN_LOAD, 0, "-> x");
	plan_piece(plan_do(p, PLAN_FWD, 0, "x! w0%s w1%s -> save:kept", age, age), 0, 0);
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept! w0~0 w1~0 -> d0 d1"), 0, 0);
	for (uint32_t s = 0; s < SHARDS; s++)
		plan_send(p, 0, x->workers + s, "d%u!", s);
	/* a dead server leaves its shard as it is */
	for (uint32_t s = 0; s < SHARDS; s++)
		plan_recv(p, 0, x->workers + s, "w%u'", s)->on_missing = PLAN_USE_NEWEST;
	plan_do(p, PLAN_COMMIT, 0, "w0' w1'");
}

static void server(struct plan *p, const struct downpour *x, uint32_t s)
{
	uint32_t g = plan_group(p, "workers", PLAN_OP_SUM, false, false);
	for (uint32_t k = 0; k < x->workers; k++)
		plan_join(p, g, k, 0);
	weights(p, s, 2);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_OPTIMIZER, .bytes = SHARD, .initial = true }, "acc%u", s);
	plan_section(p, PLAN_BODY);
	p->iterations = 100000;
	struct plan_instr *r = plan_recv(p, 0, 0, "d%u", s);
	r->with = PLAN_ANY;
	r->group = g;
	r->quorum = r->most = 1;
	plan_vec(p, 0, "opt", "d%u w%u acc%u -> w%u' acc%u'", s, s, s, s, s);
	plan_do(p, PLAN_COMMIT, 0, "w%u' acc%u'", s, s)->scope = PLAN_SHARD;
	plan_send(p, 0, 0, "w%u' d%u!", s, s)->with = PLAN_REPLY;
}

static void build(struct kit *k, const struct downpour *x)
{
	kit_open(k, x->workers + SHARDS);
	kit_chain(k, 1, 5000, 10000, 1000, SHARDS * SHARD);
	kit_fn(k, "opt", 200, 0);
	k->conf.link = (struct predict_link){ 1000, 0.02 };
	for (uint32_t r = 0; r < k->n; r++) {
		plan_init(&k->plan[r], "downpour", r, k->n, k->member);
		if (r < x->workers)
			worker(&k->plan[r], x);
		else
			server(&k->plan[r], x, r - x->workers);
	}
}

static void gradients_scale_and_count(void **state)
{
	double rate[2];
	for (int many = 0; many < 2; many++) {
		struct downpour x = { many ? 4 : 1, 0 };
		struct kit k;
		build(&k, &x);
		kit_check(&k);
		kit_predict(&k);
		for (uint32_t s = 0; s < SHARDS; s++) {
			const struct predict_peer *o = &k.out.peer[x.workers + s];
			assert_true(o->idle);
			assert_int_equal(o->ran[PLAN_COMMIT], x.workers * STEPS);
			assert_int_equal(o->received[PLAN_WEIGHT_GRAD], (uint64_t)x.workers * STEPS * SHARD);
			assert_int_equal(o->sent[PLAN_WEIGHT], (uint64_t)x.workers * STEPS * SHARD);
		}
		for (uint32_t w = 0; w < x.workers; w++)
			assert_int_equal(k.out.peer[w].sent[PLAN_WEIGHT_GRAD], (uint64_t)SHARDS * STEPS * SHARD);
		rate[many] = x.workers * STEPS / (double)k.out.us;
		kit_close(&k);
	}
	assert_true(rate[1] >= 3.5 * rate[0]);
}

/* How many updates of others came between reading a shard and applying the gradient; the log says it for every push. */
static double staleness(const struct kit *k, uint32_t server_rank, int64_t *ret_max)
{
	double sum = 0, n = 0;
	*ret_max = 0;
	for (size_t i = 0; i < k->out.nspans; i++) {
		const struct predict_span *s = &k->out.span[i];
		if (s->peer != server_rank || s->kind != PLAN_RECV || s->from == PLAN_NONE)
			continue;
		const struct predict_span *v = kit_span(k, server_rank, PLAN_VEC, s->index);
		assert_non_null(v);
		assert_true(v->version >= s->version);
		sum += (double)(v->version - s->version);
		n++;
		*ret_max = v->version - s->version > *ret_max ? v->version - s->version : *ret_max;
	}
	return sum / n;
}

static void staleness_is_seen(void **state)
{
	struct downpour x = { 4, 0 };
	struct kit k;
	int64_t most;
	build(&k, &x);
	kit_predict(&k);
	double mean = staleness(&k, 4, &most);
	if (getenv("KIT_SHOW"))
		print_message("mean staleness %.2f, most %lld\n", mean, (long long)most);
	assert_true(mean > 2.5 && mean < 8);
	kit_close(&k);
	/* one worker that waits for its own answer (age 0) is plain SGD */
	x = (struct downpour){ 1, 100 };
	build(&k, &x);
	kit_check(&k);
	kit_predict(&k);
	mean = staleness(&k, 1, &most);
	assert_int_equal(most, 0);
	kit_close(&k);
}

static void a_dead_worker_costs_nobody_else(void **state)
{
	struct downpour x = { 4, 0 };
	struct kit k;
	uint64_t dies[6] = { [0] = 300000 }, horizon = 600000, count[2] = {0};
	build(&k, &x);
	k.conf.horizon_us = horizon;
	for (int death = 0; death < 2; death++) {
		k.conf.dies_at_us = death ? dies : NULL;
		kit_predict(&k);
		for (uint32_t w = 1; w < 4; w++)
			count[death] += k.out.peer[w].ran[PLAN_BWD];
		assert_int_equal(k.out.peer[0].died, death);
		assert_true(k.out.peer[4].ran[PLAN_COMMIT] > 3 * 35);
	}
	assert_true(count[1] * 10 >= count[0] * 9);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_scale_and_count),
		cmocka_unit_test(staleness_is_seen),
		cmocka_unit_test(a_dead_worker_costs_nobody_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
