/* Convolution by panels of pixels against the sum of products in double: strides, borders, odd sizes, every
 * instruction set and number of workers. */
#include <math.h>
#include "kernels_util.h"
#include "kernels/convpan.h"

struct bed { struct convpan g; size_t nx, ny, nw; real *x, *w, *dy, *bias; double *y, *dw; };

static void naive(struct bed *b, size_t n, size_t k, size_t i, size_t j)
{
	const struct convpan *g = &b->g;
	size_t at = ((n * g->oc + k) * g->oh + i) * g->ow + j;

	b->y[at] += (double)b->bias[k];
	for (size_t c = 0; c < g->ic; c++)
		for (size_t t = 0; t < g->k * g->k; t++) {
			size_t y = i * g->stride + t / g->k - g->pad;
			size_t x = j * g->stride + t % g->k - g->pad;
			size_t from = ((n * g->ic + c) * g->ih + y) * g->iw + x, w = (k * g->ic + c) * g->k * g->k + t;

			if (y >= g->ih || x >= g->iw)   /* below zero wraps around */
				continue;
			b->y[at] += (double)b->x[from] * (double)b->w[w];
			b->dw[w] += (double)b->dy[at] * (double)b->x[from];
		}
}

static void open_bed(struct bed *b, struct convpan g)
{
	size_t reach = g.k;

	g.oh = (g.ih + 2 * g.pad - reach) / g.stride + 1;
	g.ow = (g.iw + 2 * g.pad - reach) / g.stride + 1;
	*b = (struct bed){ .g = g, .nx = g.batch * g.ic * g.ih * g.iw, .ny = g.batch * g.oc * g.oh * g.ow,
		.nw = g.oc * g.ic * g.k * g.k };
	b->x = noise(1, 1, b->nx);
	b->w = noise(2, 1, b->nw);
	b->dy = noise(3, 1, b->ny);
	b->bias = noise(4, 1, g.oc);
	b->y = calloc(b->ny, sizeof(double));
	b->dw = calloc(b->nw, sizeof(double));
	for (size_t n = 0; n < g.batch; n++)
		for (size_t k = 0; k < g.oc; k++)
			for (size_t i = 0; i < g.oh * g.ow; i++)
				naive(b, n, k, i / g.ow, i % g.ow);
}

static void close_bed(struct bed *b)
{
	free(b->x);
	free(b->w);
	free(b->dy);
	free(b->bias);
	free(b->y);
	free(b->dw);
}

static double distance(const real *a, const double *b, double less, size_t n)
{
	double d = 0, s = 1e-30;

	for (size_t i = 0; i < n; i++) {
		d += ((double)a[i] - less - b[i]) * ((double)a[i] - less - b[i]);
		s += b[i] * b[i];
	}
	return sqrt(d / s);
}

/* y and dw one behind the other; dw is added to ones. */
static real *compute(const struct bed *b, int workers, enum cpu cpu)
{
	struct par par = team(workers, cpu, NULL);
	real *r = bytes((b->ny + b->nw) * sizeof(real)), *dw = r + b->ny;
	void *forward = bytes(convpan_work(&b->g, workers, false)), *backward = bytes(convpan_work(&b->g, workers, true));

	for (size_t i = 0; i < b->nw; i++)
		dw[i] = 1;
	convpan_forward(&par, &b->g, b->x, b->w, b->bias, r, forward);
	convpan_backward_weights(&par, &b->g, b->x, b->dy, dw, backward);
	free(forward);
	free(backward);
	return r;
}

static void check(const struct bed *b, enum cpu cpu)
{
	real *one = compute(b, 1, cpu), *three = compute(b, 3, cpu);
	double err[2] = { distance(one, b->y, 0, b->ny), distance(one + b->ny, b->dw, 1, b->nw) };

	for (int i = 0; i < 2; i++)
		if (!(err[i] < 5e-7))
			fail_msg("%zux%zu to %zux%zu, kernel %zu/%zu, %s: %s off by %g", b->g.ih, b->g.iw, b->g.oh, b->g.ow, b->g.k,
				b->g.stride, cpu_name(cpu), i == 0 ? "y" : "dw", err[i]);
	assert_memory_equal(one, three, (b->ny + b->nw) * sizeof(real));
	free(one);
	free(three);
}

static void panels_of_pixels(void **state)
{
	static const struct convpan shapes[] = {
		{ 2, 3, 64, 32, 32, 0, 0, 7, 2, 3 }, { 3, 1, 6, 9, 11, 0, 0, 5, 1, 2 }, { 2, 3, 17, 13, 37, 0, 0, 3, 1, 1 },
		{ 1, 3, 8, 35, 34, 0, 0, 11, 4, 2 }, { 5, 20, 33, 7, 5, 0, 0, 1, 2, 0 }, { 4, 18, 5, 1, 1, 0, 0, 1, 1, 0 },
		{ 2, 2, 3, 4, 4, 0, 0, 2, 3, 5 }, { 1, 40, 13, 3, 300, 0, 0, 3, 1, 0 },
	};
	enum cpu best;

	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		struct bed b;

		open_bed(&b, shapes[i]);
		for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++)
			check(&b, cpu);
		close_bed(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(panels_of_pixels) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
