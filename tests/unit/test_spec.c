/* The run spec: what is right is read, what is wrong is named with its place; digests do not depend on spelling. */
#include "t.h"
#include <math.h>
#include "train/spec/spec.h"
#include "train/strategy.h"

#define MODEL "\"model\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":3,\"padding\":1,\"name\":\"c\"}," \
	"{\"type\":\"relu\"},{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":10}]"
#define REST "\"input\":[1,8,8],\"loss\":\"cross_entropy\",\"target_batch\":64,\"data\":{\"name\":\"d\"}"
#define OPT "\"optimizer\":{\"name\":\"adam\",\"lr\":0.01}"

#define MSE "{\"name\":\"a\"," MODEL ",\"input\":[1,8,8],\"loss\":\"mse\",\"target_batch\":1,"
#define BASE "{\"name\":\"a\"," MODEL "," REST "," OPT

static struct spec *parse(const char *json, struct err *e)
{
	return spec_parse(json, strlen(json), e);
}

static struct spec *good(const char *json)
{
	struct err e;
	struct spec *s = parse(json, &e);

	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static void test_good(void **state)
{
	struct spec *s = good(BASE ",\"strategy\":\"single\",\"clip_norm\":2,"
		"\"validation\":{\"split\":0.25,\"every\":3},\"stop\":{\"epochs\":9,\"accuracy\":0.5},\"seed\":12,"
		"\"local\":{\"batch\":16,\"memory\":\"1MiB\",\"data\":\"/x\"}}");
	struct err e;
	struct model *m = spec_model(s, NULL, &e);

	assert_string_equal(s->name, "a");
	assert_int_equal(s->nlayers, 4);
	assert_string_equal(s->optim->name, "adam");
	assert_true(s->hyper[0] == 0.01);
	assert_int_equal(s->target_batch, 64);
	assert_int_equal(s->local.batch, 16);
	assert_int_equal(s->local.memory_bytes, 1 << 20);
	assert_int_equal(s->stop_epochs, 9);
	assert_int_equal(s->validation_every, 3);
	assert_int_equal(s->seed, 12);
	assert_int_equal(m->nparam, 4 * 9 + 4 + 256 * 10 + 10);
	assert_non_null(model_param_find(m, "c.weight"));
	model_free(m);
	spec_free(s);
}

/* A batch above the target would never be a whole epoch. */
static void test_defaults(void **state)
{
	struct spec *s = good(BASE ",\"local\":{\"batch\":1000}}");

	assert_int_equal(s->local.batch, 64);
	assert_string_equal(s->strategy, "hivemind");
	assert_string_equal(s->data_kind, "idx");
	assert_int_equal(s->nonfinite_max, 3);
	assert_true(spec_lr_factor(s, 100) == 1);
	spec_free(s);
}

struct wrong { const char *json, *text; };

static const struct wrong wrongs[] = {
	{ "{", "1" },
	{ "[]", "spec: must be an object" },
	{ "{\"name\":\"a\"," MODEL "," REST "}", "optimizer: must be an object {...}, and is nothing" },
	{ "{\"name\":\"a b\"," MODEL "," REST "," OPT "}", "name: must be a name of letters" },
	{ "{" MODEL "," REST "," OPT "}", "name: must be" },
	{ BASE ",\"optimiser\":{}}",
		"optimiser: unknown key; did you mean \"optimizer\"?" },
	{ BASE ",\"zzzzzzzz\":1}", "zzzzzzzz: unknown key; known here: input model" },
	{ "{\"name\":\"a\",\"model\":[]," REST "," OPT "}", "model: must be an array" },
	{ "{\"name\":\"a\",\"model\":[{\"type\":\"conv3d\"}]," REST "," OPT "}",
		"model[0].type: unknown layer \"conv3d\"; did you mean \"conv2d\"?" },
	{ "{\"name\":\"a\",\"model\":[{\"type\":\"relu\"},{\"type\":\"conv2d\",\"out\":4,\"kernal\":3}]," REST "," OPT "}",
		"model[1].kernal: unknown attribute of conv2d; did you mean \"kernel\"?" },
	{ "{\"name\":\"a\",\"model\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":\"3\"}]," REST "," OPT "}",
		"model[0].kernel: must be a number, and is a string" },
	{ "{\"name\":\"a\",\"model\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":2.5}]," REST "," OPT "}",
		"model[0].kernel: 2.5 must be a whole number" },
	{ "{\"name\":\"a\",\"model\":[{\"type\":\"conv2d\",\"kernel\":3}]," REST "," OPT "}",
		"model[0]: conv2d needs \"out\"" },
	{ "{\"name\":\"a\",\"model\":[{\"type\":\"conv2d\",\"out\":0,\"kernel\":3}]," REST "," OPT "}",
		"model[0].out: 0 is out of range" },
	{ "{\"name\":\"a\",\"model\":[7]," REST "," OPT "}", "model[0]: must be an object {...}, and is an integer" },
	{ "{\"name\":\"a\",\"model\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":33},{\"type\":\"linear\",\"out\":3}],"
		REST "," OPT "}", "model: " },
	{ "{\"name\":\"a\"," MODEL "," REST ",\"optimizer\":{\"name\":\"adm\"}}",
		"optimizer.name: unknown optimizer \"adm\"; did you mean \"adam\"?" },
	{ "{\"name\":\"a\"," MODEL "," REST ",\"optimizer\":{\"name\":\"adam\",\"lr\":-1}}",
		"optimizer.lr: -1 is out of range" },
	{ "{\"name\":\"a\"," MODEL "," REST ",\"optimizer\":{\"name\":\"adam\",\"momentum\":1}}",
		"optimizer.momentum: unknown key" },
	{ "{\"name\":\"a\"," MODEL "," REST ",\"optimizer\":{\"name\":\"sgd\",\"nesterov\":true}}", "optimizer: " },
	{ BASE ",\"strategy\":\"hivemnd\"}",
		"strategy: unknown strategy \"hivemnd\"; did you mean \"hivemind\"?" },
	{ BASE ",\"local\":{\"batch\":0}}", "local.batch: 0 is out of range" },
	{ BASE ",\"local\":{\"memory\":\"many\"}}", "local.memory: " },
	{ "{\"name\":\"a\"," MODEL "," OPT ",\"input\":[1,8,8],\"loss\":\"cross_entropy\",\"target_batch\":64,"
		"\"data\":{\"name\":\"d\",\"order\":\"independant\"}}",
		"data.order: unknown order \"independant\"; did you mean \"independent\"?" },
	{ "{\"name\":\"a\"," MODEL "," OPT ",\"input\":[1,8,8],\"loss\":\"cross_entropy\",\"target_batch\":64,"
		"\"strategy\":\"single\",\"data\":{\"name\":\"d\",\"order\":\"independent\"}}",
		"data.order: \"independent\" is for peers that average, and strategy single has one peer" },
	{ BASE ",\"validation\":{\"split\":1}}",
		"validation.split: 1 is out of range" },
	{ BASE ",\"schedule\":{\"name\":\"cosine\"}}",
		"schedule: cosine needs \"total\"" },
	{ BASE ",\"schedule\":{\"warmup\":5,\"warmup_from\":\"base\"}}",
		"schedule: \"warmup_from\" leads from lr to the scaled lr: it needs \"warmup\" and \"base_batch\"" },
	{ BASE ",\"schedule\":{\"track\":\"peers\"}}",
		"schedule: \"track\" says which batch the rate is scaled with: it needs" },
	{ BASE ",\"schedule\":{\"base_batch\":8,\"track\":\"peer\"}}", "did you mean \"peers\"?" },
	{ BASE ",\"strategy\":\"single\",\"schedule\":{\"base_batch\":8,\"track\":\"peers\"}}",
		"schedule.track: with strategy single nobody comes or goes" },
	{ "{\"name\":\"a\"," MODEL "," OPT ",\"input\":[1,8,8],\"loss\":\"cross_entropy\",\"target_batch\":64,"
		"\"schedule\":{\"base_batch\":8,\"track\":\"peers\"},\"strategy\":\"hivemind\","
		"\"averaging\":{\"local_updates\":true},\"data\":{\"name\":\"d\"}}",
		"schedule.track: does not go with steps of each peer's own" },
	{ BASE ",\"schedule\":{\"name\":\"step\",\"every\":1,\"warmup_form\":\"log\",\"warmup\":4}}",
		"\"warmup_form\":\"log\" is for warmup_decay" },
	{ BASE ",\"schedule\":{\"granularity\":\"epochs\"}}", "did you mean \"epoch\"?" },
	{ BASE ",\"schedule\":{\"name\":\"linear\",\"total\":5,\"warmup\":5}}", "schedule: linear needs \"total\"" },
	{ BASE ",\"schedule\":{\"name\":\"cos\"}}",
		"schedule.name: unknown schedule \"cos\"" },
	{ BASE ",\"averaging\":{\"average_optimizer\":true}}",
		"averaging: average_optimizer needs" },
	{ BASE ",\"averaging\":{\"group_size\":1}}", "averaging.group_size: 1 is out of range" },
	{ BASE ",\"averaging\":{\"group_size\":257}}", "averaging.group_size: 257 is out of range" },
	{ BASE ",\"averaging\":{\"topology\":\"ring\"}}", "averaging.topology: \"ring\" is none of: auto flat two_level" },
	{ BASE ",\"averaging\":{\"topology\":7}}", "averaging.topology: what is there is none of: auto" },
	{ BASE ",\"averaging\":{\"topology\":\"two_level\",\"robust\":\"median\"}}", "does not go with robust \"median\"" },
	{ BASE ",\"averaging\":{\"topology\":\"moshpit\"}}",
		"it is for parameters that are averaged and taken as they come" },
	{ BASE ",\"averaging\":{\"topology\":\"moshpit\",\"local_updates\":true,\"delay_state\":true}}",
		"averaging: topology \"moshpit\" leaves members with means that differ" },
	{ BASE ",\"strategy\":\"diloco\",\"averaging\":{\"topology\":\"moshpit\"}}",
		"averaging: topology \"moshpit\" leaves" },
	{ BASE ",\"averaging\":{\"topology\":\"moshpit\",\"local_updates\":true,\"robust\":\"median\"}}",
		"does not go with robust \"median\"" },
	{ BASE ",\"averaging\":{\"topology\":\"moshpit\",\"local_updates\":true,\"codec\":{\"vector\":\"fp16\"}}}",
		"averaging.topology: \"moshpit\" does not go with a codec that leaves something out" },
	{ BASE ",\"averaging\":{\"agree_every\":4,\"topology\":\"two_level\"}}",
		"averaging.agree_every: is for topology moshpit" },
	{ BASE ",\"averaging\":{\"agree_every\":0,\"topology\":\"moshpit\",\"local_updates\":true}}",
		"averaging.agree_every: 0 is out of range" },
	{ BASE ",\"averaging\":{\"every\":4}}", "averaging: every needs local_updates: " },
	{ BASE ",\"averaging\":{\"every\":0,\"local_updates\":true}}", "averaging.every: 0 is out of range" },
	{ BASE ",\"averaging\":{\"local_updates\":true,\"delay_grad\":true}}", "delay_state is for parameters" },
	{ BASE ",\"averaging\":{\"delay_state\":true}}", "averaging: delay_state needs local_updates" },
	{ BASE ",\"averaging\":{\"local_updates\":true,\"delay_state\":true,\"average_optimizer\":true}}",
		"averaging: average_optimizer and delay_state do not go together" },
	{ BASE ",\"averaging\":{\"sync_every\":4}}",
		"averaging.sync_every: belongs to strategy allreduce, and this run's strategy is hivemind" },
	{ BASE ",\"strategy\":\"allreduce\",\"averaging\":{\"outer_lr\":1}}",
		"averaging.outer_lr: belongs to strategy diloco, and this run's strategy is allreduce" },
	{ BASE ",\"strategy\":\"allreduce\",\"averaging\":{\"sync_every\":4,\"async\":true}}",
		"averaging: async and sync_every 4 do not go together" },
	{ BASE ",\"strategy\":\"allreduce\",\"averaging\":{\"average_optimizer\":true}}",
		"averaging: average_optimizer needs sync_every of 2 or more" },
	{ BASE ",\"strategy\":\"diloco\",\"averaging\":{\"inner_steps\":100,\"fragments\":3}}",
		"averaging: inner_steps 100 cannot be shared out among 3 fragments: a multiple is needed, such as 99" },
	{ BASE ",\"strategy\":\"diloco\",\"averaging\":{\"inner_steps\":2,\"fragments\":3}}", "such as 3" },
	{ BASE ",\"strategy\":\"diloco\",\"averaging\":{\"inner_steps\":8,\"fragments\":2,\"overlap\":4}}",
		"averaging: overlap 4: a fragment's round must be over before the next one begins, 4 steps later" },
	{ BASE ",\"strategy\":\"diloco\",\"averaging\":{\"inner_steps\":1.5}}",
		"averaging.inner_steps: must be a whole number" },
	{ BASE ",\"strategy\":\"diloco\",\"averaging\":{\"outer_momentum\":1}}",
		"averaging.outer_momentum: 1 is out of range" },
	{ BASE ",\"admins\":[\"12\"]}", "admins[0]: " },
	{ BASE ",\"admins\":[12]}", "admins[0]: must be a peer id" },
	{ BASE ",\"admins\":12}", "admins: must be peer ids" },
	{ BASE ",\"admins\":\"12,\"}", "admins: \"12\" is no peer id" },
	{ BASE ",\"open\":1}", "open: " },
	{ BASE ",\"stop\":{\"epochs\":\"9\"}}",
		"stop.epochs: must be a whole number, and is a string" },
	{ "{\"name\":\"a\"," MODEL ",\"input\":[1,8,8],\"loss\":\"mse\",\"data\":{\"name\":\"d\"}," OPT "}",
		"target_batch: is missing" },
	{ "{\"name\":\"a\"," MODEL ",\"input\":[1,8,8],\"loss\":\"crossentropy\",\"target_batch\":1,"
		"\"data\":{\"name\":\"d\"}," OPT "}",
		"loss: unknown loss \"crossentropy\"; did you mean \"cross_entropy\"?" },
	{ "{\"name\":\"a\"," MODEL ",\"input\":[1,0,8],\"loss\":\"mse\",\"target_batch\":1,"
		"\"data\":{\"name\":\"d\"}," OPT "}", "input[1]: 0 is out of range" },
	{ MSE "\"data\":{\"name\":\"../d\"}," OPT "}", "data.name: must be a name" },
	{ MSE "\"data\":{\"name\":\"d\",\"kind\":\"cvs\"}," OPT "}", "data.kind: unknown kind of data \"cvs\"" },
	{ MSE "\"data\":{\"name\":\"d\",\"steps\":[{\"type\":\"shft\"}]}," OPT "}",
		"data.steps[0].type: unknown step \"shft\"; did you mean \"shift\"?" },
	{ MSE "\"data\":{\"name\":\"d\",\"steps\":[{\"type\":\"normalize\",\"mean\":1}]}," OPT "}",
		"data.steps[0]: normalize needs" },
	{ MSE "\"data\":{\"name\":\"d\",\"digest\":\"beef\"}," OPT "}", "data.digest: must be" },
};

static void test_wrong(void **state)
{
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(*wrongs); i++) {
		struct err e = { 0 };
		struct spec *s = parse(wrongs[i].json, &e);

		if (s)
			fail_msg("accepted: %s", wrongs[i].json);
		if (!strstr(e.text, wrongs[i].text))
			fail_msg("\"%s\" does not say \"%s\" for %s", e.text, wrongs[i].text, wrongs[i].json);
	}
}

/* A shape that does not fit names both layers. */
static void test_shapes(void **state)
{
	struct err e;
	struct spec *s = parse("{\"name\":\"a\",\"input\":[5],\"model\":["
		"{\"type\":\"linear\",\"out\":7,\"name\":\"first\"},"
		"{\"type\":\"conv2d\",\"out\":2,\"kernel\":3,\"name\":\"second\"}],\"loss\":\"mse\",\"target_batch\":1,"
		"\"data\":{\"name\":\"d\"}," OPT "}", &e);

	assert_null(s);
	assert_non_null(strstr(e.text, "second"));
	assert_non_null(strstr(e.text, "first"));
}

static void test_digest(void **state)
{
	struct spec *a = good(BASE ",\"clip_norm\":1,\"local\":{\"batch\":16}}");
	struct spec *b = good("{\"local\":{\"batch\":3},\"clip_norm\":1.0," OPT "," REST ",\"name\":\"b\"," MODEL "}");
	struct spec *c = good("{\"name\":\"a\"," MODEL "," REST ","
		"\"optimizer\":{\"name\":\"adam\",\"lr\":0.02},\"clip_norm\":1}");
	struct id author = { { 1 } }, x, y;
	uint8_t data[32] = { 9 };
	char text[200];

	assert_memory_equal(a->digest, b->digest, 32);
	assert_memory_not_equal(a->digest, c->digest, 32);
	assert_false(spec_diff(a->shared, b->shared, text, sizeof(text)));
	assert_true(spec_diff(a->shared, c->shared, text, sizeof(text)));
	assert_string_equal(text, "optimizer.lr: 0.01 here, 0.02 there");
	spec_run_id(a, &author, &x);
	spec_run_id(b, &author, &y);
	assert_false(id_eq(&x, &y));            /* the name counts */
	author.b[0] = 2;
	spec_run_id(a, &author, &y);
	assert_false(id_eq(&x, &y));            /* the author counts */
	spec_set_data_digest(a, data, 40);
	assert_memory_not_equal(a->digest, b->digest, 32);
	assert_true(spec_diff(a->shared, b->shared, text, sizeof(text)));
	assert_non_null(strstr(text, "data.digest: "));
	spec_free(a);
	spec_free(b);
	spec_free(c);
}

static void test_canonical(void **state)
{
	json_t *j = json_loads("{\"b\":[1.0,0.1,1e300,true,null],\"a\":\"\\u0001\\\"\\\\x\",\"\":-0.5}", 0, NULL);
	char *text = spec_canonical(j);

	assert_string_equal(text, "{\"\":-0.5,\"a\":\"\\u0001\\\"\\\\x\",\"b\":[1,0.10000000000000001,"
		"1.0000000000000001e+300,true,null]}");
	free(text);
	json_decref(j);
}

/* What another peer published plus what this machine says gives the same run. */
static void test_parts(void **state)
{
	struct spec *a = good(BASE ",\"local\":{\"batch\":16}}"), *b;
	json_t *local = spec_local_json(a);
	struct err e;

	b = spec_of("a", a->shared, local, &e);
	assert_non_null(b);
	assert_memory_equal(a->digest, b->digest, 32);
	assert_int_equal(b->local.batch, 16);
	json_object_set_new(local, "batch", json_integer(0));
	assert_int_equal(spec_set_local(b, local, &e), -1);
	assert_int_equal(b->local.batch, 16);
	json_decref(local);
	spec_free(a);
	spec_free(b);
}

static void test_schedule(void **state)
{
	struct spec *s = good(BASE ",\"schedule\":{\"name\":\"warmup_decay\",\"warmup\":55,"
		"\"total\":550,\"min\":0.002}}");

	/* Row A04: 1.5e-8 .. 7.5e-6, w = 55, T = 550 */
	assert_true(fabs(spec_lr_factor(s, 0) * 7.5e-6 - 1.5e-8) < 1e-20);
	assert_true(fabs(spec_lr_factor(s, 1) * 7.5e-6 - 1.51091e-7) < 1e-12);
	assert_true(fabs(spec_lr_factor(s, 54) * 7.5e-6 - 7.36391e-6) < 1e-11);
	assert_true(spec_lr_factor(s, 55) == 1);
	assert_true(fabs(spec_lr_factor(s, 300) * 7.5e-6 - 3.7953e-6) < 1e-10);
	assert_true(fabs(spec_lr_factor(s, 550) * 7.5e-6 - 1.5e-8) < 1e-20);
	spec_free(s);
	s = good(BASE ",\"schedule\":{\"name\":\"cosine\",\"total\":100,\"min\":0.1}}");
	for (uint64_t e = 0; e < 100; e++)
		assert_true(fabs(spec_lr_factor(s,
		e) - (0.1 + 0.9 * 0.5 * (1 + cos(3.14159265358979 * (double)e / 100)))) < 1e-12);
	assert_true(spec_lr_factor(s, 1000) == 0.1);
	spec_free(s);
	s = good(BASE ",\"schedule\":{\"name\":\"step\",\"every\":10,\"gamma\":0.5,\"warmup\":4}}");
	assert_true(spec_lr_factor(s, 0) == 0.25 && spec_lr_factor(s, 3) == 1 && spec_lr_factor(s, 13) == 1 &&
		spec_lr_factor(s, 14) == 0.5 && spec_lr_factor(s, 34) == 0.125);
	spec_free(s);
}

static void factors(const char *schedule, const double *want, size_t n, double lr, double within)
{
	char json[4000];
	struct spec *s;

	(void)snprintf(json, sizeof(json), "%s,\"schedule\":%s}", BASE, schedule);
	s = good(json);
	for (size_t e = 0; e < n; e++)
		if (!(fabs(lr * spec_lr_factor(s, e) - want[e]) <= within))
			fail_msg("%s: epoch %zu has %.17g, not %.17g", schedule, e, lr * spec_lr_factor(s, e), want[e]);
	spec_free(s);
}

/* Row B05: lr 0.1, eight times the batch (BASE has target_batch 64). */
static void test_warmup(void **state)
{
	static const double ramp[] = { 0.1, 0.24, 0.38, 0.52, 0.66, 0.8, 0.8, 0.8 };
	static const double held[] = { 0.1, 0.1, 0.1, 0.1, 0.1, 0.8, 0.8 };
	static const double stairs[] = { 0.1, 0.1, 0.1, 0.24, 0.24, 0.24, 0.38, 0.38, 0.38, 0.52, 0.52, 0.52, 0.66, 0.66,
		0.66, 0.8, 0.8 };
	double fine[17];

	factors("{\"base_batch\":8,\"warmup\":5,\"warmup_from\":\"base\"}", ramp, 8, 0.1, 1e-15);
	factors("{\"base_batch\":8,\"warmup\":5,\"warmup_from\":\"constant\"}", held, 7, 0.1, 1e-15);
	factors("{\"base_batch\":8,\"warmup\":5,\"warmup_from\":\"base\",\"unit\":3,\"granularity\":\"epoch\"}",
		stairs, 17, 0.1, 1e-15);
	for (int e = 0; e < 17; e++)
		fine[e] = e < 15 ? 0.1 + 0.7 * e / 15 : 0.8;
	factors("{\"base_batch\":8,\"warmup\":5,\"warmup_from\":\"base\",\"unit\":3}", fine, 17, 0.1, 1e-15);
}

/* Row B04: the effective rate is base * B / base_batch, exactly, whatever the schedule. */
static void test_scaling(void **state)
{
	static const char *const base[] = { "1", "3", "8", "50", "64", "1000" };
	char json[100];

	for (size_t i = 0; i < sizeof(base) / sizeof(*base); i++) {
		double want[3] = { 64 / strtod(base[i], NULL), 64 / strtod(base[i], NULL), 64 / strtod(base[i], NULL) };

		(void)snprintf(json, sizeof(json), "{\"base_batch\":%s}", base[i]);
		factors(json, want, 3, 1, 0);
		(void)snprintf(json, sizeof(json), "{\"name\":\"step\",\"every\":2,\"gamma\":0.5,\"base_batch\":%s}", base[i]);
		want[2] *= 0.5;
		factors(json, want, 3, 1, 0);
	}
}

/* DeepSpeed's other form (A04), the straight line, and counts in units. */
static void test_forms(void **state)
{
	double line[12], half[40], rise[55];
	char json[200];

	for (int t = 0; t < 55; t++)
		rise[t] = 1.5e-8 + (7.5e-6 - 1.5e-8) * log(t + 1) / log(55);
	assert_true(fabs(rise[1] - 1.30968e-6) < 1e-11);
	factors("{\"name\":\"warmup_decay\",\"warmup_form\":\"log\",\"warmup\":55,\"total\":550,\"min\":0.002}",
		rise, 55, 7.5e-6, 1e-20);
	for (int t = 0; t < 12; t++)
		line[t] = t < 2 ? 0.5 * (t + 1) : t < 10 ? 0.2 + 0.8 * (10 - t) / 8 : 0.2;
	factors("{\"name\":\"linear\",\"warmup\":2,\"total\":10,\"min\":0.2}", line, 12, 1, 1e-15);
	for (int t = 0; t < 40; t++)
		half[t] = t < 30 ? 0.5 * (1 + cos(3.14159265358979 * (t / 3) / 10)) : 0;
	(void)snprintf(json, sizeof(json), "{\"name\":\"cosine\",\"total\":10,\"unit\":3,\"granularity\":\"epoch\"}");
	factors(json, half, 40, 1, 1e-12);
}

static void test_live(void **state)
{
	struct spec *s = good("{\"name\":\"a\"," MODEL "," REST ",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1}}");
	json_t *live = spec_live(s), *patch = json_pack("{s:f}", "lr", 0.5);
	double hyper[OPTIM_KEYS_MAX], clip;
	struct err e;

	assert_int_equal(spec_live_check(s, live, &e), 0);
	assert_int_equal(spec_live_check(s, patch, &e), 0);
	json_object_update(live, patch);
	assert_int_equal(spec_live_apply(s, live, hyper, &clip, &e), 0);
	assert_true(hyper[0] == 0.5);
	json_object_set_new(patch, "lr", json_string("fast"));
	assert_int_equal(spec_live_check(s, patch, &e), -1);
	assert_err(e, ERR_INVALID, "lr: must be a number, and is a string");
	json_object_clear(patch);
	json_object_set_new(patch, "lrr", json_real(1));
	assert_int_equal(spec_live_check(s, patch, &e), -1);
	assert_err(e, ERR_INVALID, "lrr: cannot be changed while the run is going; did you mean \"lr\"?");
	json_object_clear(patch);
	json_object_set_new(patch, "momentum", json_real(0.9));
	assert_int_equal(spec_live_check(s, patch, &e), -1);
	assert_err(e, ERR_INVALID, "momentum_buffer");
	json_object_clear(patch);
	assert_int_equal(spec_live_target(s, NULL), s->target_batch);
	assert_int_equal(spec_live_target(s, live), s->target_batch);
	json_object_set_new(patch, "target_batch", json_integer(1000));
	assert_int_equal(spec_live_check(s, patch, &e), 0);
	assert_int_equal(spec_live_target(s, patch), 1000);
	json_object_set_new(patch, "target_batch", json_integer(0));
	assert_int_equal(spec_live_check(s, patch, &e), -1);
	assert_err(e, ERR_INVALID, "target_batch: must be a whole number of samples");
	json_decref(live);
	json_decref(patch);
	spec_free(s);
}

/* Means that differ from member to member: what is promised then, and that nothing can be set for which it is too
 * little. */
static void test_apart(void **state)
{
	struct spec *s = good("{\"name\":\"a\"," MODEL "," REST ",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},"
		"\"averaging\":{\"topology\":\"moshpit\",\"local_updates\":true,\"codec\":\"none\",\"agree_every\":5}}");
	json_t *patch = json_pack("{s:b}", "local_updates", 0);
	struct err e;

	assert_true(s->topology->apart);
	assert_int_equal(s->agree_every, 5);
	assert_non_null(strstr(s->mode.equality, "within 1e-6"));
	assert_int_equal(spec_mode_check(s, patch, &e), -1);
	assert_err(e, ERR_INVALID, "their parameters must be equal");
	json_object_set_new(patch, "local_updates", json_true());
	json_object_set_new(patch, "every", json_integer(2));
	assert_int_equal(spec_mode_check(s, patch, &e), 0);
	assert_int_equal(spec_mode_take(s, patch, &e), 0);
	assert_non_null(strstr(s->mode.equality, "within 1e-6"));
	json_decref(patch);
	spec_free(s);
}

/* The registry knows what the spec may name. */
static void test_strategies(void **state)
{
	char names[200];

	assert_string_equal(strategy_names(names, sizeof(names)), "hivemind single allreduce diloco pipeline");
	assert_non_null(strategy_find("single"));
	assert_null(strategy_find("none"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good), cmocka_unit_test(test_defaults), cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_shapes), cmocka_unit_test(test_digest), cmocka_unit_test(test_canonical),
		cmocka_unit_test(test_parts), cmocka_unit_test(test_schedule), cmocka_unit_test(test_warmup),
		cmocka_unit_test(test_scaling), cmocka_unit_test(test_forms), cmocka_unit_test(test_live),
		cmocka_unit_test(test_apart), cmocka_unit_test(test_strategies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
