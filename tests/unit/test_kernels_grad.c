/* Every layer and loss of the lists, and pieces of models, against central differences in double, to 1e-6. A layer
 * without a row in `cases` fails the test: nothing enters the list unproved. */
#include "kernels_util.h"
#include <math.h>
#include <stdio.h>

struct attr { const char *name; double value; };
struct one { const char *type; struct attr attr[6]; };
/* text: instead of layer. ids: the inputs are whole numbers below it, and have no gradient. */
struct grad_case { const char *what; struct shape in; struct one layer[8]; const char *text; int ids; bool eval; };

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
	{ "add", { 1, { 5 } }, .text = "linear out=5 :a; tanh; add <1,input" },
	{ "conv2d", { 3, { 2, 6, 7 } }, .text = "conv2d out=3 kernel=1 kernel_w=7 padding_w=3" },
	{ "conv2d", { 3, { 2, 7, 4 } }, .text = "conv2d out=3 kernel=7 padding=3 kernel_w=1 padding_w=0" },
	{ "conv2d", { 3, { 2, 6, 9 } }, .text = "conv2d out=4 kernel=3 kernel_w=2 padding=2 padding_w=1 stride=2 "
		"dilation=2 groups=2" },
	{ "conv2d", { 3, { 1, 2, 2 } }, .text = "conv2d out=2 kernel=1 kernel_w=5 padding_w=4" },
	{ "conv2d", { 3, { 17, 8, 8 } }, .text = "conv2d out=16 kernel=3 kernel_w=3 padding=1 padding_w=2" },
	{ "conv2d", { 3, { 4, 6, 5 } }, .text = "conv2d out=6 kernel=3 dilation=2 groups=2 padding=2" },
	{ "conv2d", { 3, { 3, 7, 7 } }, .text = "conv2d out=3 kernel=2 dilation=3 groups=3 stride=2 bias=0" },
	{ "conv2d", { 3, { 2, 5, 6 } }, .text = "conv2d out=3 kernel=3 padding=1 winograd=4;"
		"conv2d out=2 kernel=3 winograd=2" },
	{ "conv2d", { 3, { 2, 17, 17 } }, .text = "conv2d out=4 kernel=3 groups=2 dilation=4" },
	{ "linear", { 2, { 2, 5 } }, .text = "linear out=4 transposed=1" },
	{ "concat", { 3, { 2, 3, 3 } }, .text = "conv2d out=1 kernel=1 :a; conv2d out=3 kernel=1 :b <input;"
		"concat <b,a,input,a; concat <input,input axis=2; concat <a,a axis=1; flatten <2; flatten <3; flatten <4;"
		"concat <5,6,7" },
	{ "gelu", { 1, { 9 } }, .text = "gelu" },
	{ "gelu", { 1, { 9 } }, .text = "gelu tanh=1" },
	{ "silu", { 2, { 3, 3 } }, .text = "silu" },
	{ "softmax", { 2, { 2, 5 } }, .text = "softmax; linear out=3; softmax" },
	{ "dropout", { 2, { 3, 5 } }, .text = "dropout p=0.3; linear out=4; dropout; tanh" },
	{ "dropout", { 1, { 7 } }, .text = "dropout", .eval = true },
	{ "bias", { 2, { 2, 3 } }, .text = "bias; tanh; bias" },
	{ "select", { 3, { 2, 2, 3 } }, .text = "select index=1 :a; select index=0 <input :b; add <a,b; select index=1" },
	{ "select", { 3, { 2, 4, 3 } }, .text = "select index=1 axis=1 count=2; tanh; select index=2 axis=2" },
	{ "select", { 1, { 9 } }, .text = "select index=2 count=5; tanh" },
	{ "avgpool2d", { 3, { 2, 6, 6 } }, .text = "avgpool2d kernel=2" },
	{ "avgpool2d", { 3, { 2, 5, 6 } }, .text = "avgpool2d kernel=3 stride=2 padding=1" },
	{ "adaptiveavgpool2d", { 3, { 2, 5, 4 } }, .text = "adaptiveavgpool2d out=3" },
	{ "adaptiveavgpool2d", { 3, { 2, 3, 2 } }, .text = "adaptiveavgpool2d out=4; adaptiveavgpool2d out=1" },
	{ "batchnorm", { 3, { 3, 3, 4 } }, .text = "batchnorm; relu; conv2d out=4 kernel=3; batchnorm affine=0" },
	{ "batchnorm", { 3, { 3, 3, 4 } }, .text = "batchnorm eps=0.1; tanh; batchnorm", .eval = true },
	{ "batchnorm", { 1, { 20 } }, .text = "linear out=17; batchnorm eps=0.01; tanh" },
	{ "groupnorm", { 3, { 6, 3, 3 } }, .text = "groupnorm groups=3; tanh; groupnorm groups=1; groupnorm groups=6" },
	{ "layernorm", { 2, { 3, 21 } }, .text = "layernorm; gelu; linear out=9; layernorm eps=0.01" },
	{ "rmsnorm", { 2, { 2, 19 } }, .text = "rmsnorm; tanh; rmsnorm" },
	{ "embedding", { 1, { 5 } }, .text = "embedding vocab=4 dim=18; tanh; linear out=2", .ids = 4 },
	{ "position", { 2, { 3, 2 } }, .text = "position max=5; tanh; position max=3" },
	{ "lstm", { 2, { 5, 3 } }, .text = "lstm out=4; lstm out=3 bias=0" },
	{ "lstm", { 2, { 4, 3 } }, .text = "lstm out=17; tanh; lstm out=3 last=1; linear out=2" },
	{ "lstm", { 2, { 1, 3 } }, .text = "lstm out=4 last=1" },
	{ "rnn", { 2, { 5, 3 } }, .text = "rnn out=4; rnn out=3 bias=0" },
	{ "rnn", { 2, { 4, 3 } }, .text = "rnn out=5 relu=1; rnn out=17 relu=1 last=1 bias=0; linear out=2" },
	{ "attention", { 2, { 5, 12 } }, .text = "attention heads=2" },
	{ "attention", { 2, { 5, 12 } }, .text = "attention heads=2 causal=1; linear out=6; attention heads=1" },
	{ "attention", { 2, { 4, 6 } }, .text = "linear out=4 :q; select index=0 :r <input; linear out=6 :k <input;"
		"linear out=4 <k :k2; linear out=4 <input :v; attention heads=2 <q,k2,v :a; linear out=6 <r; select index=0 <a;"
		"linear out=6; add <6,8" },
	{ "attention", { 2, { 4, 6 } }, .text = "attention heads=3 dropout=0.4 <input,input,input" },
	{ "attention", { 2, { 130, 3 } }, .text = "attention heads=1 causal=1" },
	{ "gpt", { 1, { 6 } }, .text = "embedding vocab=5 dim=4 :wte; position max=8; layernorm; linear out=12"
		" transposed=1; attention heads=2 causal=1; linear out=4 transposed=1; dropout p=0.2; add <6,1; layernorm;"
		"linear out=8; gelu tanh=1; linear out=4; add <11,7; layernorm; linear out=5 bias=0 @wte", .ids = 5 },
	/* Residual branches: before and after the sum, twice from one value, through views, and past everything. */
	{ "residual", { 1, { 6 } }, .text = "linear out=6 :a; relu; linear out=6; relu; add <3,a; relu; linear out=6;"
		"add <6,5; relu; add <8,a,5; linear out=3" },
	{ "twice", { 2, { 2, 3 } }, .text = "linear out=3; add <0,0; add <1,1,0; tanh; flatten; add <4,4; sigmoid;"
		"add <6,4" },
	{ "from the input", { 1, { 4 } }, .text = "relu; sigmoid <input; add <0,1; add <2,input; tanh; add <4,input,0" },
	{ "long skip", { 3, { 2, 2, 2 } }, .text = "flatten :f; linear out=8 :a; linear out=8 :b; tanh; add <3,f; sigmoid;"
		"linear out=8; add <6,a,f; relu; linear out=2" },
	/* One tensor of parameters at both ends and in the middle. */
	{ "shared", { 1, { 4 } }, .text = "linear out=4 :a; tanh; linear out=4 @a; tanh; linear out=4 @a :c; add <c,1" },
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

	for (; !c->text && n < 8 && c->layer[n].type; n++) {
		int k = 0;

		for (; k < 6 && c->layer[n].attr[k].name; k++) {
			names[n][k] = c->layer[n].attr[k].name;
			values[n][k] = c->layer[n].attr[k].value;
		}
		desc[n] = (struct layer_desc){ c->layer[n].type, NULL, k, names[n], values[n] };
	}
	m = c->text ? model_text(c->in, c->text, &host, &e) : model_new(&c->in, desc, n, &host, &e);
	if (!m)
		fail_msg("%s: %s", c->what, e.text);
	return m;
}

static real *inputs(const struct grad_case *c, size_t n)
{
	real *x = noise(2, 1, n);

	for (size_t i = 0; c->ids && i < n; i++)
		x[i] = (real)(rand_bits(2, i) % (uint64_t)c->ids);
	return x;
}

struct nudge { const struct par *par; const struct model *m; struct model_call call; real *x; const real *weight;
	real *y, *param; };

/* sum of weight * y: its gradient in y is weight. Buffers are as at the start. */
static double probe(const struct nudge *g)
{
	struct model_need need;
	struct model_call c = g->call;
	size_t n = c.batch * shape_count(&g->m->out);
	double sum = 0;

	model_need(g->m, 0, g->m->nops, c.batch, g->par->n, &need);
	c.saved = NULL;
	c.work = bytes(need.work_eval);
	c.buffer = buffers(g->m);
	model_forward(g->par, g->m, 0, g->m->nops, &c, g->x, g->y);
	free(c.work);
	free(c.buffer);
	for (size_t i = 0; i < n; i++)
		sum += g->weight[i] * g->y[i];
	return sum;
}

static void compare(const char *what, const char *which, size_t i, double got, double want)
{
	if (!(fabs(got - want) <= 1e-6 * (1 + fabs(want))))
		fail_msg("%s: %s[%zu] is %.12g, central difference %.12g", what, which, i, got, want);
}

static double slope(const struct nudge *g, real *at)
{
	const real old = *at, step = 1e-5;
	double up, down;

	*at = old + step;
	up = probe(g);
	*at = old - step;
	down = probe(g);
	*at = old;
	return (up - down) / (2 * step);
}

/* Backward with exactly the memory that model_need says, then every element against its difference. */
static void check_case(const struct grad_case *c, const struct par *par, size_t batch)
{
	int waits = 0;
	struct model *m = build(c, &waits);
	size_t nx = batch * shape_count(&m->in), ny = batch * shape_count(&m->out);
	real *param = noise(1, 1, m->nparam), *x = inputs(c, nx), *weight = noise(3, 1, ny), *y = bytes(ny * sizeof(real));
	real *y2 = bytes(ny * sizeof(real)), *dx = bytes(nx * sizeof(real)), *grad = reals(m->nparam);
	struct model_need need;
	struct model_call call = { .batch = batch, .param = param, .train = !c->eval, .key = 11, .buffer = buffers(m) };
	struct nudge g = { par, m, call, x, weight, y2, param };

	model_need(m, 0, m->nops, batch, par->n, &need);
	call.saved = bytes(need.saved);
	call.work = bytes(need.work_fwd);
	model_forward(par, m, 0, m->nops, &call, x, y);
	free(call.work);
	call.work = bytes(need.work_bwd);
	for (size_t i = 0; i < m->nparam; i++)
		grad[i] = 0.5;          /* backward adds */
	model_backward(par, m, 0, m->nops, &call, x, weight, c->ids ? NULL : dx, grad);
	probe(&g);
	assert_memory_equal(y, y2, ny * sizeof(real));
	for (size_t i = 0; i < nx && !c->ids; i++)
		compare(c->what, "dx", i, dx[i], slope(&g, &x[i]));
	for (size_t i = 0; i < m->nparam; i++)
		compare(c->what, "dparam", i, grad[i] - 0.5, slope(&g, &param[i]));
	free(call.saved); free(call.work); free(call.buffer); free(param); free(x); free(weight); free(y); free(y2);
	free(dx); free(grad);
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
	size_t nx = BATCH * shape_count(&m->in), ny = BATCH * shape_count(&m->out);
	struct model_need need, right;
	real *act[3], *d[3], *param = noise(1, 1, m->nparam), *stats[2] = { buffers(m), buffers(m) };
	real *grad[2] = { calloc(m->nparam + 1, sizeof(real)), calloc(m->nparam + 1, sizeof(real)) };
	real *whole_y = bytes(ny * sizeof(real)), *whole_dx = bytes(nx * sizeof(real));
	void *saved[2], *work;
	struct model_call call = { .batch = BATCH, .param = param, .train = !c->eval, .key = 5, .buffer = stats[0] };

	model_need(m, cut, m->nops, BATCH, par.n, &right);
	act[0] = inputs(c, nx); act[1] = bytes(right.x); act[2] = bytes(ny * sizeof(real));
	d[0] = bytes(nx * sizeof(real)); d[1] = bytes(right.x); d[2] = noise(3, 1, ny);
	for (int p = 0; p < 2; p++) {
		model_need(m, a[p], a[p + 1], BATCH, par.n, &need);
		assert_int_equal(p ? need.x : need.y, right.x);
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
		model_backward(&par, m, a[p], a[p + 1], &call, act[p], d[p + 1], c->ids && !p ? NULL : d[p], grad[0]);
		free(work);
		free(saved[p]);
	}
	model_need(m, 0, m->nops, BATCH, par.n, &need);
	call.saved = bytes(need.saved);
	call.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	call.buffer = stats[1];
	model_forward(&par, m, 0, m->nops, &call, act[0], whole_y);
	model_backward(&par, m, 0, m->nops, &call, act[0], d[2], c->ids ? NULL : whole_dx, grad[1]);
	assert_memory_equal(whole_y, act[2], ny * sizeof(real));
	if (!c->ids)
		assert_memory_equal(whole_dx, d[0], nx * sizeof(real));
	/* Parts of a shared tensor's gradient that lie in two pieces add up in another order. */
	for (size_t i = 0; i < m->nparam; i++)
		if (model_closed(m, 0, cut) ? grad[0][i] != grad[1][i] : !(fabs(grad[0][i] - grad[1][i]) < 1e-12))
			fail_msg("%s: cut at %d: dparam[%zu] is %.17g, not %.17g", c->what, cut, i, grad[0][i], grad[1][i]);
	assert_memory_equal(stats[0], stats[1], m->nbuffer * sizeof(real));
	memcpy(grad[0], grad[1], m->nparam * sizeof(real));
	memset(grad[1], 0, m->nparam * sizeof(real));   /* dx not wanted: the same parameter gradients */
	model_backward(&par, m, 0, m->nops, &call, act[0], d[2], NULL, grad[1]);
	assert_memory_equal(grad[0], grad[1], m->nparam * sizeof(real));
	free(call.saved); free(call.work); free(param); free(whole_y); free(whole_dx); free(grad[0]); free(grad[1]);
	free(stats[0]); free(stats[1]);
	for (int i = 0; i < 3; i++) {
		free(act[i]);
		free(d[i]);
	}
	model_free(m);
}

static void pieces_equal_the_whole(void **state)
{
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		int waits = 0;
		struct model *m = build(&cases[c], &waits);
		int n = m->nops;

		model_free(m);
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
