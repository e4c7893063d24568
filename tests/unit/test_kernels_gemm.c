/* The plain product against the definition, OpenBLAS against the plain product, and the choice of the core type. */
#include "kernels_util.h"
#include <math.h>
#include <stdio.h>
#include <unistd.h>
#include "kernels/gemm.h"
#include "skip.h"

struct dims { size_t m, n, k; };
static const struct dims dims[] = { { 1, 1, 1 }, { 3, 5, 7 }, { 16, 16, 16 }, { 17, 33, 300 }, { 64, 10, 128 }, { 1,
	70, 20 },
	{ 70, 1, 20 }, { 5, 6, 0 }, { 130, 140, 150 }, { 8200, 2, 3 } };

static double element(const real *x, bool trans, size_t ld, size_t i, size_t j)
{
	return (double)(trans ? x[j * ld + i] : x[i * ld + j]);
}

/* alpha op(A) op(B) + beta C in double, once for all that must compute it. */
static double *wanted(struct dims d, bool ta, bool tb, real alpha, real beta, const real *a, size_t lda, const real *b,
	size_t ldb, const real *old, size_t ldc)
{
	double *want = calloc(d.m * d.n + 1, sizeof *want);

	assert_non_null(want);
	for (size_t i = 0; i < d.m; i++)
		for (size_t j = 0; j < d.n; j++) {
			double w = (double)beta * (double)old[i * ldc + j];

			for (size_t p = 0; p < d.k; p++)
				w += (double)alpha * element(a, ta, lda, i, p) * element(b, tb, ldb, p, j);
			want[i * d.n + j] = w;
		}
	return want;
}

/* Every transposition, leading dimensions larger than needed, alpha and beta. */
static void check(const struct par *par, size_t npar, struct dims d, bool ta, bool tb, real alpha, real beta)
{
	size_t lda = (ta ? d.m : d.k) + 3, ldb = (tb ? d.k : d.n) + 1, ldc = d.n + 2;
	real *a = noise(1, 1, lda * (ta ? d.k : d.m)), *b = noise(2, 1, ldb * (tb ? d.n : d.k));
	real *old = noise(3, 1, ldc * d.m);
	real *c = reals(ldc * d.m);
	double *want = wanted(d, ta, tb, alpha, beta, a, lda, b, ldb, old, ldc);

	for (size_t k = 0; k < npar; k++) {
		memcpy(c, old, ldc * d.m * sizeof(real));
		if (beta == 0)
			for (size_t i = 0; i < d.m; i++)
				for (size_t j = 0; j < d.n; j++)
					c[i * ldc + j] = (real)NAN;     /* must not be read */
		gemm(&par[k], ta, tb, d.m, d.n, d.k, alpha, a, lda, b, ldb, beta, c, ldc);
		for (size_t i = 0; i < d.m; i++)
			for (size_t j = 0; j < ldc; j++) {
				if (j >= d.n)
					assert_true(c[i * ldc + j] == old[i * ldc + j]);
				else if (!(fabs((double)c[i * ldc + j] - want[i * d.n + j]) <= 2e-6 * (double)(d.k + 2)))
					fail_msg("%zux%zux%zu trans %d %d: C[%zu][%zu] = %g, not %g (%zu)", d.m, d.n, d.k, ta, tb, i, j,
						(double)c[i * ldc + j], want[i * d.n + j], k);
			}
	}
	free(a); free(b); free(c); free(old); free(want);
}

static void check_all(const struct par *par, size_t npar)
{
	for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
		for (int t = 0; t < 4; t++) {
			check(par, npar, dims[i], t & 1, t & 2, 1, 0);
			check(par, npar, dims[i], t & 1, t & 2, (real)0.5, 1);
			check(par, npar, dims[i], t & 1, t & 2, -2, (real)0.25);
		}
}

static void reference_is_the_definition(void **state)
{
	struct par par[2 * (CPU_AVX512 + 1)];
	size_t n = 0;
	enum cpu best;

	cpu_pick(NULL, &best, NULL);
	for (enum cpu c = CPU_PLAIN; c <= best; c++) {
		par[n++] = par_serial(c, NULL);
		par[n++] = team(3, c, NULL);
	}
	check_all(par, n);
}

static void reference_is_bit_exact(void **state)
{
	size_t m = 190, n = 170, k = 530;
	real *a = noise(1, 1, m * k), *b = noise(2, 1, k * n), *want = bytes(m * n * sizeof(real)),
		*got = bytes(m * n * sizeof(real));
	struct par plain = par_serial(CPU_PLAIN, NULL);
	enum cpu best;

	cpu_pick(NULL, &best, NULL);
	gemm_reference(&plain, false, false, m, n, k, 1, a, k, b, n, 0, want, n);
	for (enum cpu c = CPU_PLAIN; c <= best; c++)
		for (int parts = 1; parts < 5; parts++) {
			struct par par = team(parts, c, NULL);

			gemm(&par, false, false, m, n, k, 1, a, k, b, n, 0, got, n);
			assert_memory_equal(got, want, m * n * sizeof(real));
		}
	free(a); free(b); free(want); free(got);
}

static void openblas_agrees(void **state)
{
	struct kerr e;
	struct blas_info info;
	struct blas *b = blas_open(&e);

	if (!b)
		skip_because("no OpenBLAS here: %s", e.text);
	blas_info(b, &info);
	printf("OpenBLAS core %s (by itself: %s%s): %s\n", info.core, info.core_unset, info.forced ? ", forced" : "",
		info.config);
	assert_string_equal(info.library, "openblas");
	assert_false(info.below_cpu && !info.by_operator);
	assert_string_equal(getenv("OPENBLAS_NUM_THREADS"), "1");
	assert_string_equal(getenv("OPENBLAS_THREAD_TIMEOUT"), "10");
	struct par par[] = { par_serial(CPU_PLAIN, b), team(2, CPU_PLAIN, b) };
	check_all(par, 2);
	blas_close(b);
}

/* The healing itself: make OpenBLAS choose badly (as it does by itself on CPUs that it does not know), and see that
 * loading again with the variable set takes effect in one process. */
static void core_type_takes_effect_on_reload(void **state)
{
	struct blas_info poor, good;
	struct kerr e;
	struct blas *b;

	setenv("OPENBLAS_CORETYPE", "Prescott", 1);
	b = blas_open(&e);
	if (!b) {
		unsetenv("OPENBLAS_CORETYPE");
		skip_because("no OpenBLAS here: %s", e.text);
	}
	blas_info(b, &poor);
	blas_close(b);
	unsetenv("OPENBLAS_CORETYPE");
	assert_true(poor.by_operator);
	assert_false(poor.forced);
	assert_string_equal(poor.core, "Prescott");
	b = blas_open(&e);
	assert_non_null(b);
	blas_info(b, &good);
	blas_close(b);
	assert_false(good.by_operator);
	assert_false(good.below_cpu);
	if (poor.below_cpu)
		assert_string_not_equal(good.core, "Prescott");
	unsetenv("OPENBLAS_CORETYPE");
}

/* Another thread may be reading the environment (a clock asks for TZ) while OpenBLAS is loaded. */
static void loading_leaves_the_environment_alone(void **state)
{
	struct blas_info settled;
	char **was;
	size_t n = 0;

	unsetenv("OPENBLAS_CORETYPE");
	blas_settle(&settled);
	while (environ[n])
		n++;
	was = bytes((n + 1) * sizeof *was);
	memcpy(was, environ, (n + 1) * sizeof *was);
	char **at = environ;
	blas_close(blas_load(&settled, &(struct kerr){ 0 }));
	assert_ptr_equal(environ, at);
	assert_memory_equal(environ, was, (n + 1) * sizeof *was);
	free(was);
	unsetenv("OPENBLAS_CORETYPE");
}

static void no_blas_is_the_reference(void **state)
{
	struct blas_info info;

	blas_info(NULL, &info);
	assert_string_equal(info.library, "reference");
	blas_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reference_is_the_definition),
		cmocka_unit_test(reference_is_bit_exact),
		cmocka_unit_test(core_type_takes_effect_on_reload),
		cmocka_unit_test(loading_leaves_the_environment_alone),
		cmocka_unit_test(openblas_agrees),
		cmocka_unit_test(no_blas_is_the_reference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
