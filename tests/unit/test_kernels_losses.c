/* Losses with options, and of sequences: PyTorch's values and gradients, central differences, extreme scores, labels
 * that are out of range, and that neither teams, instruction sets nor batching change them. */
#include <math.h>
#include "tests/unit/kernels_util.h"
#include "tests/unit/losses_golden.h"

#ifdef REAL_DOUBLE
#define CLOSE 1e-11             /* the golden values have twelve digits */
#else
#define CLOSE 1e-6
#endif

static const int32_t now[] = { 2, 0, 3 }, now_ignored[] = { 2, -100, 3 };
static const int32_t seq[] = { 2, 0, 3, 1, 1, 0, 0, 2, 0, 3 }, seq_ignored[] = { 2, 0, 3, 1, 1, 0, -100, 2, -100, 3 };

static struct loss sequence(const char *name, size_t rows, size_t n)
{
	return loss_plain(loss_find(name), &(struct shape){ 2, { rows, n } });
}

static void pytorch_agrees(void **state)
{
	struct loss one = { .ops = loss_find("cross_entropy"), .rows = 1, .n = 4 }, rows = sequence("cross_entropy", 5, 4);
	struct loss smooth = one, ignore = one, rows_ignore = rows, rows_smooth, parts = sequence("parts", 5, 4);
	const struct { const char *name; const struct loss *l; size_t batch; const int32_t *label;
		const double *loss, *dz; } row[] = {
		{ "smooth", &smooth, 3, now, golden_ce_smooth, golden_ce_smooth_dz },
		{ "ignore", &ignore, 3, now_ignored, golden_ce_ignore, golden_ce_ignore_dz },
		{ "rows", &rows, 2, seq, golden_ce_rows, golden_ce_rows_dz },
		{ "rows, ignored", &rows_ignore, 2, seq_ignored, golden_ce_rows_ignore, golden_ce_rows_ignore_dz },
		{ "rows, smooth", &rows_smooth, 2, seq_ignored, golden_ce_rows_smooth, golden_ce_rows_smooth_dz },
		{ "parts", &parts, 2, seq, golden_parts, golden_parts_dz },
	};

	smooth.smoothing = 0.1;
	ignore.ignores = rows_ignore.ignores = true;
	ignore.ignore = rows_ignore.ignore = -100;
	rows_smooth = rows_ignore;
	rows_smooth.smoothing = 0.2;
	parts.nparts = 2;
	parts.part[0].len = 2;
	parts.part[0].weight = 1;
	parts.part[1].len = 3;
	parts.part[1].weight = 1000;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct par par = team(1 + (int)i % 3, CPU_PLAIN, NULL);
		size_t n = row[i].batch * row[i].l->rows * 4;
		real z[40], dz[40];
		double loss;

		for (size_t j = 0; j < n; j++)
			z[j] = (real)(3 * sin(0.37 * (double)j + 0.3));
		loss = loss_sum(&par, row[i].l, row[i].batch, z, row[i].label, 1.0 / (double)row[i].batch, dz, NULL) /
			(double)row[i].batch;
		if (!(fabs(loss - row[i].loss[0]) < CLOSE))
			fail_msg("%s: loss %.12g, PyTorch %.12g", row[i].name, loss, row[i].loss[0]);
		for (size_t j = 0; j < n; j++)
			if (!(fabs((double)dz[j] - row[i].dz[j]) < CLOSE))
				fail_msg("%s: dz[%zu] %.12g, PyTorch %.12g", row[i].name, j, (double)dz[j], row[i].dz[j]);
	}
}

/* Scores of +-1e4 and beyond: finite, and the gradient is the one of the limit. */
static void extreme_scores_stay_finite(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct loss smooth = { .ops = loss_find("cross_entropy"), .rows = 1, .n = 3, .smoothing = 0.1 };
	real z[6] = { 1e4, -1e4, 0, -1e4, -1e4, -1e4 }, dz[6], want[3] = { 0, 1, 0.5 };
	int32_t label[2] = { 1, 2 };
	double loss;

	for (int i = 0; loss_at(i); i++) {
		struct loss l = { .ops = loss_at(i), .rows = 1, .n = 3 };
		bool classes = l.ops->target == TARGET_CLASS;

		memset(dz, 0xff, sizeof dz);
		loss = loss_sum(&par, &l, 1, z, classes ? (const void *)label : want, 1, dz, NULL);
		assert_true(isfinite(loss));
		for (int j = 0; j < 3; j++)
			assert_true(isfinite((double)dz[j]));
		if (classes) {
			assert_true(fabs(loss - 2e4) < 1e-9);
			assert_true(dz[0] == 1 && dz[1] == -1 && dz[2] == 0);
		}
	}
	loss = loss_sum(&par, &smooth, 2, z, label, 0.5, dz, NULL);
	/* 0.9 2e4 + 0.1 (0 + 2e4 + 1e4) / 3, and ln 3 of three equal scores */
	assert_true(fabs(loss - (18000 + 1000 + log(3))) < 1e-3);
	for (int j = 0; j < 6; j++)
		assert_true(isfinite((double)dz[j]));
}

/* What is not finite does not hide. */
static void nonfinite_scores_show(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct loss l = { .ops = loss_find("cross_entropy"), .rows = 1, .n = 40 };
	real *z = noise(1, 1, 40), bad[3] = { (real)NAN, (real)INFINITY, -(real)NAN };
	int32_t label = 7;

	for (int i = 0; i < 3; i++)
		for (size_t at = 0; at < 40; at += 13) {
			real was = z[at];

			z[at] = bad[i];
			assert_false(isfinite(loss_sum(&par, &l, 1, z, &label, 1, NULL, NULL)));
			z[at] = was;
		}
	assert_true(isfinite(loss_sum(&par, &l, 1, z, &label, 1, NULL, NULL)));
	free(z);
}

/* A weight of 0 for the image is the text's loss alone, exactly; its rows get no gradient. */
static void a_part_without_weight_is_not_there(void **state)
{
	enum { TEXT = 3, IMAGE = 4, N = 7, BATCH = 3, ROWS = TEXT + IMAGE };
	struct par par = team(2, CPU_PLAIN, NULL);
	struct loss parts = sequence("parts", ROWS, N), text = sequence("cross_entropy", TEXT, N);
	real *z = noise(3, 4, BATCH * ROWS * N), *dz = bytes(BATCH * ROWS * N * sizeof(real));
	real one[TEXT * N], done[TEXT * N];
	int32_t label[BATCH * ROWS];
	double sum = 0;

	for (size_t i = 0; i < BATCH * ROWS; i++)
		label[i] = (int32_t)(rand_bits(9, i) % N);
	parts.nparts = 2;
	parts.part[0].len = TEXT;
	parts.part[0].weight = 5;
	parts.part[1].len = IMAGE;
	for (size_t b = 0; b < BATCH; b++) {
		sum += loss_sum(&par, &parts, 1, z + b * ROWS * N, label + b * ROWS, 1, dz + b * ROWS * N, NULL);
		memcpy(one, z + b * ROWS * N, sizeof one);
		assert_true(loss_sum(&par, &text, 1, one, label + b * ROWS, 1, done, NULL) ==
			loss_sum(&par, &parts, 1, z + b * ROWS * N, label + b * ROWS, 1, NULL, NULL));
		assert_memory_equal(dz + b * ROWS * N, done, sizeof done);
		for (size_t j = TEXT * N; j < ROWS * N; j++)
			assert_true(dz[b * ROWS * N + j] == 0);
	}
	assert_true(fabs(sum - loss_sum(&par, &parts, BATCH, z, label, 1, NULL, NULL)) < 1e-6);
	free(z);
	free(dz);
}

static void differences(const struct loss *l, size_t batch, const int32_t *label, const char *what)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	size_t n = batch * l->rows * l->n;
	double step = sizeof(real) == sizeof(double) ? 1e-5 : 1e-2, near = sizeof(real) == sizeof(double) ? 1e-8 : 1e-3;
	real *z = noise(4, 3, n), *dz = bytes(n * sizeof(real));

	(void)loss_sum(&par, l, batch, z, label, 0.25, dz, NULL);
	for (size_t i = 0; i < n; i++) {
		real was = z[i];
		double up, down;

		z[i] = was + (real)step;
		up = loss_sum(&par, l, batch, z, label, 1, NULL, NULL);
		z[i] = was - (real)step;
		down = loss_sum(&par, l, batch, z, label, 1, NULL, NULL);
		z[i] = was;
		if (!(fabs((double)dz[i] - 0.25 * (up - down) / (2 * step)) < near))
			fail_msg("%s: dz[%zu] %g, by differences %g", what, i, (double)dz[i], 0.25 * (up - down) / (2 * step));
	}
	free(z);
	free(dz);
}

static void gradients_are_those_of_differences(void **state)
{
	struct loss l = sequence("parts", 5, 19);

	differences(&l, 2, seq, "plain");
	l.smoothing = 0.3;
	differences(&l, 2, seq, "smooth");
	l.ignores = true;
	l.ignore = 1;
	differences(&l, 2, seq, "ignore");
	l.nparts = 3;
	for (int i = 0; i < 3; i++) {
		l.part[i].len = i == 1 ? 1 : 2;
		l.part[i].weight = i + 0.5;
	}
	differences(&l, 2, seq, "parts");
}

/* The vocabulary of GPT-2, in float: against sums in double. Teams and instruction sets give the same bytes. */
static void large_vocabularies_are_exact(void **state)
{
	enum { V = 50257, ROWS = 3 };
	struct loss l = sequence("cross_entropy", ROWS, V);
	real *z = noise(5, 8, ROWS * V), *dz = bytes(ROWS * V * sizeof(real)), *again = bytes(ROWS * V * sizeof(real));
	int32_t label[ROWS] = { 50256, 0, 1234 };
	enum cpu best;
	double want = 0, got;

	assert_int_equal(cpu_pick(NULL, &best, NULL), 0);
	l.smoothing = 0.05;
	for (size_t r = 0; r < ROWS; r++) {
		double total = 0, plain = 0, most = -1e30, lse;

		for (size_t i = 0; i < V; i++)
			most = (double)z[r * V + i] > most ? (double)z[r * V + i] : most;
		for (size_t i = 0; i < V; i++) {
			total += exp((double)z[r * V + i] - most);
			plain += (double)z[r * V + i];
		}
		lse = log(total) + most;
		want += (0.95 * (lse - (double)z[r * V + (size_t)label[r]]) + 0.05 * (lse - plain / V)) / ROWS;
	}
	for (int cpu = CPU_PLAIN; cpu <= (int)best; cpu++)
		for (int n = 1; n <= 3; n++) {
			struct par par = team(n, (enum cpu)cpu, NULL);

			got = loss_sum(&par, &l, 1, z, label, 1, again, NULL);
			if (!(fabs(got - want) < 1e-6 * want))
				fail_msg("%.12g, and in double %.12g", got, want);
			if (cpu == CPU_PLAIN && n == 1)
				memcpy(dz, again, ROWS * V * sizeof(real));
			assert_memory_equal(dz, again, ROWS * V * sizeof(real));
		}
	free(z);
	free(dz);
	free(again);
}

/* The mean over micro-batches of any size is the full batch's. */
static void batching_changes_nothing(void **state)
{
	enum { BATCH = 24, T = 6, V = 50 };
	static const size_t size[] = { 1, 5, 7, 24 };
	struct par par = team(2, CPU_PLAIN, NULL);
	struct loss l = sequence("cross_entropy", T, V);
	real *z = noise(6, 5, BATCH * T * V), *dz = bytes(BATCH * T * V * sizeof(real));
	real *part = bytes(BATCH * T * V * sizeof(real));
	int32_t label[BATCH * T];
	double whole, right, sum;

	for (size_t i = 0; i < BATCH * T; i++)
		label[i] = i % 7 ? (int32_t)(rand_bits(8, i) % V) : -1;
	l.ignores = true;
	l.ignore = -1;
	whole = loss_sum(&par, &l, BATCH, z, label, 1.0 / BATCH, dz, &right);
	for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
		double some = 0, ok;

		sum = 0;
		for (size_t at = 0; at < BATCH; at += size[s]) {
			size_t n = BATCH - at < size[s] ? BATCH - at : size[s];

			sum += loss_sum(&par, &l, n, z + at * T * V, label + at * T, 1.0 / BATCH, part + at * T * V, &ok);
			some += ok;
		}
		assert_true(fabs(sum - whole) < 1e-6 * whole && fabs(some - right) < 1e-9);
		for (size_t i = 0; i < BATCH * T * V; i++)
			assert_true(fabs((double)(part[i] - dz[i])) < 1e-7);
	}
	free(z);
	free(dz);
	free(part);
}

/* The gradient may take the place of the scores that it is made from. */
static void in_place_changes_nothing(void **state)
{
	enum { BATCH = 12, T = 3, V = 600 };
	static const char *const name[] = { "cross_entropy", "parts", "bce_with_logits", "mse" };
	struct par par = team(2, CPU_PLAIN, NULL);
	real *z = noise(6, 5, BATCH * T * V), *dz = bytes(BATCH * T * V * sizeof(real));
	real *want = noise(7, 1, BATCH * T * V);
	int32_t label[BATCH * T];

	for (size_t i = 0; i < BATCH * T; i++)
		label[i] = i % 5 ? (int32_t)(rand_bits(8, i) % V) : -1;
	for (int k = 0; k < 8; k++) {
		struct loss l = sequence(name[k / 2], T, V);
		const void *target = l.ops->target == TARGET_CLASS ? (const void *)label : want;
		double right[2], sum[2];

		l.smoothing = k % 2 && l.ops->target == TARGET_CLASS ? 0.1 : 0;
		l.ignores = true;
		l.ignore = -1;
		for (size_t i = 0; k == 4 && i < BATCH * T * V; i++)
			want[i] = want[i] > 0;
		sum[0] = loss_sum(&par, &l, BATCH, z, target, 1.0 / BATCH, dz, &right[0]);
		real *x = bytes(BATCH * T * V * sizeof(real));
		memcpy(x, z, BATCH * T * V * sizeof(real));
		sum[1] = loss_sum(&par, &l, BATCH, x, target, 1.0 / BATCH, x, &right[1]);
		assert_memory_equal(sum, &sum[1], sizeof sum[0]);
		assert_memory_equal(right, &right[1], sizeof right[0]);
		assert_memory_equal(x, dz, BATCH * T * V * sizeof(real));
		free(x);
	}
	free(z);
	free(dz);
	free(want);
}

static void labels_are_checked_with_their_place(void **state)
{
	struct loss l = sequence("cross_entropy", 5, 4);
	int32_t bad[10];
	struct kerr e;

	assert_int_equal(loss_check_labels(&l, 2, seq, &e), 0);
	assert_int_equal(loss_check_labels(&l, 2, seq_ignored, &e), -1);
	assert_non_null(strstr(e.text, "label -100 of sample 1, position 1"));
	l.ignores = true;
	l.ignore = -100;
	assert_int_equal(loss_check_labels(&l, 2, seq_ignored, &e), 0);
	memcpy(bad, seq, sizeof bad);
	bad[9] = 4;
	assert_int_equal(loss_check_labels(&l, 2, bad, &e), -1);
	assert_non_null(strstr(e.text, "label 4 of sample 1, position 4, is outside 0..3"));
}

/* A sample counts with its share of right answers; nothing that counts, nothing learned; ties are the first's. */
static void answers_are_counted_by_share(void **state)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct loss l = sequence("cross_entropy", 2, 3);
	real z[12] = { 9, 0, 0, 0, 9, 0, 0, 0, 0, 1, 1, 0 }, dz[12];
	int32_t label[4] = { 0, 2, 1, 0 };
	double right;

	(void)loss_sum(&par, &l, 2, z, label, 1, dz, &right);
	assert_true(fabs(right - 1) < 1e-12);           /* 1/2 of the first, 1/2 of the second */
	l.ignores = true;
	l.ignore = 2;
	(void)loss_sum(&par, &l, 1, z, label, 1, dz, &right);
	assert_true(fabs(right - 1) < 1e-12);           /* all that count */
	l.ignore = 5;
	label[0] = label[1] = 5;
	assert_true(loss_sum(&par, &l, 1, z, label, 1, dz, &right) == 0 && right == 0);
	for (int i = 0; i < 6; i++)
		assert_true(dz[i] == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pytorch_agrees),
		cmocka_unit_test(extreme_scores_stay_finite),
		cmocka_unit_test(nonfinite_scores_show),
		cmocka_unit_test(a_part_without_weight_is_not_there),
		cmocka_unit_test(gradients_are_those_of_differences),
		cmocka_unit_test(large_vocabularies_are_exact),
		cmocka_unit_test(batching_changes_nothing),
		cmocka_unit_test(in_place_changes_nothing),
		cmocka_unit_test(labels_are_checked_with_their_place),
		cmocka_unit_test(answers_are_counted_by_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
