/* Losses and steps that are no numbers, too many in a row: training waits, names the layer or the tensor where it
 * began, and goes on when somebody says so. And what does not fit into memory. */
#include "train_kit.h"

static const char spec_text[] =
	"{\"name\":\"t\",\"input\":[4],\"model\":[{\"type\":\"linear\",\"out\":5,\"name\":\"a\"},"
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3,\"name\":\"b\"}],\"loss\":\"cross_entropy\",\"optimizer\":"
	"{\"name\":\"sgd\",\"lr\":0.1},\"target_batch\":%d,"
	"\"strategy\":\"%s\",\"nonfinite_max\":4,\"data\":{\"name\":\"d\","
	"\"kind\":\"synthetic\",\"count\":400},\"local\":{\"batch\":8,\"deterministic\":true}}";

static void open_(struct kit *k, int target, const char *strategy)
{
	char json[800];

	kit_halts = true;
	(void)snprintf(json, sizeof json, spec_text, target, strategy);
	kit_open(k, json, NULL, false);
}

static bool is_halted(struct sim *s, void *arg) { return ((struct kit *)arg)->halted || ((struct kit *)arg)->broken; }
static bool is_quiet(struct sim *s, void *arg) { return ((struct kit *)arg)->quiet; }
static void quiet(void *arg) { ((struct kit *)arg)->quiet = true; }

static void halts(struct kit *k)
{
	k->halted = 0;
	assert_true(sim_run_until(k->sim, is_halted, k, 10000000));
	assert_false(k->broken);
	assert_int_equal(k->error.code, ERR_NONFINITE);
}

/* Nothing is computed while it waits; saying "go on" without mending halts once more, after as many. */
static void losses_that_are_no_numbers_halt(void **state)
{
	struct trainer_view v;
	struct kit k;
	size_t bytes;
	real *bias;
	uint64_t before;
	struct err e;

	open_(&k, 1000, "hivemind");
	bias = (real *)trainer_state(k.t, &bytes) + model_param_find(trainer_model(k.t), "b.bias")->offset;
	*bias = INFINITY;
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	halts(&k);
	assert_int_equal(k.events, 4);
	assert_non_null(strstr(k.error.text, "parameters of b.bias are not finite"));
	trainer_view(k.t, &v);
	assert_string_equal(v.state, "paused");
	before = k.progress;
	sim_run_for(k.sim, 1000000);
	assert_int_equal(k.progress, before);
	trainer_start(k.t);
	halts(&k);
	assert_int_equal(k.events, 8);
	trainer_quiet(k.t, quiet, &k);                          /* mended: as when a checkpoint comes back */
	assert_true(sim_run_until(k.sim, is_quiet, &k, 1000000));
	*bias = 0;
	assert_int_equal(trainer_loaded(k.t, 0, NULL, &e), 0);
	before = k.progress;
	trainer_start(k.t);
	sim_run_for(k.sim, 1000000);
	assert_true(k.progress > before);
	assert_int_equal(k.events, 8);
	kit_close(&k);
}

static void the_layer_where_it_began_is_named(void **state)
{
	struct kit k;
	size_t bytes;
	real *w;

	open_(&k, 1000, "hivemind");
	w = trainer_state(k.t, &bytes);
	for (size_t i = 0; i < 5; i++)                          /* finite, and too large to multiply */
		w[model_param_find(trainer_model(k.t), "b.weight")->offset + i] = (real)3e38;
	for (size_t i = 0; i < 20; i++)
		w[i] = 100;
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	halts(&k);
	assert_non_null(strstr(k.error.text, "layer b (linear) is the first whose output is not finite"));
	kit_close(&k);
}

static bool contributed(struct sim *s, void *arg)
{
	struct kit *k = arg;

	return k->contributed_epoch == k->epoch + 1;
}

/* A round whose mean is the swarm's doing. */
static void round_(struct kit *k, bool bad)
{
	size_t n = trainer_contribution_len(k->t);
	struct kit_goal g = { k, k->epoch + 1 };
	float *mean = calloc(n, sizeof *mean);
	struct err e;

	sim_run_for(k->sim, 100000);
	trainer_begin(k->t, k->epoch);
	assert_true(sim_run_until(k->sim, contributed, k, 10000000));
	memcpy(mean, k->x, n * sizeof *mean);
	if (bad)
		mean[21] = NAN;                                 /* of a.bias */
	k->epoch++;
	assert_int_equal(trainer_commit(k->t, k->epoch, mean, NULL, k->contributed, 0, NULL, &e), 0);
	assert_true(sim_run_until(k->sim, kit_reached, &g, 10000000));
	free(mean);
}

/* Skipped, counted and recorded each; after four in a row it waits; a good one in between starts anew. */
static void steps_that_are_no_numbers_halt(void **state)
{
	struct trainer_view v;
	struct kit k;
	size_t bytes;
	real before[20], *w;

	open_(&k, 16, "hivemind");
	kit_grant(&k, 0, 10000);
	trainer_start(k.t);
	for (int i = 0; i < 3; i++)
		round_(&k, true);
	w = trainer_state(k.t, &bytes);
	memcpy(before, w, sizeof before);
	round_(&k, false);
	assert_memory_not_equal(before, w, sizeof before);
	memcpy(before, w, sizeof before);
	for (int i = 0; i < 4; i++)
		round_(&k, true);
	assert_memory_equal(before, w, sizeof before);          /* the steps were skipped, the epochs count */
	halts(&k);
	assert_int_equal(k.applied, 8);
	assert_int_equal(k.events, 7);
	assert_non_null(strstr(k.error.text, "4 steps in a row, first in a.bias"));
	trainer_view(k.t, &v);
	assert_int_equal(v.skipped, 7);
	assert_string_equal(v.state, "paused");
	trainer_start(k.t);
	round_(&k, false);
	assert_memory_not_equal(before, w, sizeof before);
	kit_close(&k);
}

/* What would not fit is refused with its bytes, and with a batch that does fit: exactly that one. */
static void what_would_fit_is_said(void **state)
{
	static const char json[] = "{\"name\":\"t\",\"input\":[64],\"model\":[{\"type\":\"linear\",\"out\":512},"
		"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\",\"optimizer\":"
		"{\"name\":\"adam\",\"lr\":0.1},"
		"\"target_batch\":4096,\"data\":{\"name\":\"d\",\"kind\":\"synthetic\",\"count\":400},"
		"\"local\":{\"batch\":%u,\"memory\":%u,\"deterministic\":true}}";
	static const unsigned memory[] = { 400000, 2000000, 9000000 };
	char text[800];
	struct kit k;

	kit_halts = false;
	(void)snprintf(text, sizeof text, json, 8u, 1u << 30);
	kit_open(&k, text, NULL, false);
	for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
		static const struct trainer_cb nobody;
		struct trainer_conf conf = { .env = k.env, .data = k.data, .par = &k.par };
		unsigned fits = 0;
		struct trainer *t;
		struct spec *s;
		struct err e;

		for (unsigned batch = 4096; ; batch = fits) {
			const char *at;

			(void)snprintf(text, sizeof text, json, batch, memory[i]);
			conf.spec = s = kit_spec(text);
			t = trainer_new(&conf, &nobody, NULL, &e);
			if (t)
				break;
			assert_int_equal(fits, 0);              /* the first word is right */
			assert_err(e, ERR_LIMIT, "bytes are allowed, and the run needs");
			if (strstr(e.text, "not even a batch of 1")) {
				assert_int_equal(i, 0);
				spec_free(s);
				break;
			}
			at = strstr(e.text, "--batch ");
			assert_non_null(at);
			fits = (unsigned)strtoul(at + 8, NULL, 10);
			assert_true(fits > 0 && fits < 4096);
			spec_free(s);
		}
		if (!t)
			continue;
		assert_true(i > 0 && fits);
		trainer_free(t, NULL, NULL);
		sim_run_for(k.sim, 100000);
		spec_free(s);
		(void)snprintf(text, sizeof text, json, fits + 1, memory[i]);
		conf.spec = s = kit_spec(text);
		assert_null(trainer_new(&conf, &nobody, NULL, &e));
		spec_free(s);
	}
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(losses_that_are_no_numbers_halt),
		cmocka_unit_test(the_layer_where_it_began_is_named),
		cmocka_unit_test(steps_that_are_no_numbers_halt),
		cmocka_unit_test(what_would_fit_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
