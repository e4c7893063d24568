/* What transformers and perceptrons spend their time in, in single precision on every instruction set: attention by
 * blocks and linear layers of few rows against sums in double, GELU's stated errors, and teams that change nothing. */
#include "kernels_util.h"
#include <math.h>
#include "kernels/gemm.h"
#include "kernels/gemm_tile.h"
#include "skip.h"

struct bed {
	struct model *m;
	size_t batch, nin;
	struct model_need need;
	real *param, *x, *y, *dy, *dx, *grad;
	void *saved, *work;
};

static void bed_open(struct bed *b, struct shape in, const char *text, size_t batch)
{
	struct kerr e;

	*b = (struct bed){ .m = model_text(in, text, NULL, &e), .batch = batch };
	if (!b->m)
		fail_msg("%s", e.text);
	model_need(b->m, 0, b->m->nops, batch, 4, &b->need);
	b->nin = b->need.x / sizeof(real);
	b->param = noise(1, 0.3, b->m->nparam);
	b->x = noise(2, 1, b->nin);
	b->y = bytes(b->need.y);
	b->dy = noise(3, 1, b->need.y / sizeof(real));
	b->dx = bytes(b->need.x);
	b->grad = bytes((b->m->nparam + 1) * sizeof(real));
	b->saved = bytes(b->need.saved);
	b->work = bytes(b->need.work_fwd > b->need.work_bwd ? b->need.work_fwd : b->need.work_bwd);
}

static void bed_run(struct bed *b, const struct par *par)
{
	struct model_call c = { .batch = b->batch, .param = b->param, .saved = b->saved, .work = b->work, .train = true,
		.key = 5 };

	memset(b->grad, 0, b->m->nparam * sizeof(real));
	model_forward(par, b->m, 0, b->m->nops, &c, b->x, b->y);
	model_backward(par, b->m, 0, b->m->nops, &c, b->x, b->dy, b->dx, b->grad);
}

static void bed_close(struct bed *b)
{
	model_free(b->m);
	free(b->param); free(b->x); free(b->y); free(b->dy); free(b->dx); free(b->grad); free(b->saved); free(b->work);
}

struct results { real *y, *dx, *grad; };

static struct results keep(const struct bed *b)
{
	struct results r = { reals(b->need.y / sizeof(real)), reals(b->nin), reals(b->m->nparam + 1) };

	memcpy(r.y, b->y, b->need.y);
	memcpy(r.dx, b->dx, b->need.x);
	memcpy(r.grad, b->grad, b->m->nparam * sizeof(real));
	return r;
}

static void drop(struct results *r)
{
	free(r->y);
	free(r->dx);
	free(r->grad);
}

static void near(const char *what, const char *text, const real *got, const real *want, size_t n, double tolerance)
{
	double most = 1e-30, worst = 0;

	for (size_t i = 0; i < n; i++)
		most = fabs((double)want[i]) > most ? fabs((double)want[i]) : most;
	for (size_t i = 0; i < n; i++) {
		double far = fabs((double)got[i] - (double)want[i]) / most;

		worst = far > worst || isnan(far) ? far : worst;
	}
	if (!(worst < tolerance))
		fail_msg("%s: %s differs from the plain sums by %.2g of its largest value", text, what, worst);
}

/* With OpenBLAS and the best instruction set against the plain reference; teams of two and three against one. exact: no
 * product of OpenBLAS, whose bits depend on how it is sliced, is in y or dx. */
static void agrees(struct shape in, const char *text, size_t batch, bool exact)
{
	struct blas *blas = blas_open(NULL);
	struct par plain = par_serial(CPU_PLAIN, NULL), fast;
	struct results want, one;
	struct bed b;
	enum cpu cpu;

	if (!blas)
		skip_because("no OpenBLAS here");
	cpu_pick(NULL, &cpu, NULL);
	fast = par_serial(cpu, blas);
	bed_open(&b, in, text, batch);
	bed_run(&b, &plain);
	want = keep(&b);
	bed_run(&b, &fast);
	one = keep(&b);
	near("y", text, one.y, want.y, b.need.y / sizeof(real), 2e-6);
	near("dx", text, one.dx, want.dx, b.nin, 5e-6);
	near("dparam", text, one.grad, want.grad, b.m->nparam, 5e-6);
	for (int n = 2; n < 4; n++) {
		struct par many = team(n, cpu, blas);

		bed_run(&b, &many);
		if (exact) {
			assert_memory_equal(b.y, one.y, b.need.y);
			assert_memory_equal(b.dx, one.dx, b.need.x);
		}
		near("y of a team", text, b.y, one.y, b.need.y / sizeof(real), 1e-6);
		near("dx of a team", text, b.dx, one.dx, b.nin, 2e-6);
		near("dparam of a team", text, b.grad, one.grad, b.m->nparam, 2e-6);
	}
	drop(&want);
	drop(&one);
	bed_close(&b);
	blas_close(blas);
}

static bool has_tiles(void)
{
	enum cpu best;

	cpu_pick(NULL, &best, NULL);
	return gemm_tile_has(best);
}

static void attention_of_any_length(void **state)
{
	static const size_t length[] = { 1, 5, 47, 48, 49, 128, 131, 300 };
	struct shape s = { 2, { 0, 3 * 48 } };

	for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
		s.d[0] = length[i];
		agrees(s, "attention heads=2 causal=1", 2, has_tiles());
		agrees(s, "attention heads=3", 1, has_tiles());
	}
	agrees((struct shape){ 2, { 130, 3 * 20 } }, "attention heads=4 causal=1 dropout=0.2", 2, has_tiles());
	/* wider than a block of keys */
	agrees((struct shape){ 2, { 60, 3 * 150 } }, "attention heads=1 causal=1", 1, has_tiles());
}

/* The definition in double: one head of one sample. */
static void attention_is_the_definition(void **state)
{
	enum { T = 150, W = 24 };
	struct blas *blas = blas_open(NULL);
	struct par par;
	struct bed b;
	enum cpu cpu;

	cpu_pick(NULL, &cpu, NULL);
	par = par_serial(cpu, blas);
	bed_open(&b, (struct shape){ 2, { T, 3 * W } }, "attention heads=1 causal=1", 1);
	for (size_t i = 0; i < b.nin; i++)
		b.x[i] *= 4;
	bed_run(&b, &par);
	for (size_t i = 0; i < T; i++) {
		double w[T], most = -1e300, sum = 0;

		for (size_t k = 0; k <= i; k++) {
			w[k] = 0;
			for (size_t j = 0; j < W; j++)
				w[k] += (double)b.x[i * 3 * W + j] * (double)b.x[k * 3 * W + W + j] / sqrt(W);
			most = w[k] > most ? w[k] : most;
		}
		for (size_t k = 0; k <= i; k++)
			sum += w[k] = exp(w[k] - most);
		for (size_t j = 0; j < W; j++) {
			double want = 0;

			for (size_t k = 0; k <= i; k++)
				want += w[k] / sum * (double)b.x[k * 3 * W + 2 * W + j];
			assert_true(fabs((double)b.y[i * W + j] - want) < 2e-5);
		}
	}
	bed_close(&b);
	blas_close(blas);
}

/* Many rows go by tiles where that was measured to be as fast. */
static bool many_rows_exact(void)
{
	enum cpu best;

	cpu_pick(NULL, &best, NULL);
	return best == CPU_AVX2 && gemm_tile_has(best);
}

static void linear_of_few_and_many_rows(void **state)
{
	static const size_t batch[] = { 1, 5, 16, 64, 96, 97 };

	for (size_t i = 0; i < sizeof batch / sizeof *batch; i++) {
		bool exact = has_tiles() && batch[i] > 4 && batch[i] < 97;

		agrees((struct shape){ 1, { 130 } }, "linear out=70", batch[i], exact);
		agrees((struct shape){ 1, { 512 } }, "linear out=1040 transposed=1", batch[i], exact);
		agrees((struct shape){ 1, { 784 } }, "linear out=33 bias=0", batch[i], exact);
	}
	agrees((struct shape){ 2, { 260, 50 } }, "linear out=70 transposed=1; linear out=1000", 2, many_rows_exact());
	agrees((struct shape){ 2, { 40, 64 } }, "linear out=100; gelu; linear out=48 transposed=1; layernorm", 2,
		has_tiles());
}

static void norms_and_curves_by_teams(void **state)
{
	agrees((struct shape){ 2, { 70, 100 } }, "layernorm; gelu tanh=1; rmsnorm; gelu; silu", 9, true);
}

static void gelu_error(const struct par *par, bool wave)
{
	enum { POINTS = 100001 };
	struct bed b;

	bed_open(&b, (struct shape){ 1, { POINTS } }, wave ? "gelu tanh=1" : "gelu", 1);
	for (size_t i = 0; i < POINTS; i++) {
		b.x[i] = (real)(-12 + 24.0 * (double)i / POINTS);
		b.dy[i] = 1;
	}
	bed_run(&b, par);
	for (size_t i = 0; i < POINTS; i++) {
		double x = (double)b.x[i], a = sqrt(2 / M_PI), h = tanh(a * (x + 0.044715 * x * x * x)), y, dx;

		y = wave ? 0.5 * x * (1 + h) : 0.5 * x * erfc(-x / sqrt(2));
		dx = wave ? 0.5 * (1 + h) + 0.5 * x * (1 - h * h) * a * (1 + 3 * 0.044715 * x * x) :
			0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
		if (!(fabs((double)b.y[i] - y) < 4e-7 * fmax(1, fabs(x))) || !(fabs((double)b.dx[i] - dx) < 4e-7))
			fail_msg("gelu tanh=%d at %g: %.9g and slope %.9g, not %.9g and %.9g", wave, x, (double)b.y[i],
				(double)b.dx[i], y, dx);
	}
	bed_close(&b);
}

static void gelu_is_as_exact_as_it_says(void **state)
{
	enum cpu best;

	cpu_pick(NULL, &best, NULL);
	for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++) {
		struct par par = par_serial(cpu, NULL);

		gelu_error(&par, false);
		gelu_error(&par, true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attention_of_any_length),
		cmocka_unit_test(attention_is_the_definition),
		cmocka_unit_test(linear_of_few_and_many_rows),
		cmocka_unit_test(norms_and_curves_by_teams),
		cmocka_unit_test(gelu_is_as_exact_as_it_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
