/* The model zoo: exact parameter and multiply-add counts (rows A06 and A07 of the systems), parameters and their
 * errors, expressions, names that PyTorch users know. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/mem.h"
#include "common/reply.h"
#include "golden.h"
#include "train/spec/spec.h"
#include "train/zoo.h"

struct answer { struct reply reply; json_t *result; struct err e; };

static void answered(struct reply *r, json_t *result, const struct err *e)
{
	struct answer *a = (struct answer *)r;

	a->result = result;
	if (e)
		a->e = *e;
}

static struct answer show(const char *params)
{
	struct answer a = { .reply = { answered } };
	json_t *p = json_loads(params, 0, NULL);

	assert_non_null(p);
	zoo_show(NULL, p, &a.reply);
	json_decref(p);
	return a;
}

static long long number(const struct answer *a, const char *key)
{
	return json_integer_value(json_object_get(a->result, key));
}

static void counts_are_those_of_the_papers(void **state)
{
	static const struct { const char *params; long long parameters, macs; } row[] = {
		{ "{'model':'resnet18'}", 11689512, 1814073344 },
		{ "{'model':'resnet18','with':{'classes':10,'pixels':32}}", 11181642, 37016576 },
		{ "{'model':'resnet18','with':{'classes':10,'pixels':32,'stem':'cifar'}}", 11173962, 555422720 },
		{ "{'model':'resnet34'}", 21797672, 3663761408 },
		{ "{'model':'resnet50'}", 25557032, 4089184256 },
		{ "{'model':'vgg16'}", 138357544, 15470264320 },
		{ "{'model':'alexnet'}", 61100840, 714188480 },
		{ "{'model':'inception_v3'}", 23834568, 5713216096 },
		{ "{'model':'lenet5'}", 61706, 416520 },
		{ "{'model':'mlp'}", 784 * 512 + 512 + 512 * 512 + 512 + 5130, 784 * 512 + 512 * 512 + 5120 },
		/* 12 L h^2 + 13 L h + (V + S) h + 2 h */
		{ "{'model':'gpt2'}", 124439808, 0 },
		{ "{'model':'gpt2','with':{'layers':24,'width':1024,'heads':16,'vocab':51200}}", 355788800, 0 },
		{ "{'model':'gpt2','with':{'layers':72,'width':3072,'heads':24,'vocab':51200}}", 8317040640, 0 },
		{ "{'model':'bert'}", 109514298, 0 },           /* BertForMaskedLM, without pooler */
		{ "{'model':'bert','with':{'norm':'pre'}}", 109514298, 0 },
		/* V E + 4 H (E + H) + 8 H + (L - 1) (4 H 2 H + 8 H) + H V + V; all but the table and the biases every step:
		 * 32768 + 1310720 + 4096 + 2097152 + 4096 + 131072 + 256, 128 (1310720 + 2097152 + 131072) */
		{ "{'model':'lstm'}", 3580160, 452984832 },
		{ "{'model':'lstm','with':{'layers':1,'width':8,'vocab':5,'embed':3,'dropout':0.5,'context':2}}",
			5 * 3 + 4 * 8 * (3 + 8) + 8 * 8 + 8 * 5 + 5, 2 * (4 * 8 * (3 + 8) + 8 * 5) },
		/* 4096 E + E, 4 H (E + H) + 8 H, V E, 4 H (H + E + H) + 8 H, H V + V with E = 500, H = 1000, V = 12594:
		 * 2048500 + 6008000 + 6297000 + 10008000 + 12606594 */
		{ "{'model':'s2vt'}", 36968094, 80LL * (2048000 + 6000000 + 10000000 + 12594000) },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		char text[200];
		struct answer a;

		for (size_t k = 0; (text[k] = row[i].params[k] == '\'' ? '"' : row[i].params[k]); k++)
			;
		a = show(text);
		if (!a.result)
			fail_msg("%s: %s", row[i].params, a.e.text);
		if (number(&a, "parameters") != row[i].parameters || (row[i].macs && number(&a, "macs") != row[i].macs))
			fail_msg("%s: %lld parameters and %lld multiply-adds", row[i].params, number(&a, "parameters"),
				number(&a, "macs"));
		json_decref(a.result);
	}
}

/* GPT-2's multiply-adds: 12 h^2 per layer and position, T h twice for attention, V h for the output. */
static void transformers_are_counted(void **state)
{
	struct answer a = show("{\"model\":\"gpt2\",\"with\":{\"context\":128}}");
	long long t = 128, h = 768;

	assert_int_equal(number(&a, "macs"), 12 * (t * 12 * h * h + 2 * t * t * h) + t * h * 50257);
	json_decref(a.result);
	/* Vaswani et al., table 3, says 65 million of it with a vocabulary of about 37000 */
	a = show("{\"model\":\"transformer\",\"with\":{\"vocab\":37000}}");
	assert_int_equal(number(&a, "parameters"), 37000 * 512 + 2 * 128 * 512 + 6 * (3152384 + 4204032));
	json_decref(a.result);
}

static void show_tells_layers_and_bytes(void **state)
{
	struct answer a = show("{\"model\":\"resnet18\",\"batch\":4,\"with\":{\"stem\":\"cifar\",\"pixels\":32,"
		"\"classes\":10}}");
	json_t *layers = json_object_get(a.result, "layers"), *l = json_array_get(layers, 0);
	const char *text = json_string_value(json_object_get(a.result, "text"));

	assert_string_equal(json_string_value(json_object_get(l, "name")), "conv1");
	assert_int_equal(json_integer_value(json_object_get(l, "bytes")), 4 * 64 * 32 * 32 * 4);
	assert_int_equal(json_integer_value(json_object_get(l, "parameters")), 3 * 64 * 9);
	assert_non_null(strstr(text, "layer2.0.downsample.0"));
	assert_non_null(strstr(text, "11173962 parameters"));
	/* Each of the 20 convolutions keeps its input for backward: 5 of 64 x 32 x 32 and so on by halves. */
	assert_true(number(&a, "saved_bytes") > 4 * 4 * 10 * 64 * 32 * 32);
	json_decref(a.result);
	a = show("{\"spec\":{\"input\":[4],\"model\":[{\"type\":\"linear\",\"out\":3},{\"type\":\"relu\"}]}}");
	assert_int_equal(number(&a, "parameters"), 15);
	json_decref(a.result);
}

/* Weights, outputs and what backward needs of each layer; an LSTM keeps four gates, the cell and the state of each of
 * its 1000 units. */
static void s2vt_by_layer(void **state)
{
	enum { STEPS = 80, F = 4096, E = 500, H = 1000, V = 12594, BATCH = 2 };
	static const struct { const char *name; size_t parameters, out, kept; } want[] = {
		{ "frames", 0, F, 0 }, { "frame_embedding", F * E + E, E, 0 },
		{ "lstm1", 4 * H * (E + H) + 8 * H, H, 6 * H }, { "words", 0, 1, 0 }, { "word_embedding", V * E, E, 0 },
		{ "5", 0, H + E, 0 }, { "lstm2", 4 * H * (2 * H + E) + 8 * H, H, 6 * H }, { "output", H * V + V, V, 0 } };
	struct answer a = show("{\"model\":\"s2vt\",\"batch\":2}");
	json_t *layers = json_object_get(a.result, "layers"), *l;
	size_t i;

	assert_int_equal(json_array_size(layers), sizeof(want) / sizeof(*want));
	json_array_foreach(layers, i, l) {
		assert_string_equal(json_string_value(json_object_get(l, "name")), want[i].name);
		assert_int_equal(json_integer_value(json_object_get(l, "parameters")), want[i].parameters);
		assert_int_equal(json_integer_value(json_object_get(l, "weight_bytes")), 4 * want[i].parameters);
		assert_int_equal(json_integer_value(json_object_get(l, "bytes")), 4 * BATCH * STEPS * want[i].out);
		assert_int_equal(json_integer_value(json_object_get(l, "saved_bytes")), 4 * BATCH * STEPS * want[i].kept);
	}
	assert_non_null(strstr(json_string_value(json_object_get(a.result, "text")), "weight bytes"));
	json_decref(a.result);
}

static void what_is_wrong_is_named(void **state)
{
	static const struct { const char *params, *words[3]; } row[] = {
		{ "{\"model\":\"resnet81\"}", { "resnet81", "did you mean \"resnet18\"" } },
		{ "{\"model\":\"quantum\"}", { "unknown model \"quantum\"", "known:", "gpt2" } },
		{ "{\"model\":\"resnet18\",\"with\":{\"clases\":10}}", { "clases", "did you mean \"classes\"" } },
		{ "{\"model\":\"resnet18\",\"with\":{\"stem\":\"oak\"}}", { "stem", "imagenet cifar" } },
		{ "{\"model\":\"resnet18\",\"with\":{\"classes\":\"ten\"}}", { "classes", "an integer", "a string" } },
		{ "{\"model\":\"resnet18\",\"with\":{\"classes\":0}}", { "out", "1" } },
		{ "{\"model\":\"resnet18\",\"with\":{\"blocks\":[2,\"x\"]}}", { "blocks", "an array" } },
		{ "{\"model\":\"resnet18\",\"with\":{\"pixels\":8000000}}", { "input" } },
		{ "{\"model\":\"gpt2\",\"with\":{\"layers\":100000000}}", { "repetitions" } },
		{ "{\"model\":\"gpt2\",\"with\":{\"layers\":200}}", { "more than 1024 layers" } },
		{ "{\"model\":\"gpt2\",\"with\":{\"context\":2000}}", { "transformer.wpe", "more positions than max = 1024" } },
		{ "{\"model\":\"gpt2\",\"with\":{\"heads\":7}}", { "heads = 7 must divide" } },
		{ "{\"model\":\"gpt2\",\"batch\":0}", { "batch" } },
		{ "{}", { "model list" } },
		{ "{\"spec\":{\"input\":[4],\"model\":{\"layers\":3}}}", { "\"zoo\"" } },
		{ "{\"spec\":{\"input\":[4],\"model\":[{\"type\":\"add\",\"inputs\":[\"input\",\"b\"]}]}}", { "'b'",
			"before it" } },
		{ "{\"spec\":{\"input\":[4],\"model\":[{\"type\":\"add\",\"inputs\":[\"input\",7]}]}}",
			{ "model[0].inputs[1]", "name of an earlier layer" } },
		{ "{\"spec\":{\"input\":[4],\"model\":[{\"type\":\"add\",\"inputs\":\"input\"}]}}", { "model[0].inputs",
			"array" } },
		{ "{\"spec\":{\"input\":[4],\"model\":[{\"type\":\"add\"}]}}", { "add reads 1 inputs", "2 to 8" } },
		{ "{\"spec\":{\"input\":[4],\"model\":[{\"type\":\"linear\",\"out\":2,\"share\":\"x\"}]}}", { "shares",
			"'x'" } },
		{ "{\"spec\":{\"input\":[4],\"model\":[{\"type\":\"relu\"},{\"type\":\"tanh\",\"inputs\":[\"input\"]}]}}",
			{ "nobody reads", "'0' (relu)" } },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct answer a = show(row[i].params);

		if (a.result)
			fail_msg("%s was accepted", row[i].params);
		for (int k = 0; k < 3 && row[i].words[k]; k++)
			if (!strstr(a.e.text, row[i].words[k]))
				fail_msg("%s: '%s' does not say '%s'", row[i].params, a.e.text, row[i].words[k]);
	}
}

static void expressions_are_computed(void **state)
{
	static const struct { const char *text; double want; } good[] = {
		{ "1+2*3", 7 }, { "(1+2)*3", 9 }, { "2^3*n", 40 }, { "-n+1", -4 }, { "7%4", 3 }, { "n/2", 2.5 },
		{ "n==5 && word=='cat'", 1 }, { "word!='cat' || !n", 0 }, { "n>4 ? 1 : 2", 1 }, { "n>=6 ? 1 : n<6 ? 3 : 4", 3 },
		{ "list[1]+len(list)", 22 }, { "sqrt(2/(9*2))", 1.0 / 3 }, { " n <= 5 ", 1 },
	};
	static const char *const bad[] = { "", "1+", "(1", "x", "n[0", "list[9]", "1/0", "sqrt(0-1)", "'cat", "word+1",
		"1 2", "n?1",
		"2^99", "sqrt(4", "1%0" };
	json_t *vars = json_pack("{s:i,s:s,s:[i,i]}", "n", 5, "word", "cat", "list", 10, 20);
	struct err e;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		json_t *v = zoo_value(good[i].text, vars, &e);

		if (!v)
			fail_msg("%s: %s", good[i].text, e.text);
		if (fabs(json_number_value(v) - good[i].want) > 1e-15)
			fail_msg("%s is %.17g", good[i].text, json_number_value(v));
		json_decref(v);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		e.text[0] = 0;
		if (zoo_value(bad[i], vars, &e))
			fail_msg("'%s' was accepted", bad[i]);
		assert_true(e.text[0]);
	}
	json_decref(vars);
}

/* What a spec holds is the layers: a name and its expansion are one run. */
static void a_spec_may_name_a_model(void **state)
{
	static const char by_name[] = "{\"name\":\"a\",\"model\":{\"zoo\":\"mlp\",\"widths\":[8],\"inputs\":16,"
		"\"classes\":4},"
		"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"target_batch\":64,"
		"\"data\":{\"name\":\"s\",\"kind\":\"synthetic\",\"count\":256}}";
	static const char in_full[] = "{\"name\":\"a\",\"input\":[16],\"model\":[{\"type\":\"flatten\"},"
		"{\"type\":\"linear\","
		"\"name\":\"fc1\",\"out\":8},{\"type\":\"relu\"},{\"type\":\"linear\",\"name\":\"fc2\",\"out\":4}],"
		"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"target_batch\":64,"
		"\"data\":{\"name\":\"s\",\"kind\":\"synthetic\",\"count\":256}}";
	struct err e = { 0 };
	struct spec *a = spec_parse(by_name, strlen(by_name), &e), *b = spec_parse(in_full, strlen(in_full), &e);

	if (!a || !b)
		fail_msg("%s", e.text);
	assert_memory_equal(a->digest, b->digest, sizeof(a->digest));
	spec_free(a);
	spec_free(b);
}

/* Initial weights, as torchvision's resnet.py and vgg.py and Hugging Face's GPT-2 and BERT draw them: normal with this
 * deviation, or uniform within +-bound (PyTorch's default of linear: 1 / sqrt(inputs)). */
struct start { const char *json, *name; double std, bound; };

#define R18 "{\"zoo\":\"resnet18\",\"stem\":\"cifar\",\"classes\":10,\"width\":32}"
#define R50 "{\"zoo\":\"resnet50\",\"width\":16}"
#define VGG "{\"zoo\":\"vgg16\",\"hidden\":64,\"widths\":[16,32,64,64,64]}"
#define GPT "{\"zoo\":\"gpt2\",\"layers\":2,\"width\":96,\"heads\":3,\"vocab\":300}"
#define BERT "{\"zoo\":\"bert\",\"layers\":1,\"width\":96,\"heads\":3,\"vocab\":300}"

static const struct start starts[] = {
	{ R18, "conv1.weight", 0.083333, 0 },                   /* sqrt(2 / (9 32)) */
	{ R18, "layer2.0.conv1.weight", 0.058926, 0 },          /* sqrt(2 / (9 64)) */
	{ R18, "layer2.0.downsample.0.weight", 0.176777, 0 },   /* sqrt(2 / 64) */
	{ R18, "fc.weight", 0, 0.0625 },                        /* 1 / sqrt(256) */
	{ R50, "conv1.weight", 0.050508, 0 },                   /* sqrt(2 / (49 16)) */
	{ R50, "layer1.0.conv1.weight", 0.353553, 0 },          /* sqrt(2 / 16) */
	{ R50, "layer1.0.conv3.weight", 0.176777, 0 },          /* sqrt(2 / 64) */
	{ VGG, "features.2.weight", 0.117851, 0 },              /* sqrt(2 / (9 16)) */
	{ VGG, "classifier.0.weight", 0.01, 0 },
	{ GPT, "transformer.wte.weight", 0.02, 0 },
	{ GPT, "transformer.h.1.attn.c_attn.weight", 0.02, 0 },
	{ GPT, "transformer.h.1.mlp.c_proj.weight", 0.01, 0 },  /* 0.02 / sqrt(2 layers) */
	{ BERT, "bert.encoder.layer.0.intermediate.dense.weight", 0.02, 0 },
	{ "\"lenet5\"", "conv1.weight", 0, 0.2 },
};

/* Within six standard errors: deviation, mean, and the fourth moment, which tells normal (3) from uniform (1.8). */
static void drawn(const struct start *t, const real *w, size_t n)
{
	double mean = 0, square = 0, fourth = 0, most = 0, std = t->std > 0 ? t->std : t->bound / sqrt(3);
	double shape = t->std > 0 ? 3 : 1.8, at = (double)n;

	for (size_t i = 0; i < n; i++) {
		double v = (double)w[i];

		mean += v / at;
		square += v * v / at;
		fourth += v * v * v * v / at;
		most = fmax(most, fabs(v));
	}
	fourth /= square * square;
	if (!(fabs(mean) <= 6 * std / sqrt(at)) ||
	    !(fabs(sqrt(square) / std - 1) <= 6 * sqrt((shape - 1) / 4 / at) + 1e-5) ||
	    !(fabs(fourth - shape) <= 6 * sqrt(24 / at)) || (t->bound > 0 && !(most <= t->bound * 1.0001)))
		fail_msg("%s %s: mean %g, deviation %g, fourth moment %.3f, largest %g; should have deviation %g, %g", t->json,
			t->name, mean, sqrt(square), fourth, most, std, shape);
}

static void weights_begin_as_in_pytorch(void **state)
{
	for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		struct model *m = golden_model(starts[i].json);
		const struct model_param *p = model_param_find(m, starts[i].name);
		real *w = malloc(m->nparam * sizeof(*w));

		if (!p)
			fail_msg("%s has no %s", starts[i].json, starts[i].name);
		model_init(m, 5, w);
		drawn(&starts[i], w + p->offset, p->count);
		for (int k = 0; k < m->nparams; k++) {         /* norms begin as the identity */
			const struct model_param *q = &m->param[k];
			bool norm = strstr(q->name, "bn1.") || strstr(q->name, "ln_1.") || strstr(q->name, "LayerNorm.");

			for (size_t j = 0; norm && j < q->count; j++)
				assert_true(w[q->offset + j] == (strstr(q->name, "weight") ? 1 : 0));
		}
		free(w);
		model_free(m);
	}
}

static void every_entry_is_listed(void **state)
{
	struct answer a = { .reply = { answered } };
	json_t *list, *v;
	size_t i;

	zoo_list(NULL, NULL, &a.reply);
	list = json_object_get(a.result, "models");
	assert_true(json_array_size(list) >= 9);
	json_array_foreach(list, i, v) {
		assert_non_null(json_string_value(json_object_get(v, "help")));
		assert_non_null(json_string_value(json_object_get(v, "parameters")));
	}
	json_decref(a.result);
}

/* What a spec says of how its model computes changes what it needs. */
static void shows_what_the_spec_says(void **state)
{
#define CONV "{\"spec\":{\"input\":[16,12,12],\"model\":[{\"type\":\"conv2d\",\"out\":16,\"kernel\":3}]%s},\"batch\":8}"
	static const char *const words[] = { "", ",\"precision\":\"bf16\"", ",\"conv\":\"direct\"" };
	json_int_t work[3];

	for (size_t i = 0; i < 3; i++) {
		char text[300];
		struct answer a;

		(void)snprintf(text, sizeof text, CONV, words[i]);
		a = show(text);
		if (!a.result)
			fail_msg("%s: %s", text, a.e.text);
		work[i] = json_integer_value(json_object_get(a.result, "work_backward_bytes"));
		json_decref(a.result);
	}
	/* input, gradient of the output, weights and biases, rounded: each a multiple of 64 bytes here */
	assert_int_equal(work[1] - work[0], 4 * (8 * 16 * 12 * 12 + 8 * 16 * 10 * 10 + 16 * 16 * 9 + 16));
	assert_int_not_equal(work[2], work[0]);
#undef CONV
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shows_what_the_spec_says),
		cmocka_unit_test(counts_are_those_of_the_papers),
		cmocka_unit_test(transformers_are_counted),
		cmocka_unit_test(show_tells_layers_and_bytes),
		cmocka_unit_test(s2vt_by_layer),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(expressions_are_computed),
		cmocka_unit_test(a_spec_may_name_a_model),
		cmocka_unit_test(weights_begin_as_in_pytorch),
		cmocka_unit_test(every_entry_is_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
