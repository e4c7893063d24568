/* Other names of settings: a spec that uses them has the digest and the local part of one that uses ours; one setting
 * under two names that differ is refused, and what cannot be meant is named; who writes for others cannot reach their
 * local parts. */
#include "t.h"
#include "train/spec/spec.h"

#define LAYERS "[{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":10}]"
#define IN "\"name\":\"a\",\"input\":[1,8,8],"
#define BODY IN "\"model\":" LAYERS ",\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\"}"
#define DATA "\"data\":{\"name\":\"d\"}"
#define MOST BODY "," DATA
#define ALL MOST ",\"target_batch\":64"

static struct spec *parse(const char *json, struct err *e) { return spec_parse(json, strlen(json), e); }

static const struct { const char *theirs, *ours; } same[] = {
	{ MOST ",\"hivemind\":{\"target_batch_size\":64}", ALL },
	{ MOST ",\"hivemind\":{\"target_batch_size\":64,\"local_updates\":true,\"delay_state\":true}",
		ALL ",\"averaging\":{\"local_updates\":true,\"delay_state\":true}" },
	{ ALL ",\"hivemind\":{\"delay_grad\":true},\"averaging\":{\"delay_step\":true}",
		ALL ",\"averaging\":{\"delay_grad\":true,\"delay_step\":true}" },
	{ ALL ",\"hivemind\":{\"target_batch_size\":64}", ALL },               /* twice the same is no conflict */
	{ ALL ",\"strategy\":\"allreduce\",\"sync_every\":4", ALL ",\"strategy\":\"allreduce\","
		"\"averaging\":{\"sync_every\":4}" },
	{ ALL ",\"strategy\":\"allreduce\",\"async\":true", ALL ",\"strategy\":\"allreduce\","
		"\"averaging\":{\"async\":true}" },
	{ ALL ",\"strategy\":\"pipeline\",\"schedule\":\"gpipe\",\"stages\":2,\"micro_batches\":8,"
		"\"lr\":{\"schedule\":\"step\",\"every\":3}", ALL ",\"strategy\":\"pipeline\",\"plan\":{\"schedule\":\"gpipe\","
		"\"stages\":2,\"micro_batches\":8},\"schedule\":{\"name\":\"step\",\"every\":3}" },
	{ ALL ",\"strategy\":\"pipeline\",\"stages\":\"auto\",\"micro_batch_size\":\"auto\","
		"\"remat\":\"boundary\"", ALL ",\"strategy\":\"pipeline\",\"plan\":{\"stages\":\"auto\","
		"\"micro_batch_size\":\"auto\",\"remat\":\"boundary\"}" },
	{ ALL ",\"strategy\":\"pipeline\",\"pipeline\":{\"stages\":2}", ALL ",\"strategy\":\"pipeline\","
		"\"plan\":{\"stages\":2}" },
	{ ALL ",\"strategy\":\"pipeline\",\"stages\":[{\"layers\":\"0-2\",\"replicas\":2},{\"layers\":\"3-3\"}]",
		ALL ",\"strategy\":\"pipeline\",\"plan\":{\"stages\":[{\"layers\":3,\"replicas\":2},{\"layers\":1}]}" },
	{ ALL ",\"wire\":\"fp16\"", ALL ",\"averaging\":{\"codec\":\"fp16\"}" },
	{ ALL ",\"wire\":\"uint8-uniform\"", ALL ",\"averaging\":{\"codec\":\"uniform8\"}" },
	{ ALL ",\"wire\":\"uint8-quantile\",\"error_feedback\":false",
		ALL ",\"averaging\":{\"codec\":\"quantile8\",\"error_feedback\":false}" },
	{ ALL ",\"compression\":\"none\",\"precision\":\"fp32\"", ALL },
	{ ALL ",\"lr\":{\"schedule\":\"warmup_decay\",\"warmup\":5,\"total\":50,\"unit\":\"he\"}",
		ALL ",\"schedule\":{\"name\":\"warmup_decay\",\"warmup\":5,\"total\":50}" },
	{ ALL ",\"lr\":{\"scaling\":\"linear\",\"base_batch\":16,\"track\":\"target\"}",
		ALL ",\"schedule\":{\"base_batch\":16,\"track\":\"target\"}" },
	{ ALL ",\"lr\":{\"scaling\":\"linear\",\"base_batch\":16,\"warmup\":{\"epochs\":5,\"granularity\":\"epoch\","
		"\"from\":\"base\"}}", ALL ",\"schedule\":{\"base_batch\":16,\"warmup\":5,\"granularity\":\"epoch\","
		"\"warmup_from\":\"base\"}" },
	{ ALL ",\"lr\":{\"schedule\":\"step\",\"every\":3,\"gamma\":0.5,\"unit\":\"step\"}",
		ALL ",\"schedule\":{\"name\":\"step\",\"every\":3,\"gamma\":0.5}" },
	{ ALL ",\"validation\":{\"every\":\"he\",\"split\":0.1}", ALL ",\"validation\":{\"every\":1,\"split\":0.1}" },
	{ ALL ",\"validation\":{\"every\":\"20 steps\"}", ALL ",\"validation\":{\"every\":20}" },
	{ ALL ",\"remat\":\"periodic:2\"", ALL ",\"local\":{\"remat\":{\"policy\":\"periodic\",\"segments\":2}}" },
	{ ALL ",\"remat\":{\"policy\":\"periodic\",\"memory\":\"64MiB\"}",
		ALL ",\"local\":{\"remat\":\"periodic:64MiB\"}" },
	{ IN "\"model\":{\"layers\":[{\"type\":\"flatten\",\"checkpoint\":true},{\"type\":\"linear\",\"out\":10,"
		"\"checkpoint\":false}]},\"loss\":\"ce\",\"optimizer\":{\"name\":\"adam\"},\"target_batch\":64," DATA,
		ALL ",\"local\":{\"remat\":\"user:0\"}" },
	{ IN "\"model\":[{\"type\":\"flatten\",\"name\":\"f\",\"checkpoint\":true},{\"type\":\"linear\",\"out\":10}],"
		"\"remat\":\"user\",\"loss\":\"ce\",\"optimizer\":{\"name\":\"adam\"},\"target_batch\":64," DATA,
		IN "\"model\":[{\"type\":\"flatten\",\"name\":\"f\"},{\"type\":\"linear\",\"out\":10}],\"loss\":\"ce\","
		"\"optimizer\":{\"name\":\"adam\"},\"target_batch\":64," DATA
		",\"local\":{\"remat\":{\"checkpoints\":[\"f\"]}}" },
	{ ALL ",\"batch\":16,\"vcpus\":2", ALL ",\"local\":{\"batch\":16,\"threads\":2}" },
	{ BODY ",\"target_batch\":64,\"data\":{\"name\":\"d\",\"source\":\"csv:/x\",\"workers\":3,\"prefetch\":2}",
		BODY ",\"target_batch\":64,\"data\":{\"name\":\"d\",\"kind\":\"csv\"},"
		"\"local\":{\"data\":\"/x\",\"workers\":3,\"prefetch\":2}" },
	{ BODY ",\"target_batch\":64,\"data\":{\"name\":\"d\",\"source\":\"/x:y\"}", ALL ",\"local\":{\"data\":\"/x:y\"}" },
	{ IN "\"model\":{\"layers\":" LAYERS "},\"loss\":{\"type\":\"ce\"},\"optimizer\":{\"name\":\"adam\","
		"\"impl\":\"fused\"},\"target_batch\":64," DATA,
		IN "\"model\":" LAYERS ",\"loss\":{\"type\":\"cross_entropy\"},\"optimizer\":{\"name\":\"adam\"},"
		"\"target_batch\":64," DATA },
	{ "\"name\":\"a\",\"model\":\"resnet18\",\"stem\":\"cifar\",\"classes\":10,\"loss\":\"ce\","
		"\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8," DATA,
		"\"name\":\"a\",\"model\":{\"zoo\":\"resnet18\",\"stem\":\"cifar\",\"classes\":10},\"loss\":\"ce\","
		"\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8," DATA },
	{ "\"name\":\"a\",\"model\":{\"type\":\"gpt\",\"layers\":2,\"hidden\":16,\"heads\":2,\"vocab\":50,\"seq\":12},"
		"\"loss\":\"ce\",\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8," DATA,
		"\"name\":\"a\",\"model\":{\"zoo\":\"gpt2\",\"layers\":2,\"width\":16,\"heads\":2,"
		"\"vocab\":50,\"positions\":12,\"context\":12},"
		"\"loss\":\"ce\",\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8," DATA },
	{ "\"name\":\"a\",\"model\":{\"type\":\"bert\",\"ln\":\"megatron\",\"layers\":2,\"hidden\":16,\"heads\":2,"
		"\"vocab\":50,\"seq\":12},\"loss\":\"ce\",\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8," DATA,
		"\"name\":\"a\",\"model\":{\"zoo\":\"bert\",\"norm\":\"pre\",\"layers\":2,\"width\":16,\"heads\":2,"
		"\"vocab\":50,\"positions\":12,\"context\":12},"
		"\"loss\":\"ce\",\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8," DATA },
};

static struct spec *good(const char *body)
{
	char *json = NULL;
	struct err e;
	struct spec *s;

	assert_true(asprintf(&json, "{%s}", body) > 0);
	s = parse(json, &e);
	if (!s)
		fail_msg("%s: %s", json, e.text);
	free(json);
	return s;
}

static void test_same(void **state)
{
	for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
		struct spec *a = good(same[i].theirs), *b = good(same[i].ours);
		json_t *x = spec_local_json(a), *y = spec_local_json(b);

		if (memcmp(a->digest, b->digest, sizeof a->digest) || !json_equal(x, y))
			fail_msg("not the same: %s and %s", same[i].theirs, same[i].ours);
		json_decref(x);
		json_decref(y);
		spec_free(a);
		spec_free(b);
	}
}

/* Ours alone, other than the default: what test_same compares is not what is thrown away. */
static void test_counts(void **state)
{
	struct spec *a = good(ALL ",\"wire\":\"fp16\""), *b = good(ALL ",\"wire\":\"uint8-uniform\""), *c = good(ALL);

	assert_memory_not_equal(a->digest, b->digest, sizeof a->digest);
	assert_memory_not_equal(a->digest, c->digest, sizeof a->digest);
	spec_free(good("\"name\":\"a\",\"model\":{\"zoo\":\"vgg16\",\"hidden\":16,\"widths\":[8,8,8,8,8]},\"loss\":\"ce\","
		"\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8," DATA));     /* its own hidden stays */
	spec_free(a);
	spec_free(b);
	spec_free(c);
}

static void test_refused(void **state)
{
	static const struct { const char *body, *words; } row[] = {
		{ ALL ",\"hivemind\":{\"target_batch_size\":32}", "hivemind.target_batch_size: is 32, and target_batch is 64" },
		{ ALL ",\"wire\":\"fp16\",\"averaging\":{\"codec\":\"bf16\"}",
			"wire: is \"fp16\", and averaging.codec is \"bf16\"" },
		{ ALL ",\"batch\":8,\"local\":{\"batch\":16}", "batch: is 8, and local.batch is 16" },
		{ ALL ",\"remat\":\"none\",\"local\":{\"remat\":\"periodic\"}",
			"remat: is \"none\", and local.remat is \"periodic\"" },
		{ IN "\"model\":[{\"type\":\"flatten\",\"checkpoint\":1}]", "model[0].checkpoint: must be true or false" },
		{ IN "\"model\":[{\"type\":\"flatten\",\"checkpoint\":true}],\"remat\":{\"checkpoints\":[\"a\"]}",
			"they are one setting" },
		{ ALL ",\"lr\":{\"schedule\":\"step\",\"every\":2},\"schedule\":{\"name\":\"linear\"}",
			"lr.schedule: is \"step\", and schedule.name is \"linear\"" },
		{ ALL ",\"lr\":{\"scaling\":\"root\",\"base_batch\":3}", "lr.scaling: may be linear" },
		{ ALL ",\"lr\":{\"scaling\":\"linear\"}", "needs \"base_batch\"" },
		{ ALL ",\"lr\":{\"warmup\":{\"epoch\":5}}", "epoch" },
		{ ALL ",\"lr\":{\"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"
			"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\":5}", "longer than any" },
		{ ALL ",\"lr\":{\"unit\":\"sample\"}", "lr.unit: may be step he" },
		{ ALL ",\"allreduce\":\"ring\"", "allreduce: must be an object" },
		{ ALL ",\"allreduce\":{\"sync_every\":4}", "and this spec's is hivemind" },
		{ ALL ",\"hivemind\":{\"matchmaking_time\":3}", "matchmaking_time" },
		{ ALL ",\"compression\":\"topk:0.01\"", "compression: may be none" },
		{ ALL ",\"precision\":\"fp64\"", "precision: is fp64, and state and gradients are in single precision" },
		{ ALL ",\"validation\":{\"every\":\"0 steps\"}", "validation.every" },
		{ ALL ",\"validation\":{\"every\":\"3 days\"}", "validation.every" },
		{ ALL ",\"strategy\":\"pipeline\",\"stages\":2,\"plan\":{\"stages\":3}", "stages: is 2, and plan.stages is 3" },
		{ ALL ",\"strategy\":\"pipeline\",\"stages\":2,\"schedule\":\"1f1b\",\"lr\":{\"schedule\":\"cos\"}", "cos" },
		{ ALL ",\"stages\":2", "plan.stages: belongs to strategy pipeline, and this run's strategy is hivemind" },
		{ ALL ",\"strategy\":\"pipeline\"", "plan: stages is missing" },
		{ ALL ",\"strategy\":\"pipeline\",\"stages\":2,\"remat\":\"periodic\"",
			"plan: remat must be one of: none boundary auto" },
		{ ALL ",\"strategy\":\"pipeline\",\"stages\":2,\"micro_batch_size\":\"big\"",
			"plan: micro_batch_size must be a whole" },
		{ ALL ",\"stem\":\"cifar\"", "stem" },
		{ ALL ",\"wire\":\"fp12\"", "fp12" },
		{ ALL ",\"averaging\":3,\"wire\":\"fp16\"", "wire: is \"fp16\", and averaging.codec is" },
		{ IN "\"model\":" LAYERS ",\"loss\":\"ce\",\"optimizer\":{\"name\":\"adam\",\"impl\":\"magic\"},"
			"\"target_batch\":64," DATA, "optimizer.impl: may be plain fused host" },
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		char *json = NULL;
		struct err e = { 0 };
		struct spec *s;

		assert_true(asprintf(&json, "{%s}", row[i].body) > 0);
		s = parse(json, &e);
		if (s || !strstr(e.text, row[i].words))
			fail_msg("%s: expected \"%s\", got \"%s\"", row[i].body, row[i].words, s ? "a spec" : e.text);
		free(json);
	}
}

/* What other peers publish has our names only: theirs would reach into the local part. */
static void test_others(void **state)
{
	json_t *shared = json_loads("{" ALL ",\"batch\":16}", 0, NULL);
	struct err e;

	assert_null(spec_of("a", shared, NULL, &e));
	assert_non_null(strstr(e.text, "batch"));
	assert_int_equal(json_object_del(shared, "batch"), 0);
	(void)json_object_set_new(json_object_get(shared, "data"), "source", json_string("/etc/passwd"));
	assert_null(spec_of("a", shared, NULL, &e));
	assert_non_null(strstr(e.text, "source"));
	json_decref(shared);
}

/* hivemind-spec(5) has them all. */
static void test_page(void **state)
{
	static const char *const names[] = { "target_batch_size", "sync_every", "async", "error_feedback", "wire",
		"uint8-uniform", "uint8-quantile", "lr.schedule", "lr.unit", "lr.scaling", "lr.warmup", "granularity", "batch",
		"vcpus", "stem", "classes", "model.layers", "model.type", "model.hidden", "model.seq", "model.ln",
		"data.source", "data.workers", "data.prefetch", "validation.every", "optimizer.impl",
		"compression", "megatron" };
	FILE *in = fopen(SOURCE_ROOT "/man/hivemind-spec.5", "r");
	char *text = calloc(1, 1 << 18), *section;

	assert_non_null(in);
	assert_true(fread(text, 1, (1 << 18) - 1, in) > 0);
	fclose(in);
	section = strstr(text, ".Sh OTHER NAMES");
	assert_non_null(section);
	*strstr(section, ".Sh FILES") = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strstr(section, names[i]))
			fail_msg("%s is not among the OTHER NAMES", names[i]);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_same), cmocka_unit_test(test_counts),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_others),
		cmocka_unit_test(test_page) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
