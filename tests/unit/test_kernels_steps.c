/* Two hundred steps of every optimizer that torch.optim has, on a quadratic and on a small network whose gradients we
 * compute ourselves, against PyTorch in float64 (tests/data/make-golden-optim.py): to 1e-6 of the largest parameter in
 * single precision, to 1e-12 in double (the same file built as test_kernels_steps64). */
#include "kernels_util.h"
#include <math.h>
#include "ckpt/ckpt.h"
#include "kernels/optim.h"

#ifdef REAL_DOUBLE
#define CLOSE 1e-12
#else
#define CLOSE 1e-6
#endif

enum { FLAT = 40, NET = 5 * 6 + 5 + 3 * 5 + 3, SAMPLES = 8, KEPT = 3 };
static const int kept[KEPT] = { 10, 100, 200 };

/* The table of make-golden-optim.py, in its order. (A centered RMSProp that has forgotten its start subtracts numbers
 * that are nearly equal, so that every last bit shows: it keeps the long memory of the default.) */
static const struct row { const char *optim, *hyper; } table[] = {
	{ "sgd", "lr=0.05" },
	{ "sgd", "lr=0.02 momentum=0.9 weight_decay=0.01" },
	{ "sgd", "lr=0.02 momentum=0.9 nesterov=1" },
	{ "rmsprop", "lr=0.001 weight_decay=0.01" },
	{ "rmsprop", "lr=0.001 momentum=0.5 centered=1" },
	{ "adam", "lr=0.002" },
	{ "adam", "lr=0.002 beta1=0.8 beta2=0.95 eps=1e-6 weight_decay=0.05" },
	{ "adamw", "lr=0.002 weight_decay=0.1" },
	{ "adagrad", "lr=0.05" },
	{ "adagrad", "lr=0.05 lr_decay=0.01 weight_decay=0.01 initial_accumulator_value=0.5" },
};

struct golden { unsigned char *p; struct ckpt_head h; };

static struct golden golden_open(void)
{
	struct golden g;
	struct err e;
	FILE *in = fopen(SOURCE_ROOT "/tests/data/models/optim.safetensors", "rb");
	long n;

	assert_non_null(in);
	assert_int_equal(fseek(in, 0, SEEK_END), 0);
	n = ftell(in);
	rewind(in);
	g.p = malloc((size_t)n);
	assert_int_equal(fread(g.p, 1, (size_t)n, in), n);
	fclose(in);
	if (ckpt_head_parse(&g.h, g.p, (size_t)n, (uint64_t)n, &e) < 0)
		fail_msg("%s", e.text);
	return g;
}

static void golden_close(struct golden *g)
{
	ckpt_head_done(&g->h);
	free(g->p);
}

static const double *golden_find(const struct golden *g, size_t row, const char *problem, size_t n)
{
	const struct ckpt_tensor *t;
	char name[64];

	(void)snprintf(name, sizeof name, "%s.%zu.%s", table[row].optim, row, problem);
	t = ckpt_find(&g->h, name);
	if (!t)
		fail_msg("%s is not in optim.safetensors: run make-golden-optim.py again", name);
	assert_int_equal(t->bytes, KEPT * n * sizeof(double));
	return (const double *)(void *)(g->p + g->h.data_at + t->at);
}

static double wave(size_t i, double phase, double scale)
{
	return scale * sin(0.37 * (double)i + phase);
}

static void waves(real *x, size_t n, double phase, double scale)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (real)wave(i, phase, scale);
}

struct run {
	const struct optim_ops *ops;
	double hyper[OPTIM_KEYS_MAX];
	struct optim_clock clock;
	real param[NET], grad[NET], store[OPTIM_STATES_MAX][NET], *state[OPTIM_STATES_MAX];
};

static void run_open(struct run *r, const struct row *row)
{
	char copy[160], *save = NULL;
	struct kerr e;

	memset(r, 0, sizeof *r);
	r->ops = optim_find(row->optim);
	assert_non_null(r->ops);
	optim_defaults(r->ops, r->hyper);
	(void)snprintf(copy, sizeof copy, "%s", row->hyper);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		char *eq = strchr(w, '=');

		*eq = 0;
		if (optim_set(r->ops, r->hyper, w, strtod(eq + 1, NULL), &e) < 0)
			fail_msg("%s", e.text);
	}
	optim_clock_init(&r->clock);
	for (int i = 0; i < r->ops->nstates; i++)
		r->state[i] = optim_uses_state(r->ops, r->hyper, i) ? r->store[i] : NULL;
}

static void step(struct run *r, const struct par *par, const struct model_param *tensor, int n)
{
	struct optim_call c = { .par = par, .ops = r->ops, .hyper = r->hyper, .clock = &r->clock, .state = r->state,
		.param = r->param, .grad = r->grad, .tensor = tensor, .ntensors = n };

	optim_tick(r->ops, r->hyper, &r->clock);
	optim_step(&c);
}

static void compare(const struct run *r, size_t row, const char *problem, int at, const double *want, size_t n)
{
	double most = 0;

	for (size_t i = 0; i < n; i++)
		most = fabs(want[i]) > most ? fabs(want[i]) : most;
	for (size_t i = 0; i < n; i++)
		if (!(fabs((double)r->param[i] - want[i]) <= CLOSE * most))
			fail_msg("%s %s, %s after %d steps: parameter %zu is %.15g, PyTorch's %.15g", table[row].optim,
				table[row].hyper, problem, at, i, (double)r->param[i], want[i]);
}

static void quadratics_follow_pytorch(void **state)
{
	const struct model_param tensor = { .name = "w", .shape = { 2, { FLAT, 1 } }, .count = FLAT };
	struct golden g = golden_open();
	enum cpu cpu;

	cpu_pick(NULL, &cpu, NULL);
	for (size_t row = 0; row < sizeof table / sizeof *table; row++) {
		const double *want = golden_find(&g, row, "quadratic", FLAT);
		struct par par = par_serial(cpu, NULL);
		struct run r;
		int k = 0;

		run_open(&r, &table[row]);
		waves(r.param, FLAT, 0.5, 1);
		for (int s = 1; s <= kept[KEPT - 1]; s++) {
			for (size_t i = 0; i < FLAT; i++)
				r.grad[i] = (real)((wave(i, 1.1, 0.45) + 0.55) * ((double)r.param[i] - wave(i, 2, 1)));
			step(&r, &par, &tensor, 1);
			if (s == kept[k])
				compare(&r, row, "quadratic", s, want + k++ * FLAT, FLAT);
		}
	}
	golden_close(&g);
}

static void networks_follow_pytorch(void **state)
{
	struct golden g = golden_open();
	struct kerr e;
	struct model *m = model_text((struct shape){ 1, { 6 } }, "linear out=5; tanh; linear out=3", NULL, &e);
	struct model_need need;
	struct model_call c = { .batch = SAMPLES, .train = true };
	struct par par;
	real x[SAMPLES * 6], target[SAMPLES * 3], y[SAMPLES * 3], dy[SAMPLES * 3];
	enum cpu cpu;

	assert_int_equal(m->nparam, NET);
	cpu_pick(NULL, &cpu, NULL);
	par = par_serial(cpu, NULL);
	model_need(m, 0, m->nops, SAMPLES, 1, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	waves(x, SAMPLES * 6, 0.7, 1);
	waves(target, SAMPLES * 3, 1.9, 0.8);
	for (size_t row = 0; row < sizeof table / sizeof *table; row++) {
		const double *want = golden_find(&g, row, "mlp", NET);
		struct run r;
		int k = 0;

		run_open(&r, &table[row]);
		waves(r.param, NET, 0.3, 0.5);
		c.param = r.param;
		for (int s = 1; s <= kept[KEPT - 1]; s++) {
			memset(r.grad, 0, sizeof r.grad);
			model_forward(&par, m, 0, m->nops, &c, x, y);
			loss_run(&par, loss_find("mse"), SAMPLES, 3, y, target, 1.0 / SAMPLES, dy, NULL);
			model_backward(&par, m, 0, m->nops, &c, x, dy, NULL, r.grad);
			step(&r, &par, m->param, m->nparams);
			if (s == kept[k])
				compare(&r, row, "mlp", s, want + k++ * NET, NET);
		}
	}
	free(c.saved);
	free(c.work);
	model_free(m);
	golden_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quadratics_follow_pytorch),
		cmocka_unit_test(networks_follow_pytorch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
