/* train_engine SPEC DATA [THREADS [twice]]: the trainer of a daemon alone, with loop and lanes for bench/train.
 * First it prints {"ready", "params", "arena", "state", ...}; then for each number n that comes on standard input it
 * trains n micro-batches, each with its step of the optimizer, and prints {"samples", "us", "cpu_us", "loss",
 * "wait_us"}; at the end the memory that it took. All JSON, a line each. Times in us, memory in bytes. twice: with
 * a clock that is read twice for every look (layers.py). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/mem.h"
#include "kernels/gemm.h"
#include "loop/loop.h"
#include "train/trainer.h"
#include "loop/work.h"
#include "usage.h"

struct engine { struct trainer *t; struct ranges done; double loss; bool idle, broken; uint64_t epoch; };

static uint64_t now_us(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void progress(void *arg, const struct trainer_progress *p)
{
	struct engine *g = arg;

	g->loss = p->loss;
}

static void applied(void *arg, const struct trainer_applied *a)
{
	struct engine *g = arg;

	g->epoch = a->epoch;
	if (a->skipped)
		(void)fprintf(stderr, "epoch %llu was skipped: not finite\n", (unsigned long long)a->epoch);
}

static void idle(void *arg)
{
	struct engine *g = arg;

	g->idle = true;
}

static void broken(void *arg, const struct err *e)
{
	struct engine *g = arg;

	(void)fprintf(stderr, "%s\n", e->text);
	g->broken = true;
}

static void nothing(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed) { }
static void unvalidated(void *arg, const struct trainer_validated *v) { }
static void event(void *arg, enum log_level level, const char *code, const char *text) { }

static bool rests(void *arg)
{
	const struct engine *g = arg;
	struct trainer_view v;

	trainer_view(g->t, &v);
	return g->broken || (g->idle && v.samples == 0);
}

static void freed(void *arg)
{
	*(bool *)arg = true;
}

static bool is_freed(void *arg)
{
	return *(bool *)arg;
}

/* Of this program alone: getrusage's figure begins with that of whoever started it. */
static long resident_peak(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %ld kB", &kib) == 1)
			break;
	if (f)
		(void)fclose(f);
	return kib * 1024;
}

static int steps(struct loop *l, struct engine *g, const struct spec *s, uint64_t n, uint64_t *position)
{
	struct ranges grant = { 0 };
	struct trainer_view before, after;
	uint64_t wall, cpu, samples = n * s->local.batch;

	trainer_view(g->t, &before);
	g->idle = false;
	ranges_add(&grant, *position, *position + samples);
	*position += samples;
	wall = now_us(CLOCK_MONOTONIC);
	cpu = now_us(CLOCK_PROCESS_CPUTIME_ID);
	trainer_grant(g->t, &grant);
	if (!loop_run_until(l, rests, g, UINT64_MAX / 4) || g->broken)
		return -1;
	wall = now_us(CLOCK_MONOTONIC) - wall;
	cpu = now_us(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	trainer_view(g->t, &after);
	(void)printf("{\"samples\": %llu, \"us\": %llu, \"cpu_us\": %llu, \"loss\": %.6g, \"wait_us\": %llu}\n",
		(unsigned long long)samples, (unsigned long long)wall, (unsigned long long)cpu, isfinite(g->loss) ? g->loss : 0,
		(unsigned long long)(after.load_wait_us - before.load_wait_us));
	ranges_free(&grant);
	return fflush(stdout);
}

/* The best of five products of 512 x 512 x 512 on one thread: what the fraction of the peak is counted from. */
static double sgemm_gflops(const struct par *par)
{
	const struct par one = par_serial(par->cpu, par->blas);
	size_t n = 512, bytes = n * n * sizeof(real);
	real *m = big_alloc(3 * bytes);
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		uint64_t t = now_us(CLOCK_MONOTONIC);

		gemm(&one, false, false, n, n, n, 1, m, n, m + n * n, n, 0, m + 2 * n * n, n);
		t = now_us(CLOCK_MONOTONIC) - t;
		best = t < best ? t : best;
	}
	big_free(m, 3 * bytes);
	return gemm_flops(n, n, n) / (double)best / 1e3;
}

static void describe(const struct engine *g, const struct blas *b, const struct par *par)
{
	struct trainer_view v;
	struct blas_info info;

	trainer_view(g->t, &v);
	blas_info(b, &info);
	(void)printf("{\"ready\": true, \"params\": %zu, \"macs\": %llu, \"state_bytes\": %llu,"
		" \"arena_predicted_bytes\": %llu, "
		"\"cpu\": \"%s\", \"bf16\": \"%s\", \"blas\": \"%s\", \"sgemm_gflops\": %.1f, \"threads\": %d}\n",
		trainer_model(g->t)->nparam,
		(unsigned long long)model_macs(trainer_model(g->t), 0, trainer_model(g->t)->nops),
		(unsigned long long)v.state_bytes, (unsigned long long)v.arena_predicted_bytes, cpu_name(par->cpu),
		dot_name(par->dot), info.core, sgemm_gflops(par), par->n);
	(void)fflush(stdout);
}

static uint64_t (*once)(void);

static uint64_t twice(void)
{
	(void)once();
	return once();
}

/* NULL: nothing was trained. */
static char *layers_text(const struct trainer *t)
{
	struct err e;
	json_t *o = trainer_layers_json(t, &e);
	char *text;

	if (!o)
		return NULL;
	(void)json_object_del(o, "text");
	text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(6));
	json_decref(o);
	return text;
}

static int bench(struct loop *l, const struct spec *s, struct data *d, const struct par *par, struct err *e)
{
	static const struct trainer_cb cb = { .progress = progress, .contribute = nothing, .applied = applied,
		.validated = unvalidated, .idle = idle, .broken = broken, .event = event };
	struct engine g = { 0 };
	struct trainer_conf conf = { .env = loop_env(l), .spec = s, .data = d, .par = par, .macs_per_us = 40000 };
	struct trainer_view v;
	unsigned long long n;
	uint64_t position = 0;
	bool gone = false;
	char line[64];
	int rc = 0;

	g.t = trainer_new(&conf, &cb, &g, e);
	if (!g.t)
		return -1;
	trainer_init_params(g.t);
	trainer_start(g.t);
	describe(&g, par->blas, par);
	while (!rc && fgets(line, sizeof(line), stdin))
		if ((n = strtoull(line, NULL, 10)))
			rc = steps(l, &g, s, n, &position);
	trainer_view(g.t, &v);
	char *layers = layers_text(g.t);

	(void)printf("{\"layers\": %s, \"resident_peak_bytes\": %ld, \"arena_peak_bytes\": %llu,"
		" \"arena_predicted_bytes\": %llu, \"state_bytes\": %llu, "
		"\"loader_bytes\": %llu}\n", layers ? layers : "null", resident_peak(), (unsigned long long)v.arena_peak_bytes,
		(unsigned long long)v.arena_predicted_bytes, (unsigned long long)v.state_bytes,
			(unsigned long long)v.loader_bytes);
	free(layers);
	trainer_free(g.t, freed, &gone);
	(void)loop_run_until(l, is_freed, &gone, UINT64_MAX / 4);
	return rc;
}

static char *slurp(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "rb");
	char *text = xcalloc(1, 1 << 20);

	*ret_len = f ? fread(text, 1, 1 << 20, f) : 0;
	if (f)
		(void)fclose(f);
	return text;
}

int main(int argc, char **argv)
{
	static const char usage[] = "train_engine SPEC DATA [THREADS [twice]]";
	bench_words(argc, argv, 2, 4, usage);
	int threads = bench_number(argc, argv, 3, 1, 1, 1024, usage);
	struct loop_conf conf = { .train_threads = threads };
	struct kerr ke = { 0 };
	struct err e = { 0 };
	enum cpu cpu = CPU_PLAIN;
	size_t len = 0;
	int rc = -1;

	struct loop *l = loop_new(&conf, &e);
	char *text = slurp(argv[1], &len);
	struct spec *s = l ? spec_parse(text, len, &e) : NULL;
	struct data *d = s ? data_open(loop_env(l)->files, argv[2], s, &e) : NULL;
	struct blas *b = blas_open(&ke);
	struct team *team = team_new(threads, 0);

	(void)cpu_pick(getenv("HIVEMIND_CPU"), &cpu, &ke);
	struct par par = team_par(team, cpu, b);

	par.dot = dot_pick(getenv("HIVEMIND_CPU"));
	once = par.now_ns;
	if (argc > 4 && !strcmp(argv[4], "twice"))
		par.now_ns = twice;
	else if (argc > 4)
		(void)fprintf(stderr, "%s\n", usage), d = NULL;
	if (d)
		rc = bench(l, s, d, &par, &e);
	if (rc < 0)
		(void)fprintf(stderr, "%s\n", e.text);
	team_free(team);
	data_free(d);
	spec_free(s);
	free(text);
	loop_free(l);
	blas_close(b);
	return rc < 0 ? 1 : 0;
}
