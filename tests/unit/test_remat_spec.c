/* local.remat: what is right is read, in its short and its long form; what cannot be is refused with its place; it is
 * in no digest, and a restart reads what it has written. */
#include "t.h"
#include <stdlib.h>
#include "train/memory.h"
#include "train/spec/spec.h"

#define REST ",\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8,\"data\":{\"name\":\"d\"}"
/* Six layers, none of which goes over memory with the one before it; two have no name. */
#define CHAIN "{\"name\":\"a\",\"input\":[8],\"model\":[{\"type\":\"linear\",\"out\":8,\"name\":\"in\"}," \
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":8,\"name\":\"mid\"},{\"type\":\"tanh\",\"name\":\"bend\"}," \
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3,\"name\":\"out\"}]" REST
/* What "in" makes goes past mid and bend. */
#define PAST "{\"name\":\"a\",\"input\":[8],\"model\":[{\"type\":\"linear\",\"out\":8,\"name\":\"in\"}," \
	"{\"type\":\"linear\",\"out\":8,\"name\":\"mid\"},{\"type\":\"tanh\",\"name\":\"bend\"},{\"type\":\"add\"," \
	"\"inputs\":[\"bend\",\"in\"],\"name\":\"sum\"},{\"type\":\"linear\",\"out\":3,\"name\":\"out\"}]" REST
#define REMAT(model, what) model ",\"local\":{\"remat\":" what "}}"

static struct spec *good(const char *json)
{
	struct err e;
	struct spec *s = spec_parse(json, strlen(json), &e);

	if (!s)
		fail_msg("%s: %s", json, e.text);
	return s;
}

/* As it is kept: {"policy":...}. */
static void reads(const char *json, const char *kept)
{
	struct spec *s = good(json), *again;
	json_t *local = spec_local_json(s), *r = json_object_get(local, "remat");
	char *text = json_dumps(r, JSON_COMPACT | JSON_SORT_KEYS);
	struct err e;

	assert_string_equal(text, kept);
	again = good(json);
	assert_int_equal(spec_set_local(again, local, &e), 0);
	assert_memory_equal(&again->local.remat, &s->local.remat, sizeof(s->local.remat));
	free(text);
	json_decref(local);
	spec_free(s);
	spec_free(again);
}

static void test_reads(void **state)
{
	reads(CHAIN "}", "{\"policy\":\"none\"}");
	reads(REMAT(CHAIN, "\"none\""), "{\"policy\":\"none\"}");
	reads(REMAT(CHAIN, "\"periodic\""), "{\"policy\":\"periodic\"}");
	reads(REMAT(CHAIN, "\"periodic:6\""), "{\"policy\":\"periodic\",\"segments\":6}");
	reads(REMAT(CHAIN, "\"boundary:64MiB\""), "{\"memory\":67108864,\"policy\":\"boundary\"}");
	reads(REMAT(CHAIN, "{\"policy\":\"periodic\",\"memory\":\"1KiB\"}"), "{\"memory\":1024,\"policy\":\"periodic\"}");
	reads(REMAT(CHAIN, "\"user:bend,1,in\""), "{\"checkpoints\":[\"in\",\"1\",\"bend\"],\"policy\":\"user\"}");
	reads(REMAT(CHAIN, "{\"checkpoints\":[\"mid\"]}"), "{\"checkpoints\":[\"mid\"],\"policy\":\"user\"}");
	reads(REMAT(PAST, "\"user:sum\""), "{\"checkpoints\":[\"sum\"],\"policy\":\"user\"}");
	reads(REMAT("{\"name\":\"a\",\"model\":{\"zoo\":\"resnet18\",\"classes\":10,\"width\":4}" REST, "\"boundary\""),
		"{\"policy\":\"boundary\"}");
}

/* Every peer chooses for itself: the run is the same. */
static void test_digest(void **state)
{
	struct spec *a = good(CHAIN "}"), *b = good(REMAT(CHAIN, "\"periodic:2\""));

	assert_memory_equal(a->digest, b->digest, sizeof(a->digest));
	assert_int_equal(spec_memory(&b->local).segments, 2);
	assert_ptr_equal(spec_memory(&b->local).ops, memory_find("periodic"));
	assert_ptr_equal(spec_memory(&a->local).ops, memory_find("none"));
	spec_free(a);
	spec_free(b);
}

static void test_wrong(void **state)
{
	static const struct { const char *json, *text; } row[] = {
		{ REMAT(CHAIN, "\"peridic\""), "local.remat.policy: unknown policy \"peridic\"; did you mean \"periodic\"?" },
		{ REMAT(CHAIN, "\"mine\""), "local.remat.policy: unknown policy \"mine\"" },
		{ REMAT(CHAIN, "{\"segments\":2}"), "local.remat.policy: is missing: one of none user periodic boundary" },
		{ REMAT(CHAIN, "7"), "local.remat: " },
		{ REMAT(CHAIN, "{\"policy\":7}"), "local.remat.policy: " },
		{ REMAT(CHAIN, "{\"policy\":\"periodic\",\"segment\":2}"), "local.remat.segment: unknown key" },
		{ REMAT(CHAIN, "\"periodic:many\""), 
			"local.remat: \"periodic:many\": behind the : stands a number of segments" },
		{ REMAT(CHAIN, "\"periodic:0\""), "local.remat.segments: 0 is out of range" },
		{ REMAT(CHAIN, "\"periodic:7\""), "local.remat.segments: 7 are asked for, and policy periodic can cut this "
			"model of 6 layers into 6 at most" },
		{ REMAT(CHAIN, "\"boundary:4\""), "local.remat.segments: 4 are asked for, and policy boundary can cut this "
			"model of 6 layers into 3 at most" },
		{ REMAT(PAST, "\"periodic:4\""), "policy periodic can cut this model of 5 layers into 3 at most" },
		{ REMAT(CHAIN, "{\"policy\":\"periodic\",\"segments\":2,\"memory\":\"1GiB\"}"),
			"local.remat: segments and memory are two ways to say one thing" },
		{ REMAT(CHAIN, "\"none:2\""), "local.remat: policy none has no segments to choose" },
		{ REMAT(CHAIN, "\"none:2GiB\""), "local.remat: policy none has no memory to choose" },
		{ REMAT(CHAIN, "{\"policy\":\"user\",\"segments\":2}"), "local.remat: policy user keeps what marked layers "
			"make, and none is marked" },
		{ REMAT(CHAIN, "{\"policy\":\"periodic\",\"checkpoints\":[\"mid\"]}"),
			"local.remat: layers are marked (checkpoints), and that is for policy user; this one is periodic" },
		{ REMAT(CHAIN, "\"user:middle\""), "local.remat.checkpoints[0]: the model has no layer \"middle\"" },
		{ REMAT(CHAIN, "\"user:in,bent\""), "local.remat.checkpoints[1]: the model has no layer \"bent\"; did you mean "
			"\"bend\"?" },
		{ REMAT(CHAIN, "\"user:in,in\""), "local.remat.checkpoints[1]: \"in\" is there twice" },
		{ REMAT(CHAIN, "{\"checkpoints\":[]}"), "local.remat.checkpoints: must be an array of the names of layers, and "
			"is an empty one" },
		{ REMAT(CHAIN, "{\"checkpoints\":[3]}"), "local.remat.checkpoints[0]: must be the name of a layer" },
		{ REMAT(CHAIN, "\"user:out\""), "local.remat.checkpoints: out is the last layer" },
		{ REMAT(PAST, "\"user:bend\""), "local.remat.checkpoints: bend cannot be one: what in makes goes past it and "
			"would be lost; the nearest that can: in, sum" },
		{ CHAIN ",\"strategy\":\"pipeline\",\"plan\":{\"stages\":2},\"local\":{\"remat\":\"periodic\"}}",
			"local.remat: strategy pipeline and policy periodic do not go together where each" },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct err e = { 0 };
		struct spec *s = spec_parse(row[i].json, strlen(row[i].json), &e);

		if (s)
			fail_msg("accepted: %s", row[i].json);
		if (!strstr(e.text, row[i].text))
			fail_msg("\"%s\" does not say \"%s\" for %s", e.text, row[i].text, row[i].json);
	}
}

/* Where there is nothing to cut a policy is no harm. */
static void test_pipeline_none(void **state)
{
	spec_free(good(CHAIN ",\"strategy\":\"pipeline\",\"plan\":{\"stages\":2},\"local\":{\"remat\":\"none\"}}"));
	spec_free(good("{\"name\":\"a\",\"input\":[8],\"model\":[{\"type\":\"linear\",\"out\":3}]" REST
		",\"local\":{\"remat\":\"periodic\"}}"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads), cmocka_unit_test(test_digest), cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_pipeline_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
