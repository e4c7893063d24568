/* Paper plan 11: decentralized mixture of experts, 4 trainers and 2 servers with a grid of 4 x 2 experts. Which
 * expert a row goes to is known at run time only (a route buffer); servers batch whatever comes; a slow or dead
 * expert is left out and the rest renormalised; several streams per trainer hide the latency; only servers change
 * expert weights. */
#include "common/rng.h"
#include "plan_kit.h"

#define TRAINERS 4
#define SERVERS 2
#define EXPERTS 8       /* a grid of 4 x 2; server s has experts s * 4 .. s * 4 + 3 */
#define ROWS 64         /* of a trainer's batch */
#define K 2             /* experts per row */
#define ROW 256         /* bytes */
#define STEPS 80

/* Bytes from one trainer to one server: a function of (from, index) only, so that BWD finds the route of its FWD. */
static uint64_t route(void *arg, uint32_t from, uint32_t to, int64_t index, const char *buf, uint64_t bytes)
{
	uint64_t rows = 0, both = buf[0] == 'g' && buf[1] == 'y' ? 2 : 1;
	uint32_t server = to >= TRAINERS ? to - TRAINERS : from - TRAINERS, trainer = to >= TRAINERS ? from : to;
	for (uint64_t r = 0; r < ROWS * K; r++)
		rows += rng_at(rng_mix(trainer + 1, (uint64_t)index), r) % EXPERTS / (EXPERTS / SERVERS) == server;
	/* backward re-sends the inputs with the gradients of the outputs */
	return rows * ROW * both;
}

static void rows(struct plan *p, enum plan_class class, const char *name, uint32_t factor)
{
	plan_buf(p, &(struct plan_buf){ .class = class, .bytes = (uint64_t)ROWS * K * ROW * factor, .bounded = true },
		"%s", name);
}

static void trainer(struct plan *p, uint32_t streams, uint64_t deadline_us)
{
	uint32_t g = plan_group(p, "experts", PLAN_OP_SUM, false, false);
	for (uint32_t s = 0; s < SERVERS; s++)
		plan_join(p, g, TRAINERS + s, 0);
	rows(p, PLAN_BATCH, "x", 1);
	rows(p, PLAN_ACTIVATION, "h", 1);
	rows(p, PLAN_ACTIVATION, "y", 1);
	rows(p, PLAN_ACTIVATION, "kept", 1);
	rows(p, PLAN_ACTIVATION_GRAD, "gy", 2);
	rows(p, PLAN_ACTIVATION_GRAD, "gh", 1);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ROUTE, .bytes = ROWS * K * 4 }, "route");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = 4096 }, "dgate");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 4096, .initial = true, .shared = true,
		.depth = streams + 1 },
		"gate");
	p->streams = streams;
	plan_section(p, PLAN_BODY);
	p->iterations = STEPS / streams;
	plan_do(p, PLAN_LOAD, 0, "-> x");
	plan_piece(plan_do(p, PLAN_FWD, 0, "x! gate<=* -> h save:kept route:route"), 0, 0);
	plan_coll(p, PLAN_ALLTOALL, 0, g, "h! route ->");
	struct plan_instr *back = plan_coll(p, PLAN_ALLTOALL, 0, g, "route -> y");
	back->on_missing = PLAN_WITHOUT;
	back->deadline_us = deadline_us;
	plan_vec(p, 0, "renormalise", "y! -> gy");
	plan_coll(p, PLAN_ALLTOALL, 0, g, "gy! route ->");
	back = plan_coll(p, PLAN_ALLTOALL, 0, g, "route -> gh");
	back->on_missing = PLAN_WITHOUT;
	back->deadline_us = deadline_us;
	plan_do(p, PLAN_DROP, 0, "route");
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept! gh! gate~0 -> dgate"), 0, 0);
	plan_vec(p, 0, "opt", "dgate! gate<=* -> gate'");
	plan_do(p, PLAN_COMMIT, 0, "->");
}

static struct plan_instr *serve(struct plan *p, uint32_t g, const char *what)
{
	struct plan_instr *r = plan_recv(p, 0, 0, "%s", what);
	r->with = PLAN_ANY;
	r->group = g;
	r->quorum = 1;
	r->most = TRAINERS;
	r->within_us = 300;
	return r;
}

static void server(struct plan *p, uint32_t s)
{
	uint32_t g = plan_group(p, "trainers", PLAN_OP_SUM, false, false);
	for (uint32_t t = 0; t < TRAINERS; t++)
		plan_join(p, g, t, 0);
	/* a batch of up to four requests */
	rows(p, PLAN_ACTIVATION, "h", TRAINERS);
	rows(p, PLAN_ACTIVATION, "y", TRAINERS);
	rows(p, PLAN_ACTIVATION_GRAD, "gy", 2 * TRAINERS);
	rows(p, PLAN_ACTIVATION_GRAD, "gh", TRAINERS);
	rows(p, PLAN_WEIGHT_GRAD, "de", 1);
	uint32_t e = plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 65536, .initial = true, .shared = true,
		.depth = 2 }, "experts%u", s);
	plan_extent(p, e, PLAN_TENSOR, "ffn", s * EXPERTS / SERVERS, (s + 1) * EXPERTS / SERVERS);
	/* streams 0 1 answer forward requests, 2 3 backward requests, each at its own pace */
	p->streams = 4;
	plan_section(p, PLAN_BODY);
	p->iterations = 100000;
	plan_streams(serve(p, g, "h"), 0, 2);
	plan_streams(plan_piece(plan_do(p, PLAN_FWD, 0, "h experts%u<=* -> y", s), 1, 1), 0, 2);
	plan_streams(plan_send(p, 0, 0, "y! h!"), 0, 2)->with = PLAN_REPLY;
	plan_streams(serve(p, g, "gy"), 2, 4);
	plan_streams(plan_piece(plan_do(p, PLAN_BWD, 0, "gy experts%u<=* -> gh de", s), 1, 1), 2, 4);
	plan_streams(plan_send(p, 0, 0, "gh! gy!"), 2, 4)->with = PLAN_REPLY;
	plan_streams(plan_vec(p, 0, "opt", "de! experts%u<=* -> experts%u'", s, s), 2, 4);
	plan_streams(plan_do(p, PLAN_COMMIT, 0, "->"), 2, 4)->scope = PLAN_SHARD;
}

static void build(struct kit *k, uint32_t streams, uint64_t latency_us, uint64_t deadline_us)
{
	kit_open(k, TRAINERS + SERVERS);
	kit_chain(k, 2, 2000, 4000, ROWS * ROW, 0);
	k->profile.op[1].variant[0] = (struct profile_variant){ "", 200, 400, 0 };
	k->conf.link = (struct predict_link){ latency_us, 0.001 };
	k->conf.route = route;
	for (uint32_t r = 0; r < k->n; r++) {
		plan_init(&k->plan[r], "dmoe", r, k->n, k->member);
		if (r < TRAINERS)
			trainer(&k->plan[r], streams, deadline_us);
		else
			server(&k->plan[r], r - TRAINERS);
	}
}

static void rows_go_where_the_route_says(void **state)
{
	struct kit k;
	build(&k, 1, 500, 0);
	kit_check(&k);
	kit_predict(&k);
	uint64_t sent = 0, grads = 0;
	for (uint32_t t = 0; t < TRAINERS; t++) {
		uint64_t want = 0;
		for (int64_t j = 0; j < STEPS; j++)
			for (uint32_t s = 0; s < SERVERS; s++)
				want += route(NULL, t, TRAINERS + s, j, "h", 0);
		/* every row to K experts; backward the same rows with their gradients */
		assert_int_equal(want, (uint64_t)STEPS * ROWS * K * ROW);
		assert_int_equal(k.out.peer[t].sent[PLAN_ACTIVATION], want);
		assert_int_equal(k.out.peer[t].sent[PLAN_ACTIVATION_GRAD], 2 * want);
		assert_int_equal(k.out.peer[t].ran[PLAN_BWD], STEPS);
		/* expert weights never travel */
		assert_int_equal(k.out.peer[t].sent[PLAN_WEIGHT] + k.out.peer[t].received[PLAN_WEIGHT], 0);
		sent += want;
		grads += 2 * want;
	}
	uint64_t got = 0, served = 0;
	for (uint32_t s = 0; s < SERVERS; s++) {
		got += k.out.peer[TRAINERS + s].received[PLAN_ACTIVATION];
		served += k.out.peer[TRAINERS + s].ran[PLAN_BWD];
		assert_true(k.out.peer[TRAINERS + s].idle);
	}
	assert_int_equal(got, sent);
	/* requests were batched: fewer runs than requests */
	assert_true(served < TRAINERS * SERVERS * STEPS);
	assert_int_equal(k.out.unread, 0);
	kit_close(&k);
}

/* Latency 20 ms against 6 ms of a trainer's own work: 1 + L/c streams keep the rate. */
static void streams_hide_latency(void **state)
{
	static const struct { uint32_t streams; uint64_t latency; } row[] = { { 1, 100 }, { 1, 10000 }, { 10, 10000 } };
	uint64_t us[3];
	for (int i = 0; i < 3; i++) {
		struct kit k;
		build(&k, row[i].streams, row[i].latency, 0);
		kit_check(&k);
		kit_predict(&k);
		us[i] = k.out.us;
		assert_int_equal(k.out.peer[0].ran[PLAN_BWD], STEPS);
		kit_close(&k);
	}
	if (getenv("KIT_SHOW"))
		print_message("us %llu %llu %llu\n", (unsigned long long)us[0], (unsigned long long)us[1],
			(unsigned long long)us[2]);
	assert_true(us[1] > 4 * us[0]);
	assert_true(us[2] * 7 <= us[0] * 10);
	assert_true(us[2] * 3 < us[1]);
}

static void a_dead_server_is_left_out(void **state)
{
	struct kit k;
	uint64_t dies[TRAINERS + SERVERS] = { [TRAINERS] = 60000 };
	build(&k, 1, 500, 20000);
	k.conf.dies_at_us = dies;
	kit_predict(&k);
	for (uint32_t t = 0; t < TRAINERS; t++) {
		assert_true(k.out.peer[t].finished);
		assert_int_equal(k.out.peer[t].ran[PLAN_BWD], STEPS);
	}
	assert_true(k.out.peer[TRAINERS].died);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_go_where_the_route_says),
		cmocka_unit_test(streams_hide_latency),
		cmocka_unit_test(a_dead_server_is_left_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
