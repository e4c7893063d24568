/* The readiness rules, each alone: ages, lanes, windows, priorities, pins, streams, budgets, programs that follow each
 * other. That all together keep the meaning of the list is test_plan_order. */
#include "plan_kit.h"

static struct plan *small(struct kit *k)
{
	kit_open(k, 1);
	plan_init(&k->plan[0], "small", 0, 1, k->member);
	return &k->plan[0];
}

static void text(struct plan *p, const char *name, bool initial, uint32_t depth)
{
	plan_buf(p, &(struct plan_buf){ .bytes = 10, .initial = initial, .depth = depth }, "%s", name);
}

static struct token_run *starts(struct tokens *t, uint32_t number, int64_t index)
{
	struct token_run *r = tokens_start(t);
	assert_non_null(r);
	assert_int_equal(r->number, number);
	assert_int_equal(r->index, index);
	return r;
}

static void newest_waits_only_when_too_old(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t other = plan_lane(p, "other", 1, 1);
	text(p, "w", true, 2);
	text(p, "y", false, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 4;
	plan_vec(p, 0, "use", "w<=1 -> y");
	plan_vec(p, 0, "make", "-> w'")->lane = other;
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *use = starts(t, 0, 0), *make = starts(t, 1, 0);
	assert_int_equal(use->in[0].key, 0);
	tokens_end(t, use, NULL);
	use = starts(t, 0, 1);          /* key 0 is one behind index 1: young enough */
	assert_int_equal(use->in[0].key, 0);
	tokens_end(t, use, NULL);
	assert_null(tokens_start(t));   /* index 2 needs at least key 1 */
	tokens_end(t, make, NULL);
	make = starts(t, 1, 1);
	use = starts(t, 0, 2);
	assert_int_equal(use->in[0].key, 1);
	assert_int_equal(make->out[0].key, 2);
	tokens_free(t);
	kit_plans_free(&k);
}

static void lanes_windows_priorities(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t wide = plan_lane(p, "wide", 2, 3);
	text(p, "never", true, 1);
	text(p, "a", false, 1);
	text(p, "b", false, 1);
	text(p, "c", false, 1);
	plan_vec(p, 0, "slow", "-> a");
	for (int i = 0; i < 4; i++)
		plan_vec(p, 0, "x", i == 0 ? "a -> b" : "never")->lane = wide;
	p->instr[3].priority = 5;
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *slow = tokens_start(t), *first = tokens_start(t), *second = tokens_start(t);
	/* of the window 1 2 3: 1 waits for a, 3 has priority, then 2; 4 was outside, and now the lane is full */
	if (slow->number != 0) {
		struct token_run *x = slow;
		slow = second->number == 0 ? second : first;
		second = slow == second ? first : second;
		first = x;
	}
	assert_int_equal(slow->number, 0);
	assert_int_equal(first->number, 3);
	assert_int_equal(second->number, 2);
	assert_null(tokens_start(t));
	tokens_end(t, first, NULL);
	assert_int_equal(tokens_start(t)->number, 4);
	tokens_free(t);
	kit_plans_free(&k);
}

static void pins_hold_versions(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 10, .initial = true, .depth = 2 }, "w");
	text(p, "kept", false, 3);
	uint32_t other = plan_lane(p, "other", 1, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 3;
	plan_do(p, PLAN_FWD, 0, "w<=* -> save:kept");
	plan_vec(p, 0, "opt", "w -> w'")->lane = other;
	plan_section(p, PLAN_EPILOGUE);
	for (int j = -3; j < 0; j++)
		plan_do(p, PLAN_BWD, j, "save:kept! w~0");
	struct tokens *t = tokens_new(p, NULL, NULL);
	tokens_end(t, starts(t, 0, 0), NULL);
	struct token_run *f = tokens_start(t), *o = tokens_start(t);
	struct token_run *opt = f->number == 1 ? f : o, *fwd = f->number == 1 ? o : f;
	tokens_end(t, opt, NULL);       /* w key 1 */
	tokens_end(t, fwd, NULL);       /* made with key 0 too */
	fwd = starts(t, 0, 2);
	assert_int_equal(fwd->in[0].key, 1);
	tokens_end(t, fwd, NULL);
	/* key 2 would overwrite key 0, which the first two still need */
	struct token_run *b = starts(t, 2, 0);
	assert_int_equal(b->in[1].key, 0);
	assert_int_equal(b->version, 0);
	assert_null(tokens_start(t));
	tokens_end(t, b, NULL);
	b = starts(t, 3, 1);
	assert_int_equal(b->in[1].key, 0);
	tokens_end(t, b, NULL);
	opt = starts(t, 1, 1);
	assert_int_equal(opt->out[0].key, 2);
	tokens_end(t, opt, NULL);
	tokens_free(t);
	kit_plans_free(&k);
}

static void values_live_across_programs(void **state)
{
	struct kit k, l;
	struct plan *p = small(&k), *q = small(&l);
	for (int i = 0; i < 2; i++) {
		struct plan *x = i == 0 ? p : q;
		text(x, "w", true, 2);
		text(x, "flight", false, 2);
		plan_section(x, PLAN_BODY);
		x->iterations = i == 0 ? 3 : 1;
		x->first = i == 0 ? 10 : 13;
		plan_vec(x, 0, "opt", "w -> w'");
		if (i == 0)
			plan_vec(x, 0, "make", "-> flight");
		else
			plan_vec(x, 0, "use", "flight=1!");
	}
	struct tokens *t = tokens_new(p, NULL, NULL), *u;
	for (struct token_run *r; (r = tokens_start(t));)
		tokens_end(t, r, NULL);
	assert_true(tokens_finished(t));
	assert_int_equal(tokens_next_index(t), 13);
	uint32_t slot = tokens_find(t, 0, 0, 13);
	u = tokens_new(q, NULL, t);
	tokens_free(t);
	assert_int_equal(tokens_find(u, 0, 0, 13), slot);
	assert_int_equal(tokens_used(u, 0), 40);
	struct token_run *r = starts(u, 0, 13);
	assert_int_equal(r->in[0].slot, slot);
	tokens_end(u, r, NULL);
	tokens_end(u, starts(u, 1, 13), NULL);          /* what index 12 made */
	assert_true(tokens_finished(u));
	tokens_free(u);
	kit_plans_free(&k);
	kit_plans_free(&l);
}

static void stop_ends_at_an_iteration(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	text(p, "a", false, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 1000000;
	plan_vec(p, 0, "x", "-> a");
	plan_vec(p, 0, "y", "a!");
	plan_section(p, PLAN_EPILOGUE);
	plan_vec(p, 0, "end", "->");
	struct tokens *t = tokens_new(p, NULL, NULL);
	uint64_t ran[3] = {0};
	for (struct token_run *r; (r = tokens_start(t));) {
		ran[r->number]++;
		if (ran[0] == 50)
			tokens_stop(t);
		tokens_end(t, r, NULL);
	}
	assert_true(tokens_finished(t));
	assert_true(ran[0] >= 50 && ran[0] <= 55);
	assert_int_equal(ran[0], ran[1]);
	assert_int_equal(ran[2], 1);
	assert_int_equal(tokens_next_index(t), (int64_t)ran[0] + 1);
	tokens_free(t);
	kit_plans_free(&k);
}

static void streams_share_weights(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	p->streams = 3;
	plan_lane(p, "train", 0, 1);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 10, .initial = true, .shared = true, .depth = 2 },
		"w");
	text(p, "g", false, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 2;
	plan_do(p, PLAN_FWD, 0, "w<=* -> g");
	plan_vec(p, 0, "opt", "g! w<=* -> w'");
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *f[3];
	for (int s = 0; s < 3; s++) {
		f[s] = tokens_start(t);
		assert_int_equal(f[s]->stream, s);
		assert_int_equal(f[s]->in[0].key, 0);
	}
	assert_null(tokens_start(t));
	for (int s = 0; s < 3; s++)
		tokens_end(t, f[s], NULL);
	/* one writer of a shared buffer at a time, and every write counts */
	struct token_run *o = tokens_start(t);
	assert_int_equal(o->out[0].key, 1);
	assert_null(tokens_start(t));
	tokens_end(t, o, NULL);
	for (struct token_run *r; (r = tokens_start(t));)
		tokens_end(t, r, NULL);
	assert_true(tokens_finished(t));
	assert_int_equal(tokens_slot(t, 0, 0, tokens_newest(t, 0, 0))->key, 6);
	tokens_free(t);
	kit_plans_free(&k);
}

static void budget_and_text(void **state)
{
	struct kit k;
	struct buf b = {0};
	struct plan *p = small(&k);
	text(p, "a", true, 1);
	text(p, "b", false, 1);
	p->tier[0].budget = 25;
	plan_vec(p, 0, "x", "a -> b")->work_bytes = 6;
	struct tokens *t = tokens_new(p, NULL, NULL);
	assert_null(tokens_start(t));
	tokens_why(t, &b);
	assert_non_null(strstr((const char *)b.p, "waits for memory in tier arena"));
	tokens_free(t);
	p->tier[0].budget = 26;
	t = tokens_new(p, NULL, NULL);
	struct token_run *r = tokens_start(t);
	assert_int_equal(tokens_used(t, 0), 26);
	tokens_end(t, r, NULL);
	assert_int_equal(tokens_used(t, 0), 20);
	assert_int_equal(tokens_peak(t, 0), 26);
	tokens_free(t);
	buf_free(&b);
	kit_plans_free(&k);
}

struct moves { uint32_t from, to, taken; };

static void on_moved(void *arg, const struct token_bind *from, const struct token_bind *to)
{
	struct moves *m = arg;

	m->from = from->buf;
	m->to = to->buf;
}

static void on_memory(void *arg, uint32_t stream, uint32_t buf, uint32_t slot, bool taken)
{
	((struct moves *)arg)->taken += taken;
}

/* What is made in place takes the memory of what it is made from, when it has none of its own; else it does not. */
static void in_place_moves_memory(void **state)
{
	struct kit k;
	struct moves m = { 9, 9, 0 };
	const struct token_hooks hooks = { .arg = &m, .memory = on_memory, .moved = on_moved };
	struct plan *p = small(&k);
	text(p, "g", false, 1);
	text(p, "sum", false, 1);
	p->tier[0].budget = 20;
	plan_vec(p, 0, "make", "-> g");
	plan_vec(p, 0, "add", "g! -> sum+")->inplace = true;
	plan_vec(p, 0, "make", "-> g");
	plan_vec(p, 0, "add", "g! -> sum+")->inplace = true;
	plan_vec(p, 0, "use", "sum! ->");
	struct tokens *t = tokens_new(p, &hooks, NULL);
	tokens_end(t, starts(t, 0, 0), NULL);
	struct token_run *r = starts(t, 1, 0);
	assert_true(r->moved && r->out[0].blank);
	assert_int_equal(m.from, r->in[0].buf);
	assert_int_equal(m.to, r->out[0].buf);
	assert_int_equal(tokens_used(t, 0), 10);
	tokens_end(t, r, NULL);
	assert_int_equal(tokens_used(t, 0), 10);
	assert_int_equal(tokens_peak(t, 0), 10);
	tokens_end(t, starts(t, 2, 0), NULL);
	r = starts(t, 3, 0);
	assert_false(r->moved || r->out[0].blank);
	assert_int_equal(tokens_used(t, 0), 20);
	tokens_end(t, r, NULL);
	assert_int_equal(tokens_used(t, 0), 10);
	tokens_end(t, starts(t, 4, 0), NULL);
	assert_int_equal(tokens_used(t, 0), 0);
	assert_int_equal(m.taken, 2);
	assert_true(tokens_finished(t));
	tokens_free(t);

	p->instr[1].in[0].drop = false;
	assert_non_null(plan_instr_wrong(p, &p->instr[1]));
	p->instr[1].in[0].drop = true;
	assert_null(plan_instr_wrong(p, &p->instr[1]));
	p->buf[p->instr[1].in[0].buf].bytes++;
	assert_non_null(plan_instr_wrong(p, &p->instr[1]));
	kit_plans_free(&k);
}

static void commit_waits_for_everything(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t other = plan_lane(p, "other", 1, 1);
	text(p, "a", false, 1);
	plan_vec(p, 0, "x", "-> a");
	plan_do(p, PLAN_COMMIT, 0, "->");
	plan_vec(p, 0, "later", "->")->lane = other;
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *x = starts(t, 0, 0);
	struct token_run *later = starts(t, 2, 0);      /* nobody waits for a COMMIT that changes nothing it reads */
	assert_null(tokens_start(t));
	tokens_end(t, later, NULL);
	tokens_end(t, x, NULL);
	tokens_end(t, starts(t, 1, 0), NULL);
	assert_true(tokens_finished(t));
	tokens_free(t);
	kit_plans_free(&k);
}

/* It waits here for what has not ended: the state must be what it was until then, whoever could change it at once. */
static void state_waits_for_commit(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t other = plan_lane(p, "other", 1, 1);
	text(p, "a", false, 1);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 10, .initial = true, .depth = 1 }, "w");
	plan_vec(p, 0, "x", "-> a");
	plan_do(p, PLAN_COMMIT, 0, "->");
	plan_vec(p, 0, "step", "w -> w")->lane = other;
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *x = starts(t, 0, 0);
	assert_null(tokens_start(t));
	tokens_end(t, x, NULL);
	tokens_end(t, starts(t, 1, 0), NULL);
	tokens_end(t, starts(t, 2, 0), NULL);
	assert_true(tokens_finished(t));
	tokens_free(t);
	kit_plans_free(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(newest_waits_only_when_too_old),
		cmocka_unit_test(lanes_windows_priorities),
		cmocka_unit_test(pins_hold_versions),
		cmocka_unit_test(values_live_across_programs),
		cmocka_unit_test(stop_ends_at_an_iteration),
		cmocka_unit_test(streams_share_weights),
		cmocka_unit_test(budget_and_text),
		cmocka_unit_test(in_place_moves_memory),
		cmocka_unit_test(commit_waits_for_everything),
		cmocka_unit_test(state_waits_for_commit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
