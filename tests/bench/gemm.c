/* sgemm GFLOP/s: the core type that blas_open chooses against OpenBLAS with OPENBLAS_CORETYPE unset (what a program
 * that simply links it gets), and the plain reference. OpenBLAS chooses when it is loaded, so each reading is a child
 * process; the two alternate, medians of ROUNDS. JSON out: `gemm [ROUNDS]`. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "kernels/gemm.h"
#include "kernels/layer.h"
#include "usage.h"

enum way { CHOSEN, UNSET, AGAIN, REFERENCE, WAYS };     /* AGAIN: the chosen one a second time, the machine's noise */
static const char *const way_name[] = { "chosen", "unset", "chosen_again", "reference" };
struct dims { const char *what; size_t m, n, k; bool ta, tb; };
static const struct dims dims[] = {
	{ "square 512", 512, 512, 512, false, false }, { "mlp forward 64x512x784", 64, 512, 784, false, true },
	{ "mlp weights 512x784x64", 512, 784, 64, true, false }, { "conv 32x256x144", 32, 256, 144, false, false },
};
enum { DIMS = sizeof dims / sizeof *dims, ROUNDS_MAX = 99 };
struct reading { double gflops[DIMS]; char core[32]; bool forced, ok; };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct raw {
	void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
};

/* As a program that links the library gets it. */
static bool raw_open(struct raw *ret, char *core, size_t cap)
{
	void *lib = dlopen("libopenblas.so.0", RTLD_NOW), *symbol = lib ? dlsym(lib, "cblas_sgemm") : NULL;
	char *(*corename)(void) = NULL;

	if (!symbol)
		return false;
	*(void **)&corename = dlsym(lib, "openblas_get_corename");
	snprintf(core, cap, "%s", corename ? corename() : "?");
	*(void **)&ret->sgemm = symbol;
	return true;
}

static double flops_per_second(enum way way, const struct blas *b, const struct dims *d, float *x, float *y, float *z,
	const struct raw *raw)
{
	size_t lda = d->ta ? d->m : d->k, ldb = d->tb ? d->k : d->n;
	enum cpu cpu;
	int calls = 0;
	double from, took;

	cpu_pick(NULL, &cpu, NULL);
	struct par par = par_serial(cpu, b);
	for (int i = -1; i < 1; i++) {          /* once to warm up */
		from = now();
		for (calls = 0; (took = now() - from) < (i < 0 ? 0.002 : 0.03); calls++)
			if (way == UNSET)
				raw->sgemm(101, d->ta ? 112 : 111, d->tb ? 112 : 111, (int)d->m, (int)d->n, (int)d->k, 1, x,
					(int)lda, y, (int)ldb, 0, z, (int)d->n);
			else
				gemm(&par, d->ta, d->tb, d->m, d->n, d->k, 1, x, lda, y, ldb, 0, z, d->n);
	}
	return gemm_flops(d->m, d->n, d->k) * calls / took / 1e9;
}

static void measure(enum way way, struct reading *r)
{
	float *x = calloc(1 << 20, sizeof *x), *y = calloc(1 << 20, sizeof *y), *z = calloc(1 << 20, sizeof *z);
	struct raw raw = { NULL };
	struct blas *b = NULL;
	struct blas_info info;

	rand_uniform(1, 1, 1 << 20, x);
	rand_uniform(2, 1, 1 << 20, y);
	unsetenv("OPENBLAS_CORETYPE");
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	if (way == UNSET) {
		r->ok = raw_open(&raw, r->core, sizeof r->core);
	} else {
		b = way == REFERENCE ? NULL : blas_open(NULL);
		r->ok = way == REFERENCE || b;
		blas_info(b, &info);
		memcpy(r->core, info.core, sizeof r->core);
		r->forced = info.forced;
	}
	for (int i = 0; r->ok && i < DIMS; i++)
		r->gflops[i] = flops_per_second(way, b, &dims[i], x, y, z, &raw);
}

static struct reading in_child(enum way way)
{
	struct reading r = { .ok = false };
	int fd[2];
	pid_t pid;

	if (pipe(fd) < 0 || (pid = fork()) < 0)
		return r;
	if (pid == 0) {
		measure(way, &r);
		_exit(write(fd[1], &r, sizeof r) != sizeof r);
	}
	close(fd[1]);
	if (read(fd[0], &r, sizeof r) != sizeof r)
		r.ok = false;
	close(fd[0]);
	waitpid(pid, NULL, 0);
	return r;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(const struct reading (*all)[WAYS], int rounds)
{
	printf("{\"bench\": \"gemm\", \"rounds\": %d, \"threads\": 1, \"unit\": \"GFLOP/s\", \"cores\": {", rounds);
	for (int w = 0; w < WAYS; w++)
		printf("%s\"%s\": \"%s\"", w ? ", " : "", way_name[w], all[0][w].core);
	printf("}, \"forced\": %s, \"shapes\": [", all[0][CHOSEN].forced ? "true" : "false");
	for (int d = 0; d < DIMS; d++) {
		printf("%s\n  {\"shape\": \"%s\"", d ? "," : "", dims[d].what);
		for (int w = 0; w < WAYS; w++) {
			double v[ROUNDS_MAX];

			for (int i = 0; i < rounds; i++)
				v[i] = all[i][w].gflops[d];
			qsort(v, (size_t)rounds, sizeof *v, by_value);
			printf(", \"%s\": {\"median\": %.1f, \"min\": %.1f, \"max\": %.1f}", way_name[w], v[rounds / 2], v[0],
				v[rounds - 1]);
		}
		printf("}");
	}
	printf("]}\n");
}

int main(int argc, char **argv)
{
	static struct reading all[ROUNDS_MAX][WAYS];
	static const char usage[] = "bench_gemm [ROUNDS]";
	bench_words(argc, argv, 0, 1, usage);
	int rounds = bench_number(argc, argv, 1, 7, 1, ROUNDS_MAX, usage);

	for (int i = 0; i < rounds; i++)
		for (enum way w = CHOSEN; w < WAYS; w++) {
			all[i][w] = in_child(w);
			if (!all[i][w].ok) {
				fprintf(stderr, "gemm: no OpenBLAS here (%s): install libopenblas0-pthread\n", way_name[w]);
				return 1;
			}
		}
	print((const struct reading (*)[WAYS])all, rounds);
	return 0;
}
