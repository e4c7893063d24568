/* Real threads: training steps by a team of threads give the same bytes as the same split done by one thread, so no two
 * workers touch the same memory. Run under TSan it also shows that they do not even race. */
#include "kernels_util.h"
#include <pthread.h>
#include "kernels/gemm.h"
#include "kernels/optim.h"
#include "kernels/vec.h"
#include "skip.h"

enum { WORKERS = 3, BATCH = 24, STEPS = 4 };

struct worker { void (*fn)(void *arg, int part, int parts); void *arg; int part, parts; };

static void *worker_main(void *p)
{
	const struct worker *w = p;

	w->fn(w->arg, w->part, w->parts);
	return NULL;
}

static void threads_run(const struct par *par, void (*fn)(void *arg, int part, int parts), void *arg)
{
	pthread_t t[WORKERS];
	struct worker w[WORKERS];

	for (int i = 1; i < par->n; i++) {
		w[i] = (struct worker){ fn, arg, i, par->n };
		assert_int_equal(pthread_create(&t[i], NULL, worker_main, &w[i]), 0);
	}
	fn(arg, 0, par->n);
	for (int i = 1; i < par->n; i++)
		pthread_join(t[i], NULL);
}

static struct model *network(void)
{
	static const char *const out[] = { "out" }, *const pool[] = { "kernel" };
	static const char *const conv[] = { "out", "kernel", "padding" };
	const struct layer_desc desc[] = {
		{ "conv2d", NULL, 3, conv, (const double[]){ 8, 3, 1 } }, { "relu" },
		{ "maxpool2d", NULL, 1, pool, (const double[]){ 2 } },
		{ "conv2d", NULL, 3, conv, (const double[]){ 64, 5, 2 } }, { "tanh" }, { "flatten" },
		{ "linear", NULL, 1, out, (const double[]){ 48 } }, { "sigmoid" },
		{ "linear", NULL, 1, out, (const double[]){ 10 } },
	};
	struct kerr e;
	struct model *m = model_new(&(struct shape){ 3, { 3, 12, 12 } }, desc, sizeof desc / sizeof *desc, NULL, &e);

	if (!m)
		fail_msg("%s", e.text);
	return m;
}

/* A few steps of Adam on noise; returns the parameters. */
static real *train(const struct par *par, const struct model *m)
{
	const struct optim_ops *adam = optim_find("adam");
	size_t n = m->nparam;
	real *x = noise(1, 1, BATCH * shape_count(&m->in)), y[BATCH * 10], dy[BATCH * 10];
	real *param = reals(n), *grad = reals(n), *s[2] = { calloc(n, sizeof(real)), calloc(n, sizeof(real)) };
	double hyper[OPTIM_KEYS_MAX];
	int32_t label[BATCH];
	struct optim_clock clock;
	struct model_need need;
	struct model_call c = { .batch = BATCH, .param = param, .train = true };

	for (int i = 0; i < BATCH; i++)
		label[i] = i % 10;
	model_need(m, 0, m->nops, BATCH, par->n, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	model_init(m, 5, param);
	optim_defaults(adam, hyper);
	optim_clock_init(&clock);
	for (int step = 0; step < STEPS; step++) {
		vec_fill(par, n, 0, grad);
		model_forward(par, m, 0, m->nops, &c, x, y);
		loss_run(par, loss_find("cross_entropy"), BATCH, 10, y, label, 1.0 / BATCH, dy, NULL);
		model_backward(par, m, 0, m->nops, &c, x, dy, NULL, grad);
		vec_clip_norm(par, n, 0.5, grad);
		optim_tick(adam, hyper, &clock);
		adam->step(par, hyper, &clock, s, param, grad, 0, n);
	}
	free(x); free(grad); free(s[0]); free(s[1]); free(c.saved); free(c.work);
	return param;
}

static void compare(const struct blas *blas, enum cpu cpu)
{
	struct par one = team(WORKERS, cpu, blas), many = one;
	struct model *m = network();
	real *want, *got;

	many.run = threads_run;
	want = train(&one, m);
	got = train(&many, m);
	assert_int_equal(vec_nonfinite(&one, m->nparam, want), m->nparam);
	assert_memory_equal(want, got, m->nparam * sizeof(real));
	free(want);
	free(got);
	model_free(m);
}

static void threads_equal_one(void **state)
{
	enum cpu cpu;

	cpu_pick(NULL, &cpu, NULL);
	compare(NULL, CPU_PLAIN);
	compare(NULL, cpu);
}

static void threads_equal_one_with_openblas(void **state)
{
	struct blas *b = blas_open(NULL);
	enum cpu cpu;

	if (!b)
		skip_because("no OpenBLAS here");
	cpu_pick(NULL, &cpu, NULL);
	compare(b, cpu);
	blas_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_equal_one),
		cmocka_unit_test(threads_equal_one_with_openblas),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
