/* The predictor's model, piece by piece: speeds, links, collectives, servers, deaths; and that it is fast and
 * repeatable. */
#include "plan_kit.h"

static struct plan *peer(struct kit *k, uint32_t r, uint32_t n)
{
	if (r == 0)
		kit_open(k, n);
	plan_init(&k->plan[r], "test", r, n, k->member);
	plan_lane(&k->plan[r], "train", 1, 8);
	return &k->plan[r];
}

static void blob(struct plan *p, const char *name, uint64_t bytes, uint32_t depth)
{
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = bytes, .depth = depth }, "%s", name);
}

static void speeds(void **state)
{
	struct kit k;
	double speed[2] = { 1, 0.25 };
	for (uint32_t r = 0; r < 2; r++) {
		struct plan *p = peer(&k, r, 2);
		plan_piece(plan_do(p, PLAN_FWD, 0, "->"), 0, 1);
		plan_vec(p, 0, "opt", "->");
	}
	kit_chain(&k, 2, 100, 0, 0, 0);
	kit_fn(&k, "opt", 40, 0);
	k.conf.speed = speed;
	kit_predict(&k);
	assert_int_equal(k.out.peer[0].finish_us, 240);
	assert_int_equal(k.out.peer[1].finish_us, 960);
	kit_near(k.out.peer[0].bubble, 0.75, 1e-12);
	kit_near(k.out.peer[1].bubble, 0, 1e-12);
	kit_close(&k);
}

/* Three transfers of 1000 bytes at 0.1 us/B and 50 us of latency: they share the sender's link, not the latency. */
static void links_carry_one_at_a_time(void **state)
{
	struct kit k;
	struct plan *a = peer(&k, 0, 3), *b = peer(&k, 1, 3), *c = peer(&k, 2, 3);
	for (int i = 0; i < 3; i++) {
		char name[8] = { 'b', (char)('0' + i) };
		struct plan *to = i < 2 ? b : c;
		blob(a, name, 1000, 1);
		blob(to, name, 1000, 1);
		plan_do(a, PLAN_LOAD, 0, "-> %s", name);
		plan_send(a, 0, i < 2 ? 1 : 2, "%s!", name);
		plan_recv(to, 0, 0, "%s", name);
	}
	k.conf.link = (struct predict_link){ 50, 0.1 };
	kit_predict(&k);
	assert_int_equal(k.out.peer[1].finish_us, 250);
	assert_int_equal(k.out.peer[2].finish_us, 350);
	assert_int_equal(k.out.peer[0].finish_us, 300);         /* when the last byte has left */
	assert_int_equal(k.out.link_bytes[0 * 3 + 1], 2000);
	assert_int_equal(k.out.link_bytes[0 * 3 + 2], 1000);
	assert_int_equal(k.out.peer[1].received[PLAN_ACTIVATION], 2000);
	/* a slow link to one of them, and the same numbers once more */
	struct predict_link links[9];
	for (int i = 0; i < 9; i++)
		links[i] = k.conf.link;
	links[0 * 3 + 2] = (struct predict_link){ 1000, 1 };
	k.conf.links = links;
	for (int twice = 0; twice < 2; twice++) {
		kit_predict(&k);
		assert_int_equal(k.out.peer[1].finish_us, 250);
		assert_int_equal(k.out.peer[2].finish_us, 200 + 1000 + 1000);
	}
	kit_close(&k);
	/* two senders share the receiver's link */
	for (uint32_t r = 0; r < 3; r++) {
		struct plan *p = peer(&k, r, 3);
		for (uint32_t q = 1; q < 3; q++) {
			char name[8] = { 'b', (char)('0' + q) };
			if (r != 0 && r != q)
				continue;
			blob(p, name, 1000, 1);
			if (r == 0)
				plan_recv(p, 0, q, "%s", name);
			else
				plan_send((plan_do(p, PLAN_LOAD, 0, "-> %s", name), p), 0, 0, "%s!", name);
		}
	}
	k.conf.link = (struct predict_link){ 50, 0.1 };
	kit_predict(&k);
	assert_int_equal(k.out.peer[0].finish_us, 250);
	kit_close(&k);
}

static void collectives_cost(void **state)
{
	static const struct { enum plan_kind kind; const char *refs; uint64_t us, bytes; } row[] = {
		/* 4 members, 1200 bytes, 1 us a byte, 10 us of latency */
		{ PLAN_SUM, "x -> x", 2 * 10 + 2 * 900, 2 * 900 },
		{ PLAN_GATHER, "s -> x", 10 + 900, 900 },
		{ PLAN_SCATTER, "x -> s", 10 + 900, 900 },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct kit k;
		for (uint32_t r = 0; r < 4; r++) {
			struct plan *p = peer(&k, r, 4);
			uint32_t g = plan_group(p, "g", PLAN_OP_SUM, true, false);
			for (uint32_t q = 0; q < 4; q++)
				plan_join(p, g, q, 0);
			blob(p, "x", 1200, 1);
			blob(p, "s", 300, 1);
			plan_do(p, PLAN_LOAD, 0, "-> x s");
			plan_piece(plan_do(p, PLAN_FWD, 0, "->"), 0, r);        /* at most 400 us, beside the collective */
			plan_do(p, PLAN_COMMIT, 0, "->");
			plan_coll(p, row[i].kind, 0, g, "%s", row[i].refs);
		}
		kit_chain(&k, 4, 100, 0, 0, 0);
		k.conf.link = (struct predict_link){ 10, 1 };
		kit_predict(&k);
		for (uint32_t r = 0; r < 4; r++) {
			assert_int_equal(k.out.peer[r].finish_us, row[i].us);
			assert_int_equal(k.out.peer[r].sent[PLAN_ACTIVATION], row[i].bytes);
		}
		assert_int_equal(k.out.us, row[i].us);
		kit_close(&k);
	}
}

static void server(struct plan *p, uint32_t quorum, uint32_t most, uint64_t within, bool unique)
{
	uint32_t g = plan_group(p, "clients", PLAN_OP_SUM, false, false);
	for (uint32_t q = 1; q < p->nmembers; q++)
		plan_join(p, g, q, 0);
	blob(p, "ask", 400, 1);
	blob(p, "answer", 400, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 100;
	struct plan_instr *r = plan_recv(p, 0, 1, "ask");
	r->with = PLAN_ANY;
	r->group = g;
	r->quorum = quorum;
	r->most = most;
	r->within_us = within;
	r->unique = unique;
	plan_piece(plan_do(p, PLAN_FWD, 0, "ask -> answer"), 0, 0);
	plan_send(p, 0, 0, "answer! ask!")->with = PLAN_REPLY;
}

/* Clients ask at 100, 200, 300, 400 us; the server answers in batches. */
static void batches(void **state)
{
	static const struct { uint32_t quorum, most; uint64_t within; uint64_t runs, last_us; } row[] = {
		{ 1, 1, 0, 4, 450 },            /* each at once: 50 us each */
		{ 1, 4, 150, 2, 500 },          /* 100 + 150: two of them; 300 + 150 */
		{ 4, 4, 0, 1, 450 },
		{ 1, 4, 1000, 1, 450 },         /* all four are there before the window ends */
		{ 2, 3, 120, 2, 570 },          /* two at 220; two more: 300 + 120, but quorum at 400: 420 */
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct kit k;
		server(peer(&k, 0, 5), row[i].quorum, row[i].most, row[i].within, false);
		for (uint32_t r = 1; r < 5; r++) {
			struct plan *p = peer(&k, r, 5);
			blob(p, "ask", 100, 1);
			blob(p, "answer", 100, 1);
			plan_piece(plan_do(p, PLAN_FWD, 0, "-> ask"), 1, r);
			plan_send(p, 0, 0, "ask!");
			plan_recv(p, 0, 0, "answer");
		}
		kit_chain(&k, 5, 100, 0, 0, 0);
		k.profile.op[0].variant[0].fwd_us = 50;
		kit_predict(&k);
		assert_true(k.out.peer[0].idle);
		assert_int_equal(k.out.peer[0].ran[PLAN_FWD], row[i].runs);
		uint64_t last = 0;
		for (uint32_t r = 1; r < 5; r++) {
			assert_true(k.out.peer[r].finished);
			last = k.out.peer[r].finish_us > last ? k.out.peer[r].finish_us : last;
		}
		assert_true(last <= row[i].last_us);
		kit_close(&k);
	}
}

static void the_first_of_equal_keys_counts(void **state)
{
	struct kit k;
	struct plan *p = peer(&k, 0, 3);
	server(p, 1, 1, 0, true);
	for (uint32_t r = 1; r < 3; r++) {
		p = peer(&k, r, 3);
		blob(p, "ask", 100, 4);
		for (int64_t j = 0; j < 4; j++) {
			plan_piece(plan_do(p, PLAN_FWD, j, "-> ask"), 0, 0);
			plan_send(p, j, 0, "ask!");
		}
	}
	kit_chain(&k, 1, 100, 0, 0, 0);
	kit_predict(&k);
	assert_int_equal(k.out.peer[0].ran[PLAN_FWD], 4);
	assert_int_equal(k.out.unread, 4);      /* the answers that nobody waits for */
	kit_close(&k);
}

/* A receiver of a dead peer: stuck and said so, or without, at its deadline or at once. */
static void deaths(void **state)
{
	for (int row = 0; row < 3; row++) {
		struct kit k;
		struct err e = {0};
		uint64_t dies[2] = { 0, 50 };
		struct plan *a = peer(&k, 0, 2), *b = peer(&k, 1, 2);
		blob(a, "x", 10, 1);
		blob(b, "x", 10, 1);
		plan_piece(plan_do(b, PLAN_FWD, 0, "-> x"), 0, 0);
		plan_send(b, 0, 0, "x!");
		struct plan_instr *r = plan_recv(a, 0, 1, "x");
		r->on_missing = row > 0 ? PLAN_WITHOUT : PLAN_FAIL;
		r->deadline_us = 70;
		if (row == 2)
			dies[1] = 200;          /* alive but late: the deadline decides */
		kit_chain(&k, 1, 150, 0, 0, 0);
		k.conf.dies_at_us = dies;
		assert_int_equal(predict(k.list, 2, &k.conf, &k.out, &e), 0);
		assert_int_equal(k.out.stuck, row == 0);
		if (row == 0)
			assert_non_null(strstr((const char *)k.out.why.p, "RECV: x from 1 deadline 70us) has not been answered"));
		else
			assert_int_equal(k.out.peer[0].finish_us, row == 1 ? 50 : 70);
		assert_int_equal(k.out.peer[1].died, true);
		kit_close(&k);
	}
}

/* Whoever is missing from an elastic group does not hold up the others; a strict one waits for ever. */
static void elastic_groups_go_on(void **state)
{
	for (int strict = 0; strict < 2; strict++) {
		struct kit k;
		struct err e = {0};
		uint64_t dies[3] = { 0, 0, 50 };
		for (uint32_t r = 0; r < 3; r++) {
			struct plan *p = peer(&k, r, 3);
			uint32_t g = plan_group(p, "g", PLAN_OP_MEAN, strict, !strict);
			for (uint32_t q = 0; q < 3; q++)
				plan_join(p, g, q, 0);
			blob(p, "x", 1000, 1);
			plan_piece(plan_do(p, PLAN_FWD, 0, "-> x"), 0, 0);
			plan_coll(p, PLAN_SUM, 0, g, "x -> x");
		}
		kit_chain(&k, 1, 100, 0, 0, 0);
		k.conf.link = (struct predict_link){ 0, 1 };
		k.conf.dies_at_us = dies;
		assert_int_equal(predict(k.list, 3, &k.conf, &k.out, &e), 0);
		assert_int_equal(k.out.stuck, strict);
		if (!strict) {
			assert_int_equal(k.out.us, 100 + 1000); /* 2 (n-1)/n of 1000 bytes between two */
			assert_int_equal(k.out.peer[0].sent[PLAN_ACTIVATION], 1000);
		}
		kit_close(&k);
	}
}

static void horizons_and_bad_input(void **state)
{
	struct kit k;
	struct err e = {0};
	struct plan *p = peer(&k, 0, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 1ull << 30;
	plan_piece(plan_do(p, PLAN_FWD, 0, "->"), 0, 0);
	kit_chain(&k, 1, 100, 0, 0, 0);
	k.conf.horizon_us = 5050;
	kit_predict(&k);
	assert_int_equal(k.out.peer[0].ran[PLAN_FWD], 50);
	assert_int_equal(k.out.us, 5050);
	assert_false(k.out.peer[0].finished);
	prediction_free(&k.out);
	k.conf.horizon_us = 0;
	k.conf.events_max = 1000;
	assert_int_equal(predict(k.list, 1, &k.conf, &k.out, &e), -1);
	assert_non_null(strstr(e.text, "more than 1000 events"));
	k.conf.events_max = 0;
	k.list[1] = k.list[0];
	assert_int_equal(predict(k.list, 2, &k.conf, &k.out, &e), -1);
	assert_non_null(strstr(e.text, "two plans of peer 0"));
	assert_int_equal(predict(k.list, 0, &k.conf, &k.out, &e), -1);
	double speed[1] = { 0 };
	k.conf.speed = speed;
	assert_int_equal(predict(k.list, 1, &k.conf, &k.out, &e), -1);
	assert_non_null(strstr(e.text, "speed of peer 0"));
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(speeds),
		cmocka_unit_test(links_carry_one_at_a_time),
		cmocka_unit_test(collectives_cost),
		cmocka_unit_test(batches),
		cmocka_unit_test(the_first_of_equal_keys_counts),
		cmocka_unit_test(deaths),
		cmocka_unit_test(elastic_groups_go_on),
		cmocka_unit_test(horizons_and_bad_input),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
