/* Optimizers: PyTorch's numbers, slices equal the whole, equal bytes on every CPU, ranges, and a bowl to minimise. */
#include "kernels_util.h"
#include <math.h>
#include <stdio.h>
#include "kernels/optim.h"
#include "kernels/vec.h"
#include "kernels_golden.h"
#include "layerwise_golden.h"

struct sample { const struct optim_ops *ops; double hyper[OPTIM_KEYS_MAX]; };

/* "lr=0.1 momentum=0.9" */
static struct sample parse(const char *name, const char *text)
{
	struct sample s = { .ops = optim_find(name) };
	char copy[160], *save = NULL;
	struct kerr e;

	assert_non_null(s.ops);
	optim_defaults(s.ops, s.hyper);
	snprintf(copy, sizeof copy, "%s", text);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		char *eq = strchr(w, '=');

		*eq = 0;
		if (optim_set(s.ops, s.hyper, w, strtod(eq + 1, NULL), &e) < 0)
			fail_msg("%s", e.text);
	}
	assert_int_equal(optim_check(s.ops, s.hyper, &e), 0);
	return s;
}

static real wave(size_t i, double phase)
{
	return (real)sin(0.37 * (double)i + phase);
}

struct state { real *s[OPTIM_STATES_MAX]; struct optim_clock clock; };

static void state_new(struct state *t, const struct sample *s, size_t n)
{
	*t = (struct state){ 0 };
	optim_clock_init(&t->clock);
	for (int i = 0; i < s->ops->nstates; i++)
		if (optim_uses_state(s->ops, s->hyper, i)) {
			t->s[i] = reals(n);
			memset(t->s[i], 0, n * sizeof(real));
		}
}

static void state_free(struct state *t)
{
	for (int i = 0; i < OPTIM_STATES_MAX; i++)
		free(t->s[i]);
}

/* A step of one tensor (a matrix: everything decays) in slices; those of LARS and LAMB are cut where they may be. */
static void one_step(const struct par *par, const struct sample *s, struct state *t, real *param, const real *grad,
	size_t n, int slices, int turn)
{
	const struct model_param tensor = { .name = "w", .shape = { 2, { n, 1 } }, .count = n };
	struct optim_call c = { .par = par, .ops = s->ops, .hyper = s->hyper, .clock = &t->clock, .state = t->s,
		.param = param, .grad = grad, .tensor = &tensor, .ntensors = 1 };
	double part[2 * 256];
	size_t lo, hi;

	assert_true(optim_parts(&c) <= sizeof part / sizeof *part);
	optim_tick(s->ops, s->hyper, &t->clock);
	if (slices == 1) {
		optim_step(&c);
		return;
	}
	for (int phase = 0; phase < 2; phase++)
		for (int k = 0; k < slices; k++) {
			par_slice(n, 7, (k + turn) % slices, slices, &lo, &hi);
			lo = optim_cut(&c, lo);
			hi = hi < n ? optim_cut(&c, hi) : n;
			if (!phase)
				optim_measure(&c, lo, hi - lo, part);
			else
				optim_apply(&c, lo, hi - lo, part);
		}
}

static void pytorch_agrees(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);

	for (size_t g = 0; g < sizeof golden_optim / sizeof *golden_optim; g++) {
		struct sample s = parse(golden_optim[g].optim, golden_optim[g].hyper);
		real param[11], grad[11];
		struct state t;

		state_new(&t, &s, 11);
		for (size_t i = 0; i < 11; i++)
			param[i] = wave(i, 0.5);
		for (int step = 0; step < 5; step++) {
			for (size_t i = 0; i < 11; i++)
				grad[i] = wave(i, step);
			one_step(&par, &s, &t, param, grad, 11, 1, 0);
		}
		for (size_t i = 0; i < 11; i++)
			if (!(fabs((double)param[i] - golden_optim[g].param[i]) < 2e-6))
				fail_msg("%s %s: parameter %zu is %.9g, PyTorch's %.9g", golden_optim[g].optim,
					golden_optim[g].hyper, i, (double)param[i], golden_optim[g].param[i]);
		state_free(&t);
	}
}

static void every_optimizer_has_golden_values(void **state)
{
	for (int o = 0; optim_at(o); o++) {
		int found = 0;

		for (size_t g = 0; g < sizeof golden_optim / sizeof *golden_optim; g++)
			found += !strcmp(golden_optim[g].optim, optim_at(o)->name);
		for (size_t g = 0; g < sizeof golden_layerwise / sizeof *golden_layerwise; g++)
			found += !strcmp(golden_layerwise[g].optim, optim_at(o)->name);
		if (!found)
			fail_msg("optimizer %s is in no make-golden*.py", optim_at(o)->name);
		assert_string_equal(optim_at(o)->key[0].name, "lr");
	}
}

/* Three steps over the whole vector, or over uneven slices in another order each step. */
static void run(const struct par *par, const struct sample *s, size_t n, int slices, real *param, struct state *t)
{
	real *grad = reals(n);

	for (size_t i = 0; i < n; i++)
		param[i] = wave(i, 0.5);
	for (int step = 0; step < 3; step++) {
		rand_uniform(77 + (uint64_t)step, 2, n, grad);
		one_step(par, s, t, param, grad, n, slices, step);
	}
	free(grad);
}

static void compare_run(const struct par *par, const struct sample *s, size_t n, int slices, const real *want,
	const struct state *want_state)
{
	real *param = reals(n);
	struct state t;

	state_new(&t, s, n);
	run(par, s, n, slices, param, &t);
	if (memcmp(param, want, n * sizeof(real)))
		fail_msg("%s: %d slices with %d workers on %s differ from the whole", s->ops->name, slices, par->n,
			cpu_name(par->cpu));
	for (int i = 0; i < s->ops->nstates; i++)
		if (t.s[i])
			assert_memory_equal(t.s[i], want_state->s[i], n * sizeof(real));
	state_free(&t);
	free(param);
}

static void compare_all(const char *optim, const char *hyper, size_t n)
{
	struct par plain = par_serial(CPU_PLAIN, NULL);
	struct sample s = parse(optim, hyper);
	real *want = reals(n);
	struct state t;
	enum cpu best;

	cpu_pick(NULL, &best, NULL);
	state_new(&t, &s, n);
	run(&plain, &s, n, 1, want, &t);
	assert_int_equal(vec_nonfinite(&plain, n, want), n);
	for (enum cpu c = CPU_PLAIN; c <= best; c++) {
		struct par alone = par_serial(c, NULL), five = team(5, c, NULL);

		compare_run(&alone, &s, n, 1, want, &t);
		compare_run(&five, &s, n, 1, want, &t);
		compare_run(&alone, &s, n, 6, want, &t);
		compare_run(&five, &s, n, 3, want, &t);
	}
	state_free(&t);
	free(want);
}

static void slices_teams_and_cpus_change_nothing(void **state)
{
	for (size_t g = 0; g < sizeof golden_optim / sizeof *golden_optim; g++)
		compare_all(golden_optim[g].optim, golden_optim[g].hyper, 40009);
	for (size_t g = 0; g < sizeof golden_layerwise / sizeof *golden_layerwise; g++) {
		compare_all(golden_layerwise[g].optim, golden_layerwise[g].hyper, 40009);
		compare_all(golden_layerwise[g].optim, golden_layerwise[g].hyper, 700001);      /* chunks of several blocks */
	}
}

/* f(p) = sum (p - target)^2 */
static void all_minimise_a_bowl(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	enum { N = 50 };

	for (int o = 0; optim_at(o); o++) {
		struct sample s = { .ops = optim_at(o) };
		real p[N] = { 0 }, g[N];
		struct state t;
		double worst = 0;

		optim_defaults(s.ops, s.hyper);
		s.hyper[0] = !strcmp(s.ops->name, "adagrad") ? 0.5 : !strcmp(s.ops->name, "lars") ? 20 : 0.05;
		if (!strcmp(s.ops->name, "lamb"))
			s.hyper[optim_key_index(s.ops, "weight_decay")] = 0;    /* it has another minimum */
		state_new(&t, &s, N);
		for (int step = 0; step < 600; step++) {
			if (step == 400)
				s.hyper[0] /= 20;       /* rates change while a run goes on */
			for (int i = 0; i < N; i++)
				g[i] = 2 * (p[i] - wave((size_t)i, 1));
			one_step(&par, &s, &t, p, g, N, 1, 0);
		}
		for (int i = 0; i < N; i++) {
			double far = fabs((double)(p[i] - wave((size_t)i, 1)));

			worst = far > worst ? far : worst;
		}
		if (worst > 0.02)
			fail_msg("%s ends %g away from the minimum", s.ops->name, worst);
		state_free(&t);
	}
}

/* Averages of squares that came over the wire in few bits, or by the delta rule, may lie a little below zero. */
static void squares_below_zero_are_zero(void **state)
{
	enum { N = 300 };
	static const struct { const char *name, *keys, *square; } v[] = {
		{ "adam", "", "exp_avg_sq" }, { "adamw", "", "exp_avg_sq" },
		{ "lamb", "", "exp_avg_sq" }, { "adagrad", "", "sum" }, { "rmsprop", "", "square_avg" },
		{ "rmsprop", "momentum=0.9 centered=1", "square_avg" } };
	struct par par = par_serial(CPU_PLAIN, NULL);

	(void)state;
	for (size_t k = 0; k < sizeof v / sizeof *v; k++) {
		struct sample s = parse(v[k].name, v[k].keys);
		struct state below, zero;
		real *a = reals(N), *b = reals(N), *g = reals(N);

		state_new(&below, &s, N);
		state_new(&zero, &s, N);
		for (size_t i = 0; i < N; i++) {
			a[i] = b[i] = wave(i, 0.3);
			g[i] = (real)1e-4 * wave(i, 1.1);
			for (int j = 0; j < s.ops->nstates; j++)
				if (!strcmp(s.ops->state[j], v[k].square))
					below.s[j][i] = (real)-0.01;
		}
		one_step(&par, &s, &below, a, g, N, 1, 0);
		one_step(&par, &s, &zero, b, g, N, 1, 0);
		if (vec_nonfinite(&par, N, a) < N || memcmp(a, b, N * sizeof *a))
			fail_msg("%s %s: not as from zero", v[k].name, v[k].keys);
		state_free(&below);
		state_free(&zero);
		free(a);
		free(b);
		free(g);
	}
}

static void keys_and_ranges_are_checked(void **state)
{
	const struct optim_ops *sgd = optim_find("sgd"), *adam = optim_find("adam");
	double h[OPTIM_KEYS_MAX], before[OPTIM_KEYS_MAX];
	struct kerr e;
	char names[128];

	assert_null(optim_find("newton"));
	assert_null(optim_at(-1));
	assert_string_equal(optim_names(names, sizeof names), "adagrad adam adamw lamb lars rmsprop sgd");
	optim_defaults(sgd, h);
	memcpy(before, h, sizeof h);
	assert_int_equal(optim_set(sgd, h, "beta1", 0.5, &e), -1);
	assert_non_null(strstr(e.text, "beta1"));
	assert_non_null(strstr(e.text, "lr momentum dampening nesterov weight_decay"));
	assert_int_equal(optim_set(sgd, h, "lr", -1, &e), -1);
	assert_int_equal(optim_set(sgd, h, "lr", NAN, &e), -1);
	assert_int_equal(optim_set(sgd, h, "lr", INFINITY, &e), -1);
	assert_int_equal(optim_set(sgd, h, "momentum", 1, &e), -1);
	assert_int_equal(optim_set(sgd, h, "nesterov", 0.5, &e), -1);
	assert_non_null(strstr(e.text, "flag"));
	assert_memory_equal(before, h, (size_t)sgd->nkeys * sizeof *h);
	assert_int_equal(optim_set(sgd, h, "nesterov", 1, &e), 0);
	assert_int_equal(optim_check(sgd, h, &e), -1);
	assert_non_null(strstr(e.text, "momentum > 0"));
	assert_int_equal(optim_set(sgd, h, "momentum", 0.9, &e), 0);
	assert_int_equal(optim_check(sgd, h, &e), 0);
	assert_int_equal(optim_uses_state(sgd, h, 0), 1);
	h[optim_key_index(sgd, "momentum")] = 0;
	assert_int_equal(optim_uses_state(sgd, h, 0), 0);
	optim_defaults(adam, h);
	assert_int_equal(optim_set(adam, h, "beta2", 1, &e), -1);
	assert_non_null(strstr(e.text, "beta2 < 1"));
}

static void the_clock_multiplies(void **state)
{
	const struct optim_ops *adam = optim_find("adam");
	double h[OPTIM_KEYS_MAX], b1 = 1, b2 = 1;
	struct optim_clock c;

	optim_defaults(adam, h);
	optim_clock_init(&c);
	for (int i = 0; i < 100; i++) {
		optim_tick(adam, h, &c);
		b1 *= 0.9;
		b2 *= 0.999;
	}
	assert_int_equal(c.step, 100);
	assert_true(c.power[0] == b1 && c.power[1] == b2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pytorch_agrees),
		cmocka_unit_test(every_optimizer_has_golden_values),
		cmocka_unit_test(slices_teams_and_cpus_change_nothing),
		cmocka_unit_test(all_minimise_a_bowl),
		cmocka_unit_test(squares_below_zero_are_zero),
		cmocka_unit_test(keys_and_ranges_are_checked),
		cmocka_unit_test(the_clock_multiplies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
