/* Layers in float against PyTorch; masks of attention; dropout; running statistics; and the memory of graphs: what the
 * planner says is what is touched (row N02 of the systems). */
#include "kernels_util.h"
#include <math.h>
#include "kernels/arena.h"
#include "kernels_golden_layers.h"

enum { BATCH = 2 };

static real *wave(size_t n, double phase)
{
	real *x = reals(n);

	for (size_t i = 0; i < n; i++)
		x[i] = (real)sin(0.37 * (double)i + phase);
	return x;
}

static void compare(const char *what, const char *which, size_t n, const real *got, const double **want)
{
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - (*want)[i]) <= 2e-5 * (1 + fabs((*want)[i]))))
			fail_msg("%s: %s[%zu] is %.9g, PyTorch has %.9g", what, which, i, (double)got[i], (*want)[i]);
	*want += n;
}

static void pytorch_agrees(void **state)
{
	struct par par = team(3, CPU_PLAIN, NULL);

	cpu_pick(NULL, &par.cpu, NULL);
	for (size_t r = 0; r < sizeof golden_layers / sizeof *golden_layers; r++) {
		const char *text = golden_layers[r].text;
		const double *want = golden_layers[r].want;
		struct kerr e;
		struct model *m = model_text(golden_layers[r].in, text, NULL, &e);
		size_t nx, ny;
		real *param, *x, *y, *dy, *dx, *grad;
		struct model_need need;
		struct model_call c = { .batch = BATCH, .train = true };

		if (!m)
			fail_msg("%s: %s", text, e.text);
		nx = BATCH * shape_count(&m->in);
		ny = BATCH * shape_count(&m->out);
		param = reals(m->nparam);
		for (int i = 0; i < m->nparams; i++) {
			real *v = wave(m->param[i].count, 0.5 + i);

			memcpy(param + m->param[i].offset, v, m->param[i].count * sizeof(real));
			free(v);
		}
		x = wave(nx, 0.2); dy = wave(ny, 0.9); y = reals(ny); dx = reals(nx); grad = calloc(m->nparam + 1,
			sizeof(real));
		model_need(m, 0, m->nops, BATCH, par.n, &need);
		c.param = param; c.buffer = buffers(m); c.saved = bytes(need.saved);
		c.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
		model_forward(&par, m, 0, m->nops, &c, x, y);
		model_backward(&par, m, 0, m->nops, &c, x, dy, dx, grad);
		assert_int_equal(golden_layers[r].n, ny + nx + m->nparam);
		compare(text, "y", ny, y, &want);
		compare(text, "dx", nx, dx, &want);
		compare(text, "dparam", m->nparam, grad, &want);
		free(c.buffer); free(c.saved); free(c.work); free(param); free(x); free(y); free(dy); free(dx); free(grad);
		model_free(m);
	}
}

static void evaluate(const struct model *m, size_t batch, const struct model_call *how, const real *x, real *y)
{
	struct par par = team(2, CPU_PLAIN, NULL);
	struct model_call c = *how;
	struct model_need need;

	model_need(m, 0, m->nops, batch, par.n, &need);
	c.batch = batch;
	c.saved = NULL;
	c.work = bytes(need.work_eval);
	model_forward(&par, m, 0, m->nops, &c, x, y);
	free(c.work);
}

/* Hidden keys are as if they were not there, in blocks and across them; a query without any key gives zeros. */
static void masks_hide_keys(void **state)
{
	enum { T = 300, W = 4, SEEN = 170 };
	struct kerr e;
	/* Row 0 of the input: the mask (its first T values); the others: T rows of queries, keys and values. */
	struct model *m = model_text((struct shape){ 3, { 4, T, W } }, "select index=0 :m3; select index=1 <input :q;"
		"select index=2 <input :k; select index=3 <input :v; flatten <m3 :f; linear out=300 bias=0 <f :mask;"
		"attention heads=2 <q,k,v,mask", NULL, &e);
	struct model *plain = model_text((struct shape){ 3, { 3, T, W } }, "select index=0 :q; select index=1 <input :k;"
		"select index=2 <input :v; attention heads=2 <q,k,v", NULL, &e);
	real *x = noise(1, 1, 4 * T * W), *y = reals(T * W), *w = calloc(T * T * W, sizeof(real)), *z;
	struct model_call c = { .param = w };
	struct shape few = { 2, { SEEN, 3 * W } };
	struct model *cut;
	real *packed = reals(SEEN * 3 * W), *y2 = reals(SEEN * W);

	assert_non_null(m);
	assert_non_null(plain);
	for (size_t i = 0; i < T; i++)          /* the linear layer picks the first T values */
		w[i * T * W + i] = 1;
	for (size_t i = 0; i < T; i++)
		x[i] = i < SEEN;
	evaluate(m, 1, &c, x, y);
	z = x + T * W;
	for (size_t i = 0; i < SEEN; i++)
		for (size_t j = 0; j < 3 * W; j++)
			packed[i * 3 * W + j] = z[j / W * T * W + i * W + j % W];
	cut = model_text(few, "attention heads=2", NULL, &e);
	evaluate(cut, 1, &c, packed, y2);
	for (size_t i = 0; i < SEEN * W; i++)
		assert_true(fabs((double)(y[i] - y2[i])) < 1e-5);
	memset(x, 0, T * sizeof(real));
	evaluate(m, 1, &c, x, y);
	for (size_t i = 0; i < T * W; i++)
		assert_true(y[i] == 0);
	for (size_t i = 0; i < T; i++)
		x[i] = 1;
	evaluate(m, 1, &c, x, y);
	evaluate(plain, 1, &c, z, x);           /* x's first rows are free now */
	for (size_t i = 0; i < T * W; i++)
		assert_true(fabs((double)(y[i] - x[i])) < 1e-6);
	free(x); free(y); free(w); free(packed); free(y2);
	model_free(m); model_free(plain); model_free(cut);
}

/* A causal position depends on none after it, to the bit. */
static void causal_attention_sees_nothing_later(void **state)
{
	enum { T = 140, W = 6 };
	struct kerr e;
	struct model *m = model_text((struct shape){ 2, { T, 3 * W } }, "attention heads=2 causal=1", NULL, &e);
	real *x = noise(1, 1, T * 3 * W), *a = reals(T * W), *b = reals(T * W);
	struct model_call c = { 0 };

	evaluate(m, 1, &c, x, a);
	for (size_t i = 130 * 3 * W; i < T * 3 * W; i++)
		x[i] += 1;
	evaluate(m, 1, &c, x, b);
	assert_memory_equal(a, b, 130 * W * sizeof(real));
	assert_memory_not_equal(a + 130 * W, b + 130 * W, (T - 130) * W * sizeof(real));
	free(x); free(a); free(b);
	model_free(m);
}

static void dropout_is_a_function_of_its_key(void **state)
{
	enum { N = 100000 };
	struct kerr e;
	struct model *m = model_text((struct shape){ 1, { N } }, "dropout p=0.3", NULL, &e);
	real *x = reals(N), *a = reals(N), *b = reals(N);
	struct model_call c = { .train = true, .key = 5 };
	size_t zeros = 0;

	for (size_t i = 0; i < N; i++)
		x[i] = 1;
	evaluate(m, 1, &c, x, a);
	evaluate(m, 1, &c, x, b);
	assert_memory_equal(a, b, N * sizeof(real));
	c.key = 6;
	evaluate(m, 1, &c, x, b);
	assert_memory_not_equal(a, b, N * sizeof(real));
	for (size_t i = 0; i < N; i++) {
		assert_true(a[i] == 0 || a[i] == (real)(1 / 0.7));
		zeros += a[i] == 0;
	}
	assert_true(fabs((double)zeros / N - 0.3) < 0.007);      /* five deviations */
	c.train = false;
	evaluate(m, 1, &c, x, b);
	assert_memory_equal(x, b, N * sizeof(real));
	free(x); free(a); free(b);
	model_free(m);
}

/* Evaluation leaves the running statistics alone, and so does a replay; training moves them by `momentum`. */
static void statistics_move_in_training_only(void **state)
{
	struct kerr e;
	struct model *m = model_text((struct shape){ 1, { 2 } }, "batchnorm momentum=0.5", NULL, &e);
	real x[4] = { 1, 10, 3, 30 }, y[4], param[4] = { 1, 1, 0, 0 }, *b = buffers(m);
	const real fresh[4] = { 0, 0, 1, 1 }, moved[4] = { 1, 10, (real)1.5, (real)100.5 };
	struct model_call c = { .param = param, .buffer = b };

	assert_string_equal(m->buffer[1].name, "0.running_var");
	evaluate(m, 2, &c, x, y);
	assert_memory_equal(b, fresh, sizeof fresh);
	c.train = c.replay = true;
	evaluate(m, 2, &c, x, y);
	assert_memory_equal(b, fresh, sizeof fresh);
	c.replay = false;
	evaluate(m, 2, &c, x, y);
	assert_memory_equal(b, moved, sizeof moved);
	free(b);
	model_free(m);
}

static void a_number_without_a_row_is_seen(void **state)
{
	struct kerr e;
	struct model *m = model_text((struct shape){ 1, { 5 } }, "embedding vocab=3 dim=2", NULL, &e);
	real x[5] = { 0, 2, 3, -1, (real)0.5 }, y[10], *param = noise(1, 1, 6);
	struct model_call c = { .param = param };

	evaluate(m, 1, &c, x, y);
	assert_memory_equal(y, param, 2 * sizeof(real));
	assert_memory_equal(y + 2, param + 4, 2 * sizeof(real));
	for (int i = 4; i < 10; i++)
		assert_true(y[i] != y[i]);
	free(param);
	model_free(m);
}

/* Of rows with three columns the second alone, and the last two; what is not there is named. */
static void select_takes_columns(void **state)
{
	static const struct { const char *text, *words; } wrong[] = { { "select index=0 axis=2", "has axes 0 to 1" },
		{ "select index=3 axis=1", "[2, 3] has no part 3" },
		{ "select index=2 axis=1 count=2", "has 1 parts from 2 on, not 2" } };
	const real column[2] = { 2, 5 }, columns[4] = { 2, 3, 5, 6 };
	const struct shape in = { 2, { 2, 3 } };
	real x[6] = { 1, 2, 3, 4, 5, 6 }, y[4];
	struct kerr e;
	struct model *one = model_text(in, "select index=1 axis=1", NULL, &e);
	struct model *two = model_text(in, "select index=1 axis=1 count=2", NULL, &e);

	assert_true(one && two && one->out.nd == 1 && one->out.d[0] == 2 && two->out.nd == 2 && two->out.d[1] == 2);
	evaluate(one, 1, &(struct model_call){ 0 }, x, y);
	assert_memory_equal(y, column, sizeof column);
	evaluate(two, 1, &(struct model_call){ 0 }, x, y);
	assert_memory_equal(y, columns, sizeof columns);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_null(model_text(in, wrong[i].text, NULL, &e));
		if (!strstr(e.text, wrong[i].words))
			fail_msg("%s: \"%s\" does not say \"%s\"", wrong[i].text, e.text, wrong[i].words);
	}
	model_free(one);
	model_free(two);
}

/* How much of a poisoned area was written. */
static size_t touched(const unsigned char *p, size_t n)
{
	while (n && p[n - 1] == 0xa5)
		n--;
	return n;
}

/* A long residual chain: the areas are used to their last bytes and not beyond, and a chain of any length without
 * saved values needs no more than three live tensors. */
static void memory_is_as_planned(void **state)
{
	enum { N = 64, BLOCKS = 12 };
	char text[2000] = "linear out=64 bias=0";
	struct kerr e;
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct model_need need, one;
	size_t tensor = BATCH * N * sizeof(real);
	real *param, *x = noise(2, 1, BATCH * N), y[BATCH * N], *dx = reals(BATCH * N), *grad;
	struct model_call c = { .batch = BATCH, .train = true };
	struct model *m;

	for (int i = 0; i < BLOCKS; i++)        /* each: x + tanh(linear(x)) */
		(void)snprintf(text + strlen(text), sizeof text - strlen(text), "; linear out=64 bias=0; tanh; add <%d,%d",
			3 * i + 2, 3 * i);
	m = model_text((struct shape){ 1, { N } }, text, NULL, &e);
	assert_non_null(m);
	param = noise(1, 0.1, m->nparam);
	grad = calloc(m->nparam, sizeof(real));
	model_need(m, 0, m->nops, BATCH, 1, &need);
	model_need(m, 0, 1, BATCH, 1, &one);
	assert_int_equal(need.saved, (2 * BLOCKS) * tensor);    /* the sums but the last, and tanh's outputs */
	c.param = param;
	c.saved = aligned_alloc(64, need.saved);
	c.work = aligned_alloc(64, need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	memset(c.saved, 0xa5, need.saved);
	memset(c.work, 0xa5, need.work_fwd);
	model_forward(&par, m, 0, m->nops, &c, x, y);
	assert_int_equal(touched(c.saved, need.saved), need.saved);
	memset(c.work, 0xa5, need.work_bwd);
	model_backward(&par, m, 0, m->nops, &c, x, y, dx, grad);
	assert_int_equal(touched(c.work, need.work_bwd), need.work_bwd);
	c.saved = (free(c.saved), NULL);
	memset(c.work, 0xa5, need.work_eval);
	model_forward(&par, m, 0, m->nops, &c, x, y);
	assert_int_equal(touched(c.work, need.work_eval), need.work_eval);
	assert_true(need.work_eval <= one.work_eval + (m->nops + 1) * 256 + 3 * tensor);
	free(c.work); free(param); free(grad); free(x); free(dx);
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pytorch_agrees),
		cmocka_unit_test(masks_hide_keys),
		cmocka_unit_test(causal_attention_sees_nothing_later),
		cmocka_unit_test(dropout_is_a_function_of_its_key),
		cmocka_unit_test(statistics_move_in_training_only),
		cmocka_unit_test(a_number_without_a_row_is_seen),
		cmocka_unit_test(select_takes_columns),
		cmocka_unit_test(memory_is_as_planned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
