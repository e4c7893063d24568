/* Every layer and loss of the lists, and pieces of models, against central differences in double, to 1e-6. A layer
 * without a row in `cases` fails the test: nothing enters the list unproved. */
#include "kernels_util.h"
#include <math.h>
#include <stdio.h>

struct attr { const char *name; double value; };
struct one { const char *type; struct attr attr[6]; };
struct grad_case { const char *what; struct shape in; struct one layer[8]; };

static const struct grad_case cases[] = {
	{ "linear", { 1, { 5 } }, { { "linear", { { "out", 4 } } } } },
	{ "linear", { 2, { 3, 5 } }, { { "linear", { { "out", 4 }, { "bias", 0 } } } } },
	{ "conv2d", { 3, { 2, 5, 4 } }, { { "conv2d", { { "out", 3 }, { "kernel", 3 }, { "padding", 1 } } } } },
	{ "conv2d", { 3, { 2, 6, 5 } }, { { "conv2d", { { "out", 2 }, { "kernel", 3 }, { "stride", 2 }, { "padding",
	2 },
		{ "bias", 0 } } } } },
	{ "conv2d", { 3, { 3, 4, 4 } }, { { "conv2d", { { "out", 2 }, { "kernel", 1 } } } } },
	{ "conv2d", { 3, { 1, 18, 17 } }, { { "conv2d", { { "out", 2 }, { "kernel", 2 } } } } },
	{ "conv2d", { 3, { 1, 2, 2 } }, { { "conv2d", { { "out", 2 }, { "kernel", 5 }, { "padding", 3 }, { "stride",
	3 } } } } },
	{ "conv2d", { 3, { 1, 1, 1 } }, { { "conv2d", { { "out", 2 }, { "kernel", 7 }, { "padding", 4 } } } } },
	{ "maxpool2d", { 3, { 2, 6, 6 } }, { { "maxpool2d", { { "kernel", 2 } } } } },
	{ "maxpool2d", { 3, { 2, 5, 6 } }, { { "maxpool2d", { { "kernel", 3 }, { "stride", 2 }, { "padding",
	1 } } } } },
	{ "relu", { 1, { 9 } }, { { "relu" } } },
	{ "sigmoid", { 2, { 3, 3 } }, { { "sigmoid" } } },
	{ "tanh", { 1, { 9 } }, { { "tanh" } } },
	{ "flatten", { 3, { 2, 2, 3 } }, { { "flatten" } } },
	{ "sleep", { 1, { 3 } }, { { "sleep", { { "fwd_ms", 1 }, { "act_bytes", 32 }, { "param_bytes", 12 } } } } },
	{ "sleep", { 1, { 6 } }, { { "sleep" } } },
	{ "mlp", { 3, { 1, 2, 4 } }, { { "flatten" }, { "linear", { { "out", 6 } } }, { "relu" }, { "linear",
	{ { "out", 5 } } },
		{ "tanh" }, { "linear", { { "out", 4 } } }, { "sigmoid" } } },
	{ "cnn", { 3, { 1, 6, 6 } }, { { "conv2d", { { "out", 3 }, { "kernel", 3 }, { "padding", 1 } } }, { "relu" },
		{ "maxpool2d", { { "kernel", 2 } } }, { "conv2d", { { "out", 4 }, { "kernel", 2 } } }, { "tanh" },
		{ "flatten" }, { "linear", { { "out", 3 } } } } },
	{ "odd", { 3, { 2, 2, 2 } }, { { "relu" }, { "flatten" }, { "sigmoid" }, { "tanh" }, { "linear", { { "out",
	4 } } },
		{ "flatten" }, { "relu" } } },
	{ "views", { 2, { 2, 3 } }, { { "flatten" }, { "flatten" } } },
};

static void nobody_waits(void *arg, uint64_t us, bool backward)
{
	(*(int *)arg)++;
}

static struct model *build(const struct grad_case *c, int *ret_waits)
{
	struct layer_desc desc[8];
	const char *names[8][6];
	double values[8][6];
	struct layer_host host = { nobody_waits, ret_waits };
	struct kerr e;
	struct model *m;
	int n = 0;

	for (; n < 8 && c->layer[n].type; n++) {
		int k = 0;

		for (; k < 6 && c->layer[n].attr[k].name; k++) {
			names[n][k] = c->layer[n].attr[k].name;
			values[n][k] = c->layer[n].attr[k].value;
		}
		desc[n] = (struct layer_desc){ c->layer[n].type, NULL, k, names[n], values[n] };
	}
	m = model_new(&c->in, desc, n, &host, &e);
	if (!m)
		fail_msg("%s: %s", c->what, e.text);
	return m;
}

/* sum of weight * y: its gradient in y is weight. */
static double probe(const struct par *par, const struct model *m, size_t batch, const real *param, const real *x,
	const real *weight, real *y)
{
	struct model_need need;
	struct model_call c = { .batch = batch, .param = param, .train = true };
	size_t n = batch * shape_count(&m->out);
	double sum = 0;

	model_need(m, 0, m->nops, batch, par->n, &need);
	c.work = bytes(need.work_eval);
	model_forward(par, m, 0, m->nops, &c, x, y);
	free(c.work);
	for (size_t i = 0; i < n; i++)
		sum += weight[i] * y[i];
	return sum;
}

static void compare(const char *what, const char *which, size_t i, double got, double want)
{
	if (!(fabs(got - want) <= 1e-6 * (1 + fabs(want))))
		fail_msg("%s: %s[%zu] is %.12g, central difference %.12g", what, which, i, got, want);
}

struct nudge { const struct par *par; const struct model *m; size_t batch; real *param, *x; const real *weight;
	real *y; };

static double slope(const struct nudge *g, real *at)
{
	const real old = *at, step = 1e-5;
	double up, down;

	*at = old + step;
	up = probe(g->par, g->m, g->batch, g->param, g->x, g->weight, g->y);
	*at = old - step;
	down = probe(g->par, g->m, g->batch, g->param, g->x, g->weight, g->y);
	*at = old;
	return (up - down) / (2 * step);
}

/* Backward with exactly the memory that model_need says, then every element against its difference. */
static void check_case(const struct grad_case *c, const struct par *par, size_t batch)
{
	int waits = 0;
	struct model *m = build(c, &waits);
	size_t nx = batch * shape_count(&m->in), ny = batch * shape_count(&m->out);
	real *param = noise(1, 1, m->nparam), *x = noise(2, 1, nx), *weight = noise(3, 1, ny),
		*y = bytes(ny * sizeof(real));
	real *y2 = bytes(ny * sizeof(real)), *dx = bytes(nx * sizeof(real)), *grad = reals(m->nparam);
	struct model_need need;
	struct model_call call = { .batch = batch, .param = param, .train = true };
	struct nudge g = { par, m, batch, param, x, weight, y2 };

	model_need(m, 0, m->nops, batch, par->n, &need);
	call.saved = bytes(need.saved);
	call.work = bytes(need.work_fwd);
	model_forward(par, m, 0, m->nops, &call, x, y);
	free(call.work);
	call.work = bytes(need.work_bwd);
	for (size_t i = 0; i < m->nparam; i++)
		grad[i] = 0.5;          /* backward adds */
	model_backward(par, m, 0, m->nops, &call, x, weight, dx, grad);
	probe(par, m, batch, param, x, weight, y2);
	assert_memory_equal(y, y2, ny * sizeof(real));
	for (size_t i = 0; i < nx; i++)
		compare(c->what, "dx", i, dx[i], slope(&g, &x[i]));
	for (size_t i = 0; i < m->nparam; i++)
		compare(c->what, "dparam", i, grad[i] - 0.5, slope(&g, &param[i]));
	free(call.saved); free(call.work); free(param); free(x); free(weight); free(y); free(y2); free(dx); free(grad);
	model_free(m);
}

static void every_layer_is_checked(void **state)
{
	for (int i = 0; layer_at(i); i++) {
		int found = 0;

		for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
			found += !strcmp(cases[c].what, layer_at(i)->name);
		if (!found)
			fail_msg("layer %s has no gradient check: add a row to cases", layer_at(i)->name);
	}
}

static void gradients_match_differences(void **state)
{
	struct par alone = par_serial(CPU_PLAIN, NULL), three = team(3, CPU_PLAIN, NULL);

	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		check_case(&cases[c], &alone, 3);
		check_case(&cases[c], &three, 4);
		check_case(&cases[c], &three, 1);
	}
}

static void losses_match_differences(void **state)
{
	struct par par = team(2, CPU_PLAIN, NULL);
	enum { BATCH = 5, N = 4 };

	for (int l = 0; loss_at(l); l++) {
		const struct loss_ops *o = loss_at(l);
		real *z = noise(4, 3, BATCH * N), *dz = bytes(BATCH * N * sizeof(real)), want[BATCH * N];
		int32_t label[BATCH] = { 0, 3, 2, 2, 1 };
		const void *target = o->target == TARGET_CLASS ? (const void *)label : want;

		for (int i = 0; i < BATCH * N; i++)
			want[i] = rand_unit(5, (uint64_t)i);
		loss_run(&par, o, BATCH, N, z, target, 0.25, dz, NULL);
		for (int i = 0; i < BATCH * N; i++) {
			real old = z[i];
			double up, down;

			z[i] = old + 1e-5;
			up = loss_run(&par, o, BATCH, N, z, target, 1, NULL, NULL);
			z[i] = old - 1e-5;
			down = loss_run(&par, o, BATCH, N, z, target, 1, NULL, NULL);
			z[i] = old;
			compare(o->name, "dz", (size_t)i, dz[i], 0.25 * (up - down) / 2e-5);
		}
		free(z);
		free(dz);
	}
}

/* Every cut of a model into two pieces gives the same bytes as the whole, also when the first piece is replayed. */
static void check_cut(const struct grad_case *c, int cut, bool replay)
{
	enum { BATCH = 3 };
	int waits = 0;
	struct par par = team(2, CPU_PLAIN, NULL);
	struct model *m = build(c, &waits);
	int a[3] = { 0, cut, m->nops };
	size_t nx = BATCH * shape_count(&m->in), ny = BATCH * shape_count(&m->out),
		nm = BATCH * shape_count(model_shape(m, cut));
	real *param = noise(1, 1, m->nparam), *act[3] = { noise(2, 1, nx), bytes(nm * sizeof(real)),
		bytes(ny * sizeof(real)) };
	real *d[3] = { bytes(nx * sizeof(real)), bytes(nm * sizeof(real)), noise(3, 1, ny) };
	real *grad[2] = { calloc(m->nparam + 1, sizeof(real)), calloc(m->nparam + 1, sizeof(real)) };
	real *whole_y = bytes(ny * sizeof(real)), *whole_dx = bytes(nx * sizeof(real));
	struct model_need need;
	void *saved[2], *work;
	struct model_call call = { .batch = BATCH, .param = param, .train = true };

	for (int p = 0; p < 2; p++) {
		model_need(m, a[p], a[p + 1], BATCH, par.n, &need);
		saved[p] = bytes(need.saved);
		call.saved = replay && p == 0 ? NULL : saved[p];
		call.work = work = bytes(call.saved ? need.work_fwd : need.work_eval);
		model_forward(&par, m, a[p], a[p + 1], &call, act[p], act[p + 1]);
		free(work);
	}
	for (int p = 1; p >= 0; p--) {
		model_need(m, a[p], a[p + 1], BATCH, par.n, &need);
		call.saved = saved[p];
		if (replay && p == 0) {
			call.replay = true;
			call.work = work = bytes(need.work_fwd);
			model_forward(&par, m, a[p], a[p + 1], &call, act[p], act[p + 1]);
			free(work);
			call.replay = false;
		}
		call.work = work = bytes(need.work_bwd);
		model_backward(&par, m, a[p], a[p + 1], &call, act[p], d[p + 1], d[p], grad[0]);
		free(work);
		free(saved[p]);
	}
	model_need(m, 0, m->nops, BATCH, par.n, &need);
	call.saved = bytes(need.saved);
	call.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	model_forward(&par, m, 0, m->nops, &call, act[0], whole_y);
	model_backward(&par, m, 0, m->nops, &call, act[0], d[2], whole_dx, grad[1]);
	assert_memory_equal(whole_y, act[2], ny * sizeof(real));
	assert_memory_equal(whole_dx, d[0], nx * sizeof(real));
	assert_memory_equal(grad[0], grad[1], m->nparam * sizeof(real));
	memset(grad[1], 0, m->nparam * sizeof(real));   /* dx not wanted: the same parameter gradients */
	model_backward(&par, m, 0, m->nops, &call, act[0], d[2], NULL, grad[1]);
	assert_memory_equal(grad[0], grad[1], m->nparam * sizeof(real));
	free(call.saved); free(call.work); free(param); free(whole_y); free(whole_dx); free(grad[0]); free(grad[1]);
	for (int i = 0; i < 3; i++) {
		free(act[i]);
		free(d[i]);
	}
	model_free(m);
}

static void pieces_equal_the_whole(void **state)
{
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		int n = 0;

		while (n < 8 && cases[c].layer[n].type)
			n++;
		for (int cut = 1; cut < n; cut++) {
			check_cut(&cases[c], cut, false);
			check_cut(&cases[c], cut, true);
		}
	}
}

static void sleep_waits_once_per_pass(void **state)
{
	int waits = 0;
	struct grad_case c = { "sleep", { 1, { 3 } }, { { "sleep", { { "fwd_ms", 5 } } } } };
	struct model *m = build(&c, &waits);
	struct par par = team(3, CPU_PLAIN, NULL);
	real x[3] = { 1, 2, 3 }, y[3], dx[3];
	struct model_call call = { .batch = 1 };
	struct model_need need;

	model_need(m, 0, 1, 1, 3, &need);
	assert_int_equal(need.saved, 0);
	call.work = bytes(need.work_bwd);
	model_forward(&par, m, 0, 1, &call, x, y);
	assert_int_equal(waits, 1);
	model_backward(&par, m, 0, 1, &call, x, y, dx, NULL);
	assert_int_equal(waits, 2);
	assert_memory_equal(dx, x, sizeof x);
	free(call.work);
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_layer_is_checked),
		cmocka_unit_test(gradients_match_differences),
		cmocka_unit_test(losses_match_differences),
		cmocka_unit_test(pieces_equal_the_whole),
		cmocka_unit_test(sleep_waits_once_per_pass),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
