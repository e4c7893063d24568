/* Plans as JSON: exact both ways, refused with the place when something is wrong; digests; the printed tables. */
#include "common/rng.h"
#include "plan_kit.h"

/* Every field with an unusual value. */
static void everything(struct plan *p)
{
	struct id id[3] = {{{1}}, {{2}}, {{3}}};
	plan_init(p, "every-thing", 1, 3, id);
	p->generation = 77;
	p->author = id[2];
	p->redundancy = 2;
	p->streams = 3;
	p->first = 1000;
	p->iterations = 12;
	p->step = 4;
	uint32_t gpu = plan_lane(p, "gpu", 2, 5), t = plan_tier(p, "nvme", 1ull << 40);
	uint32_t b = plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .dtype = PLAN_BF16, .bytes = 123,
		.bounded = true,
		.tier = t, .slot = 2, .depth = 3, .per = 4, .initial = true, .journal = true, .offset = 64 }, "w");
	plan_extent(p, b, PLAN_TENSOR, "h.0.attn.weight", 5, 10);
	plan_extent(p, b, PLAN_FLAT, "", 1, 2);
	plan_extent(p, b, PLAN_GRAPH_OP, "", 3, 3);
	plan_holder(p, b, 0);
	plan_holder(p, b, 1);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 5, .shared = true, .initial = true,
		.per = UINT32_MAX }, "s");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ROUTE, .dtype = PLAN_U64, .bytes = 5 }, "r");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 5 }, "a.b_c/d-e");
	uint32_t z = plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .dtype = PLAN_F64, .bytes = 8, .depth = 2 },
		"z");
	p->buf[z].offset = 0;
	uint32_t g = plan_group(p, "some", PLAN_OP_MAX, true, false), e = plan_group(p, "any", PLAN_OP_MEAN, false, true);
	plan_join(p, g, 0, 1);
	plan_join(p, g, 1, 0);
	plan_join(p, e, 2, 0);
	struct plan_instr *i = plan_do(p, PLAN_FWD, -3, "a.b_c/d-e! w=2 s<=* w<=1 -> save:a.b_c/d-e route:z");
	plan_piece(plan_piece(i, 0, 3), 7, 7);
	i->keep = PLAN_KEEP_ALL;
	i->replay = true;
	memcpy(i->variant, "im2col", 7);
	i->lane = gpu;
	i->work_bytes = 999;
	i->priority = -4;
	plan_section(p, PLAN_BODY);
	plan_when(plan_vec(p, 2, "axpy", "w' a.b_c/d-e w~1 -> w'"), 5, 3)->scale = -1.0 / 3;
	i = plan_recv(p, 0, 2, "z");
	i->with = PLAN_ANY;
	i->group = e;
	i->quorum = 2;
	i->most = 3;
	i->within_us = 500;
	i->unique = true;
	i->on_missing = PLAN_USE_NEWEST;
	plan_send(p, 0, 0, "a.b_c/d-e z!")->with = PLAN_REPLY;
	plan_coll(p, PLAN_ALLTOALL, 0, g, "a.b_c/d-e r -> z+")->deadline_us = 12345;
	plan_coll(p, PLAN_SUM, 0, e, "z -> z")->on_missing = PLAN_WITHOUT;
	plan_section(p, PLAN_EPILOGUE);
	plan_streams(plan_do(p, PLAN_COMMIT, 0, "w"), 1, 3)->scope = PLAN_SHARD;
	memcpy(plan_do(p, PLAN_SAVE, 0, "w")->fn, "weights.bin", 12);
	plan_do(p, PLAN_MOVE, 0, "a.b_c/d-e -> z");
	plan_do(p, PLAN_DROP, 0, "z");
}

static void both_ways(void **state)
{
	struct plan p, q;
	struct err e = {0};
	uint8_t a[32], b[32];
	everything(&p);
	json_t *j = plan_to_json(&p);
	char *text = json_dumps(j, JSON_INDENT(1));
	json_t *again = json_loads(text, 0, NULL);
	if (plan_from_json(&q, again, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(plan_equal(&p, &q));
	plan_digest(&p, a);
	plan_digest(&q, b);
	assert_memory_equal(a, b, 32);
	assert_int_equal(q.instr[0].in[3].k, 1);
	assert_int_equal(q.instr[0].in[3].age, PLAN_NEWEST);
	assert_int_equal(q.instr[1].in[2].age, PLAN_SAME);
	assert_int_equal(q.instr[1].in[0].k, -1);
	assert_true(q.instr[1].scale == -1.0 / 3);
	assert_int_equal(q.buf[0].offset, 64);
	assert_int_equal(q.buf[1].offset, -1);
	assert_int_equal(q.buf[4].offset, 0);
	assert_int_equal(q.tier[3].budget, 1ull << 40);
	/* a difference anywhere is a different digest, and the digest of all depends on their order */
	q.instr[0].priority++;
	assert_false(plan_equal(&p, &q));
	const struct plan *v[] = { &p, &q }, *w[] = { &q, &p };
	plan_digest_all(v, 2, a);
	plan_digest_all(w, 2, b);
	assert_memory_not_equal(a, b, 32);
	free(text);
	json_decref(j);
	json_decref(again);
	plan_free(&p);
	plan_free(&q);
}

/* Replaces the first `from` in the text of a good plan by `to`: refused, with the place named. */
static void spoilt(const char *from, const char *to, const char *says)
{
	struct plan p, q;
	struct err e = {0};
	json_error_t je;
	everything(&p);
	json_t *j = plan_to_json(&p);
	char *text = json_dumps(j, JSON_COMPACT), *at = strstr(text, from);
	assert_non_null(at);
	char *bad = xasprintf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	json_t *k = json_loads(bad, 0, &je);
	if (!k)
		fail_msg("%s: %s", to, je.text);
	if (plan_from_json(&q, k, &e) == 0)
		fail_msg("%s was taken", to);
	if (!strstr(e.text, says))
		fail_msg("%s: \"%s\" does not say \"%s\"", to, e.text, says);
	assert_null(q.instr);
	json_decref(j);
	json_decref(k);
	free(text);
	free(bad);
	plan_free(&p);
}

static void refusals_name_the_place(void **state)
{
	spoilt("\"generation\":77", "\"generation\":-1", "generation: a whole number");
	spoilt("\"generation\":77", "\"generations\":77", "\"generations\" is not known");
	spoilt("\"strategy\":\"every-thing\"", "\"strategy\":\"every thing\"", "strategy: a name");
	spoilt("\"me\":1", "\"me\":3", "me: 3 is not the rank");
	spoilt("\"class\":\"weight\"", "\"class\":\"weigth\"", "buffers[0].class: \"weigth\"");
	spoilt("\"tier\":\"nvme\"", "\"tier\":\"tape\"", "buffers[0].tier: the plan has no tier tape");
	spoilt("\"name\":\"s\"", "\"name\":\"w\"", "buffers[1].name: there are two buffers w");
	spoilt("\"depth\":3", "\"depth\":1000000", "buffers[0].depth");
	spoilt("[\"tensor\",\"h.0.attn.weight\",5,10]", "[\"tensor\",\"h.0.attn.weight\",15,10]", "buffers[0].extents");
	spoilt("\"holders\":[0,1]", "\"holders\":[0,3]", "buffers[0].holders");
	spoilt("\"name\":\"any\"", "\"name\":\"some\"", "groups[1].name: there are two groups some");
	spoilt("\"members\":[[0,1],[1,0]]", "\"members\":[[0,1],[5,0]]", "groups[0].members");
	spoilt("\"do\":\"FWD\"", "\"do\":\"JUMP\"", "prologue[0].do: \"JUMP\"");
	spoilt("\"lane\":\"gpu\"", "\"lane\":\"tpu\"", "prologue[0].lane: the plan has no lane tpu");
	spoilt("\"ops\":[[0,3],[7,7]]", "\"ops\":[[3,0],[7,7]]", "prologue[0].ops");
	spoilt("\"w=2\"", "\"w=x\"", "prologue[0].in: reference \"w=x\": an input is written");
	spoilt("\"w=2\"", "\"v\"", "prologue[0].in: reference \"v\": the plan has no buffer");
	spoilt("\"s<=*\"", "\"s=1\"", "prologue[0]: a shared buffer");
	spoilt("\"w~1\"", "\"w~9\"", "body[0]: ~i names");
	spoilt("\"every\":5,\"at\":3", "\"every\":5,\"at\":5", "body[0].at");
	spoilt("\"scale\":-0.33333333333333331", "\"scale\":\"x\"", "body[0].scale");
	spoilt("\"quorum\":2", "\"quorum\":4", "body[1].quorum");
	spoilt("\"with\":\"reply\"", "\"with\":\"any\"", "body[2]");
	spoilt("\"do\":\"COMMIT\"", "\"do\":\"SUM\"", "epilogue[0]: an instruction that leaves");
	spoilt("\"epilogue\":[", "\"epilogue\":[3,", "epilogue[0]: an object is expected");
	spoilt("\"stream_lo\":1", "\"stream_lo\":9", "epilogue[0].stream_lo");
}

static void printed_for_a_person(void **state)
{
	struct plan p;
	struct buf b = {0};
	everything(&p);
	plan_print(&p, &b);
	const char *s = (const char *)b.p;
	static const char *const says[] = { "plan every-thing, peer 1 of 3, generation 77", "h.0.attn.weight[5:10]",
		"ordered strict max of 0.1 1", "elastic weighted mean of 2", "prologue\n", "body 12 times, step 4\n",
		"epilogue\n",
		"FWD 0..3,7 @-3: a.b_c/d-e! w=2 s<=* w<=1 -> save:a.b_c/d-e route:z replay im2col priority -4 scratch 999",
		"VEC axpy @2: w' a.b_c/d-e w~1 -> w' when 3%5",
		"RECV: z from any 2..3 of any within 500us first-per-key else-newest",
		"SEND: a.b_c/d-e z! to sender", "COMMIT: w shard streams 1..2", "holders 0,1" };
	for (size_t i = 0; i < sizeof says / sizeof *says; i++)
		if (!strstr(s, says[i]))
			fail_msg("\"%s\" is missing in:\n%s", says[i], s);
	buf_free(&b);
	plan_free(&p);
}

static void predictions_as_text(void **state)
{
	struct kit k;
	struct buf b = {0};
	kit_open(&k, 1);
	kit_chain(&k, 2, 100, 200, 10, 4);
	struct plan *p = &k.plan[0];
	plan_init(p, "single", 0, 1, k.member);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 10 }, "kept");
	plan_section(p, PLAN_BODY);
	p->iterations = 2;
	plan_piece(plan_do(p, PLAN_FWD, 0, "-> save:kept"), 0, 1);
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept!"), 0, 1);
	kit_predict(&k);
	plan_gantt(&k.out, k.list, 24, &b);
	assert_string_equal((const char *)b.p, "  0 train  |0000aaaaaaaa1111bbbbbbbb|\n");
	json_t *j = prediction_json(&k.out, k.list), *peer = json_array_get(json_object_get(j, "peers"), 0);
	assert_int_equal(json_integer_value(json_object_get(j, "us")), 1200);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(peer, "busy_us"), "train")), 1200);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(peer, "peak_bytes"), "arena")), 10);
	json_decref(j);
	buf_free(&b);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ways),
		cmocka_unit_test(refusals_name_the_place),
		cmocka_unit_test(printed_for_a_person),
		cmocka_unit_test(predictions_as_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
