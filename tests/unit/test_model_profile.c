/* model profile: what a clock that only sleep layers move says of each layer, and the bytes beside it (row D05). */
#include <math.h>
#include <string.h>
#include "t.h"
#include "golden.h"
#include "train/layer_times.h"
#include "train/profile.h"

static struct { uint64_t ns; int waits; } clock_;       /* a kernel's clock has no argument */
static uint64_t now_ns(void) { return clock_.ns; }

/* The first two waits take ten times as long: those of a first pass do not count, one slow one is no median. */
static void wait_us(void *arg, uint64_t us, bool backward)
{
	clock_.ns += us * 1000 * (clock_.waits++ < *(const int *)arg ? 10 : 1);
}

static struct layer_times *measured(const struct model *m, const struct par *par, size_t batch, int passes)
{
	struct layer_times *t = layer_times_new(m, par, batch, passes);
	int n = 1;

	assert_non_null(t);
	while (layer_times_pass(t))
		n++;
	assert_int_equal(n, passes + 1);        /* and one that does not count */
	return t;
}

static double of(const json_t *layer, const char *key) { return json_number_value(json_object_get(layer, key)); }

static void sleep_layers_are_measured(void **state)
{
	static const char *const attr[] = { "fwd_ms", "bwd_ms", "act_bytes", "param_bytes" };
	static const double ms[][4] = { { 1, 2, 64, 32 }, { 5, 20, 128, 0 }, { 20, 1, 32, 4096 }, { 7.5, 12.25, 32, 8 } };
	struct layer_desc d[4];
	struct shape in = { 1, { 16 } };
	int slow = 4 * 2 + 3;                   /* all of the first pass, three of the second */
	struct layer_host host = { wait_us, &slow };
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct kerr e;
	double fwd = 0, bwd = 0;

	par.now_ns = now_ns;
	for (int i = 0; i < 4; i++)
		d[i] = (struct layer_desc){ .type = "sleep", .nattrs = 4, .attr = attr, .value = ms[i] };
	struct model *m = model_new(&in, d, 4, &host, &e);

	assert_non_null(m);
	clock_.waits = 0;
	struct layer_times *t = measured(m, &par, 3, 5);
	json_t *out = layer_times_json(t), *layers = json_object_get(out, "layers");

	assert_int_equal(json_array_size(layers), 4);
	for (size_t i = 0; i < 4; i++) {
		const json_t *l = json_array_get(layers, i);

		assert_true(of(l, "forward_us") == ms[i][0] * 1000);
		assert_true(of(l, "backward_us") == ms[i][1] * 1000);
		assert_true(of(l, "bytes") == 3 * ms[i][2]);
		assert_true(of(l, "weight_bytes") == ms[i][3]);
		fwd += ms[i][0] * 1000;
		bwd += ms[i][1] * 1000;
	}
	assert_true(of(out, "forward_us") == fwd && of(out, "backward_us") == bwd && of(out, "layers_us") == fwd + bwd);
	assert_true(of(out, "batch") == 3 && of(out, "passes") == 5 && of(out, "threads") == 1);
	assert_non_null(strstr(json_string_value(json_object_get(out, "text")), "medians of 5"));
	json_decref(out);
	layer_times_free(t);
	model_free(m);
}

/* Tokens, masks, pictures: every model of the zoo that is small enough runs, and says what model_need does. */
static void models_are_measured(void **state)
{
	static const char *const row[] = { "{\"zoo\":\"lenet5\"}", "{\"zoo\":\"mlp\"}",
		"{\"zoo\":\"resnet18\",\"pixels\":32,\"stem\":\"cifar\",\"classes\":10,\"width\":8}",
		"{\"zoo\":\"inception_v3\",\"width\":0.125,\"pixels\":107}",
		"{\"zoo\":\"gpt2\",\"layers\":1,\"width\":32,\"heads\":2,\"vocab\":50,\"positions\":16,\"context\":16}",
		"{\"zoo\":\"lstm\",\"layers\":1,\"width\":24,\"vocab\":50,\"context\":16,\"embed\":8}",
		"{\"zoo\":\"s2vt\",\"steps\":8,\"features\":32,\"embed\":12,\"width\":16,\"vocab\":30}",
		"{\"zoo\":\"bert\",\"layers\":1,\"width\":32,\"heads\":2,\"context\":16}",
		"{\"zoo\":\"transformer\",\"layers\":1,\"width\":32,\"heads\":2,\"inner\":64,\"context\":16}" };
	struct par par = par_serial(CPU_PLAIN, NULL);

	par.now_ns = now_ns;
	for (size_t k = 0; k < sizeof(row) / sizeof(*row); k++) {
		struct model *m = golden_model(row[k]);
		struct layer_times *t = measured(m, &par, 2, 1);
		json_t *out = layer_times_json(t);
		uint64_t weights = 0, saved = 0;
		const json_t *l;
		struct model_need need;
		size_t i;

		model_need(m, 0, m->nops, 2, 1, &need);
		json_array_foreach(json_object_get(out, "layers"), i, l) {
			weights += (uint64_t)json_integer_value(json_object_get(l, "weight_bytes"));
			saved += (uint64_t)json_integer_value(json_object_get(l, "saved_bytes"));
		}
		assert_int_equal(weights, m->nparam * sizeof(real));
		assert_int_equal(json_integer_value(json_object_get(out, "saved_bytes")), need.saved);
		for (const real *y = layer_times_output(t, &i); i-- > 0;)
			assert_true(isfinite((double)y[i]));
		assert_true(saved > 0 && layer_times_bytes(m, 2, 1) == (2 * m->nparam + m->nbuffer) * sizeof(real) + need.x +
			2 * need.y + need.saved + (need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd));
		json_decref(out);
		layer_times_free(t);
		model_free(m);
	}
}

/* What was measured takes the place of what is modelled, by the sample; another model's times are refused by name. */
static void times_are_read(void **state)
{
	struct model *m = golden_model("{\"zoo\":\"mlp\",\"widths\":[30]}");
	struct profile_source from = { .model = m, .parts = 1, .macs_per_us = 1, .x_bytes = 8, .y_bytes = 4 };
	struct profile p;
	struct err e;
	json_t *layers = json_array(), *file = json_pack("{s:i,s:o}", "batch", 4, "layers", layers);

	for (int i = 0; i < m->nops; i++)
		json_array_append_new(layers, json_pack("{s:s,s:f,s:f}", "name", m->op[i].name, "forward_us", 100.0 * i,
			"backward_us", 10.0));
	struct profile_times *t = profile_times_read(file, m, &e);

	assert_non_null(t);
	from.times = t;
	profile_model(&p, &from, 8);
	for (int i = 0; i < m->nops; i++)
		assert_true(p.op[i].variant[0].fwd_us == 200u * (unsigned)i && p.op[i].variant[0].bwd_us == 20);
	profile_free(&p);
	free(t);

	json_object_set_new(json_array_get(layers, 1), "backward_us", json_string("3"));
	assert_null(profile_times_read(file, m, &e));
	assert_non_null(strstr(e.text, "layer 1 is"));
	json_object_set_new(json_array_get(layers, 0), "name", json_string("other"));
	assert_null(profile_times_read(file, m, &e));
	assert_non_null(strstr(e.text, "layer 0 is \"other\""));
	json_array_remove(layers, 0);
	assert_null(profile_times_read(file, m, &e));
	assert_non_null(strstr(e.text, "measure this model"));
	json_object_set_new(file, "batch", json_integer(0));
	assert_null(profile_times_read(file, m, &e));
	assert_non_null(strstr(e.text, "this is no profile"));
	json_decref(file);
	model_free(m);
}

/* By hand, for two images: 28 x 28 x 6, 14 x 14 x 6, 10 x 10 x 16, 5 x 5 x 16, 120, 84, 10. */
static void bytes_are_lenet_s(void **state)
{
	static const int values[] = { 4704, 4704, 1176, 1600, 1600, 400, 400, 120, 120, 84, 84, 10 };
	static const int weights[] = { 156, 0, 0, 2416, 0, 0, 0, 48120, 0, 10164, 0, 850 };
	struct par par = par_serial(CPU_PLAIN, NULL);

	par.now_ns = now_ns;
	struct model *m = golden_model("{\"zoo\":\"lenet5\"}");
	struct layer_times *t = measured(m, &par, 2, 1);
	json_t *out = layer_times_json(t), *l;
	size_t i;

	assert_int_equal(json_array_size(json_object_get(out, "layers")), sizeof(values) / sizeof(*values));
	json_array_foreach(json_object_get(out, "layers"), i, l) {
		assert_true(of(l, "bytes") == 2.0 * values[i] * sizeof(real));
		assert_true(of(l, "weight_bytes") == 1.0 * weights[i] * sizeof(real));
	}
	json_decref(out);
	layer_times_free(t);
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sleep_layers_are_measured),
		cmocka_unit_test(models_are_measured),
		cmocka_unit_test(bytes_are_lenet_s),
		cmocka_unit_test(times_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
