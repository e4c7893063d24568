/* A run whose model is a graph with running statistics, dropout and shared parameters: it trains, its log replays bit
 * for bit, its state holds the statistics by PyTorch's names and goes to another peer whole; validation uses them. */
#include "train_kit.h"
#include "train/replay.h"

static const char json[] =
	"{\"name\":\"g\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"name\":\"a\",\"out\":6},"
	"{\"type\":\"batchnorm\",\"name\":\"bn\"},{\"type\":\"relu\"},{\"type\":\"dropout\",\"p\":0.2},"
	"{\"type\":\"linear\",\"name\":\"b\",\"out\":6,\"share\":\"a\"},{\"type\":\"add\",\"inputs\":[\"b\",\"a\"]},"
	"{\"type\":\"linear\",\"name\":\"fc\",\"out\":3}],\"loss\":\"cross_entropy\","
	"\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},\"target_batch\":48,\"seed\":3,\"strategy\":\"single\","
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500},\"validation\":{\"split\":0.2},"
	"\"local\":{\"batch\":8,\"deterministic\":true}}";

static const struct ckpt_tensor *tensor(const struct kit *k, const char *name)
{
	const struct ckpt_tensor *v;
	size_t n = trainer_tensors(k->t, &v);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(v[i].name, name))
			return &v[i];
	fail_msg("the state has no %s", name);
	return NULL;
}

static void test_trains_and_replays(void **state)
{
	struct kit k;
	struct replay_log log;
	struct replay_result r;
	struct err e;
	const float *mean, *var;

	kit_open(&k, json, NULL, true);
	mean = tensor(&k, "bn.running_mean")->data;
	var = tensor(&k, "bn.running_var")->data;
	assert_true(mean[0] == 0 && var[0] == 1);
	kit_grant(&k, 0, 5000);
	trainer_start(k.t);
	kit_run(&k, 20);
	assert_true(mean[0] != 0 && var[0] != 1 && isfinite(mean[5]) && var[5] > 0);
	log = (struct replay_log){ k.log, k.log_len };
	if (replay(&(struct replay_conf){ .spec = k.spec, .data = k.data, .par = &k.par, .log = &log, .n = 1 }, &r, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(r.epochs, 20);
	assert_int_equal(tensor(&k, "a.weight")->bytes, 36 * sizeof(float));
	assert_int_equal(trainer_model(k.t)->nparam, 42 + 12 + 21);
	kit_close(&k);
}

static void test_state_is_whole(void **state)
{
	struct kit a, b;
	size_t na, nb;
	void *from, *to;
	struct err e;

	kit_open(&a, json, NULL, true);
	kit_open(&b, json, NULL, true);
	kit_grant(&a, 0, 5000);
	trainer_start(a.t);
	kit_run(&a, 5);
	trainer_pause(a.t);
	from = trainer_state(a.t, &na);
	to = trainer_state(b.t, &nb);
	assert_int_equal(na, nb);
	memcpy(to, from, na);
	if (trainer_loaded(b.t, 5, NULL, &e) < 0)
		fail_msg("%s", e.text);
	assert_memory_equal(tensor(&b, "bn.running_var")->data, tensor(&a, "bn.running_var")->data, 6 * sizeof(float));
	((float *)tensor(&b, "bn.running_var")->data)[2] = NAN;
	assert_int_equal(trainer_loaded(b.t, 5, NULL, &e), -1);
	assert_non_null(strstr(e.text, "bn.running_var"));
	kit_close(&a);
	kit_close(&b);
}

static bool validated(struct sim *s, void *arg) { struct kit *k = arg; return k->validated; }

static double validation(struct kit *k)
{
	k->validated = 0;
	trainer_validate(k->t, false);
	assert_true(sim_run_until(k->sim, validated, k, 10000000));
	assert_int_equal(k->v.samples, 100);
	return k->v.loss;
}

static void test_validation_uses_the_statistics(void **state)
{
	struct kit k;
	double first, moved;
	float *var;

	kit_open(&k, json, NULL, true);
	kit_grant(&k, 0, 5000);
	trainer_start(k.t);
	kit_run(&k, 5);
	trainer_pause(k.t);
	sim_run_for(k.sim, 100000);
	first = validation(&k);
	assert_true(isfinite(first) && validation(&k) == first);        /* no dropout, nothing moves */
	var = tensor(&k, "bn.running_var")->data;
	for (int i = 0; i < 6; i++)
		var[i] *= 100;
	moved = validation(&k);
	assert_true(isfinite(moved) && moved != first);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trains_and_replays),
		cmocka_unit_test(test_state_is_whole),
		cmocka_unit_test(test_validation_uses_the_statistics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
