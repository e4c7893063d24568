/* Products by tiles: against sums in double for every transposition, edge and option, never outside of C, and the same
 * bits for every slice. */
#include "kernels_util.h"
#include <math.h>
#include "kernels/gemm_tile.h"
#include "skip.h"

#define GAP 3                                   /* between rows: must stay as it is */

struct dims { size_t m, n, k; };
static const struct dims dims[] = {
	{ 1, 1, 1 }, { 6, 16, 8 }, { 14, 32, 8 }, { 5, 3, 9 }, { 13, 31, 16 }, { 17, 33, 300 }, { 64, 40, 256 },
	{ 64, 130, 784 }, { 97, 10, 20 },
	{ 1, 70, 400 }, { 70, 1, 20 }, { 200, 150, 30 }, { 48, 128, 64 }, { 100, 20, 770 },
	{ 30, 800, 260 },
};

struct option { bool ta, tb, add, bias; real alpha; };

/* op(X)[i][j] of a matrix stored with rows ld apart. */
static double element(const real *x, bool trans, size_t ld, size_t i, size_t j)
{
	return (double)(trans ? x[j * ld + i] : x[i * ld + j]);
}

static struct gemm_tile operands(struct dims d, struct option o)
{
	struct gemm_tile g = { .trans_a = o.ta, .trans_b = o.tb, .add = o.add, .m = d.m, .n = d.n, .k = d.k,
		.alpha = o.alpha, .lda = (o.ta ? d.m : d.k) + 1, .ldb = (o.tb ? d.k : d.n) + 2, .ldc = d.n + GAP };

	g.a = noise(1, 1, g.lda * (o.ta ? d.k : d.m));
	g.b = noise(2, 1, g.ldb * (o.tb ? d.n : d.k));
	g.c = noise(3, 1, g.ldc * d.m);
	g.bias = o.bias ? noise(4, 1, d.n) : NULL;
	return g;
}

static void operands_free(struct gemm_tile *g)
{
	free((real *)g->a);
	free((real *)g->b);
	free((real *)g->bias);
	free(g->c);
}

static void check(enum cpu cpu, struct dims d, struct option o)
{
	struct gemm_tile g = operands(d, o);
	void *work = bytes(gemm_tile_work(d.m, d.n, d.k));
	real *old = reals(g.ldc * d.m);

	memcpy(old, g.c, g.ldc * d.m * sizeof(real));
	for (size_t i = 0; i < d.m && !o.add; i++)
		for (size_t j = 0; j < d.n; j++)
			g.c[i * g.ldc + j] = (real)NAN;         /* must not be read */
	gemm_tile(cpu, &g, work);
	for (size_t i = 0; i < d.m; i++)
		for (size_t j = 0; j < g.ldc; j++) {
			double want = 0, had = (double)old[i * g.ldc + j], got = (double)g.c[i * g.ldc + j];

			for (size_t l = 0; l < d.k && j < d.n; l++)
				want += element(g.a, o.ta, g.lda, i, l) * element(g.b, o.tb, g.ldb, l, j);
			want = j >= d.n ? had : (double)o.alpha * want + (o.add ? had : 0) + (o.bias ? (double)g.bias[j] : 0);
			if (!(fabs(got - want) <= (j >= d.n ? 0 : 5e-7 * (double)(d.k + 2))))
				fail_msg("%s %zux%zux%zu trans %d %d: C[%zu][%zu] = %g, not %g", cpu_name(cpu), d.m, d.n, d.k, o.ta,
					o.tb, i, j, got, want);
		}
	operands_free(&g);
	free(work);
	free(old);
}

static enum cpu first_with_tiles(void)
{
	enum cpu best;

	cpu_pick(NULL, &best, NULL);
	if (!gemm_tile_has(best))
		skip_because("this processor is not one for tiles: no AVX2");
	assert_false(gemm_tile_has(CPU_PLAIN));
	return best;
}

static void products_are_right(void **state)
{
	enum cpu best = first_with_tiles();

	for (enum cpu cpu = CPU_AVX2; cpu <= best; cpu++)
		for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
			for (int t = 0; t < 4; t++) {
				check(cpu, dims[i], (struct option){ t & 1, t & 2, false, false, 1 });
				check(cpu, dims[i], (struct option){ t & 1, t & 2, true, false, (real)-0.5 });
				check(cpu, dims[i], (struct option){ t & 1, t & 2, t & 1, true, 1 });
			}
}

/* Rows and columns cut anywhere: a slice has the bits of the whole, also when it takes another way (few rows). */
static void slices_change_nothing(void **state)
{
	static const size_t cut[] = { 0, 1, 7, 64, 65, 130, 163 };
	enum cpu best = first_with_tiles();

	for (int t = 0; t < 4; t++)
		for (int rows = 0; rows < 2; rows++) {
			struct option o = { t & 1, t & 2, true, true, 1 };
			struct gemm_tile g = operands((struct dims){ 163, 163, 500 }, o);
			struct gemm_tile s = g;
			size_t n = g.ldc * g.m;
			void *work = bytes(gemm_tile_work(g.m, g.n, g.k));
			real *c = reals(n);

			memcpy(c, g.c, n * sizeof(real));
			gemm_tile(best, &g, work);
			for (size_t i = 0; i + 1 < sizeof cut / sizeof *cut; i++) {
				size_t lo = cut[i], len = cut[i + 1] - lo;

				s.m = rows ? len : g.m;
				s.n = rows ? g.n : len;
				s.a = rows ? g.a + (g.trans_a ? lo : lo * g.lda) : g.a;
				s.b = rows ? g.b : g.b + (g.trans_b ? lo * g.ldb : lo);
				s.c = c + (rows ? lo * g.ldc : lo);
				s.bias = g.bias + (rows ? 0 : lo);
				gemm_tile(best, &s, work);
			}
			assert_memory_equal(c, g.c, n * sizeof(real));
			operands_free(&g);
			free(work);
			free(c);
		}
}

/* What is enough for a product is enough for every smaller one. */
static void scratch_never_shrinks(void **state)
{
	static const size_t size[] = { 1, 8, 96, 168, 384, 385, 500, 768, 769, 2000 };

	for (size_t a = 0; a < sizeof size / sizeof *size; a++)
		for (size_t k = 1; k < 1600; k++) {
			size_t n = size[a];

			assert_true(gemm_tile_work(n, n, k + 1) >= gemm_tile_work(n, n, k));
			assert_true(gemm_tile_work(k + 1, 5, n) >= gemm_tile_work(k, 5, n));
			assert_true(gemm_tile_work(5, k + 1, n) >= gemm_tile_work(5, k, n));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scratch_never_shrinks),
		cmocka_unit_test(products_are_right),
		cmocka_unit_test(slices_change_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
