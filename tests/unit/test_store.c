/* The store: what is written is read back, one transaction per event, every older schema is brought forward after a
 * copy, a newer one and a foreign one are refused, a disk that refuses costs nothing that fits into the queue, corruption is
 * said and moved aside only when asked, queries can read and nothing else. */
#include <sqlite3.h>
#include "migrate.h"
#include "store.h"
#include "tests/unit/state_env.h"
#include "tests/unit/t.h"

struct t { struct world *w; char db[128]; struct store *s; };

static struct store *reopen(struct t *t, const struct store_opts *more)
{
	struct store_opts o = more ? *more : (struct store_opts){ 0 };
	struct err e;

	store_free(t->s);
	o.path = t->db;
	t->s = store_open(&t->w->env, &o, &e);
	if (!t->s)
		print_message("%s\n", e.text);
	return t->s;
}

static int setup(void **state)
{
	struct t *t = calloc(1, sizeof *t);

	t->w = world_new();
	snprintf(t->db, sizeof t->db, "%s/state.db", t->w->dir);
	*state = t;
	return reopen(t, NULL) ? 0 : -1;
}

static int teardown(void **state)
{
	struct t *t = *state;

	store_free(t->s);
	world_turn(t->w, 0);
	world_free_all(t->w);
	free(t);
	return 0;
}

static void put_run(struct store *s, const char *run, const char *state)
{
	store_run_put(s, &(struct store_run){ .run = run, .name = "digits", .author = "aa", .state = state, .spec = "{}",
		.epoch = 3, .samples = 700, .resume = true });
}

static const char *text(json_t *rows, size_t i, const char *key)
{
	const char *s = json_string_value(json_object_get(json_array_get(rows, i), key));

	return s ? s : "(none)";
}

static json_int_t integer(json_t *rows, size_t i, const char *key)
{
	return json_integer_value(json_object_get(json_array_get(rows, i), key));
}

static void every_table_reads_back(void **state)
{
	struct t *t = *state;
	json_t *r;

	put_run(t->s, "r1", "train");
	store_run_update(t->s, "r1", NULL, "late", 4, 900);
	store_param_put(t->s, &(struct store_param){ .run = "r1", .key = "lr", .old_value = "0.1", .new_value = "0.01",
		.author = "aa", .state = "applied", .version = 2, .epoch = 9 });
	store_epoch_put(t->s, &(struct store_epoch){ .run = "r1", .digest = "d4", .epoch = 4, .samples = 200, .members = 3,
		.weight = 200, .loss = 0.5, .val_loss = __builtin_nan(""), .val_accuracy = 0.97 });
	store_round_add(t->s, &(struct store_round){ .run = "r1", .outcome = "done without", .without = "[\"bb\"]",
		.epoch = 4,
		.members = 2 });
	store_peer_put(t->s, &(struct store_peer){ .peer = "bb", .address = "127.0.0.1:1", .version = "0.1",
		.state = "live", .rtt_us = 40 });
	store_event(t->s, LOG_WARN_, "peer.dead", "r1", "bb", json_pack("{s:i}", "ms", 3), "peer %s is gone", "bb");
	store_ckpt_put(t->s, &(struct store_ckpt){ .run = "r1", .path = "/x", .digest = "d", .epoch = 4, .bytes = 10,
		.state = "whole" });

	r = store_list(t->s, STORE_RUNS, NULL, 10);
	assert_int_equal(json_array_size(r), 1);
	assert_string_equal(text(r, 0, "state"), "train");
	assert_string_equal(text(r, 0, "error"), "late");
	assert_int_equal(integer(r, 0, "samples"), 900);
	assert_int_equal(integer(r, 0, "created_ms"), 1700000000000);
	json_decref(r);
	r = store_list(t->s, STORE_EPOCHS, "r1", 10);
	assert_true(json_is_null(json_object_get(json_array_get(r, 0), "val_loss")));
	assert_float_equal(json_real_value(json_object_get(json_array_get(r, 0), "val_accuracy")), 0.97, 0);
	json_decref(r);
	r = store_list(t->s, STORE_EVENTS, "r1", 10);
	assert_string_equal(text(r, 0, "text"), "peer bb is gone");
	assert_string_equal(text(r, 0, "data"), "{\"ms\":3}");
	json_decref(r);
	for (int k = 0; k < STORE_TABLES; k++) {
		r = store_list(t->s, (enum store_table)k, NULL, 10);
		assert_int_equal(json_array_size(r), 1);
		json_decref(r);
		r = store_list(t->s, (enum store_table)k, "other", 10);
		assert_int_equal(json_array_size(r), k == STORE_PEERS ? 1 : 0);
		json_decref(r);
	}
	store_epoch_discard(t->s, "r1", 4);
	r = store_list(t->s, STORE_EPOCHS, "r1", 10);
	assert_int_equal(integer(r, 0, "discarded"), 1);
	json_decref(r);
	store_run_rm(t->s, "r1");
	for (int k = 0; k < STORE_TABLES; k++) {
		r = store_list(t->s, (enum store_table)k, NULL, 10);
		assert_int_equal(json_array_size(r), k == STORE_PEERS ? 1 : 0);
		json_decref(r);
	}
}

static json_int_t commits(struct t *t)
{
	json_t *j = store_json(t->s);
	json_int_t n = json_integer_value(json_object_get(j, "commits"));

	json_decref(j);
	return n;
}

static void one_event_is_one_transaction(void **state)
{
	struct t *t = *state;
	json_int_t before = commits(t);
	json_t *r;

	for (int i = 0; i < 50; i++)
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", i);
	assert_int_equal(commits(t), before);
	world_turn(t->w, 10);
	assert_int_equal(commits(t), before + 1);
	put_run(t->s, "r1", "train");
	assert_int_equal(store_sync(t->s, NULL), 0);
	assert_int_equal(commits(t), before + 2);
	assert_int_equal(store_sync(t->s, NULL), 0);            /* nothing new: nothing to do */
	assert_int_equal(commits(t), before + 2);
	put_run(t->s, "r2", "train");
	store_settle(t->s);
	assert_int_equal(store_sync(t->s, NULL), 0);            /* committed but perhaps not on the disk: a barrier */
	assert_int_equal(commits(t), before + 4);
	reopen(t, NULL);
	r = store_list(t->s, STORE_RUNS, NULL, 10);
	assert_int_equal(json_array_size(r), 2);
	json_decref(r);
}

static int count_row(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	(void)key; (void)klen; (void)val; (void)vlen;
	++*(int *)arg;
	return 0;
}

static void shelf_keeps_bytes(void **state)
{
	struct t *t = *state;
	struct shelf *sh = store_shelf(t->s);
	uint8_t key[3] = { 0, 1, 255 }, out[16], *big = calloc(1, STORE_VALUE_MAX + 1);
	struct err e;
	size_t n;
	int rows = 0;

	assert_int_equal(sh->put(sh, "dht", key, 3, "\0ab", 3, &e), 0);
	assert_int_equal(sh->put(sh, "dht", "k2", 2, "", 0, &e), 0);
	assert_int_equal(sh->put(sh, "ban", key, 3, "other", 5, &e), 0);
	assert_int_equal(sh->get(sh, "dht", key, 3, out, sizeof out, &n, &e), 0);
	assert_int_equal(n, 3);
	assert_memory_equal(out, "\0ab", 3);
	assert_int_equal(sh->get(sh, "dht", "k2", 2, out, sizeof out, &n, &e), 0);
	assert_int_equal(n, 0);
	assert_int_equal(sh->get(sh, "dht", key, 3, out, 2, &n, &e), -1);
	assert_err(e, ERR_LIMIT, "3 bytes");
	assert_int_equal(sh->get(sh, "dht", "no", 2, out, sizeof out, &n, &e), -1);
	assert_err(e, ERR_NOT_FOUND, "dht");
	assert_int_equal(sh->put(sh, "dht", key, 3, big, STORE_VALUE_MAX + 1, &e), -1);
	assert_err(e, ERR_LIMIT, "65537");
	assert_int_equal(sh->each(sh, "dht", count_row, &rows, &e), 0);
	assert_int_equal(rows, 2);
	assert_int_equal(sh->del(sh, "dht", key, 3, &e), 0);
	assert_int_equal(sh->get(sh, "dht", key, 3, out, sizeof out, &n, &e), -1);
	reopen(t, NULL);
	sh = store_shelf(t->s);
	assert_int_equal(sh->get(sh, "ban", key, 3, out, sizeof out, &n, &e), 0);
	assert_int_equal(n, 5);
	free(big);
}

/* --- migrations */

static sqlite3 *raw(const char *path)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	return db;
}

static void every_older_schema_comes_forward(void **state)
{
	struct t *t = *state;

	for (int v = 1; v < migrate_newest(); v++) {
		char bak[160];
		sqlite3 *db;
		struct err e;
		json_t *r;

		store_free(t->s);
		t->s = NULL;
		snprintf(t->db, sizeof t->db, "%s/old%d.db", t->w->dir, v);
		db = raw(t->db);
		assert_int_equal(migrate_run(db, t->db, v, &e), 0);
		assert_int_equal(migrate_version(db), v);
		assert_int_equal(sqlite3_exec(db, "INSERT INTO events(wall_ms, level, kind, text) "
			"VALUES(1,'info','k','old')", NULL,
			NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		assert_non_null(reopen(t, NULL));
		r = store_list(t->s, STORE_EVENTS, NULL, 10);
		assert_string_equal(text(r, 0, "text"), "old");
		json_decref(r);
		snprintf(bak, sizeof bak, "%s.v%d.bak", t->db, v);
		db = raw(bak);                  /* the copy is whole and still old */
		assert_int_equal(migrate_version(db), v);
		sqlite3_close(db);
	}
}

static void newer_and_foreign_files_are_refused(void **state)
{
	struct t *t = *state;
	struct store_opts o = { .path = t->db, .move_aside = true };
	struct err e;
	sqlite3 *db;

	store_free(t->s);
	t->s = NULL;
	db = raw(t->db);
	sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL);
	sqlite3_close(db);
	assert_null(store_open(&t->w->env, &o, &e));
	assert_err(e, ERR_VERSION, "newer hivemindd");
	snprintf(t->db, sizeof t->db, "%s/foreign.db", t->w->dir);
	db = raw(t->db);
	sqlite3_exec(db, "CREATE TABLE x(y)", NULL, NULL, NULL);
	sqlite3_close(db);
	assert_null(store_open(&t->w->env, &o, &e));
	assert_err(e, ERR_STATE, "another program");
	snprintf(t->db, sizeof t->db, "%s/no/such/folder.db", t->w->dir);
	assert_null(store_open(&t->w->env, &o, &e));
	assert_err(e, ERR_IO, "folder.db");
}

/* --- corruption */

static void scribble(const char *path, long at, size_t n)
{
	FILE *f = fopen(path, "r+b");

	assert_non_null(f);
	fseek(f, at, SEEK_SET);
	while (n--)
		fputc(0x5a, f);
	fclose(f);
}

static void corruption_is_said_and_moved_only_when_told(void **state)
{
	static const long where[] = { 0, 4096 };

	for (size_t i = 0; i < 2; i++) {
		struct t *t = *state;
		struct store_opts o = { .path = t->db };
		char aside[160];
		struct err e;
		json_t *r;

		for (int k = 0; k < 100; k++)
			store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", k);
		store_free(t->s);
		t->s = NULL;
		scribble(t->db, where[i], 3000);
		assert_null(store_open(&t->w->env, &o, &e));
		assert_err(e, ERR_CORRUPT, "--move-corrupt-aside");
		assert_non_null(strstr(e.text, t->db));
		snprintf(aside, sizeof aside, "%s.corrupt-%zu", t->db, i + 1);
		assert_int_not_equal(access(aside, F_OK), 0);
		o.move_aside = true;
		t->s = store_open(&t->w->env, &o, &e);
		assert_non_null(t->s);
		assert_int_equal(access(aside, F_OK), 0);
		r = store_list(t->s, STORE_EVENTS, NULL, 10);
		assert_int_equal(json_array_size(r), 1);
		assert_string_equal(text(r, 0, "kind"), "store.moved");
		json_decref(r);
	}
}

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

static void register_shim(sqlite3_vfs *shim)
{
	sqlite3_vfs *real = sqlite3_vfs_find(NULL);

	*shim = *real;
	shim->zName = "shim";
	shim->pAppData = real;
	shim->szOsFile = (int)sizeof(struct shim_file) + real->szOsFile;
	shim->xOpen = shim_open;
	sqlite3_vfs_register(shim, 0);
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
	sqlite3_vfs shim;

	register_shim(&shim);
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
	sqlite3_vfs shim;
	struct shelf *sh;
	struct err e;
	json_t *r;

	register_shim(&shim);
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

/* --- upkeep */

static void old_rows_are_thinned(void **state)
{
	struct t *t = *state;
	json_t *r;

	for (uint64_t i = 0; i < 1500; i++)
		store_epoch_put(t->s, &(struct store_epoch){ .run = "r", .digest = "", .epoch = i, .loss = 1 });
	store_settle(t->s);
	t->w->wall += 31ull * 86400000;
	store_epoch_put(t->s, &(struct store_epoch){ .run = "r", .digest = "", .epoch = 1501, .loss = 1 });
	world_turn(t->w, 70000000);             /* slices of 500, a second apart */
	r = store_list(t->s, STORE_EPOCHS, "r", 5000);
	assert_int_equal(json_array_size(r), 15 + 1);
	json_decref(r);
}

static void size_is_bounded(void **state)
{
	struct t *t = *state;
	json_t *j;
	char pad[900];

	memset(pad, 'x', sizeof pad - 1);
	pad[sizeof pad - 1] = '\0';
	assert_non_null(reopen(t, &(struct store_opts){ .keep_bytes = 1 << 20 }));
	for (int i = 0; i < 4000; i++) {
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%s", pad);
		if (i % 500 == 0)
			world_turn(t->w, 10);
	}
	world_turn(t->w, 100000000);
	j = store_json(t->s);
	assert_true(json_integer_value(json_object_get(j, "bytes")) < (1 << 20) + 600000);
	json_decref(j);
}

static void the_log_is_copied_into_the_file_by_a_job(void **state)
{
	struct t *t = *state;
	char wal[160];
	struct stat st;

	for (int i = 0; i < 3000; i++) {
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", i);
		if (i % 2 == 0)
			store_settle(t->s);
		if (i % 100 == 0)
			world_turn(t->w, 0);
	}
	world_turn(t->w, 0);
	snprintf(wal, sizeof wal, "%s-wal", t->db);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size < 3 * 1000 * 4200);      /* it is used again from its beginning, not grown for ever */
	/* Closed while the job is under way: the job frees itself. */
	for (int i = 0; i < 3000 && list_empty(&t->w->jobs); i++) {
		store_event(t->s, LOG_INFO_, "x", NULL, NULL, NULL, "%d", i);
		store_settle(t->s);
	}
	assert_false(list_empty(&t->w->jobs));
	store_free(t->s);
	t->s = NULL;
	world_turn(t->w, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(every_table_reads_back), T(one_event_is_one_transaction), T(shelf_keeps_bytes),
			T(every_older_schema_comes_forward),
		T(newer_and_foreign_files_are_refused), T(corruption_is_said_and_moved_only_when_told),
		T(a_full_or_failing_disk_loses_nothing), T(the_queue_is_bounded), T(a_wrong_row_is_dropped_alone),
			T(queries_read),
		T(queries_cannot_write_or_reach_out), T(queries_end), T(old_rows_are_thinned), T(size_is_bounded),
		T(the_log_is_copied_into_the_file_by_a_job),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
