/* Optimizer steps: the fused pass of every optimizer on every instruction set against a scalar loop of Adam in C, in
 * the cache and in memory, as a share of what a copy moves; and a thousand small tensors in one pass against one call
 * per tensor and against one pass for each operation of each tensor (row I05: what is not fused reads and writes its
 * tensors seven times), with one worker and with two. Readings alternate; medians of ROUNDS. JSON: `optim [ROUNDS]`. */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/optim.h"
#include "kernels/vec.h"
#include "usage.h"

enum { ROUNDS_MAX = 99, SMALL = 1 << 15, LARGE = 1 << 23, TENSORS = 1000, EACH = 1000 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A team of two: the second waits at a barrier. */
struct two {
	pthread_barrier_t gate;
	pthread_t thread;
	void (*fn)(void *arg, int part, int parts);
	void *arg;
	bool over;
};

static void *second(void *p)
{
	struct two *t = p;

	for (;;) {
		pthread_barrier_wait(&t->gate);
		if (t->over)
			return NULL;
		t->fn(t->arg, 1, 2);
		pthread_barrier_wait(&t->gate);
	}
}

static void two_run(const struct par *par, void (*fn)(void *arg, int part, int parts), void *arg)
{
	struct two *t = par->team;

	t->fn = fn;
	t->arg = arg;
	pthread_barrier_wait(&t->gate);
	fn(arg, 0, 2);
	pthread_barrier_wait(&t->gate);
}

/* What the kernel does, one element after the other. */
__attribute__((noinline, optimize("no-tree-vectorize"))) static void adam_scalar(size_t n, const double *h,
	const struct optim_clock *c, float *m, float *v, float *p, const float *g)
{
	float b1 = (float)(1 - h[1]), b2 = (float)h[2], c2 = (float)(1 - h[2]), eps = (float)h[3];
	float size = (float)(h[0] / (1 - c->power[0])), root = (float)sqrt(1 - c->power[1]);

	for (size_t i = 0; i < n; i++) {
		m[i] = m[i] + b1 * (g[i] - m[i]);
		v[i] = v[i] * b2 + (c2 * g[i]) * g[i];
		p[i] = p[i] - (size * m[i]) / (sqrtf(v[i]) / root + eps);
	}
}

#ifdef __x86_64__
#define VECTORS __attribute__((noinline, target("avx2"), optimize("O3")))
#else
#define VECTORS __attribute__((noinline, optimize("O3")))
#endif

/* The same, as separate operations on whole tensors: how Adam is put together from a library of arrays. */
VECTORS static void adam_passes(size_t n, const double *h, const struct optim_clock *c, float *restrict m,
	float *restrict v, float *restrict p, const float *restrict g)
{
	float b1 = (float)(1 - h[1]), b2 = (float)h[2], c2 = (float)(1 - h[2]), eps = (float)h[3];
	float size = (float)(h[0] / (1 - c->power[0])), root = (float)sqrt(1 - c->power[1]), t[EACH];

	for (size_t i = 0; i < n; i++)
		m[i] = m[i] + b1 * (g[i] - m[i]);
	for (size_t i = 0; i < n; i++)
		v[i] = v[i] * b2;
	for (size_t i = 0; i < n; i++)
		v[i] = v[i] + (c2 * g[i]) * g[i];
	for (size_t i = 0; i < n; i++)
		t[i] = sqrtf(v[i]);
	for (size_t i = 0; i < n; i++)
		t[i] = t[i] / root;
	for (size_t i = 0; i < n; i++)
		t[i] = t[i] + eps;
	for (size_t i = 0; i < n; i++)
		p[i] = p[i] - (size * m[i]) / t[i];
}

struct bed { float *p, *g, *state[OPTIM_STATES_MAX], *copy; double hyper[OPTIM_KEYS_MAX]; struct optim_clock clock; };

static float *floats(size_t n, float value)
{
	float *x = aligned_alloc(64, n * sizeof *x);

	for (size_t i = 0; i < n; i++)
		x[i] = value + 1e-3f * (float)(i % 977);
	return x;
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

static void whole(const struct bed *b, const struct par *par, const struct optim_ops *o, size_t n)
{
	const struct model_param one = { .shape = { 2, { n, 1 } }, .count = n };

	optim_step(&(struct optim_call){ .par = par, .ops = o, .hyper = b->hyper, .clock = &b->clock, .state = b->state,
		.param = b->p, .grad = b->g, .tensor = &one, .ntensors = 1 });
}

static void start(struct bed *b, const struct optim_ops *o)
{
	optim_defaults(o, b->hyper);
	optim_clock_init(&b->clock);
	optim_tick(o, b->hyper, &b->clock);
	optim_tick(o, b->hyper, &b->clock);
}

/* Element passes per second of n elements, in turns: the scalar loop, every instruction set, a copy. */
static void sizes(struct bed *b, size_t n, int rounds, bool last)
{
	static double took[5][ROUNDS_MAX];
	const struct optim_ops *adam = optim_find("adam");
	int calls = (int)(LARGE / 4 / n) + 1;
	enum cpu best;
	double copy, scalar;

	cpu_pick(NULL, &best, NULL);
	start(b, adam);
	for (int r = -1; r < rounds; r++)
		for (int w = 0; w < 5; w++) {
			struct par par = par_serial(w < 3 ? (enum cpu)w : CPU_PLAIN, NULL);
			double from = now();

			for (int i = 0; i < calls && (w > 2 || (enum cpu)w <= best); i++)
				if (w < 3)
					whole(b, &par, adam, n);
				else if (w == 3)
					adam_scalar(n, b->hyper, &b->clock, b->state[0], b->state[1], b->p, b->g);
				else
					memcpy(b->copy, b->g, n * sizeof(float));
			if (r >= 0)
				took[w][r] = (now() - from) / calls;
		}
	copy = 8 * (double)n / median(took[4], rounds);
	scalar = median(took[3], rounds);
	printf("  {\"elements\": %zu, \"copy_GBps\": %.1f, \"scalar_ns_per_element\": %.3f", n, copy / 1e9,
		scalar / (double)n * 1e9);
	for (enum cpu c = CPU_PLAIN; c <= best; c++) {
		double t = median(took[c], rounds);

		printf(", \"%s\": {\"ns_per_element\": %.3f, \"times_scalar\": %.2f, \"GBps\": %.1f, \"of_copy\": %.2f}",
			cpu_name(c), t / (double)n * 1e9, scalar / t, 28 * (double)n / t / 1e9, 28 * (double)n / t / copy);
	}
	printf("}%s\n", last ? "" : ",");
}

/* One tensor both ways: the same bits? Three steps from where the bed is. */
static bool same_bits(const struct bed *b, const struct par *par, const struct optim_ops *adam)
{
	float x[2][3][EACH];

	for (int w = 0; w < 2; w++) {
		float *p = x[w][0], *state[2] = { x[w][1], x[w][2] };

		memcpy(p, b->p, sizeof x[w][0]);
		memcpy(state[0], b->state[0], sizeof x[w][1]);
		memcpy(state[1], b->state[1], sizeof x[w][2]);
		for (int i = 0; i < 3; i++)
			if (w)
				adam_passes(EACH, b->hyper, &b->clock, state[0], state[1], p, b->g);
			else
				adam->step(par, b->hyper, &b->clock, state, p, b->g, 0, EACH);
	}
	return !memcmp(x[0], x[1], sizeof x[0]);
}

/* A thousand tensors: one pass, one call for each, one pass for each operation of each. */
static void tensors(struct bed *b, int workers, int rounds, struct two *team, bool last)
{
	static struct model_param t[TENSORS];
	static double took[3][ROUNDS_MAX];
	const struct optim_ops *adam = optim_find("adam");
	struct par par = { .n = workers, .run = workers > 1 ? two_run : NULL, .team = team };
	struct optim_call c = { .par = &par, .ops = adam, .hyper = b->hyper, .clock = &b->clock, .state = b->state,
		.param = b->p, .grad = b->g, .tensor = t, .ntensors = TENSORS };
	double one, each, passes;

	cpu_pick(NULL, &par.cpu, NULL);
	start(b, adam);
	for (size_t i = 0; i < TENSORS; i++)
		t[i] = (struct model_param){ .shape = { 2, { EACH, 1 } }, .offset = i * EACH, .count = EACH };
	for (int r = -1; r < rounds; r++)
		for (int w = 0; w < 3; w++) {
			double from = now();

			for (size_t i = 0; i < TENSORS && w == 1; i++)
				adam->step(&par, b->hyper, &b->clock, b->state, b->p, b->g, t[i].offset, t[i].count);
			for (size_t at = 0; at < TENSORS * EACH && w == 2; at += EACH)
				adam_passes(EACH, b->hyper, &b->clock, b->state[0] + at, b->state[1] + at, b->p + at, b->g + at);
			if (!w)
				optim_step(&c);
			if (r >= 0)
				took[w][r] = now() - from;
		}
	one = median(took[0], rounds);
	each = median(took[1], rounds);
	passes = median(took[2], rounds);
	printf("  {\"tensors\": %d, \"elements_each\": %d, \"workers\": %d, \"fused_us\": %.0f, \"each_us\": %.0f, "
		"\"each_ratio\": %.2f, \"passes_us\": %.0f, \"passes_ratio\": %.2f, \"same_bits\": %s}%s\n", TENSORS, EACH,
		workers, one * 1e6, each * 1e6, each / one, passes * 1e6, passes / one,
		same_bits(b, &par, adam) ? "true" : "false", last ? "" : ",");
}

static void optimizers(struct bed *b, int rounds)
{
	struct par par = par_serial(CPU_PLAIN, NULL);

	cpu_pick(NULL, &par.cpu, NULL);
	for (int i = 0; optim_at(i); i++) {
		double took[ROUNDS_MAX];

		start(b, optim_at(i));
		for (int r = -1; r < rounds; r++) {
			double from = now();

			for (int k = 0; k < 20; k++)
				whole(b, &par, optim_at(i), SMALL);
			if (r >= 0)
				took[r] = (now() - from) / 20 / SMALL * 1e9;
		}
		printf("%s\"%s\": %.3f", i ? ", " : "", optim_at(i)->name, median(took, rounds));
	}
}

int main(int argc, char **argv)
{
	static const char usage[] = "bench_optim [ROUNDS]";
	bench_words(argc, argv, 0, 1, usage);
	int rounds = bench_number(argc, argv, 1, 9, 1, ROUNDS_MAX, usage);
	struct bed b = { .p = floats(LARGE, 0.5f), .g = floats(LARGE, -0.3f), .copy = floats(LARGE, 0) };
	struct two team = { .over = false };

	for (int i = 0; i < OPTIM_STATES_MAX; i++)
		b.state[i] = floats(LARGE, 0.1f);
	printf("{\"bench\": \"optim\", \"rounds\": %d, \"adam\": [\n", rounds);
	sizes(&b, SMALL, rounds, false);
	sizes(&b, LARGE, rounds, true);
	printf(" ], \"many_tensors\": [\n");
	pthread_barrier_init(&team.gate, NULL, 2);
	pthread_create(&team.thread, NULL, second, &team);
	tensors(&b, 1, rounds, NULL, false);
	tensors(&b, 2, rounds, &team, true);
	team.over = true;
	pthread_barrier_wait(&team.gate);
	pthread_join(team.thread, NULL);
	printf(" ], \"ns_per_element_in_cache\": {");
	optimizers(&b, rounds);
	printf("}}\n");
	return 0;
}
