/* A trainer on real lanes: the digits, alone, as the demo trains them; snapshots, validation, pause and end while
 * jobs run. */
#include "real_kit.h"

#ifdef __SANITIZE_THREAD__
#define EPOCHS 4                        /* forty times as slow; what threads do to each other shows in a few */
#else
#define EPOCHS 30
#endif

static void test_digits(void **state)
{
	struct trainer_view v;
	struct real r;

	open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 1);
	trainer_start(r.t);
	run_to(&r, EPOCHS);
	trainer_validate(r.t, false);
	assert_true(loop_run_until(r.loop, is_validated, &r, 20000000));
	trainer_view(r.t, &v);
	print_message("%d epochs: loss %.3f to %.3f, held out %.1f %%, %.0f samples/s, arena %zu of %zu predicted\n",
		EPOCHS, r.first_loss,
		r.last_loss, 100 * r.accuracy, v.rate, (size_t)v.arena_peak_bytes, (size_t)v.arena_predicted_bytes);
	if (EPOCHS == 30)
		assert_true(r.accuracy > 0.85);
	assert_int_equal(r.samples, 256 * r.applied);
	assert_int_equal(v.arena_peak_bytes, v.arena_predicted_bytes);          /* T5 */
	close_real(&r);
}

/* A snapshot while training goes on is the state at one epoch; training can go back to it. What is not finite is
 * refused. */
static void test_snapshot(void **state)
{
	struct real r;
	size_t bytes;
	void *block;
	struct err e;

	open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 2);
	trainer_start(r.t);
	run_to(&r, 3);
	trainer_snapshot(r.t, snapped, &r);
	assert_true(loop_run_until(r.loop, has_snap, &r, 20000000));
	assert_true(r.snap->epoch >= 3);
	run_to(&r, r.snap->epoch + 2);
	trainer_quiet(r.t, now_quiet, &r);
	assert_true(loop_run_until(r.loop, is_quiet, &r, 20000000));
	block = trainer_state(r.t, &bytes);
	assert_int_equal(bytes, r.snap->bytes);
	assert_memory_not_equal(block, r.snap->data, bytes);
	memcpy(block, r.snap->data, bytes);
	assert_int_equal(trainer_loaded(r.t, r.snap->epoch, NULL, &e), 0);
	r.epoch = r.applied = r.snap->epoch;
	r.contributed_epoch = 0;
	regrant(&r);
	trainer_start(r.t);
	run_to(&r, r.snap->epoch + 3);
	r.quiet = false;
	trainer_quiet(r.t, now_quiet, &r);
	assert_true(loop_run_until(r.loop, is_quiet, &r, 20000000));
	((real *)block)[3] = NAN;
	assert_int_equal(trainer_loaded(r.t, 1, NULL, &e), -1);
	assert_err(e, ERR_NONFINITE, "conv1.weight");
	close_real(&r);
}

/* The end may come at any moment: in a load, a pass, a step, a copy. */
static void test_end(void **state)
{
	for (int i = 0; i < 12; i++) {
		struct real r;

		open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 2);
		trainer_start(r.t);
		trainer_validate(r.t, false);
		if (i % 3)
			trainer_snapshot(r.t, snapped, &r);
		r.goal = 1000;
		(void)loop_run_until(r.loop, reached, &r, 1 + (uint64_t)i * 1500);
		close_real(&r);
	}
}

/* The loop goes first, as when a daemon ends at once: nothing may run on or be lost. */
static void test_detach(void **state)
{
	struct real r;

	open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 1);
	trainer_start(r.t);
	run_to(&r, 2);
	r.env->ops->detach(r.env);
	trainer_free(r.t, gone, &r);
	assert_true(r.gone);
	loop_free(r.loop);
	data_free(r.data);
	spec_free(r.spec);
	team_free(r.team);
	blas_close(r.blas);
	ranges_free(&r.done);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_digits), cmocka_unit_test(test_snapshot), cmocka_unit_test(test_end),
		cmocka_unit_test(test_detach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
