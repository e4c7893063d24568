/* AlexNet and VGG-16 of the zoo against PyTorch's float64 (row A06): outputs and every gradient to 1e-4, on images at
 * which nothing is near another side of a ReLU or of a pooling (tests/data/make-golden-convnets.py). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "t.h"
#include "common/mem.h"
#include "convnets_golden.h"
#include "golden.h"
#include "kernels/gemm.h"

#define TOLERANCE 1e-4
#define CLASSES 10

static void fill(const struct model_param *t, int k, real *to)
{
	double scale = t->shape.nd > 1 ? sqrt(6.0 / (double)(t->count / t->shape.d[0])) : 0.2;

	for (size_t i = 0; i < t->count; i++)
		to[i] = (real)(golden_noise((double)i, k) * scale);
}

static struct model *net_of(const char *zoo, size_t side)
{
	char json[200];

	(void)snprintf(json, sizeof(json), "{\"zoo\":\"%s\",\"classes\":10,\"hidden\":64,\"dropout\":0},"
		"\"input\":[3,%zu,%zu]", zoo, side, side);
	return golden_model(json);
}

static void network(const char *zoo, size_t side, double phase, const double *want, const struct golden_grad *g,
	size_t n)
{
	struct model *m = net_of(zoo, side);
	struct blas *blas = blas_open(NULL);
	struct par par = par_serial(CPU_PLAIN, blas);
	size_t pixels = 3 * side * side;
	real *param = big_alloc(m->nparam * sizeof(real)), *grad = big_alloc(m->nparam * sizeof(real));
	real *x = calloc(pixels, sizeof(real)), y[CLASSES], dy[CLASSES];
	struct model_call c = { .batch = 1, .param = param, .train = true };
	struct model_need need;
	double most = 0;

	(void)cpu_pick(NULL, &par.cpu, NULL);
	golden_tiles(m, 0);
	model_need(m, 0, m->nops, 1, 1, &need);
	c.saved = big_alloc(need.saved + 1);
	c.work = big_alloc(need.work_fwd + need.work_bwd + 1);
	for (int k = 0; k < m->nparams; k++)
		fill(&m->param[k], k, param + m->param[k].offset);
	for (size_t i = 0; i < pixels; i++)
		x[i] = (real)golden_noise((double)i, phase);
	for (size_t i = 0; i < CLASSES; i++) {
		dy[i] = (real)sin(0.37 * (double)i + 0.9);
		most = fmax(most, fabs(want[i]));
	}
	memset(grad, 0, m->nparam * sizeof(real));
	model_forward(&par, m, 0, m->nops, &c, x, y);
	for (size_t i = 0; i < CLASSES; i++)
		if (!(fabs((double)y[i] - want[i]) <= TOLERANCE * most))
			fail_msg("%s: output %zu is %.9g, PyTorch's %.9g", zoo, i, (double)y[i], want[i]);
	model_backward(&par, m, 0, m->nops, &c, x, dy, NULL, grad);
	assert_int_equal(m->nparams, n);
	for (int k = 0; k < m->nparams; k++)
		(void)golden_close(&m->param[k], grad, zoo, g[k].name, g[k].norm, g[k].along, TOLERANCE);
	big_free(c.saved, need.saved + 1);
	big_free(c.work, need.work_fwd + need.work_bwd + 1);
	big_free(param, m->nparam * sizeof(real));
	big_free(grad, m->nparam * sizeof(real));
	free(x);
	blas_close(blas);
	model_free(m);
}

#define GOLDEN(g) g, sizeof(g) / sizeof(*(g))

static void alexnet_is_torchvision_s(void **state)
{
	network("alexnet", ALEXNET_SIDE, ALEXNET_PHASE, alexnet_y, GOLDEN(alexnet));
}

static void vgg16_is_torchvision_s(void **state)
{
	network("vgg16", VGG16_SIDE, VGG16_PHASE, vgg16_y, GOLDEN(vgg16));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alexnet_is_torchvision_s),
		cmocka_unit_test(vgg16_is_torchvision_s),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
