/* Mixed precision (row A10): operands of products are rounded, and nothing else is. A layer in bf16 makes the bits that
 * it makes in single precision of operands that were rounded before, and so in fp16; attention, which multiplies what
 * it makes itself, is held against sums in double with a rounding at the same places. */
#include "kernels_util.h"
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include "kernels/arena.h"
#include "kernels/gemm.h"
#include "kernels/mixed.h"
#include "kernels/vec.h"
#include "skip.h"

static struct blas *blas;

static float of_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static uint32_t bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return u;
}

static float rounded(float x, enum precision how)
{
	const struct par one = par_serial(CPU_PLAIN, NULL);

	mixed_round(&one, how, 1, &x, &x);
	return x;
}

/* All 65 536 keep themselves; between two of them the nearer one, in the middle the even one, on every instruction
 * set. */
static void every_number_is_rounded_to_the_nearest(void **state)
{
	enum { N = 65536 };
	float *x = reals(4 * N), *y = reals(4 * N);

	for (uint32_t i = 0; i < N; i++) {
		x[i] = of_bits(i << 16);
		x[N + i] = of_bits(i << 16 | 0x7fff);
		x[2 * N + i] = of_bits(i << 16 | 0x8000);
		x[3 * N + i] = of_bits(i << 16 | 0x8001);
	}
	for (int cpu = 0; cpu < 6; cpu++) {
		enum cpu best;
		struct par par;

		assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
		if ((enum cpu)(cpu / 2) > best)
			break;
		par = team(1 + cpu % 2 * 2, (enum cpu)(cpu / 2), NULL);
		mixed_round(&par, PRECISION_BF16, 4 * N, x, y);
		for (uint32_t i = 0; i < N; i++) {
			if ((i & 0x7fff) >= 0x7f80) {
				assert_true((i & 0x7f) ? isnan(y[i]) && isnan(y[2 * N + i]) : bits(y[i]) == i << 16);
				continue;
			}
			assert_true(bits(y[i]) == i << 16 && bits(y[N + i]) == i << 16);
			assert_int_equal(bits(y[2 * N + i]), (i + (i & 1)) << 16);
			assert_int_equal(bits(y[3 * N + i]), (i + 1) << 16);
		}
		mixed_round(&par, PRECISION_FP32, 4 * N, x, y);
		assert_memory_equal(x, y, 4 * N * sizeof(float));
	}
	free(x);
	free(y);
}

/* What IEEE 754 says that a half is. */
static float half_is(uint32_t h)
{
	int exponent = (int)(h >> 10 & 31), sign = h & 0x8000 ? -1 : 1;
	double m = h & 0x3ff;

	if (exponent == 31)
		return (float)(m > 0 ? NAN : sign * INFINITY);
	return (float)(sign * (exponent ? ldexp(1024 + m, exponent - 25) : ldexp(m, -24)));
}

/* x rounds to what bits say, on every instruction set. */
static void all_round_to(const float *x, const float *want, size_t n)
{
	float *y = reals(n);
	enum cpu best;

	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++) {
		struct par par = team(3, cpu, NULL);

		mixed_round(&par, PRECISION_FP16, n, x, y);
		for (size_t i = 0; i < n; i++)
			if (isnan(want[i]) ? !isnan(y[i]) : bits(want[i]) != bits(y[i]))
				fail_msg("%.9g becomes %.9g, and %.9g is nearest", (double)x[i], (double)y[i], (double)want[i]);
	}
	free(y);
}

/* All 65 536 keep themselves; between two of them the nearer one, in the middle the even one. 65 520, which is in the
 * middle between the largest and the next power of two, is too large, and what is is infinite. */
static void every_half_is_kept(void **state)
{
	enum { N = 65536 };
	float *x = reals(4 * N), *want = reals(4 * N);

	for (uint32_t h = 0; h < N; h++) {
		uint32_t next = h + 1;
		float here = half_is(h), there = (next & 0x7fff) == 0x7c00 ? copysignf(65536, here) : half_is(next);
		float limit = (next & 0x7fff) == 0x7c00 ? copysignf(INFINITY, here) : there;

		x[h] = want[h] = here;
		for (int k = 1; k < 4; k++) {
			x[k * N + h] = here;
			want[k * N + h] = here;
		}
		if ((h & 0x7fff) >= 0x7c00)
			continue;
		x[N + h] = (here + there) / 2;
		want[N + h] = h & 1 ? limit : here;
		x[2 * N + h] = nextafterf(x[N + h], here);
		x[3 * N + h] = nextafterf(x[N + h], there);
		want[3 * N + h] = limit;
	}
	all_round_to(x, want, 4 * N);
	free(x);
	free(want);
}

#if defined(__x86_64__)
__attribute__((target("f16c,avx"))) static void by_f16c(size_t n, const float *x, float *y)
{
	for (size_t i = 0; i < n; i += 4)
		_mm_storeu_ps(y + i, _mm_cvtph_ps(_mm_cvtps_ph(_mm_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT)));
}
#endif

/* Where the processor converts, it makes the same: numbers of every exponent, by chance. */
static void halves_are_those_of_the_processor(void **state)
{
#if defined(__x86_64__)
	enum { N = 1 << 18 };
	float *x = reals(N), *want = reals(N);

	if (!__builtin_cpu_supports("f16c"))
		skip_because("this processor does not convert halves");
	for (uint32_t i = 0; i < N; i++)
		x[i] = of_bits((uint32_t)rand_bits(5, i));
	by_f16c(N, x, want);
	all_round_to(x, want, N);
	free(x);
	free(want);
#else
	skip_because("this processor does not convert halves");
#endif
}

struct one { const char *text; struct shape in; };
static const struct one layers[] = {
	{ "linear out=24", { 1, { 40 } } }, { "linear out=130", { 1, { 70 } } }, { "linear out=12 bias=0", { 1, { 300 } } },
	{ "linear out=33 transposed=1", { 2, { 9, 20 } } },
	{ "conv2d out=16 kernel=3 padding=1", { 3, { 16, 10, 9 } } },
	{ "conv2d out=16 kernel=3 padding=1 stride=2", { 3, { 16, 10, 10 } } },
	{ "conv2d out=16 kernel=3 padding=1 winograd=2", { 3, { 17, 9, 9 } } },
	{ "conv2d out=20 kernel=3 padding=1", { 3, { 6, 2, 2 } } }, { "conv2d out=6 kernel=5", { 3, { 3, 12, 12 } } },
	{ "conv2d out=70 kernel=1 bias=0", { 3, { 600, 6, 6 } } },
	{ "conv2d out=8 kernel=3 groups=4 dilation=2", { 3, { 8, 11, 11 } } },
};

static void equal(const struct one *o, const char *what, const real *a, const real *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(a + i, b + i, sizeof *a) != 0)
			fail_msg("%s: %s, element %zu: %.9g, and %.9g of rounded operands", o->text, what, i, (double)a[i],
				(double)b[i]);
}

static void a_layer_multiplies_what_is_rounded(const struct one *o, enum precision how, const struct par *par,
	size_t batch)
{
	struct kerr e;
	struct model *m = model_text(o->in, o->text, NULL, &e), *half = model_text(o->in, o->text, NULL, &e);
	const struct layer *l = &m->op[0];
	size_t nx = batch * shape_count(&m->in), ny = batch * shape_count(&m->out), first = l->param[0].count;
	real *x = noise(1, 1, nx), *dy = noise(2, 1, ny), *w = noise(3, 1, m->nparam), *rx = reals(nx), *rdy = reals(ny);
	real *rw = reals(m->nparam);
	struct model_pass a, b, plain;

	model_precision(half, how);
	mixed_round(par, how, nx, x, rx);
	mixed_round(par, how, ny, dy, rdy);
	mixed_round(par, how, first, w, rw);
	vec_copy(par, m->nparam - first, w + first, rw + first);
	a = model_pass(par, half, batch, x, dy, w, false);
	b = model_pass(par, m, batch, rx, rdy, rw, false);
	plain = model_pass(par, m, batch, x, dy, w, false);
	equal(o, "result", a.y, b.y, ny);
	equal(o, "gradient of the input", a.dx, b.dx, nx);
	equal(o, "gradient of the parameters", a.grad, b.grad, m->nparam);
	assert_memory_not_equal(a.y, plain.y, ny * sizeof(real));
	assert_memory_not_equal(a.dx, plain.dx, nx * sizeof(real));
	assert_memory_not_equal(a.grad, plain.grad, m->nparam * sizeof(real));
	model_pass_free(&a); model_pass_free(&b); model_pass_free(&plain);
	free(x); free(dy); free(w); free(rx); free(rdy); free(rw);
	(void)model_free(m);
	(void)model_free(half);
}

static void layers_multiply_what_is_rounded(void **state)
{
	enum cpu best;

	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
		for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++)
			for (int k = 0; k < 8; k++) {
				struct par par = team(k % 2 ? 3 : 1, cpu, k / 2 % 2 ? blas : NULL);

				a_layer_multiplies_what_is_rounded(&layers[i], k < 4 ? PRECISION_BF16 : PRECISION_FP16, &par,
					k % 2 ? 5 : 200 / (layers[i].in.nd * 9));
			}
}

/* The bits of the reference do not depend on the processor, with rounded operands either. */
static void the_reference_makes_the_same_everywhere(void **state)
{
	const char *text = "conv2d out=16 kernel=3 padding=1; relu; flatten; linear out=20; linear out=7";
	const struct shape in = { 3, { 16, 8, 8 } };
	enum { BATCH = 6 };
	struct kerr e;
	struct model *m = model_text(in, text, NULL, &e);
	size_t nx = BATCH * shape_count(&in);
	real *x = noise(1, 1, nx), *dy = noise(2, 1, BATCH * 7), *w = reals(m->nparam);
	struct par par = par_serial(CPU_PLAIN, NULL);
	enum cpu best;
	struct model_pass a;

	model_precision(m, PRECISION_BF16);
	model_init(m, 3, w);
	a = model_pass(&par, m, BATCH, x, dy, w, false);
	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (enum cpu cpu = CPU_AVX2; cpu <= best; cpu++) {
		struct par other = par_serial(cpu, NULL);
		struct model_pass b = model_pass(&other, m, BATCH, x, dy, w, false);

		assert_memory_equal(a.y, b.y, BATCH * 7 * sizeof(real));
		assert_memory_equal(a.dx, b.dx, nx * sizeof(real));
		assert_memory_equal(a.grad, b.grad, m->nparam * sizeof(real));
		model_pass_free(&b);
	}
	model_pass_free(&a);
	free(x); free(dy); free(w);
	(void)model_free(m);
}

/* What does not multiply is as ever. */
static void other_layers_are_not_touched(void **state)
{
	const char *text = "layernorm; gelu; groupnorm groups=2; silu; bias; rmsnorm; tanh; softmax";
	const struct shape in = { 2, { 6, 16 } };
	enum { BATCH = 3, N = BATCH * 96 };
	struct kerr e;
	struct model *m = model_text(in, text, NULL, &e), *half = model_text(in, text, NULL, &e);
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct model_need need[2];
	struct model_pass a, b;
	real *x, *dy, *w;

	if (!m || !half)
		fail_msg("%s", e.text);
	model_precision(half, PRECISION_BF16);
	x = noise(1, 1, N);
	dy = noise(2, 1, N);
	w = noise(3, 1, m->nparam);
	a = model_pass(&par, half, BATCH, x, dy, w, false);
	b = model_pass(&par, m, BATCH, x, dy, w, false);
	assert_memory_equal(a.y, b.y, N * sizeof(real));
	assert_memory_equal(a.dx, b.dx, N * sizeof(real));
	assert_memory_equal(a.grad, b.grad, m->nparam * sizeof(real));
	model_need(m, 0, m->nops, BATCH, 2, &need[0]);
	model_need(half, 0, m->nops, BATCH, 2, &need[1]);
	assert_memory_equal(&need[0], &need[1], sizeof need[0]);
	model_pass_free(&a); model_pass_free(&b);
	free(x); free(dy); free(w);
	(void)model_free(m);
	(void)model_free(half);
}

/* What a model needs is larger by the operands of the layer that needs most, to the byte. */
static void memory_is_counted(void **state)
{
	const struct shape in = { 1, { 100 } };
	enum { BATCH = 10 };
	struct kerr e;
	struct model *m = model_text(in, "linear out=300; tanh; linear out=50", NULL, &e);
	struct model_need need[2];
	size_t first = arena_round(4 * (100 * 300 + 300)) + arena_round(4 * BATCH * 100);
	size_t last = arena_round(4 * (300 * 50 + 50)) + arena_round(4 * BATCH * 300);

	assert_non_null(m);
	model_need(m, 0, m->nops, BATCH, 1, &need[0]);
	model_precision(m, PRECISION_BF16);
	assert_int_equal(mixed_bytes(&m->op[0], BATCH, false), first);
	assert_int_equal(mixed_bytes(&m->op[0], BATCH, true), first + arena_round(4 * BATCH * 300));
	assert_int_equal(mixed_bytes(&m->op[1], BATCH, true), 0);
	assert_int_equal(mixed_bytes(&m->op[2], BATCH, true), last + arena_round(4 * BATCH * 50));
	model_need(m, 0, m->nops, BATCH, 1, &need[1]);
	assert_int_equal(need[1].saved, need[0].saved);
	assert_int_equal(need[1].work_fwd - need[0].work_fwd, first);
	assert_int_equal(need[1].work_bwd - need[0].work_bwd, first + arena_round(4 * BATCH * 300));
	(void)model_free(m);
}

/* --- attention, in double, one head, one block */

enum { T = 20, D = 8 };

struct sums { double y[T][D], dq[T][D], dk[T][D], dv[T][D]; };

static double maybe(double x, enum precision how) { return how ? (double)rounded((float)x, how) : x; }

static void attend(const real *x, const real *dout, enum precision half, struct sums *r)
{
	double p[T][T], scale = (double)(real)(1 / sqrt(D));

	memset(r, 0, sizeof *r);
#define X(which, i, j) maybe((double)x[(i) * 3 * D + (which) * D + (j)], half)
#define DY(i, j) maybe((double)dout[(i) * D + (j)], half)
	for (int i = 0; i < T; i++) {
		double most = -INFINITY, sum = 0, along = 0;

		for (int k = 0; k < T; k++) {
			p[i][k] = 0;
			for (int j = 0; j < D; j++)
				p[i][k] += X(0, i, j) * X(1, k, j) * scale;
			most = p[i][k] > most ? p[i][k] : most;
		}
		for (int k = 0; k < T; k++)
			sum += p[i][k] = exp(p[i][k] - most);
		for (int k = 0; k < T; k++)
			for (int j = 0; j < D; j++)
				r->y[i][j] += maybe(p[i][k], half) * X(2, k, j) / sum;
		for (int j = 0; j < D; j++)
			along += r->y[i][j] * DY(i, j);
		for (int k = 0; k < T; k++) {
			double dp = 0, w = p[i][k] / sum, slope;

			for (int j = 0; j < D; j++)
				dp += DY(i, j) * X(2, k, j);
			slope = maybe(w * (dp - along) * scale, half);
			for (int j = 0; j < D; j++) {
				r->dq[i][j] += slope * X(1, k, j);
				r->dk[k][j] += slope * X(0, i, j);
				r->dv[k][j] += maybe(w, half) * DY(i, j);
			}
		}
	}
#undef X
#undef DY
}

/* The largest difference from sums with and without rounding, as part of the largest number. */
static double off(const real *a, size_t step, const double (*b)[D])
{
	double most = 0, diff = 0;

	for (int i = 0; i < T; i++)
		for (int j = 0; j < D; j++) {
			most = fmax(most, fabs(b[i][j]));
			diff = fmax(diff, fabs((double)a[(size_t)i * step + (size_t)j] - b[i][j]));
		}
	return diff / most;
}

static void attention_rounds(enum precision how)
{
	const struct shape in = { 2, { T, 3 * D } };
	struct kerr e;
	struct model *m = model_text(in, "attention heads=1", NULL, &e);
	real *x = noise(1, 2, T * 3 * D), *dy = noise(2, 1, T * D);
	struct sums half, full;
	enum cpu best;

	assert_non_null(m);
	model_precision(m, how);
	attend(x, dy, how, &half);
	attend(x, dy, PRECISION_FP32, &full);
	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	for (enum cpu cpu = CPU_PLAIN; cpu <= best; cpu++)
		for (int k = 0; k < 2; k++) {
			struct par par = par_serial(cpu, k ? blas : NULL);
			struct model_pass p = model_pass(&par, m, 1, x, dy, NULL, false);
			const struct { const char *what; const real *a; size_t step; const double (*near)[D], (*far)[D]; } row[] = {
				{ "y", p.y, D, half.y, full.y }, { "dq", p.dx, 3 * D, half.dq, full.dq },
				{ "dk", p.dx + D, 3 * D, half.dk, full.dk }, { "dv", p.dx + 2 * D, 3 * D, half.dv, full.dv },
			};

			for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
				double near = off(row[i].a, row[i].step, row[i].near), far = off(row[i].a, row[i].step, row[i].far);

				/* a weight or slope at a half may fall on the other side: one of twenty terms by 2^-9 of itself */
				if (near > 1e-3 || near > far / 2)
					fail_msg("%s: %g from sums of rounded numbers, %g from others", row[i].what, near, far);
			}
			model_pass_free(&p);
		}
	free(x);
	free(dy);
	(void)model_free(m);
}

static void attention_rounds_what_it_multiplies(void **state)
{
	attention_rounds(PRECISION_BF16);
	attention_rounds(PRECISION_FP16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_number_is_rounded_to_the_nearest), cmocka_unit_test(every_half_is_kept),
		cmocka_unit_test(halves_are_those_of_the_processor), cmocka_unit_test(layers_multiply_what_is_rounded),
		cmocka_unit_test(the_reference_makes_the_same_everywhere), cmocka_unit_test(other_layers_are_not_touched),
		cmocka_unit_test(memory_is_counted), cmocka_unit_test(attention_rounds_what_it_multiplies),
	};
	struct kerr e;
	int failed;

	blas = blas_open(&e);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	blas_close(blas);
	return failed;
}
