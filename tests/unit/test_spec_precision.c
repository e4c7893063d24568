/* "precision" in a spec: what products multiply. It changes bits, so it is part of the digest; what is so without a
 * word is left out of it. */
#include "kernels/layer.h"
#include "tests/unit/t.h"
#include "train/spec/spec.h"

static const char pattern[] =
	"{\"name\":\"t\",\"input\":[16,9,9],%s\"model\":[{\"type\":\"conv2d\",\"out\":16,\"kernel\":3},{\"type\":\"relu\"},"
	"{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":4}],\"loss\":\"mse\",\"optimizer\":{\"name\":\"sgd\"},"
	"\"target_batch\":8,\"data\":{\"name\":\"d\",\"kind\":\"synthetic\",\"count\":9}}";

static struct spec *with(const char *precision, struct err *e)
{
	char text[1200];

	(void)snprintf(text, sizeof text, pattern, precision);
	return spec_parse(text, strlen(text), e);
}

static void layers_that_multiply_get_it(void **state)
{
	static const struct { const char *text; enum precision precision; } row[] = {
		{ "", PRECISION_FP32 }, { "\"precision\":\"fp32\",", PRECISION_FP32 },
		{ "\"precision\":\"bf16\",", PRECISION_BF16 },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct err e;
		struct spec *s = with(row[i].text, &e);
		struct model *m = s ? spec_model(s, NULL, &e) : NULL;

		if (!m)
			fail_msg("%s: %s", row[i].text, e.text);
		assert_int_equal(m->op[0].precision, row[i].precision);
		assert_int_equal(m->op[1].precision, PRECISION_FP32);
		assert_int_equal(m->op[3].precision, row[i].precision);
		model_free(m);
		spec_free(s);
	}
}

static void it_is_part_of_the_digest(void **state)
{
	struct err e;
	struct spec *a = with("", &e), *b = with("\"precision\":\"fp32\",", &e), *c = with("\"precision\":\"bf16\",", &e);
	char text[200];

	assert_non_null(a);
	assert_non_null(b);
	assert_non_null(c);
	assert_memory_equal(a->digest, b->digest, sizeof(a->digest));
	assert_memory_not_equal(a->digest, c->digest, sizeof(a->digest));
	assert_true(spec_diff(a->shared, c->shared, text, sizeof text));
	assert_non_null(strstr(text, "precision"));
	spec_free(a);
	spec_free(b);
	spec_free(c);
}

static void other_words_are_named(void **state)
{
	static const struct { const char *text, *words; } row[] = {
		{ "\"precision\":\"bf15\",", "precision: unknown precision \"bf15\"; did you mean \"bf16\"?" },
		{ "\"precision\":\"int8\",", "precision: unknown precision \"int8\"; known: fp32 bf16" },
		{ "\"precision\":\"fp16\",", "precision: is fp16, whose range is too small for gradients: bf16" },
		{ "\"precision\":\"fp64\",", "precision: is fp64, and state and gradients are in single precision" },
		{ "\"precision\":16,", "precision: " },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct err e;

		assert_null(with(row[i].text, &e));
		if (strncmp(e.text, row[i].words, strlen(row[i].words)) != 0)
			fail_msg("%s: %s", row[i].text, e.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_that_multiply_get_it),
		cmocka_unit_test(it_is_part_of_the_digest),
		cmocka_unit_test(other_words_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
