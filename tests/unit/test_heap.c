/* The timer heap against a plain list: order, ties by arming order, re-arming, disarming. */
#include "common/heap.h"
#include "common/rng.h"
#include "tests/unit/t.h"

static void ties_go_to_the_first_armed(void **s)
{
	struct heap h;
	struct timer t[5] = {0};

	heap_init(&h);
	assert_null(heap_peek(&h));
	assert_null(heap_pop(&h));
	for (int i = 0; i < 5; i++)
		heap_set(&h, &t[i], 100);
	heap_set(&h, &t[1], 100);                       /* armed again: now the last */
	heap_set(&h, &t[4], 50);
	assert_ptr_equal(heap_pop(&h), &t[4]);
	assert_ptr_equal(heap_pop(&h), &t[0]);
	assert_ptr_equal(heap_pop(&h), &t[2]);
	assert_ptr_equal(heap_pop(&h), &t[3]);
	assert_ptr_equal(heap_peek(&h), &t[1]);
	heap_set(&h, &t[1], 0);
	assert_int_equal(t[1].slot, 0);
	assert_null(heap_peek(&h));
	heap_set(&h, &t[1], 0);                         /* disarming twice is nothing */
	heap_set(&h, &t[2], 7);
	heap_done(&h);
	assert_int_equal(t[2].slot, 0);
	assert_int_equal(t[2].at_us, 0);
}

enum { N = 200 };

static struct timer *earliest(struct timer *t)
{
	struct timer *best = NULL;

	for (int i = 0; i < N; i++)
		if (t[i].at_us && (!best || t[i].at_us < best->at_us || (t[i].at_us == best->at_us && t[i].seq < best->seq)))
			best = &t[i];
	return best;
}

static void against_a_plain_search(void **s)
{
	struct heap h;
	struct timer *t = calloc(N, sizeof *t);
	struct rng r;

	rng_seed(&r, 1);
	heap_init(&h);
	for (int step = 0; step < 20000; step++) {
		struct timer *want = earliest(t);

		assert_ptr_equal(heap_peek(&h), want);
		switch (rng_below(&r, 4)) {
		case 0:
			assert_ptr_equal(heap_pop(&h), want);
			if (want)
				assert_int_equal(want->at_us, 0);
			break;
		case 1:
			heap_set(&h, &t[rng_below(&r, N)], 0);
			break;
		default:
			heap_set(&h, &t[rng_below(&r, N)], 1 + rng_below(&r, 64));
		}
	}
	assert_true(h.n > 10);
	heap_done(&h);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ties_go_to_the_first_armed), cmocka_unit_test(against_a_plain_search),
	};

	return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
