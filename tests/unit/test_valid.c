/* Validation (A05): nothing of the state changes by it, and what it says does not depend on how many samples are looked
 * at together; sequences of labels and running statistics included. */
#include "train_kit.h"
#include "common/mem.h"

struct row { const char *name, *input, *model; };

static const struct row rows[] = {
	{ "tokens", "[9]", "{\"type\":\"embedding\",\"vocab\":11,\"dim\":6},{\"type\":\"dropout\",\"p\":0.3},"
		"{\"type\":\"attention\",\"heads\":2,\"causal\":1,\"inputs\":[\"1\",\"1\",\"1\"]},"
		"{\"type\":\"linear\",\"out\":11}" },
	{ "pictures", "[1,4,4]", "{\"type\":\"conv2d\",\"out\":3,\"kernel\":3,\"padding\":1},{\"type\":\"batchnorm\"},"
		"{\"type\":\"relu\"},{\"type\":\"dropout\",\"p\":0.2},{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":4}" },
};

static bool validated(struct sim *s, void *arg) { return ((struct kit *)arg)->validated > 0; }

static void open_(struct kit *k, const struct row *r, unsigned batch)
{
	char json[1200];

	(void)snprintf(json, sizeof json, "{\"name\":\"t\",\"input\":%s,\"model\":[%s],\"loss\":\"cross_entropy\","
		"\"optimizer\":{\"name\":\"sgd\",\"lr\":0.05,\"momentum\":0.9},\"target_batch\":64,\"seed\":4,"
		"\"validation\":{\"split\":0.3,\"every\":2},\"data\":{\"name\":\"d\",\"kind\":\"synthetic\",\"count\":300},"
		"\"local\":{\"batch\":%u,\"deterministic\":true}}", r->input, r->model, batch);
	kit_open(k, json, NULL, false);
	k->alone = true;
	kit_grant(k, 0, 100000);
}

static void the_batch_changes_nothing(void **state)
{
	static const unsigned batch[] = { 1, 7, 64 };

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct trainer_validated first = { .loss = 0 };
		void *trained = NULL;
		size_t bytes = 0;

		for (size_t b = 0; b < sizeof batch / sizeof *batch; b++) {
			struct kit k;
			void *w;

			open_(&k, &rows[i], batch[b]);
			w = trainer_state(k.t, &bytes);
			if (!b) {                               /* weights with opinions, the same for all */
				trainer_start(k.t);
				kit_run(&k, 3);
				sim_run_for(k.sim, 1000000);
				trained = xmemdup(w, bytes);
			} else {
				memcpy(w, trained, bytes);
			}
			k.validated = 0;
			trainer_validate(k.t, false);
			assert_true(sim_run_until(k.sim, validated, &k, 100000000));
			assert_memory_equal(w, trained, bytes); /* parameters, statistics, optimizer, clock */
			assert_int_equal(k.v.samples, 90);
			if (!b)
				first = k.v;
			if (!(fabs(k.v.loss - first.loss) < 1e-6 * first.loss))
				fail_msg("%s: %.9g by %u, %.9g one by one", rows[i].name, k.v.loss, batch[b], first.loss);
			assert_true(fabs(k.v.accuracy - first.accuracy) < 1e-9);
			assert_true(k.v.accuracy >= 0 && k.v.accuracy <= 1 && k.v.loss > 0);
			kit_close(&k);
		}
		free(trained);
	}
}

/* What is looked at together does not take more memory than training: long sequences of a large vocabulary. */
static void it_takes_no_more_memory_than_training(void **state)
{
	static const struct row wide = { "wide", "[64]", "{\"type\":\"embedding\",\"vocab\":4000,\"dim\":4},"
		"{\"type\":\"linear\",\"out\":4000}" };
	struct trainer_view before, after;
	struct kit k;

	open_(&k, &wide, 2);
	trainer_view(k.t, &before);
	trainer_validate(k.t, false);
	assert_true(sim_run_until(k.sim, validated, &k, 1000000000));
	trainer_view(k.t, &after);
	assert_int_equal(k.v.samples, 90);
	assert_true(trainer_valid_bytes(k.t) < before.arena_predicted_bytes);
	kit_close(&k);
}

/* Batches at the end of a data set are smaller: no layer may need more for them than it was given for whole ones. */
static void smaller_batches_need_no_more(void **state)
{
	static const struct row lines = { "lines", "[32]", "{\"type\":\"linear\",\"out\":64},{\"type\":\"gelu\"},"
		"{\"type\":\"linear\",\"out\":48}" };

	for (size_t i = 0; i < 3; i++) {
		const struct row *r = i < 2 ? &rows[i] : &lines;
		struct model_need last = { .x = 0 }, n;
		const struct model *m;
		struct kit k;

		open_(&k, r, 4);
		m = trainer_model(k.t);
		for (size_t batch = 1; batch <= 1200; batch += batch < 300 ? 1 : 37) {
			model_need(m, 0, m->nops, batch, 2, &n);
			if (n.work_fwd < last.work_fwd || n.work_eval < last.work_eval || n.work_bwd < last.work_bwd ||
			    n.saved < last.saved || n.y < last.y)
				fail_msg("%s: a batch of %zu needs less than a smaller one", r->name, batch);
			last = n;
		}
		kit_close(&k);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_batch_changes_nothing),
		cmocka_unit_test(it_takes_no_more_memory_than_training),
		cmocka_unit_test(smaller_batches_need_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
