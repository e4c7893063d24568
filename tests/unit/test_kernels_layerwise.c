/* Steps over several tensors: LARS and LAMB against their papers (an independent script), their stated properties,
 * which tensors decay, and that one pass over the vector is bitwise a pass over each tensor. Also built in double
 * (test_kernels_layerwise64). */
#include "kernels_util.h"
#include <math.h>
#include <stdio.h>
#include "kernels/optim.h"
#include "kernels/vec.h"
#include "layerwise_golden.h"

#define N 25
#ifdef REAL_DOUBLE
#define CLOSE 1e-12
#else
#define CLOSE 1e-6
#endif

static const struct model_param four[] = {
	{ .name = "a.weight", .shape = { 2, { 3, 4 } }, .offset = 0, .count = 12 },
	{ .name = "a.bias", .shape = { 1, { 4 } }, .offset = 12, .count = 4 },
	{ .name = "b.weight", .shape = { 2, { 3, 2 } }, .offset = 16, .count = 6 },
	{ .name = "b.bias", .shape = { 1, { 3 } }, .offset = 22, .count = 3 },
};

struct bed { struct optim_call c; struct par par; double hyper[OPTIM_KEYS_MAX]; struct optim_clock clock; real w[N],
	g[N],
	store[OPTIM_STATES_MAX][N], *state[OPTIM_STATES_MAX]; };

static void bed_open(struct bed *b, const char *optim, const char *text)
{
	char copy[160], *save = NULL;
	struct kerr e;

	memset(b, 0, sizeof *b);
	b->par = par_serial(CPU_PLAIN, NULL);
	b->c = (struct optim_call){ .par = &b->par, .ops = optim_find(optim), .hyper = b->hyper, .clock = &b->clock,
		.state = b->state, .param = b->w, .grad = b->g, .tensor = four, .ntensors = 4 };
	assert_non_null(b->c.ops);
	optim_defaults(b->c.ops, b->hyper);
	snprintf(copy, sizeof copy, "%s", text);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		char *eq = strchr(w, '=');

		*eq = 0;
		if (optim_set(b->c.ops, b->hyper, w, strtod(eq + 1, NULL), &e) < 0)
			fail_msg("%s", e.text);
	}
	optim_clock_init(&b->clock);
	for (int i = 0; i < OPTIM_STATES_MAX; i++)
		b->state[i] = b->store[i];
	for (int i = 0; i < N; i++)
		b->w[i] = i < 16 ? (real)sin(0.37 * i + 0.5) : 0;
}

static void step(struct bed *b, int turn, double scale)
{
	for (int i = 0; i < N; i++)
		b->g[i] = (real)(scale * sin(0.37 * i + turn));
	optim_tick(b->c.ops, b->hyper, &b->clock);
	optim_step(&b->c);
}

static void papers_agree(void **state)
{
	for (size_t k = 0; k < sizeof golden_layerwise / sizeof *golden_layerwise; k++) {
		struct bed b;

		bed_open(&b, golden_layerwise[k].optim, golden_layerwise[k].hyper);
		for (int t = 0; t < 5; t++)
			step(&b, t, 1);
		for (int i = 0; i < N; i++)
			if (!(fabs((double)b.w[i] - golden_layerwise[k].param[i]) < CLOSE))
				fail_msg("%s %s: parameter %d is %.15g, the paper's %.15g", golden_layerwise[k].optim,
					golden_layerwise[k].hyper, i, (double)b.w[i], golden_layerwise[k].param[i]);
	}
}

/* Without decay the first step does not know the gradient's scale. */
static void lars_ignores_the_scale_of_gradients(void **state)
{
	struct bed a, b;

	bed_open(&a, "lars", "lr=1 trust=0.1");
	bed_open(&b, "lars", "lr=1 trust=0.1");
	step(&a, 1, 1);
	step(&b, 1, 1000);
	for (int i = 0; i < 12; i++)
		assert_true(fabs((double)(a.w[i] - b.w[i])) < CLOSE);
	assert_true(fabs((double)(a.w[12] - b.w[12])) > 1);     /* vectors of one dimension do */
}

static double norm(const real *x, const real *y, size_t n)
{
	double s = 0;

	for (size_t i = 0; i < n; i++)
		s += ((double)x[i] - (y ? (double)y[i] : 0)) * ((double)x[i] - (y ? (double)y[i] : 0));
	return sqrt(s);
}

static void lamb_moves_by_the_norm(void **state)
{
	struct bed b;
	real before[N];

	bed_open(&b, "lamb", "lr=0.03 weight_decay=0.1");
	for (int t = 0; t < 4; t++)
		for (size_t i = 0; i < 4; i++) {
			double was;

			if (!i) {
				memcpy(before, b.w, sizeof before);
				step(&b, t, 1);
			}
			was = norm(before + four[i].offset, NULL, four[i].count);
			if (was > 0)
				assert_true(fabs(norm(b.w + four[i].offset, before + four[i].offset, four[i].count) / (0.03 * was) - 1)
					< 20 * CLOSE);
		}
}

/* Gradients and weights of zero move nothing and make no NaN. */
static void zero_norms(void **state)
{
	for (int o = 0; optim_at(o); o++) {
		struct bed b;

		bed_open(&b, optim_at(o)->name, "");
		memset(b.w, 0, sizeof b.w);
		step(&b, 0, 0);
		for (int i = 0; i < N; i++)
			assert_true(b.w[i] == 0);
	}
}

/* A gradient of zero moves only what decays: matrices, or everything when that is asked for. */
static void vectors_do_not_decay(void **state)
{
	for (int o = 0; optim_at(o); o++)
		for (int all = 0; all < 2; all++) {
			struct bed b;
			real before[N];

			bed_open(&b, optim_at(o)->name, "weight_decay=0.1");
			b.c.decay_all = all;
			for (int i = 0; i < N; i++)
				b.w[i] = 1 + (real)i;
			memcpy(before, b.w, sizeof before);
			step(&b, 0, 0);
			for (int i = 0; i < N; i++) {
				bool matrix = i < 12 || (i >= 16 && i < 22);

				if ((b.w[i] != before[i]) != (matrix || all))
					fail_msg("%s, decay %s: parameter %d %s", b.c.ops->name, all ? "all" : "weights", i,
						b.w[i] != before[i] ? "decays" : "does not decay");
			}
		}
}

/* Row I05: one pass over the flat vector against one call per tensor. */
static void fused_is_unfused(void **state)
{
	enum { TENSORS = 1000 };
	static struct model_param many[TENSORS];
	struct par par = par_serial(CPU_PLAIN, NULL), five = team(5, CPU_PLAIN, NULL);
	size_t n = 0;

	for (int i = 0; i < TENSORS; i++) {
		/* seven neighbours decay alike: they are one call */
		many[i] = (struct model_param){ .shape = { 1 + i / 7 % 2, { 1, 1 } }, .offset = n,
			.count = i % 4 ? 1000 : 1 + 37u * (size_t)i % 1999 };
		n += many[i].count;
	}
	for (int o = 0; optim_at(o); o++) {
		const struct optim_ops *ops = optim_at(o);
		real *w[2], *g = noise(9, 1, n), *s[2][OPTIM_STATES_MAX];
		double hyper[OPTIM_KEYS_MAX];

		optim_defaults(ops, hyper);
		hyper[optim_key_index(ops, "weight_decay")] = 0.1;
		for (int k = 0; k < 2; k++) {
			struct optim_clock clock;
			struct optim_call c = { .par = k ? &par : &five, .ops = ops, .hyper = hyper, .clock = &clock, .state = s[k],
				.grad = g, .tensor = many, .ntensors = TENSORS };

			optim_clock_init(&clock);
			c.param = w[k] = noise(4, 1, n);
			for (int i = 0; i < OPTIM_STATES_MAX; i++)
				memset(s[k][i] = reals(n), 0, n * sizeof(real));
			for (int t = 0; t < 3; t++) {
				optim_tick(ops, hyper, &clock);
				c.tensor = many;
				c.ntensors = TENSORS;
				if (!k)
					optim_step(&c);
				for (c.ntensors = 1; k && c.tensor < many + TENSORS; c.tensor++) {
					double part[2 * 256];

					optim_measure(&c, c.tensor->offset, c.tensor->count, part);
					optim_apply(&c, c.tensor->offset, c.tensor->count, part);
				}
			}
		}
		assert_memory_equal(w[0], w[1], n * sizeof(real));
		for (int k = 0; k < 2; k++) {
			free(w[k]);
			for (int i = 0; i < OPTIM_STATES_MAX; i++)
				free(s[k][i]);
		}
		free(g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(papers_agree),
		cmocka_unit_test(lars_ignores_the_scale_of_gradients),
		cmocka_unit_test(lamb_moves_by_the_norm),
		cmocka_unit_test(zero_norms),
		cmocka_unit_test(vectors_do_not_decay),
		cmocka_unit_test(fused_is_unfused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
