/* Dynamic loss scaling (row A10): a gradient that is not finite changes no parameter and halves the scale, steps that
 * are made double it; what is divided by a power of two is what it would have been. */
#include "vec_bed.h"
#include "exec/batch.h"
#include "kernels/scale.h"
#include "kernels/vec.h"

static void the_scale_halves_and_doubles(void **state)
{
	struct scale s = { .scale = 8 };

	for (int i = 0; i < 3; i++) {
		assert_true(s.scale == 8);
		scale_step(&s, false, 3);
	}
	assert_true(s.scale == 16 && s.good == 0);
	scale_step(&s, false, 3);
	scale_step(&s, true, 3);
	assert_true(s.scale == 8 && s.good == 0);       /* a step that was left out begins the count anew */
	for (int i = 0; i < 5; i++)
		scale_step(&s, true, 3);
	assert_true(s.scale == 1);
	for (int i = 0; i < 100; i++)
		scale_step(&s, false, 1);
	assert_true(s.scale == SCALE_MAX);
	assert_true(scale_ok(1) && scale_ok(SCALE_INIT) && scale_ok(SCALE_MAX) && !scale_ok(0.5) && !scale_ok(3) &&
		!scale_ok(2 * SCALE_MAX) && !scale_ok(NAN) && !scale_ok(-2) && !scale_ok(0));
}

/* The optimizer's memory, its clock and what steps are made with, with a scaled loss or without. */
struct steps { struct vbed b; real *w, *g; char *opt; size_t bytes; double loss, scale, skipped; struct kerr e; };

static void steps_open(struct steps *s, double scale)
{
	double clock[5] = { 0, 1, 1, scale, 0 };

	*s = (struct steps){ .loss = 1 };
	vbed_open(&s->b, 4);
	s->bytes = vbed_optim(&s->b, optim_find("adam")) + (scale > 0 ? 2 * sizeof(double) : 0);
	s->b.env.loss_scale = scale;
	s->b.env.scale_interval = scale > 0 ? 2 : 0;
	s->w = malloc(s->b.len * sizeof(real));
	s->g = malloc(s->b.len * sizeof(real));
	s->opt = calloc(1, s->bytes);
	memcpy(s->opt + s->bytes - (scale > 0 ? 5 : 3) * sizeof(double), clock, (scale > 0 ? 5 : 3) * sizeof(double));
	for (size_t i = 0; i < s->b.len; i++)
		s->w[i] = vbed_wave(i, 1);
}

static void steps_close(struct steps *s)
{
	free(s->w);
	free(s->g);
	free(s->opt);
	vbed_close(&s->b);
}

static double clock_of(const struct steps *s, int i)
{
	double clock[5];

	memcpy(clock, s->opt + s->bytes - sizeof clock, sizeof clock);
	return clock[i];
}

/* by: the gradient is a wave, so many times; of a micro-batch of one's own, whose operand says by what it is scaled. */
static void make(struct steps *s, double phase, double by, bool own)
{
	struct vec_arg in[6] = { { s->g, s->b.len * sizeof(real), PLAN_WEIGHT_GRAD },
		{ s->w, s->b.len * sizeof(real), PLAN_WEIGHT }, { s->opt, s->bytes, PLAN_OPTIMIZER },
		{ &s->loss, 8, PLAN_SCALAR }, { s->w + s->b.n, (s->b.len - s->b.n) * sizeof(real), PLAN_WEIGHT },
		{ &s->scale, 8, PLAN_SCALAR } };
	struct vec_arg out[3] = { in[1], in[2], { &s->skipped, 8, PLAN_SCALAR } };

	for (size_t i = 0; i < s->b.len; i++)
		s->g[i] = (real)(by * (double)vbed_wave(i, phase));
	s->scale = s->b.env.loss_scale > 0 ? clock_of(s, 3) : 0;
	if (vbed_call(&s->b, "opt", in, own ? s->b.env.loss_scale > 0 ? 6 : 5 : 3, out, 3, &s->e) < 0)
		fail_msg("%s", s->e.text);
}

/* As a mean of a round, or as a step of one's own. */
static void an_overflow_changes_nothing_but_the_scale(void **state)
{
	for (int own = 0; own < 2; own++) {
		struct steps s;
		real *was;

		steps_open(&s, 1024);
		make(&s, 0, own ? 1024 : 1, own);
		assert_true(s.skipped == 0 && clock_of(&s, 0) == 1 && clock_of(&s, 3) == 1024 && clock_of(&s, 4) == 1);
		was = malloc(s.b.len * sizeof(real));
		memcpy(was, s.w, s.b.len * sizeof(real));
		make(&s, 0, INFINITY, own);     /* infinite, or no number */
		assert_true(s.skipped > 0 && clock_of(&s, 0) == 1 && clock_of(&s, 3) == 512 && clock_of(&s, 4) == 0);
		assert_memory_equal(was, s.w, s.b.len * sizeof(real));
		make(&s, 0, own ? 512 : 1, own);
		make(&s, 0, own ? 512 : 1, own);
		assert_true(s.skipped == 0 && clock_of(&s, 0) == 3 && clock_of(&s, 3) == 1024 && clock_of(&s, 4) == 0);
		free(was);
		steps_close(&s);
	}
}

/* Running statistics behind the mean that are not finite are an overflow of somebody's activations. */
static void statistics_may_overflow(void **state)
{
	struct vec_arg in[3], out[3];
	struct steps s;

	steps_open(&s, 1024);
	for (size_t i = 0; i < s.b.len; i++)
		s.g[i] = i == s.b.n ? NAN : 0.125f;
	in[0] = (struct vec_arg){ s.g, s.b.len * sizeof(real), PLAN_WEIGHT_GRAD };
	in[1] = out[0] = (struct vec_arg){ s.w, s.b.len * sizeof(real), PLAN_WEIGHT };
	in[2] = out[1] = (struct vec_arg){ s.opt, s.bytes, PLAN_OPTIMIZER };
	out[2] = (struct vec_arg){ &s.skipped, 8, PLAN_SCALAR };
	assert_int_equal(vbed_call(&s.b, "opt", in, 3, out, 3, &s.e), 0);
	assert_true(s.skipped == 1 + (double)s.b.n && clock_of(&s, 0) == 0 && clock_of(&s, 3) == 512);
	steps_close(&s);
}

/* A loss that is no number is a fault of the model, which no scale mends. */
static void a_bad_loss_leaves_the_scale(void **state)
{
	struct steps s;

	steps_open(&s, 1024);
	s.loss = NAN;
	make(&s, 0, NAN, true);
	assert_true(s.skipped > 0 && clock_of(&s, 0) == 0 && clock_of(&s, 3) == 1024 && clock_of(&s, 4) == 0);
	steps_close(&s);
}

/* What was scaled makes the same steps, bit by bit. */
static void a_scaled_step_is_the_same(void **state)
{
	struct steps a, b;

	steps_open(&a, 0);
	steps_open(&b, 65536);
	for (int i = 0; i < 7; i++) {
		make(&a, i, 1, true);
		make(&b, i, clock_of(&b, 3), true);
		assert_memory_equal(a.w, b.w, a.b.len * sizeof(real));
	}
	assert_true(clock_of(&b, 3) == 65536 * 8);
	steps_close(&a);
	steps_close(&b);
}

/* acc + what a micro-batch of 8 brings; where: the element that is put in place of its own. */
static double add(struct vbed *b, real *acc, bool blank, double scale, size_t where, real what, double loss)
{
	const struct batch batch = { .n = 8 };
	real *g = malloc(b->n * sizeof(real));
	double unit = 0;
	struct vec_arg in[5] = { { g, b->n * sizeof(real), PLAN_WEIGHT_GRAD }, { .class = PLAN_BATCH, .batch = &batch },
		{ &loss, 8, PLAN_SCALAR }, { g, (b->len - b->n) * sizeof(real), PLAN_WEIGHT }, { &scale, 8, PLAN_SCALAR } };
	struct vec_arg out[2] = { { acc, b->len * sizeof(real), PLAN_WEIGHT_GRAD, .blank = blank },
		{ &unit, 8, PLAN_SCALAR } };
	struct kerr e;

	for (size_t i = 0; i < b->n; i++)
		g[i] = (real)((scale > 0 ? scale : 1) * (double)vbed_wave(i, 2));
	if (where < b->n)
		g[where] = what;
	if (vbed_call(b, "accumulate", in, scale > 0 ? 5 : 4, out, 2, &e) < 0)
		fail_msg("%s", e.text);
	free(g);
	return unit;
}

static void sums_are_of_what_was_not_scaled(void **state)
{
	struct vbed b;
	real *a, *s;

	vbed_open(&b, 4);
	a = calloc(b.len, sizeof(real));
	s = calloc(b.len, sizeof(real));
	for (int i = 0; i < 3; i++) {
		(void)add(&b, a, i == 0, 0, SIZE_MAX, 0, 1);
		(void)add(&b, s, i == 0, 4096, SIZE_MAX, 0, 1);
		assert_memory_equal(a, s, b.n * sizeof(real));
	}
	free(a);
	free(s);
	vbed_close(&b);
}

/* Of the first micro-batch, or a later one; nothing that comes behind it makes it finite, and it is the same number
 * everywhere, whatever was not finite in the gradient. */
static void an_overflow_stays_in_the_sum(void **state)
{
	static const real what[] = { INFINITY, -INFINITY, NAN };
	struct vbed b;
	real *s;

	vbed_open(&b, 4);
	s = calloc(b.len, sizeof(real));
	for (int first = 0; first < 2; first++)
		for (int k = 0; k < 3; k++) {
			if (!first)
				(void)add(&b, s, true, 4096, SIZE_MAX, 0, 1);
			assert_true(add(&b, s, first, 4096, b.n / 2, what[k], 1) == 8);
			(void)add(&b, s, false, 2048, SIZE_MAX, 0, 1);
			(void)add(&b, s, false, 2048, 0, -INFINITY, 1);
			(void)add(&b, s, false, 2048, 0, NAN, NAN);
			for (size_t i = 0; i < b.n; i++)
				assert_true(s[i] == INFINITY);
		}
	(void)add(&b, s, true, 4096, 0, NAN, NAN);      /* whose loss is no number adds nothing */
	for (size_t i = 0; i < b.n; i++)
		assert_true(s[i] == 0);
	free(s);
	vbed_close(&b);
}

static void the_gradient_of_the_loss_is_scaled(void **state)
{
	struct vbed b;
	int32_t label[2] = { 1, 4 };
	real y[10], dy[2][10];
	double loss[2], right[2], scale = 0;
	const struct batch batch = { .n = 2, .y = label };
	struct kerr e;

	vbed_open(&b, 4);
	b.env.loss = loss_find("cross_entropy");
	b.env.counts = true;
	b.env.loss_scale = 256;
	for (size_t i = 0; i < 10; i++)
		y[i] = vbed_wave(i, 3);
	for (int k = 0; k < 2; k++) {
		struct vec_arg in[2] = { { y, sizeof y, PLAN_ACTIVATION }, { .class = PLAN_BATCH, .batch = &batch } };
		struct vec_arg out[4] = { { dy[k], sizeof dy[k], PLAN_ACTIVATION_GRAD }, { &loss[k], 8, PLAN_SCALAR },
			{ &right[k], 8, PLAN_SCALAR }, { &scale, 8, PLAN_SCALAR } };

		if (vbed_call(&b, "loss", in, 2, out, k ? 4 : 3, &e) < 0)
			fail_msg("%s", e.text);
	}
	assert_true(scale == 256 && loss[0] == loss[1] && right[0] == right[1]);
	for (size_t i = 0; i < 10; i++)
		assert_true(dy[1][i] == 256 * dy[0][i]);
	vbed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_scale_halves_and_doubles), cmocka_unit_test(an_overflow_changes_nothing_but_the_scale),
		cmocka_unit_test(statistics_may_overflow), cmocka_unit_test(a_bad_loss_leaves_the_scale),
		cmocka_unit_test(a_scaled_step_is_the_same),
		cmocka_unit_test(sums_are_of_what_was_not_scaled), cmocka_unit_test(an_overflow_stays_in_the_sum),
		cmocka_unit_test(the_gradient_of_the_loss_is_scaled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
