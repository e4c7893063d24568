/* Products by tiles of our own against OpenBLAS, one worker, in turns: the shapes where the layers use them (few rows,
 * heads of attention) and those where they do not. GFLOP/s, medians of ROUNDS. JSON out: `tile [ROUNDS]`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "kernels/gemm.h"
#include "kernels/gemm_tile.h"
#include "kernels/layer.h"
#include "usage.h"

enum { ROUNDS_MAX = 99 };

/* C [m, n] = op(A) op(B) (+ C) */
static const struct dims { const char *what; size_t m, n, k; bool ta, tb, add, used; } dims[] = {
	{ "mlp forward", 64, 512, 784, false, true, false, true },
	{ "mlp forward", 64, 512, 512, false, true, false, true },
	{ "mlp data gradient", 64, 512, 512, false, false, false, true },
	{ "mlp weight gradient, added", 512, 784, 64, true, false, true, false },
	{ "mlp weight gradient", 512, 784, 64, true, false, false, true },
	{ "16 rows weight gradient", 512, 512, 16, true, false, false, true },
	{ "96 rows weight gradient", 512, 512, 96, true, false, false, true },
	{ "16 rows", 16, 512, 512, false, true, false, true },
	{ "96 rows", 96, 512, 512, false, true, false, true },
	{ "attention scores", 48, 128, 64, false, true, false, true },
	{ "attention values", 48, 64, 128, false, false, false, true },
	{ "attention key gradient", 128, 64, 48, true, false, true, true },
	{ "gpt forward", 1024, 1536, 384, false, false, false, false },
	{ "gpt data gradient", 1024, 384, 1536, false, true, false, false },
	{ "gpt weight gradient, added", 384, 1536, 1024, true, false, true, false },
	{ "gpt weight gradient", 384, 1536, 1024, true, false, false, false },
	{ "gpt2 weight gradient", 768, 3072, 256, true, false, false, false },
};
enum { DIMS = sizeof dims / sizeof *dims };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof *v, by_value);
	return v[n / 2];
}

static float *floats(uint64_t key, size_t n)
{
	float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);

	rand_uniform(key, 1, n, x);
	return x;
}

static void measure(const struct par *par, const struct dims *d, int rounds, bool last)
{
	double took[2][ROUNDS_MAX], flops = gemm_flops(d->m, d->n, d->k), blas, own;
	float *a = floats(1, d->m * d->k), *b = floats(2, d->n * d->k), *c = floats(3, d->m * d->n);
	void *work = aligned_alloc(64, (gemm_tile_work(d->m, d->n, d->k) + 63) / 64 * 64);
	struct gemm_tile g = { .trans_a = d->ta, .trans_b = d->tb, .add = d->add, .m = d->m, .n = d->n, .k = d->k,
		.alpha = 1,
		.a = a, .lda = d->ta ? d->m : d->k, .b = b, .ldb = d->tb ? d->k : d->n, .c = c, .ldc = d->n };
	int calls = (int)(5e7 / flops) + 1;

	for (int r = -1; r < rounds; r++)
		for (int w = 0; w < 2; w++) {
			double from = now();

			for (int i = 0; i < calls; i++)
				if (w)
					gemm_tile(par->cpu, &g, work);
				else
					gemm(par, d->ta, d->tb, d->m, d->n, d->k, 1, a, g.lda, b, g.ldb, d->add ? 1 : 0, c, d->n);
			if (r >= 0)
				took[w][r] = (now() - from) / calls;
		}
	blas = median(took[0], rounds);
	own = median(took[1], rounds);
	printf("  {\"shape\": \"%s %zux%zux%zu\", \"openblas\": %.1f, \"tiles\": %.1f, \"ratio\": %.3f,"
		" \"used\": %s}%s\n", d->what,
		d->m, d->n, d->k, flops / blas / 1e9, flops / own / 1e9, blas / own, d->used ? "true" : "false",
			last ? "" : ",");
	free(a);
	free(b);
	free(c);
	free(work);
}

int main(int argc, char **argv)
{
	static const char usage[] = "bench_tile [ROUNDS]";
	bench_words(argc, argv, 0, 1, usage);
	int rounds = bench_number(argc, argv, 1, 9, 1, ROUNDS_MAX, usage);
	struct kerr e;
	struct blas *blas = blas_open(&e);
	struct par par;
	enum cpu cpu;

	cpu_pick(NULL, &cpu, NULL);
	par = par_serial(cpu, blas);
	if (!blas || !gemm_tile_has(cpu)) {
		fprintf(stderr, "tile: nothing to compare here: %s\n", blas ? "no tiles for this CPU" : e.text);
		blas_close(blas);
		return 1;
	}
	printf("{\"bench\": \"tile\", \"rounds\": %d, \"threads\": 1, \"cpu\": \"%s\", \"unit\": \"GFLOP/s\","
		" \"shapes\": [\n", rounds,
		cpu_name(cpu));
	for (int i = 0; i < DIMS; i++)
		measure(&par, &dims[i], rounds, i + 1 == DIMS);
	printf("]}\n");
	blas_close(blas);
	return 0;
}
