/* Row C02: alone with target batch = batch a run is the bare optimizer, to the byte; with four times the batch it is
 * gradient accumulation of four. For every optimizer, for `single` and for `hivemind` with nobody else. */
#include "train_kit.h"
#include "train/trainer_int.h"

static const char form[] =
	"{\"name\":\"c02\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":9},{\"type\":\"tanh\"},"
	"{\"type\":\"linear\",\"out\":4}],\"loss\":\"cross_entropy\",\"optimizer\":%s,\"target_batch\":%u,"
	"\"strategy\":\"%s\",\"schedule\":{\"name\":\"cosine\",\"total\":150,\"warmup\":5,\"min\":0.1},\"seed\":7,%s"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500},\"local\":{\"batch\":%u,\"workers\":2%s}}";

static const char *const optimizers[] = {
	"{\"name\":\"sgd\",\"lr\":0.1}", "{\"name\":\"sgd\",\"lr\":0.05,\"momentum\":0.9}",
	"{\"name\":\"sgd\",\"lr\":0.05,\"momentum\":0.9,\"nesterov\":true,\"weight_decay\":0.01}",
	"{\"name\":\"adam\",\"lr\":0.01}", "{\"name\":\"adamw\",\"lr\":0.01,\"weight_decay\":0.1}",
	"{\"name\":\"rmsprop\",\"lr\":0.003}", "{\"name\":\"adagrad\",\"lr\":0.05}",
	"{\"name\":\"lars\",\"lr\":1,\"trust\":0.02,\"weight_decay\":0.01}", "{\"name\":\"lamb\",\"lr\":0.02}",
	"{\"name\":\"adamw\",\"lr\":0.01,\"decay\":\"all\"}",
};

static void compare(const char *optimizer, const char *strategy, uint32_t batch, uint32_t times, uint64_t steps,
	const char *more)
{
	char json[2048];
	struct kit k;
	struct bare b;
	const struct model *m;

	(void)snprintf(json, sizeof(json), form, optimizer, batch * times, strategy, more, batch, "");
	kit_open(&k, json, NULL, false);
	k.alone = trainer_needs_swarm(k.t);
	m = trainer_model(k.t);
	kit_grant(&k, 0, steps * batch * times + 10 * batch);
	trainer_start(k.t);
	kit_run(&k, steps);
	bare_open(&b, &k, m);
	for (uint64_t s = 0; s < steps; s++) {
		for (uint32_t i = 0; i < times; i++) {
			bare_gradient(&b, &k, m, batch);
			if (i)
				vec_axpy(&k.par, b.n, 1, b.g, b.sum);
			else
				memcpy(b.sum, b.g, b.n * sizeof(real));
		}
		if (times > 1)
			vec_scale(&k.par, b.n, 1.0 / times, b.sum);
		bare_step(&b, &k, b.sum, s);
	}
	assert_same_params(&k, &b);
	assert_int_equal(k.samples[steps], batch * times);
	bare_close(&b);
	kit_close(&k);
}

static void test_bare(void **state)
{
	for (size_t i = 0; i < sizeof(optimizers) / sizeof(*optimizers); i++) {
		compare(optimizers[i], "single", 8, 1, 200, "");
		compare(optimizers[i], "hivemind", 8, 1, 200, "");
	}
}

/* A batch that is no power of two: nothing may be multiplied and divided on the way. */
static void test_odd(void **state)
{
	compare(optimizers[3], "hivemind", 7, 1, 51, "");
	compare(optimizers[1], "single", 13, 1, 51, "\"clip_norm\":0.5,");
}

static void test_accumulation(void **state)
{
	for (size_t i = 0; i < sizeof(optimizers) / sizeof(*optimizers); i++) {
		compare(optimizers[i], "single", 8, 4, 50, "");
		compare(optimizers[i], "hivemind", 8, 4, 50, "");
	}
	compare(optimizers[3], "hivemind", 5, 3, 50, "\"clip_norm\":0.1,");
}

/* C05: alone, local updates are the bare optimizer too. */
static void test_local_updates(void **state)
{
	char json[2048];
	struct kit k;
	struct bare b;

	(void)snprintf(json, sizeof(json), form, optimizers[4], 32, "hivemind", "\"averaging\":{\"local_updates\":true},",
		8,
		"");
	kit_open(&k, json, NULL, false);
	k.alone = true;
	kit_grant(&k, 0, 100000);
	trainer_start(k.t);
	kit_run(&k, 50);
	bare_open(&b, &k, trainer_model(k.t));
	for (uint64_t s = 0; s < 200; s++) {
		bare_gradient(&b, &k, trainer_model(k.t), 8);
		bare_step(&b, &k, b.g, s / 4);
	}
	assert_same_params(&k, &b);
	bare_close(&b);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bare), cmocka_unit_test(test_odd), cmocka_unit_test(test_accumulation),
		cmocka_unit_test(test_local_updates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
