/* Winograd's convolution against the sum of products in double: every tile size, padding, odd shape, instruction set
 * and number of workers. */
#include <math.h>
#include "kernels_util.h"
#include "kernels/wino.h"
#include "kernels/wino_tile.h"

struct bed { struct wino g; size_t oh, ow, nx, ny, nw; real *x, *w, *dy, *bias; double *y, *dx, *dw; };

static void naive(struct bed *b, size_t n, size_t k, size_t c, size_t i, size_t j)
{
	const struct wino *g = &b->g;
	size_t at = ((n * g->oc + k) * b->oh + i) * b->ow + j;

	for (size_t p = 0; p < 3; p++)
		for (size_t q = 0; q < 3; q++) {
			size_t s = g->stride == 2 ? 2 : 1, y = s * i + p - (size_t)g->pad, x = s * j + q - (size_t)g->pad;
			size_t from = ((n * g->ic + c) * g->ih + y) * g->iw + x, w = (k * g->ic + c) * 9 + 3 * p + q;

			if (y >= g->ih || x >= g->iw)   /* below zero wraps around */
				continue;
			b->y[at] += (double)b->x[from] * (double)b->w[w];
			b->dx[from] += (double)b->dy[at] * (double)b->w[w];
			b->dw[w] += (double)b->dy[at] * (double)b->x[from];
		}
}

static void open_bed(struct bed *b, struct wino g)
{
	*b = (struct bed){ .g = g };
	wino_out(&g, &b->oh, &b->ow);
	b->nx = g.batch * g.ic * g.ih * g.iw;
	b->ny = g.batch * g.oc * b->oh * b->ow;
	b->nw = g.oc * g.ic * 9;
	b->x = noise(1, 1, b->nx);
	b->w = noise(2, 1, b->nw);
	b->dy = noise(3, 1, b->ny);
	b->bias = noise(4, 1, g.oc);
	b->y = calloc(b->ny, sizeof(double));
	b->dx = calloc(b->nx, sizeof(double));
	b->dw = calloc(b->nw, sizeof(double));
	for (size_t n = 0; n < g.batch; n++)
		for (size_t k = 0; k < g.oc; k++)
			for (size_t i = 0; i < b->oh; i++)
				for (size_t j = 0; j < b->ow; j++) {
					b->y[((n * g.oc + k) * b->oh + i) * b->ow + j] += (double)b->bias[k];
					for (size_t c = 0; c < g.ic; c++)
						naive(b, n, k, c, i, j);
				}
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
	double d = 0, s = 0;

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
	void *forward = bytes(wino_work(&b->g, workers, false)), *backward = bytes(wino_work(&b->g, workers, true));

	for (size_t i = 0; i < b->nw; i++)
		dw[i] = 1;
	wino_forward(&par, &b->g, b->x, b->w, b->bias, r, forward);
	wino_backward_data(&par, &b->g, b->dy, b->w, r + b->ny, backward);
	wino_backward_weights(&par, &b->g, b->x, b->dy, dw, backward);
	free(forward);
	free(backward);
	return r;
}

static void check(const struct bed *b, enum cpu cpu)
{
	real *one = compute(b, 1, cpu), *three = compute(b, 3, cpu);
	double most = sizeof(real) == sizeof(double) ? 1e-13 : b->g.m == 2 ? 1e-6 : 4e-6;
	double err[3] = { distance(one, b->y, 0, b->ny), distance(one + b->ny, b->dx, 0, b->nx),
		distance(one + b->ny + b->nx, b->dw, 1, b->nw) };

	for (int i = 0; i < 3; i++)
		if (!(err[i] < most))
			fail_msg("F(%d)/%d, %zux%zu to %zu channels, pad %d, %s: %s off by %g", b->g.m, b->g.stride, b->g.ih,
				b->g.iw, b->g.oc, b->g.pad, cpu_name(cpu), i == 0 ? "y" : i == 1 ? "dx" : "dw", err[i]);
	assert_memory_equal(one, three, (b->ny + b->nx + b->nw) * sizeof(real));
	free(one);
	free(three);
}

static void test_all(void **state)
{
	static const struct wino shapes[] = {
		{ 2, 3, 5, 7, 9, 0, 0 }, { 3, 17, 20, 8, 8, 0, 0 }, { 19, 16, 16, 4, 4, 0, 0 }, { 1, 16, 33, 23, 30, 0, 0 },
		{ 5, 1, 1, 3, 3, 0, 0 }, { 1, 40, 13, 17, 5, 0, 0 },
	};
	enum cpu best;

	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		for (int pad = 0; pad <= 2; pad++)
			for (int m = 2; m <= 4; m += 2) {
				struct wino g = shapes[i];
				struct bed b;

				g.pad = pad;
				g.m = m;
				open_bed(&b, g);
				for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++)
					check(&b, cpu);
				close_bed(&b);
			}
}

/* Borders of one, sizes that are odd, even, and smaller than a tile; few tiles of many channels. */
static void test_strided(void **state)
{
	static const struct wino shapes[] = {
		{ 2, 3, 5, 7, 9, 1, 4, 2 }, { 3, 17, 20, 8, 8, 1, 4, 2 }, { 19, 16, 16, 4, 4, 1, 4, 2 },
		{ 1, 16, 33, 23, 30, 1, 4, 2 }, { 5, 1, 1, 3, 3, 1, 4, 2 }, { 1, 40, 13, 17, 5, 1, 4, 2 },
		{ 2, 2, 3, 1, 1, 1, 4, 2 }, { 2, 5, 18, 16, 64, 1, 4, 2 }, { 3, 200, 190, 6, 5, 1, 4, 2 },
		{ 3, 200, 190, 6, 5, 1, 4, 1 }, { 1, 193, 301, 4, 4, 1, 2, 1 },
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

/* The last batch of a data set is smaller and runs in the memory of a whole one. */
static void test_smaller_batches_need_no_more(void **state)
{
	for (int stride = 1; stride <= 2; stride++)
		for (int backward = 0; backward <= 1; backward++) {
			size_t last = 0;

			for (size_t batch = 1; batch <= 100; batch++) {
				struct wino g = { batch, 192, 192, 14, 14, 1, 4, stride };
				size_t need = wino_work(&g, 2, backward);

				if (need < last)
					fail_msg("stride %d: a batch of %zu needs %zu bytes, one less %zu", stride, batch, need, last);
				last = need;
			}
		}
}

enum { TERMS = 37, LDA = 41, LDB = 2 * WINO_LANES + 3, LDC = 2 * WINO_LANES + 5, ROWS = 16 };
struct factors { real a[ROWS * LDA], b[TERMS * LDB], was[ROWS * LDC]; };

/* Element (i, j) of the product. */
static real product_at(const struct factors *f, const struct wino_product *p, bool fused, size_t i, size_t j)
{
	size_t panel = j / p->cn, lane = j % p->cn;
	real sum = 0;

	if (i >= (size_t)p->rows || panel >= (size_t)p->panels || lane >= WINO_LANES)
		return f->was[i * LDC + j];
	for (size_t l = 0; l < TERMS; l++) {
		real x = f->a[i * LDA + l], y = f->b[l * LDB + panel * p->bn + lane];

		sum = fused ? (real)fmaf((float)x, (float)y, (float)sum) : sum + x * y;
	}
	return p->add ? f->was[i * LDC + j] + sum : sum;
}

/* Whatever is computed at once, each sum runs over l in its order: fused where there is fused arithmetic. */
static void check_products(const struct factors *f, enum cpu cpu)
{
	const struct wino_tile *t = wino_tile(cpu);
	struct wino_product p = { .a = f->a, .b = f->b, .lda = LDA, .ldb = LDB, .bn = WINO_LANES + 1, .n = TERMS,
		.ldc = LDC, .cn = WINO_LANES + 2 };
	real c[ROWS * LDC];

	assert_true(t->rows <= ROWS && t->panels <= 2);
	p.c = c;
	for (int which = 0; which < 2 * t->rows * t->panels; which++) {
		p.add = which % 2;
		p.rows = 1 + which / 2 % t->rows;
		p.panels = 1 + which / 2 / t->rows;
		memcpy(c, f->was, sizeof(c));
		t->product(&p);
		for (size_t i = 0; i < ROWS; i++)
			for (size_t j = 0; j < LDC; j++) {
				real want = product_at(f, &p, t != wino_tile(CPU_PLAIN), i, j);

				if (memcmp(&want, &c[i * LDC + j], sizeof(want)))
					fail_msg("%s, %d rows, %d panels: element %zu, %zu", cpu_name(cpu), p.rows, p.panels, i, j);
			}
	}
}

static void test_products(void **state)
{
	struct factors f;
	enum cpu best;

	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (size_t i = 0; i < ROWS * LDA; i++)
		f.a[i] = (real)sin((double)i);
	for (size_t i = 0; i < TERMS * LDB; i++)
		f.b[i] = (real)cos(3.0 * (double)i);
	for (size_t i = 0; i < ROWS * LDC; i++)
		f.was[i] = (real)i;
	for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++)
		check_products(&f, cpu);
}

/* As few pieces as there can be, and none much smaller than the others. */
static void test_even(void **state)
{
	for (size_t left = 1; left < 200; left++) {
		int first = wino_even(left, 12), piece;
		size_t n = 0;

		for (size_t at = 0; at < left; at += (size_t)piece, n++) {
			piece = wino_even(left - at, 12);
			assert_true(piece > 0 && piece <= 12 && first - piece <= 1);
		}
		assert_int_equal(n, (left + 11) / 12);
	}
}

/* A batch of none does nothing. */
static void test_none(void **state)
{
	struct wino g = { 0, 4, 4, 8, 8, 1, 4 };
	struct par par = par_serial(CPU_PLAIN, NULL);
	real dw[144] = { 0 };

	wino_forward(&par, &g, NULL, NULL, NULL, NULL, NULL);
	wino_backward_data(&par, &g, NULL, NULL, NULL, NULL);
	wino_backward_weights(&par, &g, NULL, NULL, dw, NULL);
	assert_true(dw[0] == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all), cmocka_unit_test(test_strided), cmocka_unit_test(test_none),
		cmocka_unit_test(test_smaller_batches_need_no_more), cmocka_unit_test(test_products),
		cmocka_unit_test(test_even)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
