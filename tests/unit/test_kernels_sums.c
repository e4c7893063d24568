/* Weight gradients are sums over every position of every image: 10^5 terms at the first layer of a ResNet. They are
 * summed in two levels, and stay as near to double as a short sum: a tenth of the error of PyTorch's float32. Limits
 * are two to three times what was measured; PyTorch's figures, in the same units, stand beside. */
#include <math.h>
#include "kernels_util.h"
#include "kernels/gemm.h"

struct row {
	const char *layer;
	size_t in, side, batch;
	int kernel, stride, padding;
	double most, torch;                     /* norm of the error over the norm; PyTorch 2.13's, for the reader */
};

static const struct row rows[] = {
	{ "conv2d out=64 kernel=7 stride=2 padding=3 bias=0", 3, 224, 8, 7, 2, 3, 1.5e-6, 5.6e-6 },
	{ "conv2d out=64 kernel=3 padding=1 bias=0 winograd=0", 64, 56, 8, 3, 1, 1, 1e-6, 2.8e-6 },
	{ "conv2d out=64 kernel=3 padding=1 bias=0 winograd=2", 64, 56, 8, 3, 1, 1, 1.2e-6, 2.8e-6 },
	{ "conv2d out=64 kernel=3 padding=1 bias=0 winograd=4", 64, 56, 8, 3, 1, 1, 5e-6, 2.8e-6 },
	{ "conv2d out=64 kernel=3 stride=2 padding=1 bias=0 winograd=0", 64, 56, 8, 3, 2, 1, 1e-6, 1.4e-6 },
	{ "conv2d out=64 kernel=3 stride=2 padding=1 bias=0 winograd=4", 64, 56, 8, 3, 2, 1, 2e-6, 1.4e-6 },
	{ "conv2d out=64 kernel=1 stride=2 bias=0", 64, 56, 8, 1, 2, 0, 7e-7, 2.4e-7 },
};

#define CHANNELS 1              /* of the output, that are summed in double here */

/* One weight's gradient in double. */
static double exact(const struct row *r, const real *x, const real *dy, size_t side_out, size_t c, const int *at)
{
	double sum = 0;
	size_t plane = side_out * side_out;

	for (size_t b = 0; b < r->batch; b++) {
		const real *image = x + (b * r->in + c) * r->side * r->side, *d = dy + b * 64 * plane;

		for (size_t i = 0; i < side_out; i++) {
			long y = (long)i * r->stride + at[0] - r->padding;

			for (size_t j = 0; y >= 0 && y < (long)r->side && j < side_out; j++) {
				long z = (long)j * r->stride + at[1] - r->padding;

				if (z >= 0 && z < (long)r->side)
					sum += (double)d[i * side_out + j] * (double)image[(size_t)y * r->side + (size_t)z];
			}
		}
	}
	return sum;
}

struct made { struct model *m; real *x, *y, *dy, *grad; size_t nx, ny; };

static struct made backward(const char *layer, size_t in, size_t side, size_t batch, const struct blas *blas)
{
	struct par par = par_serial(CPU_PLAIN, blas);
	struct kerr e;
	struct made a = { .m = model_text((struct shape){ 3, { in, side, side } }, layer, NULL, &e) };
	struct model_call c = { .batch = batch, .train = true };
	struct model_need need;
	real *param;

	if (!a.m)
		fail_msg("%s: %s", layer, e.text);
	(void)cpu_pick(NULL, &par.cpu, NULL);
	a.nx = batch * in * side * side;
	a.ny = batch * shape_count(&a.m->out);
	a.x = noise(1, 1, a.nx);
	a.dy = noise(2, 1, a.ny);
	a.y = reals(a.ny);
	a.grad = calloc(a.m->nparam, sizeof(real));
	param = reals(a.m->nparam);
	model_init(a.m, 3, param);
	c.param = param;
	c.buffer = buffers(a.m);
	model_need(a.m, 0, a.m->nops, batch, 1, &need);
	c.saved = bytes(need.saved);
	c.work = bytes(need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd);
	model_forward(&par, a.m, 0, a.m->nops, &c, a.x, a.y);
	model_backward(&par, a.m, 0, a.m->nops, &c, a.x, a.dy, NULL, a.grad);
	free(c.saved);
	free(c.work);
	free(c.buffer);
	free(param);
	return a;
}

static void made_free(struct made *a)
{
	model_free(a->m);
	free(a->x);
	free(a->y);
	free(a->dy);
	free(a->grad);
}

static double distance(const struct row *r, const struct blas *blas)
{
	struct made a = backward(r->layer, r->in, r->side, r->batch, blas);
	size_t side_out = a.m->out.d[1], k = (size_t)r->kernel, at = 0;
	double off = 0, norm = 0;

	for (size_t o = 0; o < CHANNELS; o++)
		for (size_t c = 0; c < r->in; c++)
			for (size_t q = 0; q < k * k; q++, at++) {
				double want = exact(r, a.x, a.dy + o * side_out * side_out, side_out, c,
					(int[]){ (int)(q / k), (int)(q % k) });

				off += ((double)a.grad[at] - want) * ((double)a.grad[at] - want);
				norm += want * want;
			}
	made_free(&a);
	return sqrt(off / norm);
}

static void weight_gradients_are_near_double(void **state)
{
	struct blas *blas = blas_open(NULL);
	size_t n = sizeof(rows) / sizeof(*rows);

	for (size_t i = 0; i <= n; i++) {               /* the longest sum without a library of matrix products, too */
		const struct row *r = &rows[i % n];
		double off = distance(r, i < n ? blas : NULL);

		if (!(off <= r->most))
			fail_msg("%s%s: weight gradients are %.2g of their norm off, at most %.2g (PyTorch: %.2g)", r->layer,
				i < n ? "" : " without a library", off, r->most, r->torch);
	}
	blas_close(blas);
}

/* Batch norm's gradients are sums over 112 x 112 x 8 values: of dy, and of dy (x - mean) / deviation. */
static void norms_are_near_double(void **state)
{
	enum { C = 3, SIDE = 112, BATCH = 8, PLANE = SIDE * SIDE };
	struct made a = backward("batchnorm", C, SIDE, BATCH, NULL);
	const double n = (double)BATCH * PLANE;

	for (size_t c = 0; c < C; c++) {
		double mean = 0, square = 0, bias = 0, weight = 0;

		for (int pass = 0; pass < 3; pass++)
			for (size_t i = 0; i < BATCH * PLANE; i++) {
				size_t at = (i / PLANE * C + c) * PLANE + i % PLANE;
				double x = (double)a.x[at];

				mean += pass == 0 ? x / n : 0;
				square += pass == 1 ? (x - mean) * (x - mean) / n : 0;
				bias += pass == 2 ? (double)a.dy[at] : 0;
				weight += pass == 2 ? (double)a.dy[at] * (x - mean) / sqrt(square + 1e-5) : 0;
			}
		/* in units of what such a sum is large: sqrt(n) times the deviation of dy */
		assert_true(fabs((double)a.grad[c] - weight) <= 5e-7 * sqrt(n / 3));
		assert_true(fabs((double)a.grad[C + c] - bias) <= 5e-7 * sqrt(n / 3));
	}
	made_free(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(weight_gradients_are_near_double),
		cmocka_unit_test(norms_are_near_double),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
