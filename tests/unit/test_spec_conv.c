/* "conv" in a spec: how convolutions compute. It changes bits, so it is part of the digest; what a layer says itself
 * goes first; layers that do not fit are summed directly. */
#include "kernels/layer.h"
#include "tests/unit/t.h"
#include "train/spec/spec.h"

static const char pattern[] =
	"{\"name\":\"t\",\"input\":[16,9,9],%s\"model\":[{\"type\":\"conv2d\",\"out\":16,\"kernel\":3,\"padding\":1},"
	"{\"type\":\"conv2d\",\"out\":16,\"kernel\":3,\"padding\":1,\"winograd\":2},"
	"{\"type\":\"conv2d\",\"out\":16,\"kernel\":3,\"stride\":2,\"padding\":1},"
	"{\"type\":\"conv2d\",\"out\":4,\"kernel\":5},{\"type\":\"relu\"},{\"type\":\"flatten\"}],\"loss\":\"mse\","
	"\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8,\"data\":{\"name\":\"d\",\"kind\":\"synthetic\",\"count\":9}}";

static struct spec *with(const char *conv, struct err *e)
{
	char text[1200];

	(void)snprintf(text, sizeof text, pattern, conv);
	return spec_parse(text, strlen(text), e);
}

static void layers_get_it_that_do_not_say(void **state)
{
	static const struct { const char *text; double winograd; } row[] = {
		{ "", -1 }, { "\"conv\":\"auto\",", -1 }, { "\"conv\":\"winograd4\",", -4 }, { "\"conv\":\"winograd2\",", -2 },
		{ "\"conv\":\"direct\",", 0 },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct err e;
		struct spec *s = with(row[i].text, &e);
		struct model *m = s ? spec_model(s, NULL, &e) : NULL;

		if (!m)
			fail_msg("%s: %s", row[i].text, e.text);
		for (int op = 0; op < 4; op++)
			assert_true(layer_attr(&m->op[op], "winograd") == (op == 1 ? 2 : row[i].winograd));
		model_free(m);
		spec_free(s);
	}
}

static void it_is_part_of_the_digest(void **state)
{
	struct err e;
	struct spec *a = with("", &e), *b = with("\"conv\":\"direct\",", &e), *c = with("\"conv\":\"winograd4\",", &e);

	assert_non_null(a);
	assert_non_null(b);
	assert_non_null(c);
	assert_memory_not_equal(a->digest, b->digest, sizeof(a->digest));
	assert_memory_not_equal(b->digest, c->digest, sizeof(b->digest));
	spec_free(a);
	spec_free(b);
	spec_free(c);
}

static void other_words_are_named(void **state)
{
	struct err e;

	assert_null(with("\"conv\":\"winograd3\",", &e));
	assert_string_equal(e.text, "conv: unknown kind of convolution \"winograd3\"; did you mean \"winograd4\"?");
	assert_null(with("\"conv\":\"fft\",", &e));
	assert_string_equal(e.text, "conv: unknown kind of convolution \"fft\"; known: auto winograd4 winograd2 direct");
	assert_null(with("\"conv\":4,", &e));
	assert_non_null(strstr(e.text, "conv: "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_get_it_that_do_not_say),
		cmocka_unit_test(it_is_part_of_the_digest),
		cmocka_unit_test(other_words_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
