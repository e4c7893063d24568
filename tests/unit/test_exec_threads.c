/* Tier file with real files and lanes that are threads: the bits of plain training; the file of values has no name, is
 * one and is closed; what open and write refuse is a failure that the owner plans anew after. */
#include <dirent.h>
#include <unistd.h>
#include "tiers_kit.h"
#include "loop/loop.h"

static const struct exec_ops no_net = { .load = load, .unload = unload, .cancel = cancel };
static struct { char dir[64]; int open, gone; } real_;

static int open_values(void)
{
	DIR *d = opendir("/proc/self/fd");
	char path[300], to[300];
	int n = 0;

	for (struct dirent *x; (x = readdir(d)); ) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%s", x->d_name);
		ssize_t len = readlink(path, to, sizeof(to) - 1);

		to[len > 0 ? len : 0] = 0;
		n += strstr(to, real_.dir) && strstr(to, "/.values (deleted)");
	}
	closedir(d);
	return n;
}

/* All that went away has come back. */
static void real_commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *t)
{
	real_.open = open_values();
	commit(arg, i, index, t);
}

static void trains(struct bed *b, struct plan *p)
{
	tiers_plan(b, p, b->folder ? "file" : NULL, 1);
	if (b->folder)
		memcpy(plan_do(p, PLAN_SAVE, 0, "w'")->fn, "w.bin", 6);
}

/* What SAVE has made is w, and nothing else is in the folder. */
static void is_saved(const struct bed *b)
{
	size_t bytes = b->model->nparam * sizeof(real);
	char path[128], *got = calloc(1, bytes + 1);

	(void)snprintf(path, sizeof(path), "%s/w.bin", b->folder);
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fread(got, 1, bytes + 1, f), bytes);
	assert_memory_equal(got, b->w, bytes);
	(void)fclose(f);
	free(got);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(b->folder), 0);
}
static bool is_over(void *arg) { return ((struct bed *)arg)->over || ((struct bed *)arg)->broken; }
static void gone(void *arg) { real_.gone++; }
static bool is_gone(void *arg) { return real_.gone > 0; }

static bool never(void *arg) { return false; }

/* sudden_us: the executor ends after so long, and the loop with it. 0: when all is done. */
static void train_real(struct bed *b, const char *points, uint64_t sudden_us)
{
	const struct exec_cb cb = { .plan = plan, .commit = real_commit, .scalar = scalar, .env = vec_env, .failed = failed,
		.broken = broken };
	const struct loop_conf conf = { 0 };
	struct err e;
	struct loop *l = loop_new(&conf, &e);

	assert_non_null(l);
	if (loop_failpoints(l, points, &e) < 0)
		fail_msg("%s", e.text);
	real_.open = real_.gone = 0;
	b->env = loop_env(l);
	bed_put(b, trains, &no_net, &cb);
	if (sudden_us)
		(void)loop_run_until(l, never, NULL, sudden_us);
	else
		assert_true(loop_run_until(l, is_over, b, 20000000));
	exec_free(b->x_, gone, NULL);
	if (!sudden_us)
		assert_true(loop_run_until(l, is_gone, NULL, 20000000));
	loop_free(l);
	assert_int_equal(real_.gone, 1);
	assert_int_equal(open_values(), 0);
}

static void free_real(struct bed *b)
{
	model_free(b->model);
	free(b->w);
	free(b->g);
}

static void test_real(void **state)
{
	static const char *const points[] = { "", "file.open=error", "file.write=error:1", "file.write=error:4" };
	struct bed a = { 0 };

	(void)snprintf(real_.dir, sizeof(real_.dir), "tiers-XXXXXX");
	assert_non_null(mkdtemp(real_.dir));
	train_real(&a, "", 0);
	assert_int_equal(a.commits, 1);
	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		char folder[96];

		(void)snprintf(folder, sizeof(folder), "%s/x%zu", real_.dir, i);
		struct bed b = { .folder = folder };

#ifndef FAILPOINTS
		if (points[i][0])
			continue;
#endif
		train_real(&b, points[i], 0);
		if (b.broken)
			fail_msg("%s", b.error.text);
		assert_int_equal(b.troubles, points[i][0] != 0);
		if (points[i][0])
			assert_err(b.error, ERR_IO, "MOVE of index 0: fail point file.");
		assert_int_equal(b.commits, 1);
		assert_memory_equal(b.w, a.w, a.model->nparam * sizeof(real));
		assert_int_equal(real_.open, 1);
		is_saved(&b);
		free_real(&b);
	}
	assert_int_equal(rmdir(real_.dir), 0);
	free_real(&a);
}

/* The loop goes while lanes work for an executor that has been freed: it is gone before the loop is, with its file. */
static void test_sudden_end(void **state)
{
	(void)snprintf(real_.dir, sizeof(real_.dir), "tiers-XXXXXX");
	assert_non_null(mkdtemp(real_.dir));
	for (uint64_t us = 1; us < 20000; us += us / 2 + 1) {
		struct bed b = { .folder = real_.dir };
		char path[128];

		train_real(&b, "", us);
		assert_int_equal(b.broken + b.troubles, 0);
		(void)snprintf(path, sizeof(path), "%s/w.bin", real_.dir);
		(void)unlink(path);
		free_real(&b);
	}
	assert_int_equal(rmdir(real_.dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_real), cmocka_unit_test(test_sudden_end) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
