/* Row B03 at the trainer: what it costs not to wait. Gradients of parameters that others have moved since, against
 * those of a round that waits for all. */
#include <stdlib.h>
#include "b01_kit.h"

/* Its turn: what it has worked since its last one becomes everybody's step, under the micro-batches of all. */
static uint64_t one_gives(struct kit *k, int n, int who, uint64_t epoch)
{
	const size_t len = trainer_contribution_len(k[who].t);
	real *mean = malloc(len * sizeof(*mean));
	struct err e;

	for (int i = 0; i < n; i++)
		sim_run_for(k[i].sim, 300);
	begin(&k[who], epoch);
	uint64_t samples = k[who].contributed;
	for (size_t p = 0; p < len; p++)
		mean[p] = samples ? k[who].x[p] : 0;
	for (int i = 0; i < n; i++) {
		k[i].epoch++;
		if (trainer_commit(k[i].t, k[i].epoch, (const void *)mean, NULL, i == who ? samples : 0, 0, NULL, &e) < 0)
			fail_msg("%s", e.text);
	}
	free(mean);
	return samples;
}

/* Samples of n peers until the loss of 400 others is 0.6 of what it was. */
static uint64_t samples_to(char seed, int n, bool async)
{
	struct kit *k = calloc((size_t)n, sizeof(*k));
	char json[1200];
	struct bare b;
	double first = 0, loss = 0;
	uint64_t samples = 0;
	size_t bytes;

	(void)snprintf(json, sizeof(json), form, "{\"name\":\"sgd\",\"lr\":0.05}", "allreduce",
		async ? "\"async\":true" : "", 8);
	strstr(json, "\"seed\":11")[7] = seed;
	for (int i = 0; i < n; i++) {
		kit_open(&k[i], json, NULL, false);
		kit_grant(&k[i], 100000 * (uint64_t)i, 100000 * (uint64_t)(i + 1));
		trainer_start(k[i].t);
	}
	bare_open(&b, &k[0], trainer_model(k[0].t));
	for (uint64_t e = 0; e < 4000; e++) {
		memcpy(b.w, trainer_state(k[0].t, &bytes), b.n * sizeof(real));
		b.next = 1000000;
		loss = bare_gradient(&b, &k[0], trainer_model(k[0].t), 400);
		first = e ? first : loss;
		if (loss < 0.6 * first)
			break;
		if (async) {
			samples += one_gives(k, n, (int)(e % (unsigned)n), e);
		} else {
			for (int i = 0; i < n; i++) {
				k[i].granted = e + 1;
				assert_true(sim_run_until(k[i].sim, worked, &k[i], 10000000));
			}
			round_(k, n, e);
			samples += 8 * (uint64_t)n;
		}
	}
	if (loss >= 0.6 * first)
		fail_msg("%g of %g", loss, first);
	bare_close(&b);
	for (int i = 0; i < n; i++) {
		struct trainer_view v;

		trainer_view(k[i].t, &v);
		assert_true(!async || v.stale > 0);
		kit_close(&k[i]);
	}
	free(k);
	return samples;
}

static int by_ratio(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Row B03: gradients of parameters that have moved on are worth no more than those of a round that waits. */
static void test_async_samples(void **state)
{
	double ratio[5];

	for (int i = 0; i < 5; i++) {
		uint64_t waits = samples_to((char)('1' + i), 4, false), moved = samples_to((char)('1' + i), 4, true);

		ratio[i] = (double)moved / (double)waits;
		print_message("seed %d: %llu samples, without waiting %llu\n", i, (unsigned long long)waits,
			(unsigned long long)moved);
	}
	qsort(ratio, 5, sizeof(*ratio), by_ratio);
	assert_true(ratio[2] >= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_async_samples) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
