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
		{ "\"precision\":\"bf16\",", PRECISION_BF16 }, { "\"precision\":\"fp16\",", PRECISION_FP16 },
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

struct refused { const char *text, *words; };

static void all_refused(const struct refused *row, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct err e;

		assert_null(with(row[i].text, &e));
		if (strncmp(e.text, row[i].words, strlen(row[i].words)) != 0)
			fail_msg("%s: %s", row[i].text, e.text);
	}
}

static void other_words_are_named(void **state)
{
	static const struct refused row[] = {
		{ "\"precision\":\"bf15\",", "precision: unknown precision \"bf15\"; did you mean \"bf16\"?" },
		{ "\"precision\":\"int8\",", "precision: unknown precision \"int8\"; known: fp32 bf16 fp16" },
		{ "\"precision\":\"fp64\",", "precision: is fp64, and state and gradients are in single precision" },
		{ "\"precision\":16,", "precision: " },
	};

	all_refused(row, sizeof(row) / sizeof(*row));
}

/* --- the scale of the loss */

static void the_scale_is_read(void **state)
{
	static const struct { const char *text; double init; uint32_t interval; } row[] = {
		{ "", 0, 0 }, { "\"precision\":\"bf16\",", 0, 0 }, { "\"precision\":\"fp16\",", 65536, 2000 },
		{ "\"precision\":\"fp16\",\"loss_scale\":{\"growth_interval\":7},", 65536, 7 },
		{ "\"precision\":\"fp16\",\"loss_scale\":{\"init_scale\":1},", 1, 2000 },
		{ "\"precision\":\"fp16\",\"loss_scale\":{\"init_scale\":16777216,\"growth_interval\":1},", 16777216, 1 },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct err e;
		struct spec *s = with(row[i].text, &e);

		if (!s)
			fail_msg("%s: %s", row[i].text, e.text);
		assert_true(s->scale_init == row[i].init && s->scale_interval == row[i].interval);
		spec_free(s);
	}
}

static void what_it_does_not_go_with_is_said(void **state)
{
	static const struct refused row[] = {
		{ "\"loss_scale\":{},", "loss_scale: is for precision fp16" },
		{ "\"precision\":\"bf16\",\"loss_scale\":{\"init_scale\":2},", "loss_scale: is for precision fp16" },
		{ "\"precision\":\"fp16\",\"loss_scale\":7,", "loss_scale: " },
		{ "\"precision\":\"fp16\",\"loss_scale\":{\"init\":2},", "loss_scale.init: unknown key" },
		{ "\"precision\":\"fp16\",\"loss_scale\":{\"init_scale\":3},", "loss_scale.init_scale: must be a power" },
		{ "\"precision\":\"fp16\",\"loss_scale\":{\"init_scale\":0.5},", "loss_scale.init_scale: " },
		{ "\"precision\":\"fp16\",\"loss_scale\":{\"init_scale\":33554432},", "loss_scale.init_scale: " },
		{ "\"precision\":\"fp16\",\"loss_scale\":{\"growth_interval\":0},", "loss_scale.growth_interval: " },
		{ "\"precision\":\"fp16\",\"averaging\":{\"codec\":\"fp16\"},", "averaging: codec: precision fp16 needs" },
		{ "\"precision\":\"fp16\",\"averaging\":{\"robust\":\"median\"},", "averaging: robust: \"median\" takes" },
		{ "\"precision\":\"fp16\",\"strategy\":\"allreduce\",\"averaging\":{\"bucket_bytes\":4096},",
			"averaging: bucket_bytes does not go with precision fp16" },
		{ "\"precision\":\"fp16\",\"strategy\":\"pipeline\",\"plan\":{\"stages\":2},",
			"averaging: precision fp16 does not go with strategy pipeline" },
	};

	all_refused(row, sizeof(row) / sizeof(*row));
}

/* Where parameters are averaged a gradient stays where it was made. */
static void parameters_may_travel_as_ever(void **state)
{
	struct err e;
	struct spec *s = with("\"precision\":\"fp16\",\"averaging\":{\"local_updates\":true,\"codec\":\"fp16\","
		"\"robust\":\"median\"},", &e);
	json_t *back = json_pack("{s:b}", "local_updates", 0);

	if (!s)
		fail_msg("%s", e.text);
	assert_int_equal(spec_mode_check(s, back, &e), -1);     /* each peer has a scale of its own by now */
	assert_non_null(strstr(e.text, "of each peer is its own now"));
	json_decref(back);
	spec_free(s);
}

static void a_change_is_refused_likewise(void **state)
{
	static const struct { const char *key, *value, *words; } row[] = {
		{ "codec", "fp16", "codec: precision fp16 needs codec none" }, { "codec", "none", NULL },
		{ "robust", "clip", "robust: \"clip\" takes" }, { "robust", "none", NULL },
	};
	struct err e;
	struct spec *s = with("\"precision\":\"fp16\",", &e);

	assert_non_null(s);
	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		json_t *patch = json_pack("{s:s}", row[i].key, row[i].value);

		assert_int_equal(spec_live_check(s, patch, &e), row[i].words ? -1 : 0);
		if (row[i].words && strncmp(e.text, row[i].words, strlen(row[i].words)) != 0)
			fail_msg("%s: %s", row[i].key, e.text);
		json_decref(patch);
	}
	spec_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_that_multiply_get_it),
		cmocka_unit_test(it_is_part_of_the_digest),
		cmocka_unit_test(other_words_are_named), cmocka_unit_test(the_scale_is_read),
		cmocka_unit_test(what_it_does_not_go_with_is_said), cmocka_unit_test(parameters_may_travel_as_ever),
		cmocka_unit_test(a_change_is_refused_likewise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
