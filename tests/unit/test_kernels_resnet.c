/* One training step of ResNet-18 against PyTorch's float64 (torchvision's resnet18; row A06), at images whose ReLUs are
 * all away from 0: tests/data/make-golden-resnet.py. In double (test_kernels_resnet64) outputs and all 62 gradients
 * agree to 1e-9, and five steps of SGD to 1e-8; in float to 1e-4, whatever convolutions are computed
 * by, and no worse than PyTorch's own float32. */
#include <math.h>
#include "kernels_util.h"
#include "golden.h"
#include "kernels/gemm.h"
#include "kernels/optim.h"
#include "resnet_golden.h"

#ifdef REAL_DOUBLE
#define TOLERANCE 1e-9
#else
#define TOLERANCE 1e-4
#endif

static void put(char *to, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void put(char *to, size_t cap, const char *fmt, ...)
{
	size_t n = strlen(to);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(to + n, cap - n, fmt, ap);
	va_end(ap);
}

static struct model *resnet18(bool small, size_t side)
{
	char t[8000] = "", x[40];
	struct kerr e;
	struct model *m;

	put(t, sizeof(t), small ? "conv2d out=64 kernel=3 padding=1 bias=0 :conv1; batchnorm :bn1; relu :r" :
		"conv2d out=64 kernel=7 stride=2 padding=3 bias=0 :conv1; batchnorm :bn1; relu; maxpool2d kernel=3 stride=2 "
		"padding=1 :r");
	(void)snprintf(x, sizeof(x), "r");
	for (int s = 1; s <= 4; s++)
		for (int b = 0; b < 2; b++) {
			int out = 32 << s, step = s > 1 && b == 0 ? 2 : 1;
			char l[20];

			(void)snprintf(l, sizeof(l), "layer%d.%d", s, b);
			put(t, sizeof(t), "; conv2d out=%d kernel=3 stride=%d padding=1 bias=0 :%s.conv1; batchnorm :%s.bn1; relu; "
				"conv2d out=%d kernel=3 padding=1 bias=0 :%s.conv2; batchnorm :%s.bn2", out, step, l, l, out, l, l);
			if (step == 2)
				put(t, sizeof(t), "; conv2d out=%d kernel=1 stride=2 bias=0 <%s :%s.downsample.0; batchnorm "
					":%s.downsample.1", out, x, l, l);
			put(t, sizeof(t), "; add <%s.bn2,%s%s; relu :%s.r", l, step == 2 ? l : x,
				step == 2 ? ".downsample.1" : "", l);
			(void)snprintf(x, sizeof(x), "%s.r", l);
		}
	put(t, sizeof(t), "; adaptiveavgpool2d out=1; flatten; linear out=10 :fc");
	m = model_text((struct shape){ 3, { 3, side, side } }, t, NULL, &e);
	if (!m)
		fail_msg("%s", e.text);
	return m;
}

/* The k-th of torchvision's parameters, which are the model's in the same order. */
static void fill(const struct model_param *t, int k, real *to)
{
	size_t fan = t->shape.nd > 1 ? t->count / t->shape.d[0] : 1;
	bool vector = t->shape.nd == 1, scale = vector && strstr(t->name, "weight");

	for (size_t i = 0; i < t->count; i++) {
		double v = golden_noise((double)i, k) / sqrt((double)fan);

		to[i] = (real)(float)(scale ? 1 + 0.2 * v : vector ? 0.2 * v : v);
	}
}

/* How a step is computed: tiles as the attribute "winograd" says, by the library of matrix products or without it, the
 * graph op by op (apart) or fused. `most`: the error of gradients, in PyTorch's float32 errors. */
struct way { const char *name; int winograd; bool blas, apart; double most; };

static void compare(const struct model *m, const real *grad, const struct golden_grad *g, size_t n, const struct way *w)
{
	double ours = 0, torch = 0;

	assert_int_equal(m->nparams, n);
	for (int k = 0; k < m->nparams; k++) {
		double off = golden_close(&m->param[k], grad, w->name, g[k].name, g[k].norm, g[k].along, TOLERANCE);

		ours += 2 * off * off;                  /* the direction has norm sqrt(n / 2) */
		torch += g[k].float_off * g[k].float_off;
	}
	if (!(sqrt(ours / torch) <= w->most))
		fail_msg("%s: gradients are %.2f of PyTorch's float32 errors off, at most %.2f", w->name, sqrt(ours / torch),
			w->most);
}

/* A stem, its images, and what PyTorch has. */
struct stem { bool small; size_t side, batch; double phase; const struct golden_grad *g; size_t n; const double *y; };

static const struct stem stems[] = {
	{ false, IMAGENET_SIDE, IMAGENET_BATCH, IMAGENET_PHASE, imagenet, sizeof(imagenet) / sizeof(*imagenet),
		imagenet_y },
	{ true, CIFAR_SIDE, CIFAR_BATCH, CIFAR_PHASE, cifar, sizeof(cifar) / sizeof(*cifar), cifar_y },
};

static void step(const struct stem *s, const struct way *w)
{
	struct model *m = resnet18(s->small, s->side);
	struct blas *blas = w->blas ? blas_open(NULL) : NULL;
	struct par par = par_serial(CPU_PLAIN, blas);
	size_t pixels = s->batch * 3 * s->side * s->side, ny = s->batch * 10;
	real *param = reals(m->nparam), *grad = calloc(m->nparam, sizeof(real)), *buffer = buffers(m);
	real *x = reals(pixels), *y = reals(ny), *dy = reals(ny);
	struct model_call c = { .batch = s->batch, .param = param, .buffer = buffer, .train = true };
	struct model_need need;

	(void)cpu_pick(NULL, &par.cpu, NULL);
	m->apart = w->apart;
	golden_tiles(m, w->winograd);
	for (int k = 0; k < m->nparams; k++)
		fill(&m->param[k], k, param + m->param[k].offset);
	for (size_t i = 0; i < pixels; i++)
		x[i] = (real)(float)golden_noise((double)i, s->phase);
	for (size_t i = 0; i < ny; i++)
		dy[i] = (real)(float)sin(0.37 * (double)i + 0.9);
	model_need(m, 0, m->nops, s->batch, 1, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	model_forward(&par, m, 0, m->nops, &c, x, y);
	for (int i = 0; i < 4; i++)
		assert_true(fabs((double)y[i] - s->y[i]) <= TOLERANCE);
	model_backward(&par, m, 0, m->nops, &c, x, dy, NULL, grad);
	compare(m, grad, s->g, s->n, w);
	blas_close(blas);
	free(c.saved);
	free(c.work);
	free(param);
	free(grad);
	free(buffer);
	free(x);
	free(y);
	free(dy);
	model_free(m);
}

#ifdef REAL_DOUBLE
static void torchvision_s(void **state)
{
	step(&stems[0], &(struct way){ "fused", -1, false, false, 1 });
}

static void with_the_small_stem(void **state)
{
	step(&stems[1], &(struct way){ "fused", -1, false, false, 1 });
	step(&stems[1], &(struct way){ "op by op", -1, false, true, 1 });
}

/* Batch norm's statistics, momentum and what decays, over steps: in double, where rounding does not grow in five steps
 * to what could be seen. */
static void steps_follow_pytorch(void **state)
{
	const struct stem *s = &stems[1];
	struct model *m = resnet18(s->small, s->side);
	struct par par = par_serial(CPU_PLAIN, NULL);
	size_t pixels = s->batch * 3 * s->side * s->side, ny = s->batch * 10;
	real *param = reals(m->nparam), *grad = reals(m->nparam), *velocity = calloc(m->nparam, sizeof(real));
	real *buffer = buffers(m), *x = reals(pixels), *y = reals(ny), *dy = reals(ny);
	struct model_call c = { .batch = s->batch, .param = param, .buffer = buffer, .train = true };
	const struct optim_ops *sgd = optim_find("sgd");
	double hyper[OPTIM_KEYS_MAX], most = 0;
	struct optim_clock clock;
	struct optim_call o = { .par = &par, .ops = sgd, .hyper = hyper, .clock = &clock, .state = &velocity,
		.param = param, .grad = grad, .tensor = m->param, .ntensors = m->nparams };
	int32_t label[CIFAR_BATCH];
	struct model_need need;
	struct kerr e;

	(void)cpu_pick(NULL, &par.cpu, NULL);
	for (int k = 0; k < m->nparams; k++)
		fill(&m->param[k], k, param + m->param[k].offset);
	for (size_t i = 0; i < pixels; i++)
		x[i] = (real)(float)golden_noise((double)i, s->phase);
	for (int i = 0; i < CIFAR_BATCH; i++)
		label[i] = i % 10;
	optim_defaults(sgd, hyper);
	assert_true(!optim_set(sgd, hyper, "lr", 0.01, &e) && !optim_set(sgd, hyper, "momentum", 0.9, &e) &&
		!optim_set(sgd, hyper, "weight_decay", 0.05, &e));
	optim_clock_init(&clock);
	model_need(m, 0, m->nops, s->batch, 1, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	for (int t = 0; t < 5; t++) {
		double loss;

		memset(grad, 0, m->nparam * sizeof(real));
		model_forward(&par, m, 0, m->nops, &c, x, y);
		loss = loss_run(&par, loss_find("cross_entropy"), s->batch, 10, y, label, 1.0 / (double)s->batch, dy, NULL);
		most = fmax(most, fabs(loss / (double)s->batch - cifar_steps[t]));
		model_backward(&par, m, 0, m->nops, &c, x, dy, NULL, grad);
		optim_tick(sgd, hyper, &clock);
		optim_step(&o);
	}
	free(c.work);
	c.work = bytes(need.work_eval);
	free(c.saved);
	c.saved = NULL;
	c.train = false;
	model_forward(&par, m, 0, m->nops, &c, x, y);
	for (int i = 0; i < 4; i++)
		most = fmax(most, fabs((double)y[i] - cifar_steps[5 + i]));
	if (!(most <= 1e-8))
		fail_msg("losses of five steps and outputs after them are %g off PyTorch's", most);
	free(c.work);
	free(param);
	free(grad);
	free(velocity);
	free(buffer);
	free(x);
	free(y);
	free(dy);
	model_free(m);
}
#else
static void torchvision_s(void **state)
{
	step(&stems[0], &(struct way){ "direct", 0, true, false, 1.6 });
	step(&stems[0], &(struct way){ "winograd2", -2, true, false, 1.6 });
	step(&stems[0], &(struct way){ "auto", -1, true, false, 7 });
}

static void with_the_small_stem(void **state)
{
	static const struct way ways[] = {
		{ "direct without a library", 0, false, false, 1.6 },
		{ "direct", 0, true, false, 1.6 },
		{ "winograd2", -2, true, false, 1.6 },
		{ "winograd4", -4, true, false, 7 },
		{ "auto, op by op", -1, true, true, 7 },
	};

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		step(&stems[1], &ways[i]);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(torchvision_s),
		cmocka_unit_test(with_the_small_stem),
#ifdef REAL_DOUBLE
		cmocka_unit_test(steps_follow_pytorch),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
