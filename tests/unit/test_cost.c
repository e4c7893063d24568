/* Row N01: operations counted from the shapes are those that are executed, for networks of every kind; the formulas
 * for fully connected layers to the unit, and what backward takes of them. */
#include "t.h"
#include "kernels/cost.h"
#include "kernels/gemm.h"
#include "train/spec/spec.h"
#include "train/zoo.h"

static void *room(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);

	assert_non_null(p);
	memset(p, 0, (bytes + 127) / 64 * 64);
	return p;
}

static struct model *model_of(const char *model, const char *input)
{
	char json[2000];
	struct err e;
	struct spec *s;
	struct model *m;

	(void)snprintf(json, sizeof(json), "{\"name\":\"x\",\"model\":%s,%s\"loss\":\"cross_entropy\","
		"\"optimizer\":{\"name\":\"sgd\"},"
		"\"target_batch\":4,\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":8}}", model, input);
	s = spec_parse(json, strlen(json), &e);
	if (!s)
		fail_msg("%s: %s", model, e.text);
	m = spec_model(s, NULL, &e);
	assert_non_null(m);
	spec_free(s);
	return m;
}

/* What runs, forward and backward, and what the shapes say. */
static void compare(const struct model *m, const char *what, size_t batch, bool want_dx)
{
	const struct par par = par_serial(CPU_PLAIN, NULL);
	struct cost ran = { 0 }, said = cost_of(m, 0, m->nops, batch, false, false);
	struct model_need need;
	real *w = room(m->nparam * sizeof(real)), *g = room(m->nparam * sizeof(real)),
		*buffer = room(m->nbuffer * sizeof(real));

	model_need(m, 0, m->nops, batch, 1, &need);
	void *x = room(need.x), *y = room(need.y), *dx = room(need.x), *saved = room(need.saved);
	void *work = room(need.work_fwd + need.work_bwd);
	struct model_call c = { .batch = batch, .param = w, .buffer = m->nbuffer ? buffer : NULL, .saved = saved,
		.work = work,
		.train = true, .count = &ran };

	model_init(m, 1, w);
	model_init_buffers(m, buffer);
	model_forward(&par, m, 0, m->nops, &c, x, y);
	if (ran.macs != said.macs || ran.other != said.other)
		fail_msg("%s forward: %llu multiply-adds and %llu others ran, %llu and %llu were counted", what,
			(unsigned long long)ran.macs, (unsigned long long)ran.other, (unsigned long long)said.macs,
			(unsigned long long)said.other);
	assert_true(said.macs == batch * model_macs(m, 0, m->nops) && said.other > 0);
	ran = (struct cost){ 0 };
	said = cost_of(m, 0, m->nops, batch, true, want_dx);
	model_backward(&par, m, 0, m->nops, &c, x, y, want_dx ? dx : NULL, g);
	if (ran.macs != said.macs || ran.other != said.other)
		fail_msg("%s backward: %llu multiply-adds and %llu others ran, %llu and %llu were counted", what,
			(unsigned long long)ran.macs, (unsigned long long)ran.other, (unsigned long long)said.macs,
			(unsigned long long)said.other);
	free(w);
	free(g);
	free(buffer);
	free(x);
	free(y);
	free(dx);
	free(saved);
	free(work);
}

static void test_networks(void **state)
{
	static const char *const model[] = { "{\"zoo\":\"mlp\"}", "{\"zoo\":\"lenet5\"}",
		"{\"zoo\":\"resnet18\",\"pixels\":32,\"width\":8,\"stem\":\"cifar\",\"classes\":10}",
		"{\"zoo\":\"resnet18\",\"pixels\":64,\"width\":8}", "{\"zoo\":\"resnet50\",\"pixels\":32,\"width\":8,"
			"\"classes\":10}",
		"{\"zoo\":\"gpt2\",\"layers\":2,\"width\":32,\"heads\":2,\"vocab\":50,\"positions\":16,\"context\":16}",
		"{\"zoo\":\"bert\",\"layers\":2,\"width\":32,\"heads\":2,\"vocab\":50,\"positions\":16,\"context\":16}",
		"{\"zoo\":\"lstm\",\"width\":32,\"vocab\":50,\"embed\":16,\"context\":16}",
		"{\"zoo\":\"s2vt\",\"steps\":5,\"features\":30,\"embed\":8,\"width\":20,\"vocab\":9}" };

	for (size_t i = 0; i < sizeof(model) / sizeof(*model); i++) {
		struct model *m = model_of(model[i], "");

		compare(m, model[i], 3, false);
		model_free(m);
	}
}

/* Two layers, 20 to 30 to 7. */
static void test_linear(void **state)
{
	struct model *m = model_of("[{\"type\":\"linear\",\"out\":30},{\"type\":\"linear\",\"out\":7}]", "\"input\":[20],");
	struct cost c = cost_of(m, 0, 1, 1, false, false);

	assert_true(c.macs == 20 * 30 && cost_flops(&c) == 2 * 20 * 30 + 30);
	c = cost_of(m, 0, 2, 5, false, false);
	assert_true(c.macs == 5 * (20 * 30 + 30 * 7) && cost_flops(&c) == 5 * (2 * 20 * 30 + 30 + 2 * 30 * 7 + 7));
	/* forward and backward: three times the multiply-adds, and twice for the first layer, whose input wants no
	 * gradient */
	c = cost_of(m, 0, 2, 1, true, false);
	assert_true(c.macs == 20 * 30 + 2 * 30 * 7);
	c = cost_of(m, 0, 2, 1, true, true);
	assert_true(c.macs == 2 * (20 * 30 + 30 * 7));
	compare(m, "linear", 4, false);
	compare(m, "linear, with the input's gradient", 4, true);
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_networks), cmocka_unit_test(test_linear) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
