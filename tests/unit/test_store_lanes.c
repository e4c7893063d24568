/* The store on the real loop and its lanes: writes on the loop, queries and copies of the log on their own
 * connections at the same time. ThreadSanitizer runs this too. */
#include <ftw.h>
#include <unistd.h>
#include "files.h"
#include "loop.h"
#include "store.h"
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

static int rm(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st; (void)flag; (void)ftw;
	return remove(path);
}

static void everything_at_once(void **state)
{
	char dir[] = "/tmp/hm-lanes-XXXXXX", path[64];
	struct log *log = log_new(100, LOG_INFO_, no_clock, NULL);
	struct t t = { .least = ROWS };
	struct store_opts o = { .path = path };
	struct err e;
	json_t *rows;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/state.db", dir);
	t.loop = loop_new(&(struct loop_conf){ .log = log }, &e);
	t.env = loop_env(t.loop);
	t.env->log = log;
	t.env->files = files_real();
	t.store = store_open(t.env, &o, &e);
	assert_non_null(t.store);
	t.writing = (struct timer){ .fire = write_more, .name = "write" };
	env_after(t.env, &t.writing, 1);
	assert_true(loop_run_until(t.loop, all_done, &t, 30000000));
	assert_true(t.most > t.least);
	store_query(t.store, "SELECT 1", 1, counted, &t);       /* under way when the store goes */
	t.env->ops->detach(t.env);
	store_free(t.store);
	loop_free(t.loop);
	assert_int_equal(t.answered, QUERIES + 1);

	t.loop = loop_new(&(struct loop_conf){ .log = log }, &e);
	t.env = loop_env(t.loop);
	t.env->log = log;
	t.env->files = files_real();
	t.store = store_open(t.env, &o, &e);
	rows = store_list(t.store, STORE_EVENTS, NULL, ROWS + 10);
	assert_int_equal(json_array_size(rows), ROWS);
	json_decref(rows);
	t.env->ops->detach(t.env);
	store_free(t.store);
	loop_free(t.loop);
	log_free(log);
	nftw(dir, rm, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(everything_at_once) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
