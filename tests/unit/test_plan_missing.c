/* What does not come (plan.h, Missing), by the tokens alone: who is passed over, what is read in its place, what stays,
 * whose memory goes; and what an abandoned instruction leaves. */
#include "plan_kit.h"

static const struct token_news nothing = { .version = -1, .missing = true };

static struct plan *small(struct kit *k)
{
	kit_open(k, 2);
	plan_init(&k->plan[0], "small", 0, 2, k->member);
	return &k->plan[0];
}

static void value(struct plan *p, const char *name, bool initial, uint32_t depth, uint32_t per)
{
	plan_buf(p, &(struct plan_buf){ .bytes = 10, .initial = initial, .depth = depth, .per = per }, "%s", name);
}

static struct token_run *starts(struct tokens *t, uint32_t number)
{
	struct token_run *r = tokens_start(t);

	assert_non_null(r);
	assert_int_equal(r->number, number);
	return r;
}

static void ends(struct tokens *t, uint32_t number, bool passed)
{
	struct token_run *r = starts(t, number);

	assert_int_equal(r->passed, passed);
	tokens_end(t, r, NULL);
}

static enum slot_state state_of(struct tokens *t, const char *buf, uint32_t slot)
{
	return tokens_slot(t, 0, plan_find(tokens_plan(t), buf), slot)->state;
}

static void close(struct kit *k, struct tokens *t)
{
	tokens_free(t);
	plan_free(&k->plan[0]);
}

/* Everything that hangs on it is passed over; sums stay as they are, and so do those that began with nothing. */
static void without(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	struct tokens *t;

	value(p, "a", false, 1, 1);
	value(p, "b", false, 1, 1);
	value(p, "c", false, 1, 1);
	value(p, "sum", false, 1, 100);
	value(p, "blank", false, 1, 100);
	plan_vec(p, 0, "make", "-> sum+");
	plan_recv(p, 0, 1, "a")->on_missing = PLAN_WITHOUT;
	plan_vec(p, 0, "use", "a! -> b");
	plan_vec(p, 0, "add", "b -> sum+ c");
	plan_vec(p, 0, "add", "b! -> blank+");
	plan_do(p, PLAN_COMMIT, 0, "c");
	plan_do(p, PLAN_DROP, 0, "c");
	plan_vec(p, 0, "other", "sum -> b");
	t = tokens_new(p, NULL, NULL);
	ends(t, 0, false);
	tokens_end(t, starts(t, 1), &nothing);
	assert_int_equal(state_of(t, "a", 0), SLOT_MISSING);
	assert_int_equal(tokens_used(t, 0), 10);        /* the sum: of what has not come there is no memory */
	for (uint32_t n = 2; n <= 5; n++)
		ends(t, n, true);
	assert_int_equal(state_of(t, "a", 0), SLOT_EMPTY);      /* `!` takes place */
	assert_int_equal(state_of(t, "sum", 0), SLOT_FULL);
	assert_int_equal(state_of(t, "blank", 0), SLOT_MISSING);
	assert_int_equal(state_of(t, "c", 0), SLOT_MISSING);
	ends(t, 6, false);
	assert_int_equal(state_of(t, "c", 0), SLOT_EMPTY);
	ends(t, 7, false);
	assert_true(tokens_finished(t));
	assert_int_equal(tokens_peak(t, 0), 20);
	close(&k, t);
}

/* A VEC that says so runs and sees what is not there; an elastic sum gives nothing; a strict one is passed over. */
static void who_does_without(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t some = plan_group(p, "some", PLAN_OP_SUM, false, true);
	uint32_t all = plan_group(p, "all", PLAN_OP_SUM, true, false);
	struct token_run *r;
	struct tokens *t;

	value(p, "a", false, 1, 1);
	value(p, "b", false, 1, 1);
	value(p, "c", false, 1, 1);
	value(p, "d", false, 1, 1);
	plan_recv(p, 0, 1, "a")->on_missing = PLAN_WITHOUT;
	plan_vec(p, 0, "weigh", "a -> b")->on_missing = PLAN_WITHOUT;
	plan_coll(p, PLAN_SUM, 0, some, "a -> c");
	plan_coll(p, PLAN_SUM, 0, all, "a -> d");
	t = tokens_new(p, NULL, NULL);
	tokens_end(t, starts(t, 0), &nothing);
	r = starts(t, 1);
	assert_true(!r->passed && r->in[0].missing);
	tokens_end(t, r, NULL);
	r = starts(t, 2);
	assert_true(!r->passed && r->in[0].missing);
	tokens_end(t, r, NULL);
	ends(t, 3, true);
	assert_int_equal(state_of(t, "b", 0), SLOT_FULL);
	assert_int_equal(state_of(t, "c", 0), SLOT_FULL);
	close(&k, t);
}

/* The newest value stands for those that do not come, however often, under the key that is asked for. */
static void newest(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t other = plan_lane(p, "other", 1, 1);
	struct token_run *r;
	struct tokens *t;

	value(p, "w", true, 2, 1);
	value(p, "y", false, 1, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 5;
	plan_recv(p, 0, 1, "w'")->on_missing = PLAN_USE_NEWEST;
	plan_vec(p, 0, "use", "w' -> y");
	plan_vec(p, 0, "young", "w<=0 -> y")->lane = other;
	t = tokens_new(p, NULL, NULL);
	for (int64_t j = 0; j < 5; j++) {
		r = starts(t, 0);
		if (j != 1) {
			assert_true(tokens_stand(t, r));
			assert_int_equal(r->stands[0].key, j);
			assert_true(r->stands[0].slot != r->out[0].slot);
		}
		tokens_end(t, r, j == 1 ? NULL : &nothing);
		for (uint32_t n = 1; n <= 2; n++) {
			r = starts(t, n);
			assert_int_equal(r->in[0].key, j + 1);
			assert_false(r->passed);
			tokens_end(t, r, NULL);
		}
	}
	assert_true(tokens_finished(t));
	assert_int_equal(tokens_peak_values(t, plan_find(p, "w")), 2);
	close(&k, t);
}

/* With nothing that could stand for it, it is missing. What stands for it is not written over meanwhile. */
static void nothing_stands(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	struct token_run *r, *next;
	struct tokens *t;

	value(p, "w", false, 2, 1);
	value(p, "y", false, 1, 1);
	for (int j = 0; j < 3; j++)
		plan_recv(p, j, 1, "w")->on_missing = PLAN_USE_NEWEST;
	plan_vec(p, 0, "use", "w -> y");
	t = tokens_new(p, NULL, NULL);
	r = starts(t, 0);
	assert_false(tokens_stand(t, r));
	tokens_end(t, r, &nothing);
	ends(t, 1, false);
	r = starts(t, 2);
	next = tokens_start(t);
	assert_true(!next || next->number == 3);
	assert_true(tokens_stand(t, r));
	assert_int_equal(r->stands[0].key, 1);
	tokens_end(t, r, &nothing);
	close(&k, t);
}

/* An optimizer whose gradient has not come makes no step: its version is that before once more. And what was made with
 * no version (`~`) has no reader that waits for it. */
static void state_stays(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	struct token_run *r;
	struct tokens *t;

	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 10, .initial = true, .depth = 2 }, "w");
	value(p, "a", false, 1, 1);
	value(p, "kept", false, 1, 1);
	value(p, "g", false, 1, 1);
	value(p, "y", false, 1, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 3;
	plan_recv(p, 0, 1, "a")->on_missing = PLAN_WITHOUT;
	plan_do(p, PLAN_FWD, 0, "a! w -> save:kept");
	plan_do(p, PLAN_BWD, 0, "save:kept! w~0 -> g");
	plan_vec(p, 0, "opt", "g! w -> w'");
	plan_vec(p, 0, "look", "w' -> y");
	t = tokens_new(p, NULL, NULL);
	for (int64_t j = 0; j < 3; j++) {
		tokens_end(t, starts(t, 0), j == 1 ? NULL : &nothing);
		for (uint32_t n = 1; n <= 2; n++)
			ends(t, n, j != 1);
		r = starts(t, 3);
		assert_true(r->passed == (j != 1) && (!r->passed || r->stands[0].key == j));
		tokens_end(t, r, NULL);
		r = starts(t, 4);
		assert_true(!r->passed);
		assert_int_equal(r->in[0].key, j + 1);
		tokens_end(t, r, NULL);
	}
	assert_true(tokens_finished(t));
	close(&k, t);
}

/* Begun: what it was writing is no value; its memory moves on to the next program, where it begins blank. What it
 * writes over itself is as it was, and so is what it was to add to before it has begun. No mark behind it takes
 * place. */
static void abandoned(void **state)
{
	struct kit k;
	struct plan *p = small(&k), q;
	struct token_run *r;
	struct tokens *t, *u;
	uint32_t some;

	value(p, "a", false, 1, 1);
	value(p, "sum", false, 1, 100);
	some = plan_group(p, "some", PLAN_OP_SUM, false, true);
	plan_vec(p, 0, "make", "-> sum+");
	plan_coll(p, PLAN_SUM, 0, some, "sum -> sum");
	plan_recv(p, 0, 1, "a");
	plan_vec(p, 0, "add", "-> sum+");
	plan_do(p, PLAN_COMMIT, 0, "a");
	plan_vec(p, 0, "add", "-> sum+");
	t = tokens_new(p, NULL, NULL);
	ends(t, 0, false);
	r = tokens_start(t);
	struct token_run *recv = tokens_start(t);
	assert_true(r->number == 1 && recv->number == 2);
	tokens_abandon(t, r, true);
	assert_int_equal(state_of(t, "sum", 0), SLOT_FULL);
	tokens_abandon(t, recv, true);
	assert_int_equal(state_of(t, "a", 0), SLOT_MISSING);
	r = tokens_start(t);
	if (r->number != 3) {                   /* the mark may be first, and is none */
		assert_true(r->passed);
		tokens_end(t, r, NULL);
		r = tokens_start(t);
	}
	assert_int_equal(r->number, 3);
	tokens_abandon(t, r, false);
	assert_int_equal(state_of(t, "sum", 0), SLOT_FULL);
	while ((r = tokens_start(t)) && r->number != 5) {
		assert_true(r->passed);
		tokens_end(t, r, NULL);
	}
	tokens_abandon(t, r, true);             /* it may have added half of it */
	assert_int_equal(state_of(t, "sum", 0), SLOT_MISSING);
	assert_int_equal(tokens_used(t, 0), 20);
	plan_init(&q, "small", 0, 2, k.member);
	q.first = 1;
	value(&q, "a", false, 1, 1);
	value(&q, "sum", false, 1, 100);
	plan_vec(&q, 0, "make", "-> a sum+");
	u = tokens_new(&q, NULL, t);
	assert_int_equal(tokens_used(u, 0), 20);
	r = starts(u, 0);
	assert_true(r->out[0].blank && r->out[1].blank && !r->out[0].fresh && !r->out[1].fresh);
	tokens_end(u, r, NULL);
	assert_int_equal(tokens_peak(u, 0), 20);
	tokens_free(u);
	plan_free(&q);
	close(&k, t);
}

/* The SUM of a round that is given up leaves what it was to take, for the next; that of members who need each other
 * does not: they begin anew. */
static void taken_nothing(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	struct token_run *r;
	struct tokens *t;
	uint32_t group[2];

	for (int i = 0; i < 2; i++) {
		group[i] = plan_group(p, i ? "strict" : "elastic", PLAN_OP_SUM, i, !i);
		plan_buf(p, &(struct plan_buf){ .bytes = 10, .depth = 1, .per = 100 }, "part%d", i);
		plan_buf(p, &(struct plan_buf){ .bytes = 10, .depth = 1, .per = 100 }, "mean%d", i);
		plan_vec(p, 0, "make", "-> part%d", i);
		plan_coll(p, PLAN_SUM, 0, group[i], "part%d! -> mean%d", i, i);
	}
	t = tokens_new(p, NULL, NULL);
	ends(t, 0, false);
	for (uint32_t n = 1; n < 4; n++) {
		r = starts(t, n);
		if (n == 2)
			tokens_end(t, r, NULL);
		else
			tokens_abandon(t, r, true);
	}
	assert_int_equal(state_of(t, "part0", 0), SLOT_FULL);
	assert_int_equal(state_of(t, "mean0", 0), SLOT_MISSING);
	assert_int_equal(state_of(t, "part1", 0), SLOT_EMPTY);
	assert_int_equal(state_of(t, "mean1", 0), SLOT_MISSING);
	assert_int_equal(tokens_used(t, 0), 30);
	close(&k, t);
}

/* What stands for a missing value must not lie where that is being written. */
static void needs_a_ring(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	const char *wrong;

	value(p, "w", false, 1, 1);
	value(p, "s", true, 1, 1);
	value(p, "r", true, 2, 1);
	plan_recv(p, 0, 1, "w")->on_missing = PLAN_USE_NEWEST;
	plan_recv(p, 0, 1, "s'")->on_missing = PLAN_WITHOUT;
	plan_recv(p, 0, 1, "w")->on_missing = PLAN_WITHOUT;
	plan_recv(p, 0, 1, "r'")->on_missing = PLAN_USE_NEWEST;
	for (uint32_t n = 0; n < 2; n++) {
		wrong = plan_instr_wrong(p, &p->instr[n]);
		assert_non_null(wrong);
		assert_non_null(strstr(wrong, "a ring of two"));
	}
	assert_null(plan_instr_wrong(p, &p->instr[2]));
	assert_null(plan_instr_wrong(p, &p->instr[3]));
	plan_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without), cmocka_unit_test(who_does_without), cmocka_unit_test(newest),
		cmocka_unit_test(nothing_stands),
		cmocka_unit_test(state_stays), cmocka_unit_test(abandoned), cmocka_unit_test(taken_nothing),
		cmocka_unit_test(needs_a_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
