/* Runs whose rounds go on beside micro-batches, and runs of steps of one's own, again in one process from the logs of
 * all that were ever in them: the same losses, and the same bytes after every epoch. */
#include "replay_kit.h"

static void test_modes(void **state)
{
	char spec[1200];
	unsigned seeds = getenv("SEEDS") ? (unsigned)strtoul(getenv("SEEDS"), NULL, 10) : 3;

	for (size_t m = 0; m < MODES; m++) {
		unsigned lives = 0;
		uint64_t contributions = 0, late = 0;

		for (unsigned seed = 1; seed <= seeds; seed++) {
			struct swarm *w = run(spec_for(spec, modes[m].strategy, modes[m].averaging), 100 * m + seed);
			struct replay_result r;
			struct err e;
			uint64_t stale = 0;

			if (again(w, &r, &e) < 0)
				fail_msg("%s, seed %u: %s", modes[m].name, seed, e.text);
			assert_int_equal(r.epochs, EPOCHS);
			for (unsigned i = 0; i < w->n; i++)
				stale += w->m[i].stale;
			assert_int_equal(r.stale, stale);
			late += stale;
			contributions += r.contributions;
			lives += w->n;
			over(w);
		}
		print_message("%s: %u seeds, %u lives, %llu contributions, %llu of them late\n", modes[m].name, seeds, lives,
			(unsigned long long)contributions, (unsigned long long)late);
		assert_true(lives > seeds * PEERS && contributions > 2 * EPOCHS * seeds);
		assert_int_equal(late > 0, modes[m].stale);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
