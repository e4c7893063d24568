/* Many workers at once on one data set of real files, with broken ones among them, while its prepared data is made,
 * read, found damaged and made again: the same bytes as one worker alone reads, every time. */
#include "t.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>
#include "loop/files.h"
#include "images_golden.h"
#include "train/data/data.h"

enum { THREADS = 4, FILES = 40, N = 16, NX = 3 * 8 * 8, TURNS = 60 };
#define FORM "{\"name\":\"a\",\"input\":[3,8,8],\"model\":[{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":3}]," \
	"\"loss\":\"cross_entropy\",\"target_batch\":8,\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"seed\":5," \
	"\"data\":{\"name\":\"d\",\"kind\":\"folder\",\"materialize_after\":1,\"steps\":[" \
	"{\"type\":\"resize\",\"size\":[12,14]}," \
	"{\"type\":\"crop\",\"size\":8,\"padding\":1},\"flip\",{\"type\":\"normalize\",\"mean\":120,\"std\":50}]}," \
	"\"local\":{\"cache\":\"%s\"}}"

static char dir[] = "/tmp/hive-threads.XXXXXX";
struct set { real x[N * NX]; int32_t y[N]; };
struct crowd { struct data *d; const struct set *want; _Atomic int running, wrong, damaged; };

static void read_set(struct data *d, uint64_t first, struct set *r)
{
	uint64_t position[N];
	struct err e;

	for (uint64_t i = 0; i < N; i++)
		position[i] = N * first + i;
	if (data_read(d, DATA_TRAIN, position, N, r->x, r->y, &e) < 0)
		r->y[0] = -1;
}

static void *worker(void *arg)
{
	struct crowd *c = arg;
	struct set *got = malloc(sizeof(*got));

	for (uint64_t i = 0; i < TURNS || (c->damaged < 2 && i < 100 * TURNS); i++) {
		read_set(c->d, i % 4, got);
		if (memcmp(got, &c->want[i % 4], sizeof(*got)))
			c->wrong++;
	}
	free(got);
	c->running--;
	return NULL;
}

/* The loader's job, and the loop that shows the figures; each time that it is ready a byte of it changes. */
static void *maker(void *arg)
{
	struct crowd *c = arg;
	char path[300], line[700];

	while (c->running) {
		if (data_cache_wanted(c->d))
			data_cache_make(c->d);
		json_decref(data_json(c->d));
		if (data_cache_news(c->d, line, sizeof(line)) && strstr(line, "is read from") && c->damaged++ < 2) {
			json_t *j = data_json(c->d);
			struct files *f = files_real();
			struct err e;
			int fd;

			(void)snprintf(path, sizeof(path), "%s/c/%s", dir, json_string_value(json_object_get(
				json_object_get(j, "cache"), "file")));
			json_decref(j);
			fd = f->open(f, path, O_RDWR, 0, &e);
			for (uint64_t at = 4096; fd >= 0 && at < 9000; at += 500)
				(void)f->pwrite(f, fd, "?", 1, at, &e);
			if (fd >= 0)
				(void)f->close(f, fd, &e);
		}
	}
	return NULL;
}

static void make_files(void)
{
	struct files *f = files_real();
	char path[300];
	struct err e;

	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/cat", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	for (int i = 0; i < FILES; i++) {
		int fd;

		(void)snprintf(path, sizeof(path), "%s/cat/%02d.jpg", dir, i);
		fd = f->open(f, path, O_WRONLY | O_CREAT, 0644, &e);
		assert_int_equal(f->pwrite(f, fd, file_jpeg, i % 9 == 5 ? 400 : sizeof(file_jpeg), 0, &e), 0);
		(void)f->close(f, fd, &e);
	}
}

static int remove_row(void *arg, const char *name)
{
	char path[600];

	(void)snprintf(path, sizeof(path), "%s/%.200s", (const char *)arg, name);
	return unlink(path);
}

static void clean(void)
{
	struct files *f = files_real();
	char path[300];
	struct err e;

	for (int i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, i ? "c" : "cat");
		(void)f->list(f, path, remove_row, path, &e);
		(void)rmdir(path);
	}
	assert_int_equal(rmdir(dir), 0);
}

static void test_crowd(void **state)
{
	struct set *want = malloc(4 * sizeof(*want));
	struct crowd c = { .want = want, .running = THREADS };
	pthread_t thread[THREADS], other;
	char json[1500], cache[100];
	struct data *alone;
	struct spec *s;
	struct err e;

	make_files();
	(void)snprintf(cache, sizeof(cache), "%s/c", dir);
	(void)snprintf(json, sizeof(json), FORM, cache);
	s = spec_parse(json, strlen(json), &e);
	if (!s)
		fail_msg("%s", e.text);
	alone = data_open(files_real(), dir, s, &e);
	for (uint64_t i = 0; i < 4; i++) {
		read_set(alone, i, &want[i]);
		assert_int_not_equal(want[i].y[0], -1);
	}
	data_free(alone);
	c.d = data_open(files_real(), dir, s, &e);
	assert_true(data_cache_wanted(c.d));
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, worker, &c), 0);
	assert_int_equal(pthread_create(&other, NULL, maker, &c), 0);
	for (int i = 0; i < THREADS; i++)
		(void)pthread_join(thread[i], NULL);
	(void)pthread_join(other, NULL);
	assert_int_equal(c.wrong, 0);
	assert_true(c.damaged >= 2);
	assert_int_equal(data_broken(c.d, &e), 4);      /* 5, 14, 23, 32, counted once each */
	data_free(c.d);
	clean();
	free(want);
	spec_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_crowd) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
