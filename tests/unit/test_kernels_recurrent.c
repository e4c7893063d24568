/* Recurrent layers (row A08): through 64 steps and back as PyTorch; what is kept grows in a line with the steps; the
 * same bits for any team and processor; the last state alone is the last of all; what comes later changes nothing
 * before it; sizes, costs and initial weights. Run in single and in double precision. */
#include "kernels_util.h"
#include <math.h>
#include "kernels/cost.h"
#include "kernels/gemm.h"
#include "recurrent_golden.h"
#include "skip.h"

#define DOUBLE (sizeof(real) == sizeof(double))
/* Of a tensor's largest element: the table has twelve digits; 64 steps in single precision leave PyTorch 3e-7 off. In
 * double precision each element is also to 1e-6 of itself what it should be. */
#define CLOSE (DOUBLE ? 1e-11 : 1e-6)

static const char *const kinds[] = { "lstm", "lstm last=1", "lstm bias=0", "rnn",
	"rnn relu=1 last=1", "rnn bias=0 relu=1" };
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct model *net(const char *kind, size_t steps, size_t in, size_t hidden)
{
	char text[80];
	struct kerr e;
	struct model *m;

	(void)snprintf(text, sizeof text, "%s out=%zu", kind, hidden);
	m = model_text((struct shape){ 2, { steps, in } }, text, NULL, &e);
	if (!m)
		fail_msg("%s: %s", text, e.text);
	return m;
}

static void compare(const char *what, const char *which, size_t n, const real *got, const double **want)
{
	double most = 0;

	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs((*want)[i]));
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - (*want)[i]) <= CLOSE * most) ||
		    (DOUBLE && !(fabs((double)got[i] - (*want)[i]) <= 1e-6 * fabs((*want)[i]))))
			fail_msg("%s: %s[%zu] is %.12g, PyTorch has %.12g, the largest is %.3g", what, which, i, (double)got[i],
				(*want)[i], most);
	*want += n;
}

/* Element i of tensor k, as tests/data/make-golden-recurrent.py fills them. */
static double golden_noise(double i, double k)
{
	double u = sin(12.9898 * i + k) * 43758.5453;

	return 2 * (u - floor(u)) - 1;
}

static real *golden_reals(size_t n, double k, double factor)
{
	real *v = reals(n);

	for (size_t i = 0; i < n; i++)
		v[i] = (real)(float)(factor * golden_noise((double)i, k));
	return v;
}

static void steps_as_pytorch(void **state)
{
	struct par par = team(3, CPU_PLAIN, NULL);

	cpu_pick(NULL, &par.cpu, NULL);
	for (size_t r = 0; r < sizeof recurrent / sizeof *recurrent; r++) {
		const char *text = recurrent[r].text;
		const double *want = recurrent[r].want;
		struct model *m = net(text, GOLDEN_STEPS, GOLDEN_IN, GOLDEN_HIDDEN);
		size_t nx = GOLDEN_BATCH * shape_count(&m->in), ny = GOLDEN_BATCH * shape_count(&m->out);
		real *param = reals(m->nparam), *x = golden_reals(nx, 20.5, 1), *dy = golden_reals(ny, 40.5, 1);
		struct model_pass p;

		for (int k = 0; k < m->nparams; k++) {
			real *v = golden_reals(m->param[k].count, k, recurrent[r].factor / sqrt(GOLDEN_HIDDEN));

			for (size_t i = 0; i < m->param[k].count; i++)
				param[m->param[k].offset + i] = k >= 1 && strstr(text, "relu") ? (real)fabs((double)v[i]) : v[i];
			free(v);
		}
		p = model_pass(&par, m, GOLDEN_BATCH, x, dy, param, true);
		assert_int_equal(recurrent[r].n, ny + nx + m->nparam);
		compare(text, "y", ny, p.y, &want);
		compare(text, "dx", nx, p.dx, &want);
		for (int k = 0; k < m->nparams; k++)
			compare(text, m->param[k].name, m->param[k].count, p.grad + m->param[k].offset, &want);
		model_pass_free(&p);
		free(param); free(x); free(dy);
		model_free(m);
	}
}

/* Bytes kept from forward to backward by a layer whose output somebody reads. */
static size_t kept(const char *kind, size_t batch, size_t steps, size_t hidden)
{
	struct model *m = net(kind, steps, 24, hidden);
	struct model_need need;

	model_need(m, 0, m->nops, batch, 1, &need);
	model_free(m);
	return need.saved;
}

/* Plain backpropagation through time: four gates, the cell and the state of an LSTM, the state of an RNN, of every step
 * and nothing else; whoever wants less recomputes. */
static void memory_grows_in_a_line(void **state)
{
	enum { BATCH = 4, HIDDEN = 32, POINTS = 16 };
	static const struct { const char *kind; size_t values, rest; } row[] = { { "lstm", 6, 0 },
		{ "lstm last=1", 6, 1 }, { "rnn", 1, 0 }, { "rnn last=1", 1, 1 } };

	for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
		double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0, slope, r2;
		size_t state_bytes = BATCH * HIDDEN * sizeof(real);

		for (size_t i = 1; i <= POINTS; i++) {
			size_t steps = 8 * i, bytes = kept(row[r].kind, BATCH, steps, HIDDEN);
			double x = (double)steps, y = (double)bytes;

			assert_int_equal(bytes, (steps * row[r].values + row[r].rest) * state_bytes);
			sx += x; sy += y; sxx += x * x; sxy += x * y; syy += y * y;
		}
		slope = (POINTS * sxy - sx * sy) / (POINTS * sxx - sx * sx);
		r2 = slope * (POINTS * sxy - sx * sy) / (POINTS * syy - sy * sy);
		if (!(r2 > 0.99) || !(fabs(slope - (double)(row[r].values * state_bytes)) < 1e-6))
			fail_msg("%s: %.9g bytes a step, not %zu; r2 %.9g", row[r].kind, slope, row[r].values * state_bytes, r2);
	}
}

/* What is said to be kept is what is written, to the last byte and not beyond. */
static void memory_is_as_planned(void **state)
{
	struct par par = team(2, CPU_PLAIN, NULL);

	for (int k = 0; k < KINDS; k++) {
		enum { BATCH = 4, STEPS = 5, IN = 3, HIDDEN = 16 };
		struct model *m = net(kinds[k], STEPS, IN, HIDDEN);
		real *x = noise(1, 1, BATCH * STEPS * IN), *param = noise(2, 1, m->nparam), *y = reals(BATCH * STEPS * HIDDEN);
		struct model_call c = { .batch = BATCH, .param = param, .train = true };
		struct model_need need;
		unsigned char *saved;

		model_need(m, 0, 1, BATCH, 2, &need);
		saved = bytes(need.saved);
		c.saved = memset(saved, 0xa5, need.saved);
		c.work = bytes(need.work_fwd);
		model_forward(&par, m, 0, 1, &c, x, y);
		for (size_t i = 0; i < need.saved; i += sizeof(real))
			if (!memcmp(saved + i, (const unsigned char[]){ 0xa5, 0xa5, 0xa5, 0xa5 }, 4))
				fail_msg("%s: byte %zu of %zu is kept for nothing", kinds[k], i, need.saved);
		free(saved); free(c.work); free(x); free(param); free(y);
		model_free(m);
	}
}

static void same(const char *kind, const struct par *par, const struct model *m, const struct model_pass *a,
	const struct model_pass *b, size_t batch)
{
	if (memcmp(a->y, b->y, batch * shape_count(&m->out) * sizeof(real)) ||
	    memcmp(a->dx, b->dx, batch * shape_count(&m->in) * sizeof(real)) ||
	    memcmp(a->grad, b->grad, m->nparam * sizeof(real)))
		fail_msg("%s: other bits with %d workers, %s", kind, par->n, cpu_name(par->cpu));
}

/* Batches that are cut within rows of values, and some that are worth a thread. */
static void teams_and_cpus_change_nothing(void **state)
{
	static const struct { size_t batch, steps, in, hidden; } size[] = { { 3, 4, 5, 37 }, { 33, 3, 20, 260 } };
	enum cpu best;

	cpu_pick(NULL, &best, NULL);
	for (int k = 0; k < KINDS; k++)
		for (int s = 0; s < 2; s++) {
			size_t batch = size[s].batch;
			struct model *m = net(kinds[k], size[s].steps, size[s].in, size[s].hidden);
			real *x = noise(1, 1, batch * shape_count(&m->in)), *dy = noise(2, 1, batch * shape_count(&m->out));
			real *param = noise(3, 0.2, m->nparam);
			struct par one = par_serial(CPU_PLAIN, NULL);
			struct model_pass want = model_pass(&one, m, batch, x, dy, param, true);

			for (int n = 1; n <= 5; n += 2)
				for (int cpu = CPU_PLAIN; cpu <= (int)best; cpu++) {
					struct par par = team(n, (enum cpu)cpu, NULL);
					struct model_pass got = model_pass(&par, m, batch, x, dy, param, true);

					same(kinds[k], &par, m, &want, &got, batch);
					model_pass_free(&got);
				}
			model_pass_free(&want);
			free(x); free(dy); free(param);
			model_free(m);
		}
}

/* A sample is what it is alone: in any batch the same, as near as products of another shape are. */
static void near(const char *kind, const char *which, size_t n, const real *got, const real *want)
{
	double most = 0;

	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs((double)want[i]));
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - (double)want[i]) <= (DOUBLE ? 1e-12 : 2e-5) * most))
			fail_msg("%s: %s[%zu] is %.9g, not %.9g", kind, which, i, (double)got[i], (double)want[i]);
}

/* With OpenBLAS and tiles (batches of 5 to 96) as by the reference. */
static void products_of_every_kind_agree(void **state)
{
	struct kerr e;
	struct blas *blas = blas_open(&e);
	struct par one = par_serial(CPU_PLAIN, NULL), fast = team(3, CPU_PLAIN, blas);

	if (!blas)
		skip_because("no OpenBLAS here");
	cpu_pick(NULL, &fast.cpu, NULL);
	for (int k = 0; k < KINDS; k++)
		for (size_t batch = 2; batch <= 128; batch *= 4) {
			struct model *m = net(kinds[k], 7, 20, batch == 32 ? 272 : 80);  /* long sums go by turned tiles */
			real *x = noise(1, 1, batch * shape_count(&m->in)), *dy = noise(2, 1, batch * shape_count(&m->out));
			real *param = noise(3, 0.2, m->nparam);
			struct model_pass a = model_pass(&one, m, batch, x, dy, param, false);
			struct model_pass b = model_pass(&fast, m, batch, x, dy, param, false);

			near(kinds[k], "y", batch * shape_count(&m->out), b.y, a.y);
			near(kinds[k], "dx", batch * shape_count(&m->in), b.dx, a.dx);
			near(kinds[k], "gradient", m->nparam, b.grad, a.grad);
			model_pass_free(&a);
			model_pass_free(&b);
			free(x); free(dy); free(param);
			model_free(m);
		}
	blas_close(blas);
}

/* `last` is the last row of all, and its gradient that of a loss which reads no other. */
static void the_last_is_the_last_of_all(void **state)
{
	enum { BATCH = 3, STEPS = 9, IN = 4, HIDDEN = 17 };
	static const char *const pair[][2] = { { "lstm", "lstm last=1" },
		{ "rnn", "rnn last=1" }, { "rnn relu=1", "rnn relu=1 last=1" } };
	struct par par = team(2, CPU_PLAIN, NULL);

	for (size_t k = 0; k < sizeof pair / sizeof *pair; k++) {
		struct model *m = net(pair[k][0], STEPS, IN, HIDDEN), *l = net(pair[k][1], STEPS, IN, HIDDEN);
		real *x = noise(1, 1, BATCH * STEPS * IN), *param = noise(2, 0.5, m->nparam), *d = noise(3, 1, BATCH * HIDDEN);
		real *dy = calloc(BATCH * STEPS * HIDDEN, sizeof(real));
		struct model_pass a, b;

		for (size_t i = 0; i < BATCH; i++)
			memcpy(dy + ((i + 1) * STEPS - 1) * HIDDEN, d + i * HIDDEN, HIDDEN * sizeof(real));
		a = model_pass(&par, m, BATCH, x, dy, param, true);
		b = model_pass(&par, l, BATCH, x, d, param, true);
		for (size_t i = 0; i < BATCH; i++)
			assert_memory_equal(a.y + ((i + 1) * STEPS - 1) * HIDDEN, b.y + i * HIDDEN, HIDDEN * sizeof(real));
		assert_memory_equal(a.dx, b.dx, BATCH * STEPS * IN * sizeof(real));
		assert_memory_equal(a.grad, b.grad, m->nparam * sizeof(real));
		model_pass_free(&a);
		model_pass_free(&b);
		free(x); free(param); free(d); free(dy);
		model_free(m);
		model_free(l);
	}
}

/* A step depends on none after it, to the bit; no gradient flows to what comes later. */
static void nothing_later_is_seen(void **state)
{
	enum { BATCH = 2, STEPS = 12, IN = 3, HIDDEN = 8, SEEN = 7 };
	struct par par = team(2, CPU_PLAIN, NULL);

	for (int k = 0; k < KINDS; k++) {
		struct model *m = net(kinds[k], STEPS, IN, HIDDEN);
		real *x = noise(1, 1, BATCH * STEPS * IN), *param = noise(2, 1, m->nparam);
		real *dy = noise(3, 1, BATCH * STEPS * HIDDEN);
		struct model_pass a, b;

		if (m->out.nd == 1) {
			free(x); free(param); free(dy);
			model_free(m);
			continue;
		}
		for (size_t s = 0; s < BATCH; s++)
			memset(dy + (s * STEPS + SEEN) * HIDDEN, 0, (STEPS - SEEN) * HIDDEN * sizeof(real));
		a = model_pass(&par, m, BATCH, x, dy, param, true);
		for (size_t s = 0; s < BATCH; s++)
			for (size_t i = SEEN * IN; i < STEPS * IN; i++)
				x[s * STEPS * IN + i] += 1;
		b = model_pass(&par, m, BATCH, x, dy, param, true);
		for (size_t s = 0; s < BATCH; s++) {
			assert_memory_equal(a.y + s * STEPS * HIDDEN, b.y + s * STEPS * HIDDEN, SEEN * HIDDEN * sizeof(real));
			assert_memory_not_equal(a.y + (s * STEPS + SEEN) * HIDDEN, b.y + (s * STEPS + SEEN) * HIDDEN,
				HIDDEN * sizeof(real));
			for (size_t i = SEEN * IN; i < STEPS * IN; i++)
				assert_true(a.dx[s * STEPS * IN + i] == 0);
		}
		model_pass_free(&a);
		model_pass_free(&b);
		free(x); free(param); free(dy);
		model_free(m);
	}
}

/* Counted from the shapes and while it runs; products with the state stay where no gradient of the input is made. */
static void costs_are_counted(void **state)
{
	enum { BATCH = 2, T = 6, IN = 5, H = 7 };
	struct par par = par_serial(CPU_PLAIN, NULL);

	for (int k = 0; k < KINDS; k++) {
		struct model *m = net(kinds[k], T, IN, H);
		size_t gates = kinds[k][0] == 'l' ? 4 : 1;
		real *x = noise(1, 1, BATCH * T * IN), *param = noise(2, 1, m->nparam), *dy = noise(3, 1, BATCH * T * H);
		real *y = reals(BATCH * T * H), *grad = reals(m->nparam);
		struct cost seen = { 0 }, said = cost_of(m, 0, 1, BATCH, true, false);
		struct model_call c = { .batch = BATCH, .param = param, .train = true, .fresh = true };
		struct model_need need;

		assert_int_equal(model_macs(m, 0, 1), gates * T * H * (IN + H));
		assert_int_equal(said.macs, BATCH * gates * T * H * (IN + 2 * H));
		said.macs += BATCH * gates * T * H * (IN + H);
		assert_int_equal(cost_of(m, 0, 1, BATCH, true, true).macs, 2 * BATCH * model_macs(m, 0, 1));
		model_need(m, 0, 1, BATCH, 1, &need);
		c.saved = bytes(need.saved);
		c.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
		c.count = &seen;
		model_forward(&par, m, 0, 1, &c, x, y);
		model_backward(&par, m, 0, 1, &c, x, dy, NULL, grad);
		assert_int_equal(seen.macs, said.macs);
		free(x); free(param); free(dy); free(y); free(grad); free(c.saved); free(c.work);
		model_free(m);
	}
}

/* torch.nn.LSTM: everything uniform within 1 / sqrt(hidden), biases too; names and shapes as there. */
static void weights_begin_as_in_torch(void **state)
{
	static const char *const name[] = { "0.weight_ih_l0", "0.weight_hh_l0", "0.bias_ih_l0", "0.bias_hh_l0" };
	struct model *m = net("lstm", 5, 30, 100);
	real *param = reals(m->nparam);

	assert_int_equal(m->nparams, 4);
	assert_int_equal(m->nparam, 400 * 30 + 400 * 100 + 800);
	model_init(m, 1, param);
	for (int k = 0; k < 4; k++) {
		double most = 0, square = 0;

		assert_string_equal(m->param[k].name, name[k]);
		assert_int_equal(m->param[k].shape.d[0], 400);
		for (size_t i = 0; i < m->param[k].count; i++) {
			double v = (double)param[m->param[k].offset + i];

			most = fmax(most, fabs(v));
			square += v * v / (double)m->param[k].count;
		}
		assert_true(most < 0.10001 && most > 0.098);
		assert_true(fabs(sqrt(square) - 0.1 / sqrt(3)) < 0.004);
	}
	free(param);
	model_free(m);
}

static void what_does_not_fit_is_named(void **state)
{
	struct kerr e;

	assert_null(model_text((struct shape){ 1, { 8 } }, "lstm out=4", NULL, &e));
	assert_non_null(strstr(e.text, "lstm needs rows [steps, features], not an input of shape [8]"));
	assert_non_null(strstr(e.text, "embedding"));
	assert_null(model_text((struct shape){ 3, { 1, 8, 8 } }, "rnn out=4", NULL, &e));
	assert_non_null(strstr(e.text, "rnn needs rows [steps, features], not an input of shape [1, 8, 8]"));
	assert_null(model_text((struct shape){ 2, { 131072, 8 } }, "lstm out=4096 last=1", NULL, &e));
	assert_non_null(strstr(e.text, "lstm: 131072 steps of 16384 sums each are more than 2147483647"));
	assert_null(model_text((struct shape){ 2, { 8, 8 } }, "rnn", NULL, &e));
	assert_non_null(strstr(e.text, "out"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_as_pytorch),
		cmocka_unit_test(memory_grows_in_a_line),
		cmocka_unit_test(memory_is_as_planned),
		cmocka_unit_test(teams_and_cpus_change_nothing),
		cmocka_unit_test(products_of_every_kind_agree),
		cmocka_unit_test(the_last_is_the_last_of_all),
		cmocka_unit_test(nothing_later_is_seen),
		cmocka_unit_test(costs_are_counted),
		cmocka_unit_test(weights_begin_as_in_torch),
		cmocka_unit_test(what_does_not_fit_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
