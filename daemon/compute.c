/* The daemon's struct compute: a team of threads, the best instruction set, OpenBLAS when it can be had. */
#include "compute.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/mem.h"
#include "kernels/gemm.h"
#include "work.h"

#define PROBE_N 384                     /* a 384 x 384 x 384 product: under a millisecond where OpenBLAS fits the CPU */

struct engine {
	struct log *log;
	int threads;
	enum cpu cpu;
	struct blas *blas;
	struct team *team;
	struct par par;
	bool open;
	double gflops;
	char why[160];                  /* why there is no OpenBLAS; empty: there is */
};

struct engine *engine_new(struct log *log, int threads, const char *cpu, struct err *e)
{
	struct engine *g = xcalloc(1, sizeof *g);
	struct kerr ke = { 0 };

	g->log = log;
	g->threads = threads > 0 ? threads : 1;
	if (cpu_pick(cpu, &g->cpu, &ke) < 0) {
		err_set(e, ERR_INVALID, "[compute] cpu: %s", ke.text);
		free(g);
		return NULL;
	}
	return g;
}

/* Billions of operations a second of one product, the better of two. */
static double probe(struct engine *g)
{
	size_t bytes = (size_t)PROBE_N * PROBE_N * sizeof(real);
	real *m = big_alloc(3 * bytes);
	double best = 0;

	for (int i = 0; m && i < 2; i++) {
		struct timespec a, b;
		double s;

		clock_gettime(CLOCK_MONOTONIC, &a);
		gemm(&g->par, false, false, PROBE_N, PROBE_N, PROBE_N, 1, m, PROBE_N, m + PROBE_N * PROBE_N, PROBE_N, 0,
			m + 2 * PROBE_N * PROBE_N, PROBE_N);
		clock_gettime(CLOCK_MONOTONIC, &b);
		s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
		if (s > 0 && gemm_flops(PROBE_N, PROBE_N, PROBE_N) / s / 1e9 > best)
			best = gemm_flops(PROBE_N, PROBE_N, PROBE_N) / s / 1e9;
	}
	big_free(m, 3 * bytes);
	return best;
}

static const struct par *engine_par(void *arg, int threads, struct err *e)
{
	struct engine *g = arg;
	struct blas_info info;
	struct kerr ke = { 0 };

	(void)threads; (void)e;
	if (g->open)
		return &g->par;
	g->blas = blas_open(&ke);
	if (!g->blas) {
		memcpy(g->why, ke.text, sizeof g->why < sizeof ke.text ? sizeof g->why : sizeof ke.text);
		g->why[sizeof g->why - 1] = '\0';
		log_write(g->log, LOG_WARN_, "compute", "no OpenBLAS (%s): matrix products run on the plain reference, many "
			"times "
			"slower; install libopenblas0-pthread and restart", g->why);
	}
	g->team = team_new(g->threads, 0);
	g->par = team_par(g->team, g->cpu, g->blas);
	g->open = true;
	g->gflops = g->blas ? probe(g) : 0;
	blas_info(g->blas, &info);
	log_write(g->log, info.below_cpu ? LOG_WARN_ : LOG_INFO_, "compute",
		"%s core %s%s%s, kernels %s, %d threads, %.0f GFLOP/s%s", info.library, info.core,
		info.forced ? " instead of " : "", info.forced ? info.core_unset : "", cpu_name(g->cpu), g->threads, g->gflops,
		info.below_cpu ? "; the core is below what this CPU can do" : "");
	return &g->par;
}

static json_t *engine_describe(void *arg)
{
	struct engine *g = arg;
	struct blas_info info;
	json_t *j = json_pack("{s:i, s:s, s:b}", "threads", g->threads, "kernels", cpu_name(g->cpu), "open", g->open);

	if (!g->open)
		return j;
	blas_info(g->blas, &info);
	json_object_set_new(j, "library", json_string(info.library));
	json_object_set_new(j, "core", json_string(info.core));
	json_object_set_new(j, "core_unset", json_string(info.core_unset));
	json_object_set_new(j, "forced", json_boolean(info.forced));
	json_object_set_new(j, "below_cpu", json_boolean(info.below_cpu));
	json_object_set_new(j, "gflops", json_real(g->gflops));
	if (g->why[0])
		json_object_set_new(j, "missing", json_string(g->why));
	return j;
}

struct compute engine_compute(struct engine *g)
{
	return (struct compute){ engine_par, engine_describe, g };
}

void engine_free(struct engine *g)
{
	if (!g)
		return;
	team_free(g->team);
	blas_close(g->blas);
	free(g);
}
