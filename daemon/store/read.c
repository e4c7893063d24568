/* What the store reads: tables as JSON, the shelf, and the operator's queries on their own lane and connection. */
#include "store/int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sqlite3.h>

#include "common/buf.h"
#include "common/id.h"
#include "common/mem.h"
#include "common/text.h"
#include "store/migrate.h"

#define QUERY_BYTES_MAX 1048576u        /* of a reply's cells together */
#define QUERY_CELL_MAX 262144           /* bytes of a value on the way: so much may come between two looks */
#define QUERY_STEPS 16                  /* of SQLite's machine, from look to look */
#define QUERY_ROWS_MAX 10000u

/* A cell as JSON; text that is not UTF-8 and blobs become hexadecimal digits. *bytes counts. */
static json_t *cell(sqlite3_stmt *st, int i, size_t *bytes)
{
	const unsigned char *p;
	size_t n;
	char *hex;
	json_t *j;

	*bytes += 8;
	switch (sqlite3_column_type(st, i)) {
	case SQLITE_INTEGER: return json_integer(sqlite3_column_int64(st, i));
	case SQLITE_FLOAT: j = json_real(sqlite3_column_double(st, i)); return j ? j : json_null();
	case SQLITE_NULL: return json_null();
	case SQLITE_TEXT:
		p = sqlite3_column_text(st, i);
		n = (size_t)sqlite3_column_bytes(st, i);
		*bytes += n;
		if (text_utf8_ok((const char *)p, n))
			return json_stringn((const char *)p, n);
		break;
	default:
		p = sqlite3_column_blob(st, i);
		n = (size_t)sqlite3_column_bytes(st, i);
		*bytes += 2 * n;
	}
	hex = xmalloc(2 * n + 1);
	j = json_stringn(text_hex(p, n, hex), 2 * n);
	free(hex);
	return j;
}

json_t *store_list(struct store *s, enum store_table t, const char *run, size_t rows_max)
{
	static const struct { const char *table, *order; bool of_run; const char *which; } tables[] = {
		[STORE_RUNS] = { "runs", "created_ms, rowid", true,
			"WHERE rowid IN (SELECT rowid FROM runs ORDER BY resume DESC, created_ms DESC, rowid DESC LIMIT ?2)" },
		[STORE_PARAMS] = { "params", "version DESC, rowid DESC", true },
		[STORE_EPOCHS] = { "epochs", "wall_ms DESC, rowid DESC", true },
		[STORE_ROUNDS] = { "rounds", "id DESC", true },
		[STORE_PEERS] = { "peers", "last_ms DESC, rowid", false },
		[STORE_EVENTS] = { "events", "id DESC", true },
		[STORE_CKPTS] = { "checkpoints", "epoch DESC, rowid DESC", true },
		[STORE_DISCARDED] = { "(SELECT run, epoch, digest, weight AS samples, positions FROM epochs"
			" WHERE discarded <> 0)", "epoch DESC", true },
	};
	json_t *rows = json_array();
	sqlite3_stmt *st = NULL;
	size_t bytes = 0;
	char *sql;
	int rc;

	assert(t <= STORE_DISCARDED);
	store_settle(s);
	sql = xasprintf("SELECT * FROM %s %s ORDER BY %s LIMIT ?2", tables[t].table,
		tables[t].of_run && run ? "WHERE run = ?1" : tables[t].which ? tables[t].which : "", tables[t].order);
	rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
	free(sql);
	if (rc == SQLITE_OK) {
		if (tables[t].of_run && run)
			sqlite3_bind_text(st, 1, run, -1, SQLITE_STATIC);
		sqlite3_bind_int64(st, 2, (sqlite3_int64)rows_max);
		while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
			json_t *o = json_object();

			for (int i = 0; i < sqlite3_column_count(st); i++)
				json_object_set_new(o, sqlite3_column_name(st, i), cell(st, i, &bytes));
			json_array_append_new(rows, o);
		}
	}
	if (rc != SQLITE_DONE)
		log_write(s->env->log, LOG_ERROR_, "store", "%s: reading %s: %s", s->path, tables[t].table,
			sqlite3_errmsg(s->db));
	sqlite3_finalize(st);
	return rows;
}

/* --- the store itself */

int64_t store_number(struct store *s, const char *sql)
{
	sqlite3_stmt *st = NULL;
	int64_t v = 0;

	if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
		v = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return v;
}

int64_t store_live_bytes(struct store *s)
{
	return (store_number(s, "PRAGMA page_count") - store_number(s, "PRAGMA freelist_count")) * store_number(s,
		"PRAGMA page_size");
}

json_t *store_json(struct store *s)
{
	json_t *j = json_pack("{s:s, s:I, s:i, s:s, s:I, s:I, s:I}", "path", s->path, "bytes",
		(json_int_t)store_live_bytes(s),
		"schema", migrate_newest(), "state", !s->failing ? "recording" : s->lost ? "stopped" : "waiting",
		"queued", (json_int_t)s->queued, "lost", (json_int_t)s->lost, "commits", (json_int_t)s->commits);

	if (s->failing)
		json_object_set_new(j, "error", json_string(s->error.text));
	return j;
}

/* --- the shelf */

static int shelf_fits(const char *what, size_t n, struct err *e)
{
	return n <= STORE_VALUE_MAX ? 0 : err_set(e, ERR_LIMIT, "shelf: a %s of %zu bytes; at most %d", what, n,
		STORE_VALUE_MAX);
}

static int shelf_full(struct store *s, struct err *e)
{
	return s->queued < STORE_QUEUE_MAX ? 0 : err_set(e, ERR_FULL, "%s: %s", s->path, s->error.text);
}

static int shelf_put(struct shelf *sh, const char *table, const void *key, size_t klen, const void *val,
	size_t vlen, struct err *e)
{
	struct store *s = container_of(sh, struct store, shelf);

	if (shelf_fits("key", klen, e) < 0 || shelf_fits("value", vlen, e) < 0 || shelf_full(s, e) < 0)
		return -1;
	store_push(s, ST_SHELF_PUT, "sbb", table, key, klen, val, vlen);
	return 0;
}

static int shelf_del(struct shelf *sh, const char *table, const void *key, size_t klen, struct err *e)
{
	struct store *s = container_of(sh, struct store, shelf);

	if (shelf_fits("key", klen, e) < 0 || shelf_full(s, e) < 0)
		return -1;
	store_push(s, ST_SHELF_DEL, "sb", table, key, klen);
	return 0;
}

static bool op_is_for(const struct op *op, const char *table, const void *key, size_t klen)
{
	return (op->stmt == ST_SHELF_PUT || op->stmt == ST_SHELF_DEL) && op->v[0].n == strlen(table) &&
		memcmp(op->data + op->v[0].at, table, op->v[0].n) == 0 && op->v[1].n == klen &&
		(!klen || memcmp(op->data + op->v[1].at, key, klen) == 0);
}

/* While the disk refuses, the newest value may still wait in the queue. */
static const struct op *waiting(struct store *s, const char *table, const void *key, size_t klen)
{
	for (struct list *i = s->queue.prev; i != &s->queue; i = i->prev)
		if (op_is_for(list_entry(i, struct op, link), table, key, klen))
			return list_entry(i, struct op, link);
	return NULL;
}

static int give(const void *p, size_t n, void *out, size_t cap, size_t *ret_len, struct err *e)
{
	*ret_len = n;
	if (n > cap)
		return err_set(e, ERR_LIMIT, "shelf: the value has %zu bytes, room is for %zu", n, cap);
	if (n)
		memcpy(out, p, n);
	return 0;
}

static int shelf_get(struct shelf *sh, const char *table, const void *key, size_t klen, void *out, size_t cap,
	size_t *ret_len, struct err *e)
{
	struct store *s = container_of(sh, struct store, shelf);
	sqlite3_stmt *st = NULL;
	const struct op *op;
	int rc;

	store_settle(s);
	op = waiting(s, table, key, klen);
	if (op && op->stmt == ST_SHELF_PUT)
		return give(op->data + op->v[2].at, op->v[2].n, out, cap, ret_len, e);
	if (op)
		return err_set(e, ERR_NOT_FOUND, "shelf: no such key in %s", table);
	rc = sqlite3_prepare_v2(s->db, "SELECT val FROM shelf WHERE tab = ?1 AND key = ?2", -1, &st, NULL);
	if (rc == SQLITE_OK) {
		sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
		sqlite3_bind_blob(st, 2, klen ? key : "", (int)klen, SQLITE_STATIC);
		rc = sqlite3_step(st);
	}
	if (rc == SQLITE_ROW)
		rc = give(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0), out, cap, ret_len, e);
	else if (rc == SQLITE_DONE)
		rc = err_set(e, ERR_NOT_FOUND, "shelf: no such key in %s", table);
	else
		rc = store_sql_err(s, "shelf", e);
	sqlite3_finalize(st);
	return rc;
}

static int shelf_each(struct shelf *sh, const char *table, int (*row)(void *arg, const void *key, size_t klen,
	const void *val, size_t vlen),
	void *arg, struct err *e)
{
	struct store *s = container_of(sh, struct store, shelf);
	sqlite3_stmt *st = NULL;
	int rc, stop = 0;

	store_settle(s);
	rc = sqlite3_prepare_v2(s->db, "SELECT key, val FROM shelf WHERE tab = ?1 ORDER BY key", -1, &st, NULL);
	if (rc == SQLITE_OK)
		sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
	while (rc == SQLITE_OK && !stop) {
		const struct op *op;
		const void *key, *val;
		size_t klen, vlen;

		if (sqlite3_step(st) != SQLITE_ROW)
			break;
		key = sqlite3_column_blob(st, 0); klen = (size_t)sqlite3_column_bytes(st, 0);
		val = sqlite3_column_blob(st, 1); vlen = (size_t)sqlite3_column_bytes(st, 1);
		op = s->queued ? waiting(s, table, key, klen) : NULL;
		if (op)
			continue;       /* comes below, or was deleted */
		stop = row(arg, key, klen, val, vlen);
	}
	rc = sqlite3_finalize(st) == SQLITE_OK && rc == SQLITE_OK ? 0 : store_sql_err(s, "shelf", e);
	if (rc < 0 || stop)
		return rc < 0 ? -1 : stop;
	list_each_safe(i, &s->queue) {
		const struct op *op = list_entry(i, struct op, link);

		if (op->stmt == ST_SHELF_PUT && waiting(s, table, op->data + op->v[1].at, op->v[1].n) == op &&
		    (stop = row(arg, op->data + op->v[1].at, op->v[1].n, op->data + op->v[2].at, op->v[2].n)))
			break;
	}
	return stop;
}

struct shelf *store_shelf(struct store *s)
{
	s->shelf = (struct shelf){ shelf_put, shelf_get, shelf_each, shelf_del };
	return &s->shelf;
}

/* --- queries of operators */

struct query {
	struct job job;
	char *path, *vfs, *sql;
	size_t rows_max;
	struct timespec started;
	sqlite3_int64 memory;               /* SQLite's in this process when it began */
	bool greedy;                        /* stopped for memory */
	json_t *result;
	struct err error;
	void (*done)(void *arg, json_t *result, const struct err *e);
	void *arg;
};

static uint64_t ms_since(const struct timespec *a)
{
	struct timespec b;

	clock_gettime(CLOCK_MONOTONIC, &b);
	return (uint64_t)(b.tv_sec - a->tv_sec) * 1000 + (uint64_t)((b.tv_nsec - a->tv_nsec) / 1000000 + 1000) - 1000;
}

static int too_much(void *arg)
{
	struct query *q = arg;

	q->greedy = sqlite3_memory_used() - q->memory > STORE_QUERY_MEMORY;
	return q->greedy || ms_since(&q->started) > STORE_QUERY_MS;
}

/* Reading rows is allowed, and the plain functions; nothing that reaches outside of this file or changes settings. */
static int authorize(void *arg, int action, const char *a, const char *b, const char *c, const char *d)
{
	(void)arg; (void)a; (void)c; (void)d;
	switch (action) {
	case SQLITE_SELECT: case SQLITE_READ: case SQLITE_RECURSIVE: return SQLITE_OK;
	case SQLITE_FUNCTION:
		return b && (!strcmp(b, "load_extension") || !strcmp(b, "fts3_tokenizer")) ? SQLITE_DENY : SQLITE_OK;
	default: return SQLITE_DENY;
	}
}

static int query_fail(struct query *q, sqlite3 *db)
{
	int rc = sqlite3_extended_errcode(db);

	switch (rc & 0xff) {
	case SQLITE_INTERRUPT:
		if (q->greedy)
			return err_set(&q->error, ERR_LIMIT, "the query needed over %d MiB of memory and was stopped: sort less, "
				"or shorter values", STORE_QUERY_MEMORY >> 20);
		return err_set(&q->error, ERR_TIMEOUT, "the query took over %d s and was stopped: add a WHERE or a LIMIT",
			STORE_QUERY_MS / 1000);
	case SQLITE_TOOBIG:
		return err_set(&q->error, ERR_LIMIT, "a value has more than %d KiB: ask for a part of it, substr(x, 1, 1000)",
			QUERY_CELL_MAX >> 10);
	case SQLITE_AUTH: case SQLITE_READONLY:
		return err_set(&q->error, ERR_REFUSED, "only SELECT is allowed here (%s)", sqlite3_errmsg(db));
	default:
		return err_set(&q->error, store_err_code(rc), "SQL: %s", sqlite3_errmsg(db));
	}
}

static int query_rows(struct query *q, sqlite3 *db, sqlite3_stmt *st)
{
	json_t *columns = json_array(), *rows = json_array();
	bool truncated = false;
	size_t bytes = 0;
	int rc = SQLITE_DONE;

	q->result = json_pack("{s:o, s:o}", "columns", columns, "rows", rows);
	for (int i = 0; i < sqlite3_column_count(st); i++) {
		json_t *name = json_string(sqlite3_column_name(st, i));

		json_array_append_new(columns, name ? name : json_string("?"));
	}
	while (!truncated && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		json_t *row;

		if (json_array_size(rows) >= q->rows_max || bytes > QUERY_BYTES_MAX) {
			truncated = true;
			break;
		}
		row = json_array();
		for (int i = 0; i < sqlite3_column_count(st); i++)
			json_array_append_new(row, cell(st, i, &bytes));
		json_array_append_new(rows, row);
	}
	if (!truncated && rc != SQLITE_DONE)
		return query_fail(q, db);
	json_object_set_new(q->result, "truncated", json_boolean(truncated));
	json_object_set_new(q->result, "took_us", json_integer((json_int_t)ms_since(&q->started) * 1000));
	return 0;
}

static void query_run(struct job *j)
{
	struct query *q = container_of(j, struct query, job);
	sqlite3 *db = NULL;
	sqlite3_stmt *st = NULL;
	const char *tail = "";

	clock_gettime(CLOCK_MONOTONIC, &q->started);
	q->memory = sqlite3_memory_used();
	if (sqlite3_open_v2(q->path, &db, SQLITE_OPEN_READONLY, q->vfs) != SQLITE_OK) {
		err_set(&q->error, ERR_IO, "%s: %s", q->path, db ? sqlite3_errmsg(db) : "no memory");
		sqlite3_close(db);
		return;
	}
	sqlite3_busy_timeout(db, 500);
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, QUERY_CELL_MAX);
	sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
	sqlite3_limit(db, SQLITE_LIMIT_WORKER_THREADS, 0);
	sqlite3_exec(db, "PRAGMA temp_store=MEMORY; PRAGMA query_only=ON; PRAGMA cache_size=-2048", NULL, NULL, NULL);
	sqlite3_set_authorizer(db, authorize, q);
	sqlite3_progress_handler(db, QUERY_STEPS, too_much, q);
	if (sqlite3_prepare_v2(db, q->sql, -1, &st, &tail) != SQLITE_OK)
		query_fail(q, db);
	else if (!st)
		err_set(&q->error, ERR_INVALID, "SQL: there is no statement");
	else if (tail[strspn(tail, " \t\r\n;")] != '\0')
		err_set(&q->error, ERR_INVALID, "SQL: one statement at a time, found more at \"%.40s\"", tail);
	else if (query_rows(q, db, st) < 0) {
		json_decref(q->result);
		q->result = NULL;
	}
	sqlite3_finalize(st);
	sqlite3_close(db);
}

static void query_done(struct job *j)
{
	struct query *q = container_of(j, struct query, job);

	q->done(q->arg, q->result, q->result ? NULL : &q->error);
	json_decref(q->result);
	free(q->path);
	free(q->vfs);
	free(q->sql);
	free(q);
}

void store_query(struct store *s, const char *sql, size_t rows_max, void (*done)(void *arg, json_t *result,
	const struct err *e), void *arg)
{
	struct query *q = xcalloc(1, sizeof *q);
	int lane = env_lane(s->env, "query");

	store_settle(s);
	q->job = (struct job){ .name = "query", .lane = lane >= 0 ? lane : env_lane(s->env, "disk"), .cost_us = 1000,
		.run = query_run, .done = query_done };
	q->path = xstrdup(s->path);
	q->vfs = s->vfs ? xstrdup(s->vfs) : NULL;
	q->sql = xstrdup(sql);
	q->rows_max = rows_max < QUERY_ROWS_MAX ? rows_max : QUERY_ROWS_MAX;
	q->done = done;
	q->arg = arg;
	env_work(s->env, &q->job);
}
