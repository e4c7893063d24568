/* The store when things refuse: a disk that is full or failing costs nothing that fits into the queue, a wrong row goes
 * alone, and what operators may ask with SQL can read and nothing else. */
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include "tests/unit/store_kit.h"

/* --- a disk that refuses: a VFS in front of the real one whose writes fail while told to */

static struct fault { bool on; int rc; int seen; } fault;
struct shim_file { sqlite3_file base; sqlite3_file *real; };

static sqlite3_file *real_of(sqlite3_file *f) { return ((struct shim_file *)f)->real; }
#define PASS(name, args, call) static int shim_##name args { sqlite3_file *r = real_of(f); return r->pMethods->call; }
PASS(close, (sqlite3_file *f), xClose(r))
PASS(read, (sqlite3_file *f, void *p, int n, sqlite3_int64 at), xRead(r, p, n, at))
PASS(truncate, (sqlite3_file *f, sqlite3_int64 n), xTruncate(r, n))
PASS(size, (sqlite3_file *f, sqlite3_int64 *n), xFileSize(r, n))
PASS(lock, (sqlite3_file *f, int k), xLock(r, k))
PASS(unlock, (sqlite3_file *f, int k), xUnlock(r, k))
PASS(reserved, (sqlite3_file *f, int *k), xCheckReservedLock(r, k))
PASS(control, (sqlite3_file *f, int op, void *p), xFileControl(r, op, p))
PASS(sector, (sqlite3_file *f), xSectorSize(r))
PASS(device, (sqlite3_file *f), xDeviceCharacteristics(r))
PASS(shm_map, (sqlite3_file *f, int a, int b, int c, void volatile **p), xShmMap(r, a, b, c, p))
PASS(shm_lock, (sqlite3_file *f, int a, int b, int c), xShmLock(r, a, b, c))
PASS(shm_unmap, (sqlite3_file *f, int a), xShmUnmap(r, a))
static void shim_barrier(sqlite3_file *f) { real_of(f)->pMethods->xShmBarrier(real_of(f)); }
static int shim_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
	if (fault.on)
		return fault.seen++, fault.rc;
	return real_of(f)->pMethods->xWrite(real_of(f), p, n, at);
}
static int shim_sync(sqlite3_file *f, int flags)
{
	if (fault.on)
		return fault.seen++, SQLITE_IOERR_FSYNC;
	return real_of(f)->pMethods->xSync(real_of(f), flags);
}

static const sqlite3_io_methods shim_methods = { 2, shim_close, shim_read, shim_write, shim_truncate, shim_sync,
	shim_size,
	shim_lock, shim_unlock, shim_reserved, shim_control, shim_sector, shim_device, shim_shm_map, shim_shm_lock,
		shim_barrier,
	shim_shm_unmap, NULL, NULL };

static int shim_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
	sqlite3_vfs *real = v->pAppData;
	struct shim_file *s = (struct shim_file *)f;
	int rc;

	s->real = (sqlite3_file *)(s + 1);
	rc = real->xOpen(real, name, s->real, flags, out);
	s->base.pMethods = s->real->pMethods ? &shim_methods : NULL;
	return rc;
}

/* It outlives a case that fails in the middle, which cannot unregister it. */
static sqlite3_vfs shim;

static void register_shim(void)
{
	sqlite3_vfs *real = sqlite3_vfs_find(NULL);

	sqlite3_vfs_unregister(&shim);
	shim = *real;
	shim.zName = "shim";
	shim.pAppData = real;
	shim.szOsFile = (int)sizeof(struct shim_file) + real->szOsFile;
	shim.xOpen = shim_open;
	sqlite3_vfs_register(&shim, 0);
}

static void check_state(struct t *t, const char *state, json_int_t queued, json_int_t lost)
{
	json_t *j = store_json(t->s);

	assert_string_equal(json_string_value(json_object_get(j, "state")), state);
	assert_int_equal(json_integer_value(json_object_get(j, "queued")), queued);
	assert_int_equal(json_integer_value(json_object_get(j, "lost")), lost);
	json_decref(j);
}

static void refusing_disk(struct t *t, int rc, enum err_code code)
{
	struct shelf *sh = store_shelf(t->s);
	struct err e;
	uint8_t out[8];
	size_t n;
	int rows = 0;
	json_t *r;

	assert_int_equal(sh->put(sh, "t", "a", 1, "old", 3, &e), 0);
	world_turn(t->w, 1000);
	fault = (struct fault){ .on = true, .rc = rc };
	put_run(t->s, "r1", "train");
	assert_int_equal(store_sync(t->s, &e), -1);
	assert_err(e, code, t->db);
	assert_false(store_healthy(t->s));
	check_state(t, "waiting", 1, 0);
	/* What waits is still seen by those who put it. */
	assert_int_equal(sh->put(sh, "t", "a", 1, "new", 3, &e), 0);
	assert_int_equal(sh->put(sh, "t", "b", 1, "x", 1, &e), 0);
	assert_int_equal(sh->get(sh, "t", "a", 1, out, sizeof out, &n, &e), 0);
	assert_memory_equal(out, "new", 3);
	assert_int_equal(sh->each(sh, "t", count_row, &rows, &e), 0);
	assert_int_equal(rows, 2);
	assert_int_equal(sh->del(sh, "t", "b", 1, &e), 0);
	assert_int_equal(sh->get(sh, "t", "b", 1, out, sizeof out, &n, &e), -1);
	const int asked = fault.seen;
	store_settle_told(t->s);                /* an answer does not ask it again */
	assert_int_equal(fault.seen, asked);
	world_turn(t->w, 60000000);             /* it tries, and goes on trying */
	assert_true(fault.seen > 3);
	fault.on = false;
	world_turn(t->w, 60000000);
	assert_true(store_healthy(t->s));
	world_turn(t->w, 1000);
	r = store_list(t->s, STORE_RUNS, NULL, 10);
	assert_int_equal(json_array_size(r), 1);
	json_decref(r);
	r = store_list(t->s, STORE_EVENTS, NULL, 10);
	assert_string_equal(text(r, 0, "kind"), "store.recovered");
	json_decref(r);
	assert_int_equal(sh->get(sh, "t", "a", 1, out, sizeof out, &n, &e), 0);
	assert_memory_equal(out, "new", 3);
}

static void a_full_or_failing_disk_loses_nothing(void **state)
{
	struct t *t = *state;

	register_shim();
	assert_non_null(reopen(t, &(struct store_opts){ .vfs = "shim" }));
	refusing_disk(t, SQLITE_FULL, ERR_FULL);
	store_free(t->s);
	t->s = NULL;
	snprintf(t->db, sizeof t->db, "%s/second.db", t->w->dir);
	assert_non_null(reopen(t, &(struct store_opts){ .vfs = "shim" }));
	refusing_disk(t, SQLITE_IOERR_WRITE, ERR_IO);
	store_free(t->s);
	t->s = NULL;
	sqlite3_vfs_unregister(&shim);
}

static void the_queue_is_bounded(void **state)
{
	struct t *t = *state;
	struct shelf *sh;
	struct err e;
	json_t *r;

	register_shim();
	assert_non_null(reopen(t, &(struct store_opts){ .vfs = "shim" }));
	sh = store_shelf(t->s);
	fault = (struct fault){ .on = true, .rc = SQLITE_FULL };
	for (int i = 0; i < STORE_QUEUE_MAX + 77; i++)
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", i);
	store_settle(t->s);
	check_state(t, "stopped", STORE_QUEUE_MAX, 77);
	assert_int_equal(sh->put(sh, "t", "a", 1, "b", 1, &e), -1);
	assert_err(e, ERR_FULL, "full");
	fault.on = false;
	world_turn(t->w, 60000000);
	check_state(t, "recording", 0, 0);
	r = store_list(t->s, STORE_EVENTS, NULL, STORE_QUEUE_MAX + 100);
	assert_int_equal(json_array_size(r), STORE_QUEUE_MAX + 1);
	assert_string_equal(text(r, 0, "data"), "{\"lost\":77}");
	json_decref(r);
	store_free(t->s);
	t->s = NULL;
	sqlite3_vfs_unregister(&shim);
}

/* A row that is itself wrong must not hold up the others. */
static void a_wrong_row_is_dropped_alone(void **state)
{
	struct t *t = *state;
	json_t *r;

	store_run_put(t->s, &(struct store_run){ .run = "bad", .name = NULL, .author = "a", .state = "s", .spec = "{}" });
	put_run(t->s, "good", "train");
	store_settle(t->s);
	assert_true(store_healthy(t->s));
	r = store_list(t->s, STORE_RUNS, NULL, 10);
	assert_int_equal(json_array_size(r), 1);
	assert_string_equal(text(r, 0, "run"), "good");
	json_decref(r);
}

/* A child writes and says what was acknowledged until it is killed; everything that it said is there afterwards. */
static void a_kill_loses_nothing_acknowledged(void **state)
{
	struct t *t = *state;

	for (int round = 0; round < 6; round++) {
		int fd[2], last = -1, n, status;
		json_t *r;
		pid_t pid;

		store_free(t->s);
		t->s = NULL;
		assert_int_equal(pipe(fd), 0);
		pid = fork();
		if (pid == 0) {
			struct store_opts o = { .path = t->db };
			struct store *s = store_open(&t->w->env, &o, NULL);

			for (int i = 0; s; i++) {
				char run[32];

				snprintf(run, sizeof run, "%d-%d", round, i);
				put_run(s, run, "train");
				if (store_sync(s, NULL) < 0 || write(fd[1], &i, sizeof i) != sizeof i)
					break;
			}
			_exit(1);
		}
		close(fd[1]);
		while (last < 20 * round && read(fd[0], &n, sizeof n) == sizeof n)
			last = n;
		kill(pid, SIGKILL);
		while (read(fd[0], &n, sizeof n) == sizeof n)
			last = n;
		close(fd[0]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && last >= 20 * round);
		assert_non_null(reopen(t, NULL));
		r = store_list(t->s, STORE_RUNS, NULL, 100000);
		for (int i = 0; i <= last; i++) {
			char run[32];
			bool found = false;
			json_t *row;
			size_t k;

			snprintf(run, sizeof run, "%d-%d", round, i);
			json_array_foreach(r, k, row)
				found = found || strcmp(text(r, k, "run"), run) == 0;
			assert_true(found);
		}
		json_decref(r);
	}
}

/* --- queries */

struct answer { json_t *result; struct err e; int times; };

static void answered(void *arg, json_t *result, const struct err *e)
{
	struct answer *a = arg;

	a->times++;
	a->result = result ? json_incref(result) : NULL;
	if (e)
		a->e = *e;
}

static struct answer query(struct t *t, const char *sql, size_t rows)
{
	struct answer a = { 0 };

	store_query(t->s, sql, rows, answered, &a);
	assert_int_equal(a.times, 0);
	world_turn(t->w, 0);
	assert_int_equal(a.times, 1);
	return a;
}

static void queries_read(void **state)
{
	struct t *t = *state;
	struct answer a;

	for (int i = 0; i < 20; i++)
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", i);
	a = query(t, "SELECT count(*) AS n, max(id), NULL, 1.5, x'00ff' FROM events;", 10);
	assert_non_null(a.result);
	assert_string_equal(json_string_value(json_array_get(json_object_get(a.result, "columns"), 0)), "n");
	assert_int_equal(json_integer_value(json_array_get(json_array_get(json_object_get(a.result, "rows"), 0), 0)), 20);
	assert_string_equal(json_string_value(json_array_get(json_array_get(json_object_get(a.result, "rows"), 0), 4)),
		"00ff");
	assert_true(json_is_false(json_object_get(a.result, "truncated")));
	json_decref(a.result);
	a = query(t, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 9) SELECT x FROM c", 5);
	assert_int_equal(json_array_size(json_object_get(a.result, "rows")), 5);
	assert_true(json_is_true(json_object_get(a.result, "truncated")));
	json_decref(a.result);
	a = query(t, "SELECT 1", 1);
	assert_true(json_is_false(json_object_get(a.result, "truncated")));
	json_decref(a.result);
}

static void queries_cannot_write_or_reach_out(void **state)
{
	struct t *t = *state;
	static const char *const bad[] = {
		"DELETE FROM events", "INSERT INTO runs(run) VALUES('x')", "UPDATE events SET text='x'", "DROP TABLE events",
		"CREATE TABLE t(x)", "CREATE TEMP TABLE t(x)", "ATTACH '/tmp/hm-x.db' AS a", "DETACH main",
			"PRAGMA user_version=9",
		"PRAGMA journal_mode=DELETE", "VACUUM", "VACUUM INTO '/tmp/hm-x.db'", "BEGIN IMMEDIATE", "SAVEPOINT a",
		"SELECT load_extension('x')", "REINDEX", "ANALYZE",
	};
	struct answer a;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		a = query(t, bad[i], 10);
		if (a.result)
			fail_msg("allowed: %s", bad[i]);
		if (a.e.code != ERR_REFUSED && !strstr(a.e.text, "load_extension"))
			fail_msg("%s: %s", bad[i], a.e.text);
	}
	a = query(t, "SELECT 1; DELETE FROM events", 10);
	assert_err(a.e, ERR_INVALID, "one statement");
	a = query(t, "  ", 10);
	assert_err(a.e, ERR_INVALID, "no statement");
	a = query(t, "SELEC 1", 10);
	assert_err(a.e, ERR_INVALID, "syntax error");
	assert_int_not_equal(access("/tmp/hm-x.db", F_OK), 0);
}

static void queries_end(void **state)
{
	struct t *t = *state;
	struct answer a = query(t, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM "
		"c", 10);

	assert_null(a.result);
	assert_err(a.e, ERR_TIMEOUT, "2 s");
	a = query(t, "SELECT length(zeroblob(100000000))", 10);
	assert_null(a.result);
	a = query(t, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT hex(zeroblob(20000)) FROM "
		"c", 10000);
	assert_true(json_is_true(json_object_get(a.result, "truncated")));
	assert_true(json_array_size(json_object_get(a.result, "rows")) < 60);
	json_decref(a.result);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_full_or_failing_disk_loses_nothing), T(the_queue_is_bounded), T(a_wrong_row_is_dropped_alone),
		T(a_kill_loses_nothing_acknowledged),
		T(queries_read), T(queries_cannot_write_or_reach_out), T(queries_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
