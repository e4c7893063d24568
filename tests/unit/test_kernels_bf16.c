/* Products of rounded operands by instructions for pairs of bfloat16, where this CPU has them, and by their twin in
 * plain C everywhere: against sums in double, by every shape, layout and cut; layers that use them make what they make
 * of rounded operands in single precision. */
#include "kernels_util.h"
#include <math.h>
#include "kernels/bf16.h"
#include "kernels/gemm_bf16.h"
#include "kernels/mixed.h"
#include "kernels/vec.h"
#include "skip.h"

/* The twin, and what there is. */
static int dots(enum dot *ret)
{
	enum dot best = dot_pick(NULL);

	ret[0] = DOT_TWIN;
	ret[1] = best;
	ret[2] = DOT_AVX512;
	printf("bf16 here: %s\n", dot_name(best));
	return best == DOT_NONE ? 1 : best == DOT_AMX ? 3 : 2;  /* whatever has AMX has the other, too */
}

static double at(const real *x, size_t ld, bool trans, size_t i, size_t j)
{
	return (double)bf16_to_float(bf16_of((float)(trans ? x[j * ld + i] : x[i * ld + j])));
}

struct case_ { struct gemm_tile g; size_t na, nb, nc; };

static struct case_ drawn(uint64_t key, size_t m, size_t n, size_t k)
{
	struct case_ c = { .g = { .trans_a = rand_bits(key, 0) & 1, .trans_b = rand_bits(key, 1) & 1,
		.add = rand_bits(key, 2) & 1, .m = m, .n = n, .k = k, .alpha = rand_bits(key, 3) & 1 ? 1 : (real)0.3 } };

	c.g.lda = (c.g.trans_a ? m : k) + rand_bits(key, 4) % 3;
	c.g.ldb = (c.g.trans_b ? k : n) + rand_bits(key, 5) % 3;
	c.g.ldc = n + rand_bits(key, 6) % 3;
	c.na = (c.g.trans_a ? k : m) * c.g.lda;
	c.nb = (c.g.trans_b ? n : k) * c.g.ldb;
	c.nc = m * c.g.ldc;
	c.g.a = noise(rand_key(key, 1), 1, c.na);
	c.g.b = noise(rand_key(key, 2), 1, c.nb);
	c.g.bias = rand_bits(key, 7) & 1 ? noise(rand_key(key, 3), 1, n) : NULL;
	return c;
}

static void case_free(struct case_ *c)
{
	free((void *)(uintptr_t)c->g.a);
	free((void *)(uintptr_t)c->g.b);
	free((void *)(uintptr_t)c->g.bias);
}

static real *made(enum dot dot, const struct case_ *c, const real *before)
{
	struct gemm_tile g = c->g;
	void *work = bytes(gemm_bf16_work(g.m, g.n, g.k));

	g.c = reals(c->nc);
	memcpy(g.c, before, c->nc * sizeof(real));
	gemm_bf16(dot, &g, work);
	free(work);
	return g.c;
}

static void near_sums(enum dot dot, const struct case_ *c)
{
	const struct gemm_tile *g = &c->g;
	real *before = noise(9, 1, c->nc), *y = made(dot, c, before);

	for (size_t i = 0; i < g->m; i++)
		for (size_t j = 0; j < g->ldc; j++) {
			double want = 0, size = 1, have = (double)y[i * g->ldc + j], old = (double)before[i * g->ldc + j];

			if (j >= g->n) {
				if (i + 1 < g->m && have != old)
					fail_msg("%s: what lies between rows of C was written", dot_name(dot));
				continue;
			}
			for (size_t l = 0; l < g->k; l++) {
				double term = at(g->a, g->lda, g->trans_a, i, l) * at(g->b, g->ldb, g->trans_b, l, j);

				want += term;
				size += fabs(term);
			}
			want = (double)g->alpha * want + (g->bias ? (double)g->bias[j] : 0) + (g->add ? old : 0);
			if (fabs(have - want) > 1e-6 * size)
				fail_msg("%s, %zu x %zu x %zu%s%s: element %zu, %zu is %.9g, not %.9g", dot_name(dot), g->m, g->n, g->k,
					g->trans_a ? ", A transposed" : "", g->trans_b ? ", B transposed" : "", i, j, have, want);
		}
	free(before);
	free(y);
}

static void products_are_sums(void **state)
{
	static const size_t sizes[][3] = { { 1, 1, 1 }, { 14, 32, 32 }, { 32, 32, 64 }, { 33, 31, 33 }, { 15, 65, 31 },
		{ 5, 100, 513 }, { 40, 40, 1050 }, { 460, 35, 10 }, { 20, 800, 10 } };
	enum dot dot[3];
	int n = dots(dot);

	for (int d = 0; d < n; d++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			for (uint64_t key = 0; key < 8; key++) {
				struct case_ c = drawn(100 * i + key, sizes[i][0], sizes[i][1], sizes[i][2]);

				near_sums(dot[d], &c);
				case_free(&c);
			}
}

/* Columns and rows cut anywhere: the same bits. */
static void the_cut_does_not_matter(void **state)
{
	enum { M = 50, N = 90, K = 600 };
	struct case_ c = { .g = { .m = M, .n = N, .k = K, .alpha = 1, .lda = K, .ldb = N, .ldc = N, .a = noise(1, 1, M * K),
		.b = noise(2, 1, K * N) }, .na = M * K, .nb = K * N, .nc = M * N };
	real *before = noise(3, 1, M * N);
	enum dot dot[3];
	int n = dots(dot);

	for (int d = 0; d < n; d++) {
		real *y = made(dot[d], &c, before);

		for (size_t cut = 1; cut < M; cut += 11) {
			real *z = reals(M * N);
			void *work = bytes(gemm_bf16_work(M, N, K));
			struct gemm_tile g = c.g;

			for (int half = 0; half < 4; half++) {
				g.m = half / 2 ? M - cut : cut;
				g.n = half % 2 ? N - cut : cut;
				g.a = c.g.a + (half / 2 ? cut * K : 0);
				g.b = c.g.b + (half % 2 ? cut : 0);
				g.c = z + (half / 2 ? cut * N : 0) + (half % 2 ? cut : 0);
				gemm_bf16(dot[d], &g, work);
			}
			assert_memory_equal(y, z, M * N * sizeof(real));
			free(work);
			free(z);
		}
		free(y);
	}
	free(before);
	case_free(&c);
}

/* AMX where it is: the bits of its twin, down to numbers that count as 0. */
static void the_twin_is_one(void **state)
{
	enum { M = 40, N = 50, K = 530 };
	struct case_ c = drawn(12, M, N, K);
	real *before = noise(9, 1, c.nc), *a, *b;

	if (dot_pick(NULL) != DOT_AMX) {
		free(before);
		case_free(&c);
		skip_because("no AMX here");
		return;
	}
	for (int k = 0; k < 3; k++) {
		vec_scale(&(struct par){ .n = 1 }, c.na, k ? 0x1p-70 : 1, (real *)(uintptr_t)c.g.a);
		vec_scale(&(struct par){ .n = 1 }, c.nb, k ? 0x1p-20 : 1, (real *)(uintptr_t)c.g.b);
		a = made(DOT_AMX, &c, before);
		b = made(DOT_TWIN, &c, before);
		assert_memory_equal(a, b, c.nc * sizeof(real));
		free(a);
		free(b);
	}
	free(before);
	case_free(&c);
}

/* Infinity and NaN come through. */
static void what_is_not_finite_shows(void **state)
{
	enum dot dot[3];
	int n = dots(dot);

	for (int d = 0; d < n; d++)
		for (int k = 0; k < 2; k++) {
			enum { M = 20, N = 40, K = 50 };
			struct case_ c = drawn(4, M, N, K);
			real *before = noise(9, 1, c.nc), *y, *a = (real *)(uintptr_t)c.g.a;

			c.g.add = false;
			a[c.g.trans_a ? 3 * c.g.lda + 7 : 7 * c.g.lda + 3] = k ? (real)INFINITY : (real)NAN;
			y = made(dot[d], &c, before);
			for (size_t i = 0; i < M; i++)
				for (size_t j = 0; j < N; j++)
					assert_true((i == 7) == !isfinite(y[i * c.g.ldc + j]));
			free(y);
			free(before);
			case_free(&c);
		}
}

static void near(const char *text, const char *what, const real *a, const real *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fabs((double)(a[i] - b[i])) > 2e-3 * (1 + fabs((double)b[i])) || !isfinite(a[i]))
			fail_msg("%s: %s, element %zu: %.9g, and %.9g of rounded operands", text, what, i, (double)a[i],
				(double)b[i]);
}

/* With the instructions as without them. */
static void layers_use_them(void **state)
{
	static const struct { const char *text; struct shape in; } row[] = {
		{ "linear out=24", { 1, { 40 } } }, { "linear out=12 bias=0", { 1, { 300 } } },
		{ "linear out=33 transposed=1", { 2, { 9, 20 } } }, { "linear out=40; tanh; linear out=5", { 1, { 130 } } },
		{ "attention heads=2 causal=1", { 2, { 60, 96 } } }, { "conv2d out=6 kernel=3", { 3, { 3, 9, 9 } } },
	};
	enum dot dot[3];
	int n = dots(dot);

	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		for (int d = 0; d < n; d++)
			for (int k = 0; k < 4; k++) {
				struct par par = team(k % 2 ? 3 : 1, CPU_PLAIN, NULL), plain = par;
				struct kerr e;
				struct model *m = model_text(row[i].in, row[i].text, NULL, &e);
				size_t batch = k % 2 ? 40 : 3, nx = batch * shape_count(&m->in), ny = batch * shape_count(&m->out);
				real *x = noise(1, 1, nx), *dy = noise(2, 1, ny), *w = noise(3, 0.3, m->nparam + 1);
				struct model_pass a, b;

				par.dot = dot[d];
				model_precision(m, PRECISION_BF16);
				a = model_pass(&par, m, batch, x, dy, w, k / 2);
				b = model_pass(&plain, m, batch, x, dy, w, k / 2);
				near(row[i].text, "result", a.y, b.y, ny);
				near(row[i].text, "gradient of the input", a.dx, b.dx, nx);
				near(row[i].text, "gradient of the parameters", a.grad, b.grad, m->nparam);
				if (*row[i].text != 'c')
					assert_memory_not_equal(a.y, b.y, ny * sizeof(real));
				model_pass_free(&a); model_pass_free(&b);
				free(x); free(dy); free(w);
				(void)model_free(m);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_are_sums), cmocka_unit_test(the_cut_does_not_matter),
		cmocka_unit_test(the_twin_is_one), cmocka_unit_test(what_is_not_finite_shows),
		cmocka_unit_test(layers_use_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
