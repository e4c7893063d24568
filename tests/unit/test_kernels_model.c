/* Models: errors that name the layers, the offset table, initialisation, PyTorch's numbers for every layer and loss,
 * exact memory, and a small network that learns. */
#include "kernels_util.h"
#include <math.h>
#include <stdio.h>
#include "kernels/arena.h"
#include "kernels/gemm.h"
#include "kernels/optim.h"
#include "kernels/vec.h"
#include "kernels_golden.h"

struct attr { const char *name; double value; };
struct one { const char *type, *name; struct attr attr[6]; };
#define LAYERS_MAX 12

static struct model *build(struct shape in, const struct one *layer, struct kerr *e)
{
	struct layer_desc desc[LAYERS_MAX];
	const char *names[LAYERS_MAX][6];
	double values[LAYERS_MAX][6];
	int n = 0;

	for (; n < LAYERS_MAX && layer[n].type; n++) {
		int k = 0;

		for (; k < 6 && layer[n].attr[k].name; k++) {
			names[n][k] = layer[n].attr[k].name;
			values[n][k] = layer[n].attr[k].value;
		}
		desc[n] = (struct layer_desc){ layer[n].type, layer[n].name, k, names[n], values[n] };
	}
	return model_new(&in, desc, n, NULL, e);
}

static const struct shape digit = { 3, { 1, 28, 28 } };

/* What is wrong, and which words the message must contain. */
static void misfits_are_named(void **state)
{
	static const struct { struct shape in; struct one layer[4]; const char *words[4]; } row[] = {
		{ { 3, { 1, 28, 28 } }, { { "linear", "fc", { { "out", 10 } } } }, { "'fc'", "flatten",
			"[1, 28, 28]" } },
		{ { 1, { 64 } }, { { "relu", "act" }, { "conv2d", "c1", { { "out", 3 }, { "kernel", 3 } } } },
			{ "'c1'", "after layer 0 'act'", "image" } },
		{ { 1, { 64 } }, { { "linear", "a", { { "out", 5 } } }, { "linear", "b", { { "out", 3 }, { "in", 6 } } } },
			{ "'b'", "in = 6", "has 5 features", "after layer 0 'a'" } },
		{ { 3, { 1, 4, 4 } }, { { "conv2d", "c", { { "out", 1 }, { "kernel", 5 } } } },
			{ "kernel = 5", "larger" } },
		{ { 3, { 1, 4, 4 } }, { { "conv2d", "c", { { "out", 1 }, { "kernel", 3 }, { "winograd", 3 } } } },
			{ "winograd = 3", "no size of a tile" } },
		{ { 3, { 1, 4, 4 } }, { { "conv2d", "c", { { "out", 1 }, { "kernel", 2 }, { "winograd", 4 } } } },
			{ "winograd = 4", "kernel = 3" } },
		{ { 3, { 1, 4, 4 } }, { { "conv2d", "c", { { "out", 1 }, { "kernel", 1 }, { "kernel_w", 7 }, { "padding_w",
		1 } } } }, { "kernel_w = 7", "wider", "padding_w = 1" } },
		{ { 3, { 2, 4, 4 } }, { { "conv2d", "c", { { "out", 1 }, { "kernel", 3 }, { "in", 3 } } } }, { "2 channels" } },
		{ { 3, { 1, 4, 4 } }, { { "maxpool2d", "p", { { "kernel", 9 } } } }, { "kernel = 9", "larger" } },
		{ { 3, { 1, 4, 4 } }, { { "maxpool2d", "p", { { "kernel", 2 }, { "padding", 2 } } } }, { "half" } },
		{ { 1, { 4 } }, { { "maxpool2d", "p", { { "kernel", 2 } } } }, { "image" } },
		{ { 1, { 4 } }, { { "linear", NULL } }, { "layer 0 '0'", "needs out" } },
		{ { 1, { 4 } }, { { "linear", NULL, { { "out", 2.5 } } } }, { "whole number" } },
		{ { 1, { 4 } }, { { "linear", NULL, { { "out", 0 } } } }, { "outside 1.." } },
		{ { 1, { 4 } }, { { "linear", NULL, { { "out", NAN } } } }, { "outside 1.." } },
		{ { 1, { 4 } }, { { "linear", NULL, { { "out", 2 }, { "out", 3 } } } }, { "twice" } },
		{ { 1, { 4 } }, { { "relu", NULL, { { "slope", 1 } } } }, { "does not know 'slope'",
		"no attributes" } },
		{ { 1, { 4 } }, { { "linear", NULL, { { "units", 1 } } } }, { "does not know 'units'",
		"out bias in" } },
		{ { 1, { 4 } }, { { "swish", NULL } }, { "'swish' is unknown", "conv2d", "gelu" } },
		{ { 1, { 4 } }, { { "relu", "x" }, { "relu", "x" } }, { "'x' is layer 0's already" } },
		{ { 1, { 4 } }, { { "relu", "" } }, { "1 to 63 letters" } },
		{ { 1, { 4 } }, { { "relu", "a/b" } }, { "'a/b'", "letters" } },
		{ { 1, { 4 } }, { { "sleep", NULL } }, { "nobody" } },
		{ { 1, { 0 } }, { { "relu", NULL } }, { "dimension 0" } },
		{ { 1, { (size_t)1 << 40 } }, { { "relu", NULL } }, { "dimension 0" } },
		{ { 5, { 1 } }, { { "relu", NULL } }, { "5 dimensions" } },
		{ { 1, { 1 << 20 } }, { { "linear", NULL, { { "out", 1 << 24 } } } }, { "parameters" } },
		{ { 1, { 4 } }, { { NULL } }, { "1 to 4096 layers, not 0" } },
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct kerr e = { "" };
		struct model *m = build(row[i].in, row[i].layer, &e);

		if (m)
			fail_msg("row %zu was accepted", i);
		for (int w = 0; w < 4 && row[i].words[w]; w++)
			if (!strstr(e.text, row[i].words[w]))
				fail_msg("row %zu: '%s' does not say '%s'", i, e.text, row[i].words[w]);
	}
}

static const struct one lenet[] = { { "conv2d", "conv1", { { "out", 6 }, { "kernel", 5 }, { "padding", 2 } } },
	{ "tanh" },
	{ "maxpool2d", NULL, { { "kernel", 2 } } }, { "conv2d", "conv2", { { "out", 16 }, { "kernel", 5 } } },
	{ "tanh" },
	{ "maxpool2d", NULL, { { "kernel", 2 } } }, { "flatten" }, { "linear", "fc1", { { "out", 120 } } }, { "tanh" },
	{ "linear", "fc2", { { "out", 84 } } }, { "tanh" }, { "linear", "fc3", { { "out", 10 } } } };

/* LeNet-5's known figures: 61 706 parameters, 416 520 multiply-adds. LAYERS_MAX layers fill the row. */
static void counts_are_known(void **state)
{
	struct kerr e;
	struct model *m = build(digit, lenet, &e);
	const struct model_param *p;

	assert_non_null(m);
	assert_int_equal(m->nparam, 61706);
	assert_int_equal(model_macs(m, 0, m->nops), 117600 + 240000 + 48000 + 10080 + 840);
	assert_int_equal(model_macs(m, 0, 1), 117600);
	assert_int_equal(m->nparams, 10);
	assert_string_equal(m->param[0].name, "conv1.weight");
	assert_string_equal(m->param[9].name, "fc3.bias");
	p = model_param_find(m, "fc1.weight");
	assert_non_null(p);
	assert_int_equal(p->shape.d[0], 120);
	assert_int_equal(p->shape.d[1], 400);
	assert_int_equal(p->offset, 6 * 25 + 6 + 16 * 6 * 25 + 16);
	assert_int_equal(p->op, 7);
	assert_null(model_param_find(m, "fc9.weight"));
	assert_int_equal(model_param_count(m, 7, 8), 120 * 401);
	assert_int_equal(m->out.nd, 1);
	assert_int_equal(m->out.d[0], 10);
	model_free(m);
}

static void initialisation_is_seeded_and_bounded(void **state)
{
	struct kerr e;
	struct model *m = build(digit, lenet, &e);
	real *a = reals(m->nparam), *b = reals(m->nparam);
	const struct model_param *w = model_param_find(m, "fc1.weight");
	struct par par = par_serial(CPU_PLAIN, NULL);
	double bound = 1 / sqrt(400.0), mean, most;

	model_init(m, 1, a);
	model_init(m, 1, b);
	assert_memory_equal(a, b, m->nparam * sizeof(real));
	model_init(m, 2, b);
	assert_memory_not_equal(a, b, m->nparam * sizeof(real));
	most = vec_max_abs(&par, w->count, a + w->offset);
	mean = vec_sum(&par, w->count, a + w->offset) / (double)w->count;
	assert_true(most <= bound && most > 0.999 * bound);
	assert_true(fabs(mean) < 4 * bound / sqrt(3.0 * (double)w->count));
	assert_true(fabs(vec_norm2(&par, w->count,
		a + w->offset) / sqrt((double)w->count) - bound / sqrt(3.0)) < 0.01 * bound);
	/* The exact bytes are a promise: peers initialise by themselves and must agree. */
	assert_true(a[0] == (real)((2 * rand_unit(rand_key(rand_key(1, 0), 0), 0) - 1) / 5));
	assert_true(rand_bits(0, 0) == 0xe220a8397b1dcdafu);    /* SplitMix64's published first output for seed 0 */
	free(a);
	free(b);
	model_free(m);
}

static real wave(size_t i, double phase, double scale)
{
	return (real)(scale * sin(0.37 * (double)i + phase));
}

static void within(double rel, const char *what, const real *got, const double *want, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - want[i]) < rel * (1 + fabs(want[i]))))
			fail_msg("%s[%zu] is %.9g, PyTorch's %.9g", what, i, (double)got[i], want[i]);
}
#define near(...) within(3e-6, __VA_ARGS__)

struct golden { struct shape in; struct one layer; const double *y, *dx, *dparam; };

static void golden_layer(const struct par *par, const struct golden *g)
{
	enum { BATCH = 2 };
	struct kerr e;
	struct model *m = build(g->in, (struct one[]){ g->layer, { NULL } }, &e);
	size_t nx, ny;
	real *x, *y, *dx, *dy, *param, *grad;
	struct model_need need;
	struct model_call c = { .batch = BATCH, .train = true };

	if (!m)
		fail_msg("%s", e.text);
	nx = BATCH * shape_count(&m->in);
	ny = BATCH * shape_count(&m->out);
	x = reals(nx); dx = reals(nx); y = reals(ny); dy = reals(ny);
	param = reals(m->nparam);
	grad = calloc(m->nparam + 1, sizeof(real));
	for (size_t i = 0; i < nx; i++)
		x[i] = wave(i, 0.2, 1);
	for (size_t i = 0; i < ny; i++)
		dy[i] = wave(i, 2.5, 1);
	for (int p = 0; p < m->nparams; p++)
		for (size_t i = 0; i < m->param[p].count; i++)
			param[m->param[p].offset + i] = wave(i, 1.0 + p, 0.4);
	model_need(m, 0, 1, BATCH, par->n, &need);
	c.param = param;
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd + need.work_bwd);
	model_forward(par, m, 0, 1, &c, x, y);
	model_backward(par, m, 0, 1, &c, x, dy, dx, grad);
	near(g->layer.type, y, g->y, ny);
	near(g->layer.type, dx, g->dx, nx);
	if (g->dparam)
		near(g->layer.type, grad, g->dparam, m->nparam);
	free(x); free(dx); free(y); free(dy); free(param); free(grad); free(c.saved); free(c.work);
	model_free(m);
}

#define GOLDEN(tag, dparam) golden_##tag##_y, golden_##tag##_dx, dparam

static void pytorch_agrees_on_layers(void **state)
{
	static const struct golden row[] = {
		{ { 1, { 5 } }, { "linear", NULL, { { "out", 3 } } }, GOLDEN(linear, golden_linear_dparam) },
		{ { 2, { 3, 4 } }, { "linear", NULL, { { "out", 2 }, { "bias", 0 } } },
			GOLDEN(linear_nobias, golden_linear_nobias_dparam) },
		{ { 3, { 2, 4, 5 } }, { "conv2d", NULL, { { "out", 3 }, { "kernel", 3 }, { "padding", 1 } } },
			GOLDEN(conv, golden_conv_dparam) },
		{ { 3, { 2, 5, 4 } }, { "conv2d", NULL, { { "out", 2 }, { "kernel", 3 }, { "stride", 2 }, { "padding",
		2 },
			{ "bias", 0 } } }, GOLDEN(conv_stride, golden_conv_stride_dparam) },
		{ { 3, { 2, 5, 6 } }, { "maxpool2d", NULL, { { "kernel", 3 }, { "stride", 2 }, { "padding", 1 } } },
			GOLDEN(maxpool, NULL) },
		{ { 1, { 7 } }, { "relu" }, GOLDEN(relu, NULL) },
		{ { 1, { 7 } }, { "sigmoid" }, GOLDEN(sigmoid, NULL) },
		{ { 1, { 7 } }, { "tanh" }, GOLDEN(tanh, NULL) },
	};
	struct blas *b = blas_open(NULL);
	struct par plain = par_serial(CPU_PLAIN, NULL), blas = team(2, CPU_PLAIN, b);

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		golden_layer(&plain, &row[i]);
		golden_layer(&blas, &row[i]);   /* without OpenBLAS: the reference, split */
	}
	blas_close(b);
}

/* Over the whole range, against libm in double: sigmoid and tanh within 4e-7 of the value, and the limits. */
static void curves_are_accurate(void **state)
{
	static const struct one curve[2][2] = { { { "sigmoid" }, { NULL } }, { { "tanh" }, { NULL } } };
	const real odd[] = { 0, (real)-0.0, INFINITY, -INFINITY, NAN, 100, -100, (real)1e-30, (real)-1e-30,
		(real)0.6249999 };
	enum { N = 200000, ODD = sizeof odd / sizeof *odd };
	real *x = reals(N), *y = reals(N);
	struct par par;

	par = team(2, CPU_PLAIN, NULL);
	cpu_pick(NULL, &par.cpu, NULL);
	for (int f = 0; f < 2; f++) {
		struct model *m = build((struct shape){ 1, { N } }, curve[f], NULL);
		struct model_need need;
		struct model_call c = { .batch = 1 };

		model_need(m, 0, 1, 1, 2, &need);
		c.work = bytes(need.work_eval);
		for (int i = 0; i < N; i++)
			x[i] = i < ODD ? odd[i] : (real)((i - N / 2) * (f ? 12.0 : 90.0) / (N / 2));
		model_forward(&par, m, 0, 1, &c, x, y);
		for (int i = 0; i < N; i++) {
			double want = f ? tanh((double)x[i]) : 1 / (1 + exp(-(double)x[i]));

			if (!(fabs((double)y[i] - want) <= 4e-7 * fabs(want) + 1e-37) && want == want)
				fail_msg("%s(%.9g) = %.9g, not %.9g", curve[f][0].type, (double)x[i], (double)y[i], want);
			assert_true((y[i] == y[i]) == (want == want));
		}
		free(c.work);
		model_free(m);
	}
	free(x);
	free(y);
}

/* As in PyTorch: the first of equals gets the gradient, NaN beats everything. */
static void pooling_breaks_ties_like_pytorch(void **state)
{
	static const struct one pool[] = { { "maxpool2d", NULL, { { "kernel", 2 } } }, { NULL } };
	struct model *m = build((struct shape){ 3, { 1, 2, 4 } }, pool, NULL);
	struct par par = par_serial(CPU_PLAIN, NULL);
	real x[8] = { 5, 5, 1, 9, 5, 5, (real)NAN, 2 }, y[2], dy[2] = { 1, 2 }, dx[8];
	const real want[8] = { 1, 0, 0, 0, 0, 0, 2, 0 };
	struct model_need need;
	struct model_call c = { .batch = 1 };

	model_need(m, 0, 1, 1, 1, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd + need.work_bwd);
	model_forward(&par, m, 0, 1, &c, x, y);
	model_backward(&par, m, 0, 1, &c, x, dy, dx, NULL);
	assert_true(y[0] == 5 && y[1] != y[1]);
	assert_memory_equal(dx, want, sizeof want);
	free(c.saved);
	free(c.work);
	model_free(m);
}

static void pytorch_agrees_on_losses(void **state)
{
	static const struct { const char *name; const double *loss, *dz; } row[] = {
		{ "cross_entropy", golden_cross_entropy_loss, golden_cross_entropy_dz },
		{ "bce_with_logits", golden_bce_with_logits_loss, golden_bce_with_logits_dz },
		{ "mse", golden_mse_loss, golden_mse_dz },
	};
	static const int32_t label[] = { 2, 0, 3 };
	struct par par = team(2, CPU_PLAIN, NULL);

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		const struct loss_ops *l = loss_find(row[i].name);
		real z[12], want[12], dz[12];
		double loss;

		for (size_t j = 0; j < 12; j++) {
			z[j] = wave(j, 0.3, 3);
			want[j] = i == 1 ? wave(j, 0.7, 0.5) + (real)0.5 : wave(j, 0.7, 1);
		}
		loss = loss_run(&par, l, 3, 4, z, l->target == TARGET_CLASS ? (const void *)label : want, 1.0 / 3, dz,
			NULL) / 3;
		assert_true(fabs(loss - row[i].loss[0]) < 1e-6);
		within(1e-6, row[i].name, dz, row[i].dz, 12);
	}
	assert_null(loss_at(4));
}

static void pytorch_agrees_on_clipping(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	real g[20];

	for (size_t i = 0; i < 20; i++)
		g[i] = wave(i, 0.1, 2);
	assert_true(fabs(vec_clip_norm(&par, 20, 1.5, g) - golden_clip_norm[0]) < 1e-6);
	near("clip", g, golden_clip_grad, 20);
}

static void labels_are_checked_and_answers_counted(void **state)
{
	const struct loss_ops *ce = loss_find("cross_entropy");
	struct par par = par_serial(CPU_PLAIN, NULL);
	real z[6] = { 1, 2, 0, 5, -1, 7 };
	int32_t label[2] = { 1, 0 }, bad[2] = { 1, 3 };
	struct kerr e;
	size_t right = 9;

	assert_int_equal(loss_check_targets(ce, 2, 3, label, &e), 0);
	assert_int_equal(loss_check_targets(ce, 2, 3, bad, &e), -1);
	assert_non_null(strstr(e.text, "label 3 of sample 1"));
	loss_run(&par, ce, 2, 3, z, label, 1, NULL, &right);
	assert_int_equal(right, 1);
	assert_int_equal(ce->check(&(struct shape){ 3, { 1, 2, 2 } }, &e), -1);
	assert_non_null(strstr(e.text, "[1, 2, 2]"));
}

/* The loss of a big batch does not depend on the team. */
static void losses_do_not_depend_on_the_team(void **state)
{
	const struct loss_ops *ce = loss_find("cross_entropy");
	size_t batch = 3000, n = 10;
	real *z = noise(1, 5, batch * n);
	int32_t *label = calloc(batch, sizeof *label);
	double want = 0;

	for (size_t i = 0; i < batch; i++)
		label[i] = (int32_t)(rand_bits(2, i) % n);
	for (int parts = 1; parts < 6; parts++) {
		struct par par = team(parts, CPU_PLAIN, NULL);
		double got = loss_run(&par, ce, batch, n, z, label, 1, NULL, NULL);

		want = parts == 1 ? got : want;
		assert_true(got == want);
	}
	free(z);
	free(label);
}

/* What model_need says is what a step takes: an arena of exactly that budget suffices (and under ASan nothing
 * touches a byte more), one byte less fails. */
static void memory_is_exact(void **state)
{
	struct kerr e;
	struct model *m = build(digit, lenet, &e);
	struct model_need need;
	struct arena a;
	size_t batch = 3, budget;
	struct par par = team(2, CPU_PLAIN, NULL);
	real *param = reals(m->nparam), *grad = calloc(m->nparam, sizeof(real)), *x, *y, *dy, *dx;
	struct model_call c = { .batch = batch, .param = param, .train = true };
	struct arena_mark mark;

	model_init(m, 3, param);
	model_need(m, 0, m->nops, batch, par.n, &need);
	budget = 2 * arena_round(need.x) + 2 * arena_round(need.y) + need.saved +
		(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	assert_int_equal(arena_init(&a, budget, &e), 0);
	x = arena_alloc(&a, need.x, "x", &e);
	dx = arena_alloc(&a, need.x, "dx", &e);
	y = arena_alloc(&a, need.y, "y", &e);
	dy = arena_alloc(&a, need.y, "dy", &e);
	c.saved = arena_alloc(&a, need.saved, "saved", &e);
	mark = arena_mark(&a);
	c.work = arena_alloc(&a, need.work_fwd, "forward", &e);
	assert_non_null(c.work);
	rand_uniform(4, 1, need.x / sizeof(real), x);
	model_forward(&par, m, 0, m->nops, &c, x, y);
	arena_release(&a, mark);
	c.work = arena_alloc(&a, need.work_bwd, "backward", &e);
	assert_non_null(c.work);
	loss_run(&par, loss_find("cross_entropy"), batch, 10, y, (int32_t[]){ 1, 2, 3 }, 1.0 / 3, dy, NULL);
	model_backward(&par, m, 0, m->nops, &c, x, dy, dx, grad);
	assert_int_equal(vec_nonfinite(&par, m->nparam, grad), m->nparam);
	assert_int_equal(a.peak, budget);
	assert_null(arena_alloc(&a, 1 + budget - a.used, "one byte more", &e));
	arena_done(&a);
	free(param);
	free(grad);
	model_free(m);
}

/* Only what backward reads is kept: conv outputs live in the same memory as their tanh. */
static void saved_set_is_small(void **state)
{
	struct kerr e;
	struct model *m = build(digit, lenet, &e);
	struct model_need need;
	size_t values = 6 * 784 + 6 * 196 + 16 * 100 + 400 + 120 + 84;   /* tanh 1, pool 1, tanh 2, pool 2, fc1, fc2 */
	size_t indices = 6 * 196 + 400;

	model_need(m, 0, m->nops, 16, 1, &need);
	assert_int_equal(need.saved, 16 * (values * sizeof(real) + indices * sizeof(int32_t)));
	model_free(m);
}

/* Two moons of points: an MLP separates them, loss falls from ln 2 to near nothing. */
static void a_small_network_learns(void **state)
{
	static const struct one mlp[] = { { "linear", NULL, { { "out", 24 } } }, { "relu" }, { "linear", NULL,
		{ { "out", 2 } } },
		{ NULL } };
	enum { N = 200 };
	struct kerr e;
	struct model *m = build((struct shape){ 1, { 2 } }, mlp, &e);
	const struct optim_ops *adam = optim_find("adam");
	const struct loss_ops *ce = loss_find("cross_entropy");
	double hyper[OPTIM_KEYS_MAX], first = 0, last = 0;
	struct par par = team(2, CPU_PLAIN, NULL);
	real x[N * 2], y[N * 2], dy[N * 2], *param = reals(m->nparam), *grad = reals(m->nparam), *s[2];
	int32_t label[N];
	struct optim_clock clock;
	struct model_need need;
	struct model_call c = { .batch = N, .param = param, .train = true };
	size_t right = 0;

	for (int i = 0; i < N; i++) {
		double t = 3.14159265 * rand_unit(1, (uint64_t)i);

		label[i] = i & 1;
		x[2 * i] = (real)(label[i] ? 1 - cos(t) : cos(t));
		x[2 * i + 1] = (real)(label[i] ? 0.5 - sin(t) : sin(t));
	}
	model_need(m, 0, m->nops, N, par.n, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd + need.work_bwd);
	for (int i = 0; i < 2; i++)
		s[i] = calloc(m->nparam, sizeof(real));
	model_init(m, 7, param);
	optim_defaults(adam, hyper);
	assert_int_equal(optim_set(adam, hyper, "lr", 0.03, &e), 0);
	optim_clock_init(&clock);
	for (int step = 0; step < 300; step++) {
		vec_fill(&par, m->nparam, 0, grad);
		model_forward(&par, m, 0, m->nops, &c, x, y);
		last = loss_run(&par, ce, N, 2, y, label, 1.0 / N, dy, &right) / N;
		model_backward(&par, m, 0, m->nops, &c, x, dy, NULL, grad);
		optim_tick(adam, hyper, &clock);
		adam->step(&par, hyper, &clock, s, param, grad, 0, m->nparam);
		first = step ? first : last;
	}
	assert_true(first > 0.5 && last < 0.02);
	assert_int_equal(right, N);
	free(param); free(grad); free(s[0]); free(s[1]); free(c.saved); free(c.work);
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(misfits_are_named),
		cmocka_unit_test(counts_are_known),
		cmocka_unit_test(initialisation_is_seeded_and_bounded),
		cmocka_unit_test(pytorch_agrees_on_layers),
		cmocka_unit_test(curves_are_accurate),
		cmocka_unit_test(pooling_breaks_ties_like_pytorch),
		cmocka_unit_test(pytorch_agrees_on_losses),
		cmocka_unit_test(pytorch_agrees_on_clipping),
		cmocka_unit_test(labels_are_checked_and_answers_counted),
		cmocka_unit_test(losses_do_not_depend_on_the_team),
		cmocka_unit_test(memory_is_exact),
		cmocka_unit_test(saved_set_is_small),
		cmocka_unit_test(a_small_network_learns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
