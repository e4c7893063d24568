/* The daemon's struct compute: a team of threads, the best instruction set, OpenBLAS when it can be had; and the clock
 * that sleep layers wait on. */
#include "compute.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "common/mem.h"
#include "kernels/gemm.h"
#include "loop/work.h"

#define PROBE_N 384                     /* a 384 x 384 x 384 product: under a millisecond where OpenBLAS fits the CPU */

struct engine {
	struct log *log;
	int threads;
	enum cpu cpu;
	enum dot dot;
	struct blas_info settled;       /* before there was a second thread */
	struct blas *blas;
	struct team *team;
	struct par par;
	bool open;                      /* the loop knows of it */
	pthread_mutex_t lock;
	bool loaded;                    /* under lock; blas, team, par, gflops and why are written before it is true */
	double gflops;
	char why[160];                  /* why there is no OpenBLAS; empty: there is */
};

struct engine *engine_new(struct log *log, int threads, const char *cpu, struct err *e)
{
	struct engine *g = xcalloc(1, sizeof *g);
	struct kerr ke = { 0 };

	pthread_mutex_init(&g->lock, NULL);
	g->log = log;
	g->threads = threads > 0 ? threads : 1;
	if (cpu_pick(cpu, &g->cpu, &ke) < 0) {
		err_set(e, ERR_INVALID, "[compute] cpu: %s", ke.text);
		pthread_mutex_destroy(&g->lock);
		free(g);
		return NULL;
	}
	g->dot = dot_pick(cpu);
	blas_settle(&g->settled);
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

/* In a lane: nothing but g is touched, and the log is the loop's. */
static void engine_load(void *arg)
{
	struct engine *g = arg;
	struct kerr ke = { 0 };

	pthread_mutex_lock(&g->lock);
	if (!g->loaded) {
		g->blas = blas_load(&g->settled, &ke);
		if (!g->blas) {
			memcpy(g->why, ke.text, sizeof g->why < sizeof ke.text ? sizeof g->why : sizeof ke.text);
			g->why[sizeof g->why - 1] = '\0';
		}
		g->team = team_new(g->threads, 0);
		g->par = team_par(g->team, g->cpu, g->blas);
		g->par.dot = g->blas ? g->dot : DOT_NONE;
		g->gflops = g->blas ? probe(g) : 0;
		g->loaded = true;
	}
	pthread_mutex_unlock(&g->lock);
}

static const struct par *engine_par(void *arg, int threads, struct err *e)
{
	struct engine *g = arg;
	struct blas_info info;

	(void)threads; (void)e;
	if (g->open)
		return &g->par;
	engine_load(g);
	g->open = true;
	if (!g->blas)
		log_write(g->log, LOG_WARN_, "compute", "no OpenBLAS (%s): matrix products run on the plain reference, many "
			"times slower; install libopenblas0-pthread and restart", g->why);
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
	json_t *j = json_pack("{s:i, s:s, s:s, s:b}", "threads", g->threads, "kernels", cpu_name(g->cpu), "bf16",
		dot_name(g->open ? g->par.dot : g->dot), "open", g->open);

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

/* ---- rest: a wait that can be ended ---- */

/* late_ns: what waking up takes on this machine, as the last waits had it. */
struct resting { struct rest rest; pthread_mutex_t lock; pthread_cond_t wake; bool stop; int64_t late_ns; };

#define LATE_MOST_NS 200000

static int64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void rest_wait(void *arg, uint64_t us, bool backward)
{
	struct resting *t = arg;
	int64_t from = clock_ns(), end = from + (int64_t)us * 1000, alarm, late;
	struct timespec until;

	(void)backward;
	(void)prctl(PR_SET_TIMERSLACK, 1ul);    /* of this thread, in ns: else it sleeps up to 50 us longer */
	pthread_mutex_lock(&t->lock);
	alarm = end - t->late_ns;
	until = (struct timespec){ alarm / 1000000000, alarm % 1000000000 };
	while (!t->stop && !pthread_cond_timedwait(&t->wake, &t->lock, &until))
		;
	late = clock_ns() - alarm;
	if (!t->stop && alarm > from && late < LATE_MOST_NS)
		t->late_ns += (late - t->late_ns) / 8;
	while (!t->stop && clock_ns() < end)    /* some microseconds: never less than was said */
		;
	pthread_mutex_unlock(&t->lock);
}

static void rest_stop(struct rest *r)
{
	struct resting *t = container_of(r, struct resting, rest);

	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->lock);
}

static void rest_free(struct rest *r)
{
	struct resting *t = container_of(r, struct resting, rest);

	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static struct rest *engine_rest(void *arg)
{
	struct resting *t = xcalloc(1, sizeof *t);
	pthread_condattr_t a;

	(void)arg;
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &a);
	pthread_condattr_destroy(&a);
	pthread_mutex_init(&t->lock, NULL);
	t->rest = (struct rest){ .host = { .wait = rest_wait, .arg = t }, .stop = rest_stop, .free = rest_free };
	return &t->rest;
}

struct compute engine_compute(struct engine *g)
{
	return (struct compute){ .par = engine_par, .load = engine_load,
		.describe = engine_describe, .rest = engine_rest, .arg = g };
}

void engine_free(struct engine *g)
{
	if (!g)
		return;
	team_free(g->team);
	blas_close(g->blas);
	pthread_mutex_destroy(&g->lock);
	free(g);
}
