/* BEGIN and COMMIT of units: what is written is read again, and every holding that cannot be is an error that says
 * so. */
#include "t.h"
#include "avg/int.h"

#define MEMBERS 4
#define LEN 100

/* Two units of two, cut at 40 and at 60; the second member of the first keeps the whole; 5 parts. */
static void make(struct body *b)
{
	static const uint64_t off[] = { 0, 30, 40, 60, 100 };
	*b = (struct body){ .what = BODY_BEGIN, .len = LEN, .rows = 1, .generation = 7, .units = 2, .n = MEMBERS,
		.parts = 4 };
	b->m = xcalloc(MEMBERS, sizeof *b->m);
	b->part = xcalloc(5, sizeof *b->part);
	b->held = xcalloc(MEMBERS, sizeof *b->held);
	for (size_t i = 0; i < MEMBERS; i++)
		b->m[i].id.b[0] = (uint8_t)(i + 1);
	for (size_t p = 0; p < 4; p++)
		b->part[p] = (struct wire_part){ .owner = p < 2 ? 0 : 1, .off = off[p], .len = off[p + 1] - off[p] };
	b->held[0] = (struct holding){ 0, 0, 40, 0, 40 };
	b->held[1] = (struct holding){ 0, 40, LEN, 0, LEN };
	b->held[2] = (struct holding){ 1, 60, LEN, 60, LEN };
	b->held[3] = (struct holding){ 1, 0, 60, 0, 60 };
}

static int read_again(const struct body *b, struct body *ret, struct err *e)
{
	struct buf bytes = { 0 };
	body_encode(b, &bytes);
	int rc = body_decode(ret, bytes.p, bytes.len, e);
	buf_free(&bytes);
	return rc;
}

static void test_round_trip(void **state)
{
	struct body b, c;
	struct err e;
	make(&b);
	if (read_again(&b, &c, &e))
		fail_msg("%s", e.text);
	assert_int_equal(c.generation, 7);
	assert_int_equal(c.units, 2);
	assert_memory_equal(c.held, b.held, MEMBERS * sizeof *b.held);
	assert_int_equal(body_head(&c, 1), 0);
	assert_int_equal(body_head(&c, 2), 3);
	uint64_t w[MEMBERS];
	body_weights(&c, MEMBERS, (const uint64_t[]){ 5, 0, 0, 9 }, w);
	assert_memory_equal(w, ((const uint64_t[]){ 5, 5, 9, 9 }), sizeof w);
	struct tree t;
	body_tree(&c, MEMBERS, &t);
	assert_true(tree_holds(&t, 0, 1) && !tree_brings(&t, 0, 1) && tree_brings(&t, 0, 0) && !tree_holds(&t, 0, 2));
	assert_int_equal(tree_weight(&t, 0, 0, w), 14);         /* of the heads alone */
	assert_int_equal(tree_weight(&t, 2, 1, w), 14);
	tree_free(&t);
	body_free(&b);
	body_free(&c);
}

static void refused(void (*change)(struct body *b), const char *part)
{
	struct body b, c;
	struct err e;
	make(&b);
	change(&b);
	if (!read_again(&b, &c, &e))
		fail_msg("taken, though: %s", part);
	assert_err(e, ERR_PROTOCOL, part);
	body_free(&b);
}

static void gap(struct body *b) { b->held[1].lo = 41; b->held[1].keep_lo = 41; }
static void overlap(struct body *b) { b->held[1].lo = 30; }
static void short_of(struct body *b) { b->held[1].hi = 99; }
static void beyond(struct body *b) { b->held[1].hi = b->held[1].keep_hi = LEN + 1; }
static void none(struct body *b) { b->held[0].hi = 0; }
static void two_heads(struct body *b) { b->held[1].lo = 0; }
static void keeps_less(struct body *b) { b->held[0].keep_hi = 30; }
static void no_such(struct body *b) { b->held[0].unit = 2; }
static void nobody(struct body *b) { b->held[0].unit = NO_UNIT; }
static void no_units(struct body *b) { b->units = 0; }
static void many(struct body *b) { b->units = MEMBERS + 1; }
static void crosses(struct body *b)
{
	b->held[3] = (struct holding){ 1, 0, 50, 0, 50 };
	b->held[2].lo = b->held[2].keep_lo = 50;
}
static void keep_crosses(struct body *b) { b->held[1].keep_lo = 10; }
static void stranger_owns(struct body *b) { b->part[0].owner = 2; }
static void others_samples(struct body *b) { b->m[1].samples = 3; }

static void test_refused(void **state)
{
	refused(gap, "unit 0: nobody, or more than one, goes on at 40 of");
	refused(overlap, "unit 0: nobody, or more than one, goes on at 40 of");
	refused(short_of, "unit 0: nobody, or more than one, goes on at 99 of");
	refused(beyond, "member 1 keeps 0 to 101");
	refused(none, "unit 0: nobody, or more than one, goes on at 0 of");
	refused(two_heads, "unit 0: nobody, or more than one, goes on at 40 of");
	refused(keeps_less, "member 0 keeps 0 to 30");
	refused(no_such, "member 0 is in unit 2 of 2");
	refused(nobody, "member 0 is in unit 65535 of 2");
	refused(no_units, "0 units do not fit");
	refused(many, "5 units do not fit");
	refused(crosses, "a part crosses an end of what member 2 holds");
	refused(keep_crosses, "a part crosses an end of what member 1 holds");
	refused(stranger_owns, "its owner 2 does not hold it");
	refused(others_samples, "member 1 counts samples that its unit's head counts");
}

static void test_cut_short(void **state)
{
	struct body b, c;
	struct buf bytes = { 0 };
	struct err e;
	make(&b);
	body_encode(&b, &bytes);
	for (size_t n = 0; n < bytes.len; n++)
		assert_int_equal(body_decode(&c, bytes.p, n, &e), -1);
	buf_free(&bytes);
	body_free(&b);
}

/* Whoever owned a part and is gone is followed by one that holds it; nobody else can. */
static void test_mend(void **state)
{
	struct body b;
	struct tree t;
	make(&b);
	body_tree(&b, MEMBERS, &t);
	const bool gone[MEMBERS] = { false, true, false, false }, able[MEMBERS] = { true, false, true, true };
	bool lost[MEMBERS] = { false };
	tree_mend(&t, (const uint64_t[]){ 30, 10, 20, 40 }, gone, able, 0, lost);
	assert_int_equal(t.owner[0], 0);
	assert_int_equal(t.owner[2], 3);
	assert_int_equal(t.owner[3], 2);
	assert_true(lost[1] && !lost[0]);
	tree_free(&t);
	body_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_cut_short), cmocka_unit_test(test_mend) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
