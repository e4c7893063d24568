/* Row C05, local updates: with plain SGD and one micro-batch each, averaging parameters is averaging gradients;
 * between the
 * rounds replicas differ, after each round they have the same bytes; alone it is the bare optimizer (test_c02). */
#include <math.h>
#include "train_kit.h"

static const char form[] =
	"{\"name\":\"c05\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":8},{\"type\":\"tanh\"},"
	"{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\",\"optimizer\":%s,\"target_batch\":%u,\"seed\":11,"
	"\"averaging\":{\"local_updates\":%s,\"average_optimizer\":%s},"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":900},\"local\":{\"batch\":16}}";

#define PEERS 3

static bool contributed(struct sim *s, void *arg) { struct kit *k = arg; return k->contributed_epoch == k->epoch + 1; }
static bool applied(struct sim *s, void *arg) { struct kit *k = arg; return k->applied == k->epoch; }

static void open_all(struct kit *k, const char *optimizer, uint32_t target, bool local, bool state)
{
	char json[1000];

	(void)snprintf(json, sizeof(json), form, optimizer, target, local ? "true" : "false", state ? "true" : "false");
	for (int i = 0; i < PEERS; i++)
		kit_open(&k[i], json, NULL, false);
}

/* Peer i takes batches[i] micro-batches of its own positions; then all average. */
static void round_(struct kit *k, uint64_t epoch, const unsigned *batches)
{
	size_t len = trainer_contribution_len(k[0].t);
	real *mean = calloc(len, sizeof(*mean));
	double total = 0;
	struct err e;

	for (int i = 0; i < PEERS; i++) {
		uint64_t lo = (epoch * PEERS + (uint64_t)i) * 160;

		kit_grant(&k[i], lo, lo + 16 * batches[i]);
		trainer_start(k[i].t);
		sim_run_for(k[i].sim, 200000);          /* all that was granted */
		trainer_begin(k[i].t, epoch);
		assert_true(sim_run_until(k[i].sim, contributed, &k[i], 10000000));
		assert_int_equal(k[i].contributed, 16 * batches[i]);
		total += (double)k[i].contributed;
	}
	for (int i = 0; i < PEERS; i++)
		vec_mean_add(&k[i].par, len, (double)k[i].contributed / total, k[i].x, mean, i == 0);
	for (int i = 0; i < PEERS; i++) {
		k[i].epoch++;
		if (trainer_commit(k[i].t, k[i].epoch, (const void *)mean, NULL, k[i].contributed, 0, NULL, &e) < 0)
			fail_msg("%s", e.text);
		assert_true(sim_run_until(k[i].sim, applied, &k[i], 10000000));
		assert_memory_equal(k[i].digest[k[i].epoch], k[0].digest[k[i].epoch], TRAINER_DIGEST);
	}
	free(mean);
}

/* The mean of one-step SGD is linear, whatever the weights. */
static void test_equal(void **state)
{
	static const char sgd[] = "{\"name\":\"sgd\",\"lr\":0.3}";
	static const unsigned one[PEERS] = { 1, 1, 1 };
	struct kit *a = calloc(PEERS, sizeof(*a)), *b = calloc(PEERS, sizeof(*b));
	size_t bytes;
	double worst = 0, apart = 0, largest = 0;

	open_all(a, sgd, 48, true, false);
	open_all(b, sgd, 48, false, false);
	for (uint64_t epoch = 0; epoch < 10; epoch++) {
		const real *wa, *wb;

		round_(a, epoch, one);
		round_(b, epoch, one);
		wa = trainer_state(a[0].t, &bytes);
		wb = trainer_state(b[0].t, &bytes);
		for (size_t i = 0; i < trainer_model(a[0].t)->nparam; i++) {
			double d = fabs((double)wa[i] - (double)wb[i]) / (fabs((double)wb[i]) + 1e-3);

			worst = d > worst ? d : worst;
			apart = fmax(apart, fabs((double)wa[i] - (double)wb[i]));
			largest = fmax(largest, fabs((double)wb[i]));
		}
	}
	/* in single precision ten rounds of roundings show in the smallest parameters: 1e-6 is of the largest */
	assert_true(sizeof(real) == sizeof(double) ? worst < 1e-12 : apart < 1e-6 * largest && worst < 1e-5);
	assert_true(worst > 0);
	print_message("apart by %.3g of the largest, %.3g of each\n", apart / largest, worst);
	for (int i = 0; i < PEERS; i++) {
		kit_close(&a[i]);
		kit_close(&b[i]);
	}
	free(a);
	free(b);
}

/* Several steps each, with momentum: replicas part and meet; the optimizer's state meets too when it is asked to. */
static void test_part_and_meet(void **state)
{
	static const char momentum[] = "{\"name\":\"sgd\",\"lr\":0.1,\"momentum\":0.9}";
	static const unsigned some[PEERS] = { 1, 3, 2 };

	for (int both = 0; both < 2; both++) {
		struct kit *k = calloc(PEERS, sizeof(*k));
		size_t bytes, n;

		open_all(k, momentum, 1000, true, both);
		n = trainer_model(k[0].t)->nparam;
		for (uint64_t epoch = 0; epoch < 4; epoch++) {
			const real *w0 = trainer_state(k[0].t, &bytes), *w1 = trainer_state(k[1].t, &bytes);
			double sum = 0;

			round_(k, epoch, some);
			assert_memory_equal(w0, w1, n * sizeof(real));
			if (both)
				assert_memory_equal(w0 + n, w1 + n, n * sizeof(real));
			else
				assert_memory_not_equal(w0 + n, w1 + n, n * sizeof(real));
			kit_grant(&k[0], 50000 + epoch * 16, 50016 + epoch * 16);       /* one more step of its own */
			trainer_start(k[0].t);
			sim_run_for(k[0].sim, 100000);
			for (size_t i = 0; i < n; i++)
				sum += fabs((double)w0[i] - (double)w1[i]);
			assert_true(sum > 1e-3);
			trainer_begin(k[0].t, epoch + 1);       /* and it is left out of a round, and takes the others' word */
			assert_true(sim_run_until(k[0].sim, contributed, &k[0], 10000000));
			real *word = malloc(trainer_contribution_len(k[0].t) * sizeof(real));
			memcpy(word, w1, trainer_contribution_len(k[0].t) * sizeof(real));
			struct err e;
			for (int i = 0; i < PEERS; i++) {
				k[i].epoch++;
				assert_int_equal(trainer_commit(k[i].t, k[i].epoch, (const void *)word, NULL, 0, 0, NULL, &e), 0);
				assert_true(sim_run_until(k[i].sim, applied, &k[i], 10000000));
				k[i].applied = k[i].epoch = epoch + 1;
			}
			free(word);
			assert_memory_equal(w0, w1, n * sizeof(real));
		}
		for (int i = 0; i < PEERS; i++)
			kit_close(&k[i]);
		free(k);
	}
}

/* S63: one peer whose micro-batches have 5, 16, 16 and 3 samples brings the mean over 40, as a peer does that took
 * them at once. */
static void test_uneven(void **state)
{
	static const uint64_t cut[] = { 0, 5, 37, 40 };
	char json[1000], *batch;
	struct kit k[2] = { 0 };
	double apart = 0, largest = 0;
	size_t n;

	for (int i = 0; i < 2; i++) {
		(void)snprintf(json, sizeof(json), form, "{\"name\":\"sgd\",\"lr\":0.1}", 1000, "false", "false");
		batch = strstr(json, "\"batch\":16");
		memcpy(batch, i ? "\"batch\":40" : "\"batch\":16", 10);
		kit_open(&k[i], json, NULL, false);
		for (int part = i ? 2 : 0; part < 3; part++) {
			kit_grant(&k[i], i ? 0 : cut[part], cut[part + 1]);
			trainer_start(k[i].t);
			sim_run_for(k[i].sim, 200000);
		}
		trainer_begin(k[i].t, 0);
		assert_true(sim_run_until(k[i].sim, contributed, &k[i], 10000000));
		assert_int_equal(k[i].contributed, 40);
	}
	assert_true(k[0].progress == 4 && k[1].progress == 1);
	n = trainer_model(k[0].t)->nparam;
	for (size_t i = 0; i < n; i++) {
		apart = fmax(apart, fabs((double)k[0].x[i] - (double)k[1].x[i]));
		largest = fmax(largest, fabs((double)k[1].x[i]));
	}
	assert_true(largest > 1e-3);
	if (!(apart <= (sizeof(real) == sizeof(double) ? 1e-12 : 1e-6) * largest))
		fail_msg("four micro-batches and one are %.3g apart, the largest element is %.3g", apart, largest);
	kit_close(&k[0]);
	kit_close(&k[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_equal), cmocka_unit_test(test_part_and_meet),
		cmocka_unit_test(test_uneven) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
