/* Prepared data in a file: the same bytes with and without it, damaged anywhere, stale, made by two daemons at once,
 * with a full disk; and what a spec may ask to be kept. */
#include "cache_kit.h"
#include <sys/stat.h>
#include <unistd.h>
#include "loop/files.h"

/* Before, while and after it is made; opened again; and a broken file is as broken out of the cache. */
static void equal(const char *steps, const char *more)
{
	struct world w;
	struct set *want = malloc(sizeof(*want)), *got = malloc(sizeof(*got));
	struct spec *s = spec_with(steps, more, "c");
	struct data *d;
	struct err e;

	world_open(&w);
	fill(&w);
	plain(&w, steps, want);
	for (int turn = 0; turn < 2; turn++) {
		d = opened(&w, s);
		state_is(d, turn ? "ready" : "making");
		for (int i = 0; i < 4; i++) {
			read_set(d, got);
			assert_memory_equal(got, want, sizeof(*want));
			if (i == 0 && !turn)
				data_cache_make(d);
			if (i == 1)
				make(d);
		}
		state_is(d, "ready");
		assert_int_equal(data_broken(d, &e), 2);
		assert_non_null(strstr(e.text, ".jpg: damaged JPEG"));
		data_free(d);
	}
	assert_true(listing(&w).caches == 1 && !listing(&w).others);
	free(want);
	free(got);
	spec_free(s);
	sim_free(w.sim);
}

static void test_equal(void **state)
{
	equal(STEPS, ",\"materialize_after\":2");
	equal(STEPS, ",\"materialize_after\":1");
	equal(STEPS, ",\"materialize_after\":0");
	equal("\"read\",\"decode\"," STEPS ",\"batch\"", ",\"materialize_after\":3");
	equal(KEPT "," NORM ",{\"type\":\"crop\",\"size\":8,\"padding\":2},\"flip\"", ",\"materialize_after\":3");
}

/* Rows of one shape are kept as well. */
static void test_rows(void **state)
{
	struct world w;
	static const char steps[] = ",\"steps\":[{\"type\":\"normalize\",\"mean\":9,\"std\":3},{\"type\":\"shift\"}]";
	struct spec *a = spec("", steps), *b;
	char json[200];
	uint64_t position[] = { 0, 5, 31, 7 };
	real x[4 * 16], z[4 * 16];
	int32_t y[4], v[4];
	struct data *d;
	struct err e;

	(void)snprintf(json, sizeof(json), "%s,\"materialize_after\":1", steps);
	b = spec("\"local\":{\"cache\":\"c\"},", json);
	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	d = opened(&w, a);
	assert_int_equal(data_read(d, DATA_TRAIN, position, 4, x, y, &e), 0);
	data_free(d);
	d = opened(&w, b);
	make(d);
	state_is(d, "ready");
	assert_int_equal(data_read(d, DATA_TRAIN, position, 4, z, v, &e), 0);
	assert_memory_equal(x, z, sizeof(x));
	assert_memory_equal(y, v, sizeof(y));
	data_free(d);
	spec_free(a);
	spec_free(b);
	sim_free(w.sim);
}

/* One byte of it is another, or its end is missing: found when it is opened or when it is read, and made again. */
static void test_damage(void **state)
{
	struct world w;
	struct set *want = malloc(sizeof(*want)), *got = malloc(sizeof(*got));
	struct spec *s = spec_with(STEPS, ",\"materialize_after\":2", "c");
	struct files *f;
	struct names n;
	struct data *d;
	struct err e;
	int64_t size;
	unsigned found = 0;

	world_open(&w);
	f = w.env->files;
	fill(&w);
	plain(&w, STEPS, want);
	d = opened(&w, s);
	make(d);
	data_free(d);
	n = listing(&w);
	size = f->size(f, n.cache, &e);
	assert_true(size > 4096 + FILES * 396);
	for (int64_t at = 0; at < size; at += at < 128 ? 3 : 97) {
		int fd = f->open(f, n.cache, O_RDWR, 0, &e);
		uint8_t byte;

		assert_int_equal(f->pread(f, fd, &byte, 1, (uint64_t)at, &e), 1);
		byte ^= 0x10;
		assert_int_equal(f->pwrite(f, fd, &byte, 1, (uint64_t)at, &e), 0);
		(void)f->close(f, fd, &e);
		d = opened(&w, s);
		read_set(d, got);
		assert_memory_equal(got, want, sizeof(*want));
		found += data_cache_wanted(d);          /* what lies between the samples nobody reads */
		make(d);
		state_is(d, "ready");
		read_set(d, got);
		assert_memory_equal(got, want, sizeof(*want));
		data_free(d);
		if (!listing(&w).caches)
			fail_msg("no cache after byte %lld", (long long)at);
	}
	assert_true(found > 40);
	for (int64_t cut = size - 1; cut > 0; cut = cut * 2 / 3) {
		uint8_t *p = malloc((size_t)size);
		int fd = f->open(f, n.cache, O_RDONLY, 0, &e);

		assert_int_equal(f->pread(f, fd, p, (size_t)cut, 0, &e), cut);
		(void)f->close(f, fd, &e);
		fd = f->open(f, n.cache, O_WRONLY | O_TRUNC, 0, &e);
		assert_int_equal(f->pwrite(f, fd, p, (size_t)cut, 0, &e), 0);
		(void)f->close(f, fd, &e);
		free(p);
		d = opened(&w, s);
		state_is(d, "making");
		make(d);
		state_is(d, "ready");
		data_free(d);
	}
	free(want);
	free(got);
	spec_free(s);
	sim_free(w.sim);
}

/* Another picture, or other steps: what was kept is not used. */
static void test_stale(void **state)
{
	struct world w;
	struct set *want = malloc(sizeof(*want)), *got = malloc(sizeof(*got));
	struct spec *s = spec_with(STEPS, ",\"materialize_after\":2", "c"), *one = spec_with(STEPS,
		",\"materialize_after\":1", "c");
	struct data *d;

	world_open(&w);
	fill(&w);
	d = opened(&w, s);
	make(d);
	data_free(d);
	put(&w, "cat/8.jpg", file_jpeg_grey, sizeof(file_jpeg_grey));
	plain(&w, STEPS, want);
	d = opened(&w, s);
	state_is(d, "making");
	make(d);
	read_set(d, got);
	assert_memory_equal(got, want, sizeof(*want));
	data_free(d);
	assert_int_equal(listing(&w).caches, 1);        /* in the old one's place */
	d = opened(&w, one);
	state_is(d, "making");
	make(d);
	read_set(d, got);
	assert_memory_equal(got, want, sizeof(*want));
	data_free(d);
	assert_int_equal(listing(&w).caches, 2);
	free(want);
	free(got);
	spec_free(s);
	spec_free(one);
	sim_free(w.sim);
}

/* Two daemons make it at once, by turns; each reads whole samples all the time, and one file remains. */
static void test_two(void **state)
{
	struct world w;
	struct set *want = malloc(sizeof(*want)), *got = malloc(sizeof(*got));
	struct spec *s = spec_with(STEPS, ",\"materialize_after\":2", "c");
	struct data *d[3];

	world_open(&w);
	fill(&w);
	plain(&w, STEPS, want);
	for (int i = 0; i < 3; i++)
		d[i] = opened(&w, s);
	for (int turn = 0; turn < 12; turn++)
		for (int i = 0; i < 2; i++) {
			if (data_cache_wanted(d[i]))
				data_cache_make(d[i]);
			read_set(d[i], got);
			assert_memory_equal(got, want, sizeof(*want));
		}
	state_is(d[0], "ready");
	state_is(d[1], "ready");
	make(d[2]);                                     /* begun by nobody: the others' is taken at once */
	state_is(d[2], "ready");
	for (int i = 0; i < 3; i++)
		data_free(d[i]);
	assert_true(listing(&w).caches == 1 && !listing(&w).others);
	free(want);
	free(got);
	spec_free(s);
	sim_free(w.sim);
}

/* Somebody else's run may have so much: what would take more is not begun, what does take more is given up, and
 * training goes on with the same bytes. */
static void test_quota(void **state)
{
	struct set *want = malloc(sizeof(*want)), *got = malloc(sizeof(*got));
	struct spec *s = spec_with(STEPS, ",\"materialize_after\":2", "c");
	uint64_t whole = 0, most[] = { 0, 0, 0, 0, 10 };        /* none, enough, one byte less, a part */
	char line[600];
	struct data *d;
	struct world w;
	struct err e;

	for (int i = 0; i < 5; i++) {
		s->cache_max = most[i];
		world_open(&w);
		fill(&w);
		if (!i)
			plain(&w, STEPS, want);
		d = opened(&w, s);
		make(d);
		cache_state(d, line, sizeof(line));
		if (i < 2) {
			assert_true(!strncmp(line, "ready", 5));
			whole = (uint64_t)w.env->files->size(w.env->files, listing(&w).cache, &e);
			assert_true(whole > 1000);
			most[1] = whole;
			most[2] = whole - 1;
			most[3] = whole / 2;
		} else {
			assert_non_null(strstr(line, "failed"));
			assert_non_null(strstr(line, "data.cache_max"));
			assert_int_equal(listing(&w).caches + listing(&w).others, 0);
		}
		read_set(d, got);
		assert_memory_equal(got, want, sizeof(*want));
		data_free(d);
		sim_free(w.sim);
	}
	free(want);
	free(got);
	spec_free(s);
}

/* The disk is full at any moment: it is said, nothing is left behind, and training goes on with the same bytes. */
static void test_full(void **state)
{
	struct set *want = malloc(sizeof(*want)), *got = malloc(sizeof(*got));
	struct spec *s = spec_with(STEPS, ",\"materialize_after\":2", "c"), *nowhere = spec_with(STEPS,
		",\"materialize_after\":2", "");
	unsigned failed = 0;
	char line[600];
	struct data *d;
	struct world w;

	for (int nth = 1; nth < 60; nth++) {
		world_open(&w);
		fill(&w);
		if (nth == 1)
			plain(&w, STEPS, want);
		d = opened(&w, s);
		sim_files_fail(w.sim, 0, nth, ERR_FULL);
		make(d);
		sim_files_fail(w.sim, 0, 0, ERR_FULL);
		if (strncmp(cache_state(d, line, sizeof(line)), "ready", 5)) {
			failed++;
			assert_true(data_cache_news(d, line, sizeof(line)));
			assert_non_null(strstr(line, "training goes on from the source: "));
			assert_false(data_cache_news(d, line, sizeof(line)));
			assert_int_equal(listing(&w).others, 0);
		}
		read_set(d, got);
		assert_memory_equal(got, want, sizeof(*want));
		data_free(d);
		sim_free(w.sim);
	}
	assert_true(failed > 3);
	world_open(&w);
	fill(&w);
	d = opened(&w, nowhere);
	state_is(d, "failed there is no folder for prepared data");
	assert_false(data_cache_wanted(d));
	data_free(d);
	sim_free(w.sim);
	free(want);
	free(got);
	spec_free(s);
	spec_free(nowhere);
}

static int remove_row(void *arg, const char *name)
{
	char path[600];

	(void)snprintf(path, sizeof(path), "%s/%.200s", (const char *)arg, name);
	return unlink(path);
}

/* Mapped, on a real disk, with times of change: one that is touched makes it stale. */
static void test_mapped(void **state)
{
	char dir[] = "/tmp/hive-cache.XXXXXX", path[300], cache[300];
	struct set *want = malloc(sizeof(*want)), *got = malloc(sizeof(*got));
	struct files *f = files_real();
	struct timespec old[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	struct spec *s, *none = spec_with(STEPS, "", "");
	struct data *d;
	struct err e;

	assert_non_null(mkdtemp(dir));
	(void)snprintf(cache, sizeof(cache), "%s/c", dir);
	s = spec_with(STEPS, ",\"materialize_after\":2", cache);
	(void)snprintf(path, sizeof(path), "%s/cat", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	for (int i = 0; i < FILES; i++) {
		int fd;

		(void)snprintf(path, sizeof(path), "%s/cat/%d.png", dir, i);
		fd = f->open(f, path, O_WRONLY | O_CREAT, 0644, &e);
		assert_int_equal(f->pwrite(f, fd, file_png, sizeof(file_png), 0, &e), 0);
		(void)f->close(f, fd, &e);
	}
	d = data_open(f, dir, none, &e);
	read_set(d, want);
	data_free(d);
	for (int turn = 0; turn < 3; turn++) {
		d = data_open(f, dir, s, &e);
		assert_non_null(d);
		state_is(d, turn == 1 ? "ready" : "making");
		make(d);
		state_is(d, "ready");
		read_set(d, got);
		assert_memory_equal(got, want, sizeof(*want));
		data_free(d);
		if (turn == 1)                          /* path is the last picture's */
			assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	}
	for (int i = 0; i < FILES; i++) {
		(void)snprintf(path, sizeof(path), "%s/cat/%d.png", dir, i);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(f->list(f, cache, remove_row, cache, &e), 0);
	(void)snprintf(path, sizeof(path), "%s/cat", dir);
	assert_true(!rmdir(path) && !rmdir(cache) && !rmdir(dir));
	free(want);
	free(got);
	spec_free(s);
	spec_free(none);
}

static void says(const char *steps, const char *more, const char *text)
{
	char json[1500];
	struct spec *s;
	struct err e;

	(void)snprintf(json, sizeof(json), FORM, steps, more, "c");
	s = spec_parse(json, strlen(json), &e);
	assert_null(s);
	assert_err(e, ERR_INVALID, text);
}

static void test_spec(void **state)
{
	says(STEPS, ",\"materialize_after\":3", "data.materialize_after: crop of data.steps depends on chance");
	says("\"read\",\"decode\",\"flip\"", ",\"materialize_after\":3", "flip of data.steps depends on chance");
	says(STEPS, ",\"materialize_after\":6", "data.materialize_after: 6 is out of range; 0 to 5 is allowed");
	says(STEPS, ",\"materialize_after\":\"resize\"", "data.materialize_after: must be a whole number");
	says("\"flip\",\"read\"", "", "data.steps[1]: \"read\" must be the first");
	says("\"flip\",\"decode\"", "", "data.steps[1]: \"decode\" must stand behind \"read\" or first");
	says("\"batch\",\"flip\"", "", "data.steps[0]: \"batch\" must be the last");
	says("\"flop\"", "", "data.steps[0].type: unknown step \"flop\"; did you mean \"flip\"?");
	says("{\"type\":\"resized_crop\",\"size\":8,\"scale\":[0.5,0.1]}", "", "data.steps[0].scale: 0.5 to 0.1");
	says("{\"type\":\"resized_crop\",\"size\":8,\"ratio\":2}", "", "data.steps[0].ratio: must be [from, to]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal), cmocka_unit_test(test_rows), cmocka_unit_test(test_damage),
		cmocka_unit_test(test_stale), cmocka_unit_test(test_two), cmocka_unit_test(test_full),
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_mapped), cmocka_unit_test(test_spec),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
