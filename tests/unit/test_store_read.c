/* Reading while the loop waits: what is asked for is found without reading the rest, however long a run has lasted. */
#include <math.h>
#include <sqlite3.h>
#include "common/id.h"
#include "common/mem.h"
#include "store/int.h"
#include "tests/unit/store_kit.h"

static int count_steps(unsigned what, void *arg, void *statement, void *ns)
{
	*(int *)arg += sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 0);
	return 0;
}

/* A run may have millions of epochs, and the loop waits while somebody asks for the last ten. */
static void the_newest_are_found_without_reading_all(void **state)
{
	struct t *t = *state;
	char digest[16], path[16];
	int steps = 0;

	for (uint64_t i = 0; i < 4000; i++) {
		const char *run = i / 1000 % 2 ? "r1" : "r2";

		snprintf(digest, sizeof digest, "d%u", (unsigned)i);
		snprintf(path, sizeof path, "/%u", (unsigned)i);
		t->w->wall += 10;
		store_epoch_put(t->s, &(struct store_epoch){ .run = run, .digest = digest, .epoch = i });
		store_round_add(t->s, &(struct store_round){ .run = run, .outcome = "done", .epoch = i });
		store_ckpt_put(t->s, &(struct store_ckpt){ .run = run, .path = path, .digest = "d", .epoch = i,
			.state = "whole" });
		store_event(t->s, LOG_INFO_, "x", run, NULL, NULL, "%u", (unsigned)i);
		if (i % 100 == 0)
			store_settle(t->s);
	}
	store_settle(t->s);
	sqlite3_trace_v2(t->s->db, SQLITE_TRACE_PROFILE, count_steps, &steps);
	for (int k = 0; k < STORE_TABLES; k++) {
		json_t *r = store_list(t->s, (enum store_table)k, "r2", 10);

		if (k == STORE_EPOCHS || k == STORE_ROUNDS)
			assert_int_equal(integer(r, 9, "epoch"), 2990);
		json_decref(r);
		if (steps > 1000)
			fail_msg("table %d: %d steps for ten rows", k, steps);
		steps = 0;
	}
}

static void put_link(struct store *s, uint64_t epoch, uint8_t own, uint8_t before)
{
	struct id d = { .b = { own, (uint8_t)epoch, (uint8_t)(epoch >> 8) } },
		p = { .b = { before, (uint8_t)(epoch - 1), (uint8_t)((epoch - 1) >> 8) } };
	char digest[ID_HEX], prev[ID_HEX];

	id_hex(&d, digest);
	id_hex(&p, prev);
	store_epoch_put(s, &(struct store_epoch){ .run = "r1", .digest = digest, .prev = prev, .epoch = epoch });
	store_epoch_put(s, &(struct store_epoch){ .run = "r2", .digest = prev, .prev = digest, .epoch = epoch });
	if (epoch % 100 == 0)
		store_settle(s);
}

/* Two histories that part at epoch 1500; the older part of the first has lost epoch 200. */
static void a_history_is_what_led_to_its_end(void **state)
{
	struct t *t = *state;
	struct store_link *v = xcalloc(3000, sizeof *v);
	struct id end = { .b = { 1, 2000 % 256, 2000 / 256 } }, other = { .b = { 2, 1600 % 256, 1600 / 256 } };
	int steps = 0;

	for (uint64_t i = 1; i <= 2000; i++)
		if (i != 200)
			put_link(t->s, i, 1, 1);
	for (uint64_t i = 1501; i <= 1600; i++)
		put_link(t->s, i, 2, i == 1501 ? 1 : 2);
	store_settle(t->s);
	sqlite3_trace_v2(t->s->db, SQLITE_TRACE_PROFILE, count_steps, &steps);
	assert_int_equal(store_history(t->s, "r1", 2000, end.b, v, 3000), 1800);
	for (unsigned i = 0; i < 1800; i++) {
		assert_int_equal(v[i].epoch, 2000 - i);
		assert_int_equal(v[i].digest[0], 1);
		assert_int_equal(v[i].digest[1] + 256 * v[i].digest[2], 2000 - i);
	}
	assert_int_equal(store_history(t->s, "r1", 1600, other.b, v, 3000), 1400);
	assert_int_equal(v[99].digest[0], 2);
	assert_int_equal(v[100].digest[0], 1);
	steps = 0;
	assert_int_equal(store_history(t->s, "r1", 2000, end.b, v, 10), 10);
	if (steps > 1000)
		fail_msg("%d steps for ten links", steps);
	assert_int_equal(store_history(t->s, "r1", 1999, end.b, v, 10), 0);
	assert_int_equal(store_history(t->s, "r3", 2000, end.b, v, 10), 0);
	free(v);
}

/* What goes on after a restart is found among many more that are over. */
static void runs_that_go_on_are_among_the_first(void **state)
{
	struct t *t = *state;
	char name[16];
	json_t *r;

	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "r%d", i);
		t->w->wall += i % 3;            /* some in the same millisecond */
		store_run_put(t->s, &(struct store_run){ .run = name, .name = "digits", .author = "aa", .state = "done",
			.spec = "{}", .resume = i == 3 || i == 39 });
	}
	r = store_list(t->s, STORE_RUNS, NULL, 10);
	assert_int_equal(json_array_size(r), 10);
	assert_string_equal(text(r, 0, "run"), "r3");
	for (size_t i = 1; i < 10; i++) {
		snprintf(name, sizeof name, "r%zu", 30 + i);
		assert_string_equal(text(r, i, "run"), name);
	}
	json_decref(r);
}

static void an_end_is_of_what_holds(void **state)
{
	struct t *t = *state;
	struct store_end end;
	char digest[16];

	store_run_end(t->s, "r1", &end);
	assert_int_equal(end.members, 0);
	assert_int_equal(end.val_epoch, 0);
	assert_true(isnan(end.loss) && isnan(end.val_loss) && isnan(end.val_accuracy) && isnan(end.best_accuracy));
	for (uint64_t i = 1; i <= 30; i++) {
		snprintf(digest, sizeof digest, "d%u", (unsigned)i);
		store_epoch_put(t->s, &(struct store_epoch){ .run = i % 2 ? "r1" : "r2", .digest = digest, .epoch = i / 2 + 1,
			.members = i, .loss = (double)i, .val_loss = NAN, .val_accuracy = NAN });
	}
	store_epoch_validated(t->s, "r1", 3, 1, 0.9);
	store_epoch_validated(t->s, "r1", 9, 2, 0.7);
	store_epoch_validated(t->s, "r1", 14, 0.5, 0.95);
	store_epoch_discard(t->s, "r1", 13, INT64_MAX);
	store_run_end(t->s, "r1", &end);
	assert_int_equal(end.members, 23);
	assert_true(end.loss == 23);
	assert_int_equal(end.val_epoch, 9);
	assert_true(end.val_loss == 2 && end.val_accuracy == 0.7 && end.best_accuracy == 0.9);
	store_run_end(t->s, "r2", &end);
	assert_int_equal(end.members, 30);
	assert_true(isnan(end.best_accuracy));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_newest_are_found_without_reading_all), T(a_history_is_what_led_to_its_end),
		T(runs_that_go_on_are_among_the_first), T(an_end_is_of_what_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
