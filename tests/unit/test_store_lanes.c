/* The store on the real loop and its lanes: writes on the loop, queries and copies of the log on their own
 * connections at the same time. ThreadSanitizer runs this too. */
#include <ftw.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <unistd.h>
#include "loop/files.h"
#include "loop/loop.h"
#include "store/store.h"
#include "tests/unit/t.h"

enum { ROWS = 3000, QUERIES = 40 };

struct t {
	struct loop *loop;
	struct env *env;
	struct store *store;
	struct timer writing;
	int rows, asked, answered;
	json_int_t least, most;         /* what queries counted */
};

static uint64_t no_clock(void *arg) { (void)arg; return 1; }

static void counted(void *arg, json_t *result, const struct err *e)
{
	struct t *t = arg;
	json_int_t n;

	if (e)
		fail_msg("%s", e->text);
	n = json_integer_value(json_array_get(json_array_get(json_object_get(result, "rows"), 0), 0));
	assert_true(n >= 0 && n <= t->rows);
	t->least = n < t->least ? n : t->least;
	t->most = n > t->most ? n : t->most;
	t->answered++;
}

/* A few rows per event, one event after the other, a question now and then. */
static void write_more(struct timer *timer)
{
	struct t *t = container_of(timer, struct t, writing);

	for (int i = 0; i < 5 && t->rows < ROWS; i++, t->rows++)
		store_event(t->store, LOG_INFO_, "x", NULL, NULL, NULL, "row %d", t->rows);
	if (t->asked < QUERIES && t->rows >= ROWS / QUERIES * t->asked) {
		t->asked++;
		store_query(t->store, "SELECT count(*) FROM events WHERE kind = 'x'", 10, counted, t);
	}
	if (t->rows < ROWS || t->asked < QUERIES)
		env_after(t->env, timer, 100);
}

static bool all_done(void *arg)
{
	struct t *t = arg;

	return t->rows == ROWS && t->answered == QUERIES;
}

/* What opens and closes around one case. */
struct house { char dir[32], path[64]; struct log *log; };

static void house_open(struct house *h, struct t *t)
{
	struct store_opts o = { .path = h->path };
	struct err e;

	if (!h->log) {
		snprintf(h->dir, sizeof h->dir, "/tmp/hm-lanes-XXXXXX");
		assert_non_null(mkdtemp(h->dir));
		snprintf(h->path, sizeof h->path, "%s/state.db", h->dir);
		h->log = log_new(100, LOG_INFO_, no_clock, NULL);
	}
	t->loop = loop_new(&(struct loop_conf){ .log = h->log }, &e);
	t->env = loop_env(t->loop);
	t->env->log = h->log;
	t->env->files = files_real();
	t->store = store_open(t->env, &o, &e);
	assert_non_null(t->store);
}

static void house_close(struct t *t)
{
	t->env->ops->detach(t->env);
	store_free(t->store);
	loop_free(t->loop);
}

static int rm(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st; (void)flag; (void)ftw;
	return remove(path);
}

static void house_leave(struct house *h)
{
	log_free(h->log);
	nftw(h->dir, rm, 16, FTW_DEPTH | FTW_PHYS);
}

static void everything_at_once(void **state)
{
	struct house h = { .log = NULL };
	struct t t = { .least = ROWS };
	json_t *rows;

	(void)state;
	house_open(&h, &t);
	t.writing = (struct timer){ .fire = write_more, .name = "write" };
	env_after(t.env, &t.writing, 1);
	assert_true(loop_run_until(t.loop, all_done, &t, 30000000));
	assert_true(t.most > t.least);
	store_query(t.store, "SELECT 1", 1, counted, &t);       /* under way when the store goes */
	house_close(&t);
	assert_int_equal(t.answered, QUERIES + 1);

	house_open(&h, &t);
	rows = store_list(t.store, STORE_EVENTS, NULL, ROWS + 10);
	assert_int_equal(json_array_size(rows), ROWS);
	json_decref(rows);
	house_close(&t);
	house_leave(&h);
}

/* --- the log begins anew, however busily it is written */

enum { LOG_ROWS = 20000, LOG_AT_ONCE = 10, LOG_BYTES = 16 << 20 };

static void write_long(struct timer *timer)
{
	struct t *t = container_of(timer, struct t, writing);

	for (int i = 0; i < LOG_AT_ONCE; i++, t->rows++)
		store_event(t->store, LOG_INFO_, "x", NULL, NULL, NULL, "row %d: %01000d", t->rows, 0);
	if (t->rows < LOG_ROWS)
		env_after(t->env, timer, 500);
}

static bool log_written(void *arg) { return ((struct t *)arg)->rows >= LOG_ROWS; }

static int64_t bytes_of(const char *path, const char *tail)
{
	char name[80];
	struct stat st;

	snprintf(name, sizeof name, "%s%s", path, tail);
	assert_int_equal(stat(name, &st), 0);
	return st.st_size;
}

/* Some 20 MB of rows in thousands of events that follow each other closely, as a tiny model's epochs do. */
static void log_stays_small(void **state)
{
	struct house h = { .log = NULL };
	struct t t = { .least = ROWS };
	int64_t bytes;

	(void)state;
	house_open(&h, &t);
	t.writing = (struct timer){ .fire = write_long, .name = "write" };
	env_after(t.env, &t.writing, 1);
	assert_true(loop_run_until(t.loop, log_written, &t, 60000000));
	store_settle(t.store);
	bytes = bytes_of(h.path, "-wal");
	if (bytes > LOG_BYTES)
		fail_msg("the write-ahead log has %lld bytes, the file %lld", (long long)bytes,
			(long long)bytes_of(h.path, ""));
	assert_in_range(bytes_of(h.path, ""), 1 << 20, 100 << 20);
	house_close(&t);
	house_leave(&h);
}

/* --- a disk that takes long holds up no question */

struct slow { struct job job; sem_t go; };

static void wait_there(struct job *j)
{
	struct slow *s = container_of(j, struct slow, job);

	while (sem_wait(&s->go) != 0)
		;
}

static void waited(struct job *j) { (void)j; }
static bool answered(void *arg) { return ((struct t *)arg)->answered > 0; }

static void query_passes_the_disk(void **state)
{
	struct house h = { .log = NULL };
	struct t t = { .least = ROWS };
	struct slow slow = { .job = { .name = "slow", .run = wait_there, .done = waited } };
	bool in_time;

	(void)state;
	house_open(&h, &t);
	assert_int_equal(sem_init(&slow.go, 0, 0), 0);
	slow.job.lane = env_lane(t.env, "disk");
	env_work(t.env, &slow.job);
	store_query(t.store, "SELECT 0", 1, counted, &t);
	in_time = loop_run_until(t.loop, answered, &t, 10000000);
	sem_post(&slow.go);
	house_close(&t);
	assert_true(in_time);
	sem_destroy(&slow.go);
	house_leave(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(everything_at_once), cmocka_unit_test(log_stays_small),
		cmocka_unit_test(query_passes_the_disk) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
