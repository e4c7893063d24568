/* Inception-v3 of the zoo, with an eighth of its channels, against PyTorch's float64 (row A06): outputs and every
 * gradient of two images (tests/data/make-golden-inception.py). In double to 1e-8, since noise at the border between
 * two floats may be either; in single precision to four times what PyTorch's own is off in its worst tensor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels_util.h"
#include "golden.h"
#include "inception_golden.h"
#include "kernels/gemm.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TOLERANCE (sizeof(real) == 8 ? 1e-8 : 2e-3)

static void fill(const struct model_param *t, int k, bool bias, real *to)
{
	double scale = t->shape.nd > 1 ? 1 / sqrt((double)(t->count / t->shape.d[0])) : 0.2;
	size_t n = strlen(t->name);
	bool norm = t->shape.nd == 1 && !bias && n > 7 && !strcmp(t->name + n - 7, ".weight");

	for (size_t i = 0; i < t->count; i++) {
		float v = (float)(golden_noise((double)i, k) * scale);

		to[i] = norm ? (real)(float)(1.0 + (double)v) : (real)v;
	}
}

static void a_step_is_pytorch_s(void **state)
{
	struct model *m = golden_model("{\"zoo\":\"inception_v3\",\"width\":0.125,\"pixels\":107,\"classes\":10,"
		"\"dropout\":0}");
	struct blas *blas = blas_open(NULL);
	struct par par = par_serial(CPU_PLAIN, blas);
	size_t pixels = (size_t)INCEPTION_BATCH * 3 * INCEPTION_SIDE * INCEPTION_SIDE, outs = COUNT(inception_y);
	real *param = reals(m->nparam), *x = reals(pixels), *dy = reals(outs);
	double most = 0;

	(void)cpu_pick(NULL, &par.cpu, NULL);
	golden_tiles(m, 0);
	assert_int_equal(m->nparams, COUNT(inception));
	for (int k = 0; k < m->nparams; k++)
		fill(&m->param[k], k, !strcmp(m->param[k].name, "fc.bias"), param + m->param[k].offset);
	for (size_t i = 0; i < pixels; i++)
		x[i] = (real)(float)golden_noise((double)i, INCEPTION_PHASE);
	for (size_t i = 0; i < outs; i++) {
		dy[i] = (real)(float)sin(0.37 * (double)i + 0.9);
		most = fmax(most, fabs(inception_y[i]));
	}
	struct model_pass got = model_pass(&par, m, INCEPTION_BATCH, x, dy, param, true);

	for (size_t i = 0; i < outs; i++)
		if (!(fabs((double)got.y[i] - inception_y[i]) <= TOLERANCE * most))
			fail_msg("output %zu is %.12g, PyTorch's %.12g", i, (double)got.y[i], inception_y[i]);
	for (int k = 0; k < m->nparams; k++)
		(void)golden_close(&m->param[k], got.grad, "inception_v3", inception[k].name, inception[k].norm,
			inception[k].along, TOLERANCE);
	model_pass_free(&got);
	free(param);
	free(x);
	free(dy);
	blas_close(blas);
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_is_pytorch_s),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
