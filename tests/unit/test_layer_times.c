/* Where the time of training goes: what a clock that the kernels are given says of every op, whatever the cut; and what
 * a trainer on real lanes reports of its layers. */
#include "real_kit.h"
#include "kernels/model.h"
#include "train/trainer_int.h"

/* A clock for kernels has no argument: a tick for every look. */
static uint64_t ticks;
static uint64_t tick(void) { return ++ticks; }

static const char *const small = "{\"name\":\"x\",\"input\":[2,6,6],\"model\":["
	"{\"type\":\"conv2d\",\"name\":\"c\",\"out\":4,\"kernel\":3,\"padding\":1},{\"type\":\"batchnorm\",\"name\":\"n\"},"
	"{\"type\":\"relu\",\"name\":\"r\"},{\"type\":\"flatten\",\"name\":\"f\"},"
	"{\"type\":\"linear\",\"name\":\"l\",\"out\":3}],"
	"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":4,"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":8}}";

static void *room(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);

	assert_non_null(p);
	return memset(p, 0, (bytes + 127) / 64 * 64);
}

static void pass(const struct par *par, const struct model *m, int a, int b, uint64_t *fwd, uint64_t *bwd)
{
	enum { PARAM, GRAD, BUFFER, X, DX, Y, DY, SAVED, WORK, ROOMS };
	struct model_need need;
	void *v[ROOMS];

	model_need(m, a, b, 2, par->n, &need);
	const size_t bytes[ROOMS] = { m->nparam * sizeof(real), m->nparam * sizeof(real), m->nbuffer * sizeof(real), need.x,
		need.x, need.y, need.y, need.saved, need.work_fwd + need.work_bwd };

	for (int k = 0; k < ROOMS; k++)
		v[k] = room(bytes[k]);
	struct model_call c = { .batch = 2, .param = v[PARAM], .buffer = v[BUFFER], .saved = v[SAVED], .work = v[WORK],
		.train = true, .ns = fwd };

	model_init(m, 1, v[PARAM]);
	model_init_buffers(m, v[BUFFER]);
	model_forward(par, m, a, b, &c, v[X], v[Y]);
	c.ns = bwd;
	model_backward(par, m, a, b, &c, v[X], v[DY], v[DX], v[GRAD]);
	for (int k = 0; k < ROOMS; k++)
		free(v[k]);
}

static void test_ops(void **state)
{
	struct spec *s;
	struct model *m;
	struct err e;
	uint64_t fwd[5] = { 0 }, bwd[5] = { 0 };
	struct par par = par_serial(CPU_PLAIN, NULL);

	s = spec_parse(small, strlen(small), &e);
	if (!s)
		fail_msg("%s", e.text);
	m = spec_model(s, NULL, &e);
	assert_non_null(m);
	/* without a clock nothing is measured */
	pass(&par, m, 0, m->nops, fwd, bwd);
	for (int i = 0; i < 5; i++)
		assert_true(!fwd[i] && !bwd[i]);
	par.now_ns = tick;
	pass(&par, m, 0, m->nops, fwd, bwd);
	/* the rectifier runs in the norm's pass, flatten is no work; going back every op has its turn */
	for (int i = 0; i < 5; i++)
		assert_true(fwd[i] == (uint64_t)(i != 2 && i != 3) && bwd[i] == 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(model_runs_in(m, 0, 5, i), i == 2 ? 1 : i);
	/* cut in two: the rectifier is on its own, and figures are added to what is there */
	pass(&par, m, 0, 2, fwd, bwd);
	pass(&par, m, 2, m->nops, fwd + 2, bwd + 2);
	for (int i = 0; i < 5; i++)
		assert_true(fwd[i] == (i == 3 ? 0u : i == 2 ? 1u : 2u) && bwd[i] == 2);
	assert_int_equal(model_runs_in(m, 2, 5, 2), 2);
	model_free(m);
	spec_free(s);
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* All that has passed since the first micro-batch is somewhere: by the trainer's own clock, and by another. */
static void adds_up(const json_t *time, double wall_us)
{
	static const char *const keys[] = { "layers_us", "micro_batch_us", "step_us", "validation_us", "other_us",
		"waiting_us" };
	double sum = 0, own = (double)json_integer_value(json_object_get(time, "wall_us"));

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		double us = json_real_value(json_object_get(time, keys[i]));

		assert_true(us >= 0 && (i == 3 || us > 0));
		sum += us;
	}
	if (!(fabs(sum - own) < 0.02 * own && own <= wall_us))
		fail_msg("%g us of %g, of %g", sum, own, wall_us);
}

/* cmocka cuts what it prints after a thousand bytes, and with it the end of the line. */
static void tell(const json_t *layers) { fputs(json_string_value(json_object_get(layers, "text")), stdout); }

static void test_trainer(void **state)
{
	struct exec_view view;
	uint64_t began = now_us();
	struct real r;
	struct err e;
	double sum = 0, share = 0;
	size_t i;
	json_t *o, *l;

	open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 2);
	assert_null(trainer_layers_json(r.t, &e));
	assert_err(e, ERR_STATE, "has not trained");
	trainer_start(r.t);
	run_to(&r, 6);
	o = trainer_layers_json(r.t, &e);
	assert_non_null(o);
	adds_up(json_object_get(o, "time"), (double)(now_us() - began));
	exec_view(r.t->x, &view);
	if (exec_ran_us(r.t->x, PLAN_VEC, "mean") < 5)   /* sanitizers may take longer */
		assert_true(view.brief > 0);
	assert_int_equal(json_array_size(json_object_get(o, "layers")), trainer_model(r.t)->nops);
	assert_true(json_integer_value(json_object_get(o, "samples")) >= 6 * 256);
	json_array_foreach(json_object_get(o, "layers"), i, l) {
		double fwd = json_real_value(json_object_get(l, "forward_us"));
		double bwd = json_real_value(json_object_get(l, "backward_us"));

		sum += fwd + bwd;
		share += json_real_value(json_object_get(l, "share"));
		if (strcmp(json_string_value(json_object_get(l, "type")), "flatten"))
			assert_true(bwd > 0 && (fwd > 0) != (json_object_get(l, "forward_in") != NULL));
		if (!strcmp(json_string_value(json_object_get(l, "type")), "linear"))
			assert_true(json_real_value(json_object_get(l, "gflops_per_s")) > 0);
	}
	assert_true(fabs(share - 1) < 1e-6 && fabs(sum - json_real_value(json_object_get(o, "layers_us"))) < 1e-3 * sum);
	assert_non_null(json_object_get(json_object_get(o, "micro_batch_us"), "loss"));
	assert_non_null(json_object_get(json_object_get(o, "step_us"), "optimizer"));
	assert_non_null(json_object_get(json_object_get(o, "step_us"), "digest"));
	assert_non_null(strstr(json_string_value(json_object_get(o, "text")), "backward ms"));
	tell(o);
	json_decref(o);
	close_real(&r);
}

static double forward_us(const json_t *layers, size_t i)
{
	return json_real_value(json_object_get(json_array_get(layers, i), "forward_us"));
}

/* What runs twice is shown with both, and samples count once. */
static void test_twice(void **state)
{
	struct spec *s = read_spec(SOURCE_ROOT "/tests/data/digits.json");
	json_t *local = json_pack("{s:i,s:{s:[s,s]}}", "batch", 32, "remat", "checkpoints", "1", "4"), *o, *layers;
	const struct exec_layer *each;
	struct trainer_times t;
	struct real r;
	struct err e;

	assert_int_equal(spec_set_local(s, local, &e), 0);
	open_real(&r, s, SOURCE_ROOT "/tests/data/digits", 2);
	trainer_start(r.t);
	run_to(&r, 6);
	o = trainer_layers_json(r.t, &e);
	layers = json_object_get(o, "layers");
	each = exec_layers(r.t->x);
	for (size_t i = 0; i < 9; i++) {
		double once = (double)each[i].fwd.ns / (double)each[i].fwd.samples * 32 / 1e3;

		assert_int_equal(json_integer_value(json_object_get(json_array_get(layers, i), "forward_times")),
			i < 5 ? 2 : 0);
		assert_true(fabs(forward_us(layers, i) - once * (i < 5 ? 2 : 1)) <= 1e-9 * once);
	}
	assert_in_range(json_integer_value(json_object_get(o, "samples")), 6 * 256, 11 * 256);
	assert_non_null(strstr(json_string_value(json_object_get(o, "text")), "forward twice"));
	trainer_times(r.t, &t);
	tell(o);
	print_message("a micro-batch: %llu us predicted, %llu measured\n", (unsigned long long)t.micro_batch_us,
		(unsigned long long)t.took_us);
	assert_true(t.measured);
	json_decref(local);
	json_decref(o);
	close_real(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_ops), cmocka_unit_test(test_trainer),
		cmocka_unit_test(test_twice) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
