/* The loss of a spec: all its forms, and what is said about those that are wrong, with the place. */
#include "common/jrpc.h"
#include "tests/unit/t.h"
#include "train/spec/spec.h"

static const char pattern[] =
	"{\"name\":\"t\",\"input\":[6],\"model\":[{\"type\":\"embedding\",\"vocab\":9,\"dim\":4},{\"type\":\"linear\","
	"\"out\":9}],\"loss\":%s,\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8,\"data\":{\"name\":\"d\","
	"\"kind\":\"text\"}}";

static struct spec *with(const char *loss, struct err *e)
{
	char text[1200];

	(void)snprintf(text, sizeof text, pattern, loss);
	return spec_parse(text, strlen(text), e);
}

static void all_forms_are_read(void **state)
{
	struct err e;
	struct spec *s = with("\"cross_entropy\"", &e);

	assert_non_null(s);
	assert_true(s->objective.rows == 6 && s->objective.n == 9 && s->objective.ops == s->loss);
	spec_free(s);
	s = with("{\"type\":\"ce\",\"label_smoothing\":0.1,\"ignore\":-100}", &e);
	assert_non_null(s);
	assert_string_equal(s->loss->name, "cross_entropy");
	assert_true(s->objective.smoothing == 0.1 && s->objective.ignores && s->objective.ignore == -100);
	spec_free(s);
	s = with("{\"type\":\"mse\"}", &e);
	assert_non_null(s);
	assert_true(s->objective.rows == 1 && s->objective.n == 54);
	spec_free(s);
	s = with("{\"type\":\"parts\",\"weights\":{\"text\":1,\"image\":1000},\"parts\":[{\"name\":\"text\",\"length\":2},"
		"{\"name\":\"image\"}]}", &e);
	if (!s)
		fail_msg("%s", e.text);
	assert_int_equal(s->objective.nparts, 2);
	assert_true(s->objective.part[0].len == 2 && s->objective.part[1].len == 4);
	assert_true(s->objective.part[0].weight == 1 && s->objective.part[1].weight == 1000);
	spec_free(s);
}

static void what_is_wrong_is_said_with_its_place(void **state)
{
	static const struct { const char *loss, *say; } bad[] = {
		{ "7", "loss: must be the name of a loss or an object" },
		{ "\"cros_entropy\"", "did you mean \"cross_entropy\"?" },
		{ "{\"type\":\"msee\"}", "loss.type: unknown loss" },
		{ "{}", "loss.type: must be the name of a loss, and is nothing" },
		{ "{\"type\":\"mse\",\"label_smoothing\":0.1}", "loss.label_smoothing: unknown key" },
		{ "{\"type\":\"ce\",\"label_smoothing\":1.5}", "loss.label_smoothing: 1.5 is out of range" },
		{ "{\"type\":\"ce\",\"ignore\":\"x\"}", "loss.ignore: must be a label" },
		{ "{\"type\":\"ce\",\"ignore\":9999999999}", "loss.ignore: must be a label" },
		{ "\"parts\"", "parts needs an object" },
		{ "{\"type\":\"parts\",\"parts\":[]}", "loss.weights: must be an object" },
		{ "{\"type\":\"parts\",\"weights\":{\"a\":1}}", "loss.parts: must be an array" },
		{ "{\"type\":\"parts\",\"weights\":{\"a\":1},\"parts\":[{\"name\":\"b\"}]}", "no weight for the part \"b\"" },
		{ "{\"type\":\"parts\",\"weights\":{\"a\":1,\"b\":1},\"parts\":[{\"name\":\"a\",\"length\":7},"
			"{\"name\":\"b\"}]}", "loss.parts[0].length: 7 is out of range" },
		{ "{\"type\":\"parts\",\"weights\":{\"a\":1,\"b\":1},\"parts\":[{\"name\":\"a\"},{\"name\":\"b\"}]}",
			"loss.parts[0].length: is missing" },
		{ "{\"type\":\"parts\",\"weights\":{\"a\":1,\"b\":1},\"parts\":[{\"name\":\"a\",\"length\":2},{\"name\":\"b\","
			"\"length\":3}]}", "loss.parts[1].length: does not add up" },
		{ "{\"type\":\"parts\",\"weights\":{\"a\":0},\"parts\":[{\"name\":\"a\"}]}", "are all 0" },
		{ "{\"type\":\"parts\",\"weights\":{\"a\":-1},\"parts\":[{\"name\":\"a\"}]}", "loss.weights.a: -1 is out of" },
		{ "{\"type\":\"parts\",\"weights\":{\"a\":1,\"c\":1},\"parts\":[{\"name\":\"a\"}]}", "2 weights for 1 parts" },
	};
	struct err e;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct spec *s = with(bad[i].loss, &e);

		if (s || !strstr(e.text, bad[i].say))
			fail_msg("%s: \"%s\" instead of \"%s\"", bad[i].loss, s ? "accepted" : e.text, bad[i].say);
	}
}

static void outputs_that_do_not_fit_are_named(void **state)
{
	static const char text[] = "{\"name\":\"t\",\"input\":[3,4,4],\"model\":[{\"type\":\"relu\"}],\"loss\":\"ce\","
		"\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8,\"data\":{\"name\":\"d\"}}";
	struct err e;

	assert_null(spec_parse(text, strlen(text), &e));
	assert_non_null(strstr(e.text, "does not fit the model's output [3, 4, 4]"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_forms_are_read),
		cmocka_unit_test(what_is_wrong_is_said_with_its_place),
		cmocka_unit_test(outputs_that_do_not_fit_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
