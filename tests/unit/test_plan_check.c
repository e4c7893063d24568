/* The checker: a correct cluster passes, and every rule refuses its planted defect with the place in its text. */
#include "plan_kit.h"

#define N 3

/* Data parallel by a strict sum, each peer with a transfer to its right neighbour; enough for every rule. */
static void member(struct plan *p)
{
	uint32_t r = p->me, g = plan_group(p, "all", PLAN_OP_MEAN, true, false);
	for (uint32_t q = 0; q < N; q++)
		plan_join(p, g, q, 0);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = 100, .depth = 2 }, "x");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 100 }, "kept");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = 400 }, "dw");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 400, .initial = true }, "w");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_OPTIMIZER, .bytes = 800, .initial = true }, "opt");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "note%u", r);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "note%u", (r + N - 1) % N);
	plan_section(p, PLAN_BODY);
	p->iterations = 5;
	p->redundancy = 3;
	plan_do(p, PLAN_LOAD, 0, "-> x");
	plan_piece(plan_do(p, PLAN_FWD, 0, "x! w -> save:kept"), 0, 0);
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept! w -> dw"), 0, 0)->work_bytes = 50;
	plan_coll(p, PLAN_SUM, 0, g, "dw -> dw");
	plan_vec(p, 0, "note", "-> note%u", r);
	plan_send(p, 0, (r + 1) % N, "note%u!", r);
	plan_recv(p, 0, (r + N - 1) % N, "note%u", (r + N - 1) % N);
	plan_do(p, PLAN_DROP, 0, "note%u", (r + N - 1) % N);
	plan_vec(p, 0, "opt", "dw! w opt -> w' opt'");
	plan_do(p, PLAN_COMMIT, 0, "->");
}

static void open_all(struct kit *k)
{
	kit_open(k, N);
	kit_chain(k, 1, 10, 20, 100, 400);
	for (uint32_t r = 0; r < N; r++) {
		plan_init(&k->plan[r], "replicas", r, N, k->member);
		member(&k->plan[r]);
	}
}

static struct plan_instr *find(struct plan *p, enum plan_kind kind)
{
	for (uint32_t i = 0; i < p->ninstrs; i++)
		if (p->instr[i].kind == kind)
			return &p->instr[i];
	fail_msg("no %s", plan_kind_name(kind));
	return NULL;
}

static void take_out(struct plan *p, enum plan_kind kind)
{
	struct plan_instr *i = find(p, kind), x = *i;
	uint32_t at = (uint32_t)(i - p->instr);
	memmove(i, i + 1, (p->ninstrs - at - 1) * sizeof *i);
	p->ninstrs--;
	free(x.in);
	free(x.out);
	free(x.piece);
}

static void swap(struct plan *p, enum plan_kind a, enum plan_kind b)
{
	struct plan_instr *x = find(p, a), *y = find(p, b), z = *x;
	*x = *y;
	*y = z;
}

static void a_correct_cluster_passes(void **state)
{
	struct kit k;
	open_all(&k);
	kit_check(&k);
	kit_predict(&k);
	assert_int_equal(k.out.peer[1].ran[PLAN_SUM], 5);
	kit_close(&k);
}

static void refused(struct kit *k, enum plan_rule rule, const char *says)
{
	struct check_conf c = { .predict = k->conf };
	struct err e = {0};
	enum plan_rule got;
	assert_int_equal(plan_check(k->list, k->n, &c, &got, &e), -1);
	if (got != rule || !strstr(e.text, says))
		fail_msg("%s, not %s with \"%s\": %s", plan_rule_name(got), plan_rule_name(rule), says, e.text);
	kit_close(k);
}

static void shape(void **state)
{
	struct kit k;
	open_all(&k);
	find(&k.plan[1], PLAN_BWD)->in[1].age = PLAN_SAME;
	find(&k.plan[1], PLAN_BWD)->in[1].k = 7;
	refused(&k, RULE_SHAPE, "peer 1, instruction 2");
	open_all(&k);
	find(&k.plan[0], PLAN_SUM)->with = PLAN_ALONE;
	refused(&k, RULE_SHAPE, "peer 0");
}

static void unmatched(void **state)
{
	struct kit k;
	open_all(&k);
	take_out(&k.plan[1], PLAN_RECV);
	find(&k.plan[1], PLAN_DROP)->nin = 0;
	refused(&k, RULE_UNMATCHED, "note0 of index 0 from peer 0 to peer 1: 1 SEND and 0 RECV");
	open_all(&k);
	take_out(&k.plan[2], PLAN_SEND);
	refused(&k, RULE_UNMATCHED, "note2 of index 0 from peer 2 to peer 0: 0 SEND and 1 RECV");
	open_all(&k);
	plan_when(find(&k.plan[2], PLAN_SEND), 2, 0);
	refused(&k, RULE_UNMATCHED, "note2 of index 1 from peer 2 to peer 0");
	open_all(&k);
	take_out(&k.plan[2], PLAN_SUM);
	refused(&k, RULE_UNMATCHED, "called 2 times, 3 members");
	open_all(&k);
	find(&k.plan[0], PLAN_SUM)->mb = 1;
	refused(&k, RULE_UNMATCHED, "in group all");
	open_all(&k);
	k.plan[0].group[0].n = 2;
	memmove(k.plan[0].group[0].member, k.plan[0].group[0].member + 1, 2 * sizeof *k.plan[0].group[0].member);
	refused(&k, RULE_UNMATCHED, "not a member of the group");
	open_all(&k);
	k.n = 2;                                /* the third peer has no plan */
	plan_free(&k.plan[2]);
	refused(&k, RULE_UNMATCHED, "that peer has no plan");
}

static void value(void **state)
{
	struct kit k;
	open_all(&k);
	swap(&k.plan[0], PLAN_FWD, PLAN_BWD);
	refused(&k, RULE_VALUE, "reads kept key 0");
	open_all(&k);
	find(&k.plan[2], PLAN_FWD)->in[0].k = 1;        /* the batch of the iteration before, which was dropped */
	refused(&k, RULE_VALUE, "peer 2");
	open_all(&k);
	k.plan[1].buf[plan_find(&k.plan[1], "w")].initial = false;
	k.plan[1].redundancy = 1;
	k.plan[0].redundancy = k.plan[2].redundancy = 1;
	refused(&k, RULE_VALUE, "reads w key 0");
}

/* A value that the program before left is there; without that program it is not. */
static void values_from_the_program_before(void **state)
{
	struct kit k;
	struct plan first;
	kit_open(&k, 1);
	for (int i = 0; i < 2; i++) {
		struct plan *p = i == 0 ? &first : &k.plan[0];
		plan_init(p, "twice", 0, 1, k.member);
		plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = 4, .per = 100 }, "acc");
		plan_vec(p, 0, "x", i == 0 ? "-> acc+" : "acc!");
	}
	struct tokens *t = tokens_new(&first, NULL, NULL);
	for (struct token_run *r; (r = tokens_start(t));)
		tokens_end(t, r, NULL);
	const struct tokens *before[] = { t };
	kit_refused(&k, RULE_VALUE);
	k.conf.before = before;
	kit_check(&k);
	tokens_free(t);
	plan_free(&first);
	kit_close(&k);
}

/* Everybody waits for its left neighbour before it writes to its right one. */
static void cycle(void **state)
{
	struct kit k;
	open_all(&k);
	for (uint32_t r = 0; r < N; r++) {
		struct plan *p = &k.plan[r];
		struct plan_instr *note = find(p, PLAN_SEND) - 1;
		swap(p, PLAN_SEND, PLAN_RECV);          /* note RECV SEND DROP */
		struct plan_instr *recv = find(p, PLAN_RECV), x = *note;
		*note = *recv;
		*recv = x;                              /* RECV note SEND DROP: the note now depends on what came */
		recv = find(p, PLAN_RECV);
		struct plan_instr *made = recv + 1;
		made->in = xcalloc(1, sizeof *made->in);
		made->nin = 1;
		made->in[0] = recv->out[0];
	}
	refused(&k, RULE_CYCLE, "peer 0: ");
	/* a ring that is one short: the second forward waits for the backward that comes after it in the list */
	kit_open(&k, 1);
	kit_chain(&k, 1, 10, 20, 100, 400);
	struct plan *p = &k.plan[0];
	plan_init(p, "short", 0, 1, k.member);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 4, .initial = true }, "w");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 4, .depth = 2 }, "kept");
	plan_piece(plan_do(p, PLAN_FWD, 0, "w<=* -> save:kept"), 0, 0);
	plan_vec(p, 0, "opt", "w -> w'");
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept! w~0"), 0, 0);
	plan_do(p, PLAN_COMMIT, 0, "->");
	refused(&k, RULE_CYCLE, "ring is too short");
}

static void peak(void **state)
{
	static const struct { uint64_t budget; bool fits; } row[] = {
		/* state alone is 1200, the first batch makes it 1300 */
		{ 1199, false }, { 1250, false }, { 5000, true },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct kit k;
		open_all(&k);
		k.plan[1].tier[0].budget = row[i].budget;
		if (row[i].fits) {
			kit_check(&k);
			kit_close(&k);
		} else {
			refused(&k, RULE_PEAK, "peer 1: LOAD of index");
		}
	}
	/* nothing waits for memory, but what is there from the start is too much */
	struct kit k;
	kit_open(&k, 1);
	plan_init(&k.plan[0], "large", 0, 1, k.member);
	plan_buf(&k.plan[0], &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 40, .initial = true }, "w");
	plan_vec(&k.plan[0], 0, "opt", "w -> w'");
	plan_do(&k.plan[0], PLAN_COMMIT, 0, "->");
	k.plan[0].tier[0].budget = 39;
	refused(&k, RULE_PEAK, "peer 0 needs 40 bytes of tier arena, its budget is 39");
}

static void holders(void **state)
{
	struct kit k;
	open_all(&k);
	k.plan[0].redundancy = 4;
	refused(&k, RULE_HOLDERS, "state w has 3 holders, the run's redundancy is 4");
	open_all(&k);
	plan_holder(&k.plan[0], plan_find(&k.plan[0], "w"), 2);
	for (uint32_t r = 1; r < N; r++)
		memcpy(k.plan[2].buf[plan_find(&k.plan[2], r == 1 ? "w" : "opt")].name, r == 1 ? "v" : "vopt", r == 1 ? 2 : 5);
	refused(&k, RULE_HOLDERS, "says that peer 2 holds w");
}

static void strict(void **state)
{
	struct check_conf c = { .death_chance = 0.1, .loss_max = 0.05 };
	/* n q^copies <= loss_max */
	assert_true(plan_strict_allowed(5, 2, &c));
	assert_false(plan_strict_allowed(6, 2, &c));
	assert_true(plan_strict_allowed(50, 3, &c));
	assert_false(plan_strict_allowed(51, 3, &c));
	assert_true(plan_strict_allowed(1, 1, &c));
	struct kit k;
	struct err e = {0};
	enum plan_rule rule;
	open_all(&k);
	c.predict = k.conf;
	assert_int_equal(plan_check(k.list, k.n, &c, &rule, &e), 0);
	c.death_chance = 0.5;
	assert_int_equal(plan_check(k.list, k.n, &c, &rule, &e), -1);
	assert_int_equal(rule, RULE_STRICT);
	assert_non_null(strstr(e.text, "strict group all has 3 members"));
	/* the same group, weighted: whoever is missing is left out */
	for (uint32_t r = 0; r < N; r++)
		k.plan[r].group[0].strict = false;
	assert_int_equal(plan_check(k.list, k.n, &c, &rule, &e), 0);
	kit_close(&k);
}

static void commit(void **state)
{
	struct kit k;
	open_all(&k);
	take_out(&k.plan[1], PLAN_COMMIT);
	refused(&k, RULE_COMMIT, "peer 1: w is changed and not committed when");   /* by the next iteration's sum */
	open_all(&k);
	for (uint32_t i = 0; i < k.plan[0].ninstrs; i++)
		if (k.plan[0].instr[i].kind == PLAN_COMMIT)
			k.plan[0].instr[i].nin = 0;
	struct plan_instr *recv = find(&k.plan[0], PLAN_RECV), *opt = find(&k.plan[0], PLAN_COMMIT) - 1, x = *recv;
	*recv = *opt;
	*opt = x;
	refused(&k, RULE_COMMIT, "put COMMIT before it or journal");
	/* agreed first, stepped behind it, nothing left that can fail: how data parallelism does it */
	open_all(&k);
	for (uint32_t r = 0; r < N; r++) {
		struct plan_instr *end = &k.plan[r].instr[k.plan[r].ninstrs - 2], z = end[0];
		end[0] = end[1];
		end[1] = z;
	}
	kit_check(&k);
	kit_close(&k);
	/* but a COMMIT from before the sum does not cover what comes after it */
	open_all(&k);
	struct plan_instr last = k.plan[1].instr[k.plan[1].ninstrs - 1];
	memmove(&k.plan[1].instr[1], &k.plan[1].instr[0], (k.plan[1].ninstrs - 1) * sizeof last);
	k.plan[1].instr[0] = last;
	refused(&k, RULE_COMMIT, "peer 1: w is changed");
	/* with a journal it is allowed, and its bytes are counted */
	open_all(&k);
	recv = find(&k.plan[0], PLAN_RECV);
	opt = find(&k.plan[0], PLAN_COMMIT) - 1;
	struct plan_instr *drop = find(&k.plan[0], PLAN_DROP), y = *opt;
	*opt = *drop;
	*drop = *recv;
	*recv = y;
	k.plan[0].buf[plan_find(&k.plan[0], "w")].journal = true;
	k.plan[0].buf[plan_find(&k.plan[0], "opt")].journal = true;
	kit_check(&k);
	kit_predict(&k);
	assert_true(k.out.peer[0].peak[0] >= k.out.peer[1].peak[0] + 1200);
	kit_close(&k);
	/* a program that changes state and just ends */
	kit_open(&k, 1);
	plan_init(&k.plan[0], "ends", 0, 1, k.member);
	plan_buf(&k.plan[0], &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 4, .initial = true }, "w");
	plan_vec(&k.plan[0], 0, "opt", "w -> w'");
	refused(&k, RULE_COMMIT, "never committed");
}

/* Two pieces, the first of them twice, and back. */
static void twice(struct kit *k)
{
	static const char *const act[] = { "a1", "a2", "kept0", "kept1" };
	struct plan *p;

	kit_open(k, 1);
	kit_chain(k, 2, 10, 20, 100, 400);
	p = &k->plan[0];
	plan_init(p, "pieces", 0, 1, k->member);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = 100 }, "x");
	for (int i = 0; i < 4; i++)
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 100 }, "%s", act[i]);
	for (int i = 1; i <= 2; i++)
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = 100 }, "d%d", i);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 400, .per = UINT32_MAX, .initial = true }, "w");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = 400 }, "dw");
	plan_section(p, PLAN_BODY);
	p->iterations = 2;
	plan_do(p, PLAN_LOAD, 0, "-> x");
	plan_piece(plan_do(p, PLAN_FWD, 0, "x w -> a1"), 0, 0);
	plan_piece(plan_do(p, PLAN_FWD, 0, "a1 w -> a2 save:kept1"), 1, 1);
	plan_vec(p, 0, "loss", "a2! -> d2");
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept1! d2! a1! w -> d1 dw"), 1, 1);
	plan_piece(plan_do(p, PLAN_FWD, 0, "x w -> a1 save:kept0"), 0, 0)->replay = true;
	plan_do(p, PLAN_DROP, 0, "a1");
	plan_piece(plan_do(p, PLAN_BWD, 0, "save:kept0! d1! x! w -> dw"), 0, 0);
}

static void passes(void **state)
{
	static const struct { const char *text; uint32_t instr, a, b; bool again; } row[] = {
		{ "what it takes was kept of ops 0..0", 7, 0, 1, true }, { "goes into op 1", 2, 0, 1, false },
		{ "running statistics would move twice): op 0", 5, 0, 0, false },
		{ "a replay of what has not run yet: op 0", 1, 0, 0, true },
		{ "what it takes was kept of ops 1..1", 4, 0, 1, false },
		{ "no model has more than", 1, 0, 1 << 20, false },
	};
	struct kit k;

	twice(&k);
	kit_check(&k);
	kit_close(&k);
	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		twice(&k);
		k.plan[0].instr[row[i].instr].piece[0] = (struct plan_range){ row[i].a, row[i].b };
		k.plan[0].instr[row[i].instr].replay = row[i].again;
		refused(&k, RULE_PASSES, row[i].text);
	}
	twice(&k);                              /* nobody takes the second one's */
	k.plan[0].instr[7].in[1].buf = plan_find(&k.plan[0], "d2");
	k.plan[0].instr[4].in[1].drop = false;
	refused(&k, RULE_PASSES, "nobody reads the gradient");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_correct_cluster_passes),
		cmocka_unit_test(shape),
		cmocka_unit_test(unmatched),
		cmocka_unit_test(value),
		cmocka_unit_test(values_from_the_program_before),
		cmocka_unit_test(cycle),
		cmocka_unit_test(peak),
		cmocka_unit_test(holders),
		cmocka_unit_test(strict),
		cmocka_unit_test(commit),
		cmocka_unit_test(passes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
