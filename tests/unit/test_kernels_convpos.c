/* Convolution position by position against the sum of products in double: strides, borders, dilations, images of one
 * pixel, every instruction set and number of workers. */
#include <math.h>
#include "kernels_util.h"
#include "kernels/convpos.h"

struct bed { struct convpos g; size_t nx, ny, nw; real *x, *w, *dy, *bias; double *y, *dx, *dw; };

static void naive(struct bed *b, size_t n, size_t k, size_t i, size_t j)
{
	const struct convpos *g = &b->g;
	size_t at = ((n * g->oc + k) * g->oh + i) * g->ow + j;

	b->y[at] += (double)b->bias[k];
	for (size_t c = 0; c < g->ic; c++)
		for (size_t t = 0; t < g->k * g->k; t++) {
			size_t y = i * g->stride + t / g->k * g->dilation - g->pad;
			size_t x = j * g->stride + t % g->k * g->dilation - g->pad;
			size_t from = ((n * g->ic + c) * g->ih + y) * g->iw + x, w = (k * g->ic + c) * g->k * g->k + t;

			if (y >= g->ih || x >= g->iw)   /* below zero wraps around */
				continue;
			b->y[at] += (double)b->x[from] * (double)b->w[w];
			b->dx[from] += (double)b->dy[at] * (double)b->w[w];
			b->dw[w] += (double)b->dy[at] * (double)b->x[from];
		}
}

static void open_bed(struct bed *b, struct convpos g)
{
	size_t reach = g.dilation * (g.k - 1) + 1;

	g.oh = (g.ih + 2 * g.pad - reach) / g.stride + 1;
	g.ow = (g.iw + 2 * g.pad - reach) / g.stride + 1;
	*b = (struct bed){ .g = g, .nx = g.batch * g.ic * g.ih * g.iw, .ny = g.batch * g.oc * g.oh * g.ow,
		.nw = g.oc * g.ic * g.k * g.k };
	b->x = noise(1, 1, b->nx);
	b->w = noise(2, 1, b->nw);
	b->dy = noise(3, 1, b->ny);
	b->bias = noise(4, 1, g.oc);
	b->y = calloc(b->ny, sizeof(double));
	b->dx = calloc(b->nx, sizeof(double));
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
	free(b->dx);
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

/* y, dx and dw one behind the other; dw is added to ones. */
static real *compute(const struct bed *b, int workers, enum cpu cpu)
{
	struct par par = team(workers, cpu, NULL);
	real *r = bytes((b->nx + b->ny + b->nw) * sizeof(real)), *dw = r + b->ny + b->nx;
	void *work = bytes(convpos_work(&b->g, true));

	assert_true(convpos_work(&b->g, false) <= convpos_work(&b->g, true));
	for (size_t i = 0; i < b->nw; i++)
		dw[i] = 1;
	convpos_forward(&par, &b->g, b->x, b->w, b->bias, r, work);
	convpos_backward_data(&par, &b->g, b->dy, b->w, r + b->ny, work);
	convpos_backward_weights(&par, &b->g, b->x, b->dy, dw, work);
	free(work);
	return r;
}

static void check(const struct bed *b, enum cpu cpu)
{
	real *one = compute(b, 1, cpu), *three = compute(b, 3, cpu);
	double err[3] = { distance(one, b->y, 0, b->ny), distance(one + b->ny, b->dx, 0, b->nx),
		distance(one + b->ny + b->nx, b->dw, 1, b->nw) };

	for (int i = 0; i < 3; i++)
		if (!(err[i] < 5e-7))
			fail_msg("%zux%zu to %zux%zu, kernel %zu/%zu, %s: %s off by %g", b->g.ih, b->g.iw, b->g.oh, b->g.ow, b->g.k,
				b->g.stride, cpu_name(cpu), i == 0 ? "y" : i == 1 ? "dx" : "dw", err[i]);
	assert_memory_equal(one, three, (b->ny + b->nx + b->nw) * sizeof(real));
	free(one);
	free(three);
}

static void small_images_position_by_position(void **state)
{
	static const struct convpos shapes[] = {
		{ 5, 3, 4, 1, 1, 0, 0, 3, 1, 1, 1 }, { 17, 20, 33, 2, 2, 0, 0, 3, 1, 1, 1 },
		{ 16, 16, 16, 2, 2, 0, 0, 3, 2, 1, 1 }, { 3, 17, 7, 4, 4, 0, 0, 3, 2, 1, 1 },
		{ 33, 40, 13, 4, 3, 0, 0, 1, 2, 0, 1 },
		{ 1, 5, 6, 8, 8, 0, 0, 5, 3, 2, 1 }, { 4, 2, 19, 5, 7, 0, 0, 3, 1, 3, 2 }, { 2, 3, 3, 1, 1, 0, 0, 3, 4, 5, 1 },
	};
	enum cpu best;

	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		struct bed b;

		open_bed(&b, shapes[i]);
		assert_true(convpos_fits(&b.g));
		for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++)
			check(&b, cpu);
		close_bed(&b);
	}
}

static void the_border_costs_nothing(void **state)
{
	assert_int_equal(convpos_gain(&(struct convpos){ 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1 }), 900);
	assert_int_equal(convpos_gain(&(struct convpos){ 1, 1, 1, 2, 2, 2, 2, 3, 1, 1, 1 }), 225);
	assert_int_equal(convpos_gain(&(struct convpos){ 1, 1, 1, 4, 4, 2, 2, 3, 2, 1, 1 }), 144);
	assert_int_equal(convpos_gain(&(struct convpos){ 1, 1, 1, 4, 4, 2, 2, 1, 2, 0, 1 }), 100);
	assert_false(convpos_fits(&(struct convpos){ 1, 1, 1, 9, 8, 9, 8, 3, 1, 1, 1 }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_images_position_by_position),
		cmocka_unit_test(the_border_costs_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
