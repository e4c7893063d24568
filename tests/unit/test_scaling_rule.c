/* The linear learning-rate scaling rule (row B04; Goyal et al., arXiv:1706.02677, section 2.1) in double: one
 * step with k times the rate on k small batches at once against k small steps. Their difference is of second order in
 * the rate. */
#include "t.h"
#include <math.h>
#include "kernels/gemm.h"
#include "kernels/optim.h"

#define FEATURES 6
#define SMALL 16
#define K 8

static _Alignas(64) real x[K * SMALL * FEATURES], y[K * SMALL];

/* w = w - rate * gradient of the mean logistic loss over n samples from `first` on; by the layers, loss and optimizer
 * that a run uses. */
static void step(const struct model *m, real *w, size_t first, size_t n, double rate)
{
	static _Alignas(64) char saved[1 << 16], work[1 << 16];
	static real out[K * SMALL], dout[K * SMALL];
	const struct par par = par_serial(CPU_PLAIN, NULL);
	const struct model_call c = { .batch = n, .param = w, .saved = saved, .work = work, .train = true };
	const struct loss_ops *loss = loss_find("bce_with_logits");
	const struct optim_ops *sgd = optim_find("sgd");
	double hyper[OPTIM_KEYS_MAX];
	struct optim_clock clock;
	struct model_need need;
	real g[FEATURES + 1] = { 0 };

	model_need(m, 0, m->nops, n, 1, &need);
	assert_true(need.saved <= sizeof(saved) && need.work_fwd <= sizeof(work) && need.work_bwd <= sizeof(work));
	model_forward(&par, m, 0, m->nops, &c, x + first * FEATURES, out);
	(void)loss_run(&par, loss, n, 1, out, y + first, 1.0 / (double)n, dout, NULL);
	model_backward(&par, m, 0, m->nops, &c, x + first * FEATURES, dout, NULL, g);
	optim_defaults(sgd, hyper);
	hyper[0] = rate;
	optim_clock_init(&clock);
	optim_tick(sgd, hyper, &clock);
	optim_step(&(struct optim_call){ .par = &par, .ops = sgd, .hyper = hyper, .clock = &clock,
		.state = (real *[OPTIM_STATES_MAX]){ NULL }, .param = w, .grad = g, .tensor = m->param,
			.ntensors = m->nparams });
}

static double difference(const struct model *m, double rate)
{
	real many[FEATURES + 1], one[FEATURES + 1];
	double sum = 0;

	model_init(m, 3, many);
	model_init(m, 3, one);
	for (int i = 0; i < K; i++)
		step(m, many, (size_t)i * SMALL, SMALL, rate);
	step(m, one, 0, K * SMALL, K * rate);
	for (int i = 0; i <= FEATURES; i++)
		sum += (many[i] - one[i]) * (many[i] - one[i]);
	return sqrt(sum);
}

static void test_second_order(void **state)
{
	const struct shape in = { .nd = 1, .d = { FEATURES } };
	const char *const attr[] = { "out" };
	const double one = 1;
	const struct layer_desc desc = { .type = "linear", .nattrs = 1, .attr = attr, .value = &one };
	struct kerr e;
	struct model *m = model_new(&in, &desc, 1, NULL, &e);
	double last = 0;

	assert_non_null(m);
	for (size_t i = 0; i < K * SMALL; i++) {
		double side = 0;

		for (int j = 0; j < FEATURES; j++) {
			rand_normal(rand_key(11, i * FEATURES + (size_t)j), 1, 1, &x[i * FEATURES + (size_t)j]);
			side += x[i * FEATURES + (size_t)j] * (j - 2);
		}
		y[i] = side > 0;
	}
	for (double rate = 1e-2; rate > 1e-5; rate /= 4) {
		double d = difference(m, rate);

		assert_true(d > 0);
		if (last > 0) {
			double slope = log(last / d) / log(4);

			if (!(slope >= 1.9 && slope <= 2.1))
				fail_msg("rate %g: slope %.4f", rate, slope);
		}
		last = d;
	}
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_second_order) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
