/* The store's connection and its queue: opening with checks, one transaction per settle, what happens when the disk
 * refuses. Reading order: store_open, store_push, store_commit, store_sync. */
#include "store/int.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "common/mem.h"
#include "common/planted.h"
#include "store/migrate.h"

#define RETRY_MIN_US 100000u
#define RETRY_MAX_US 30000000u
#define TOGETHER_US 50000u              /* events that follow each other within this share a transaction */
#define CHECK_BYTES (16u << 20)         /* a file up to this size is checked whole at start */

static const char *const sqls[] = {
#define X(name, sql) [ST_##name] = sql,
	STORE_SQL(X)
#undef X
};

enum err_code store_err_code(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_FULL: return ERR_FULL;
	case SQLITE_NOMEM: return ERR_NOMEM;
	case SQLITE_CORRUPT: case SQLITE_NOTADB: return ERR_CORRUPT;
	case SQLITE_BUSY: case SQLITE_LOCKED: return ERR_BUSY;
	case SQLITE_INTERRUPT: return ERR_TIMEOUT;
	case SQLITE_AUTH: return ERR_REFUSED;
	case SQLITE_ERROR: return ERR_INVALID;
	default: return ERR_IO;
	}
}

static const char *remedy(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_FULL: return "; free some space: recording continues by itself";
	case SQLITE_CORRUPT: case SQLITE_NOTADB:
		return "; stop the daemon and start it with --move-corrupt-aside to begin a new database (the old one is kept)";
	case SQLITE_BUSY: case SQLITE_LOCKED: return "; another program holds the database: close it";
	case SQLITE_READONLY: case SQLITE_CANTOPEN: case SQLITE_PERM:
		return "; the daemon's user must own the file and its folder";
	default: return "";
	}
}

int store_sql_err(struct store *s, const char *what, struct err *e)
{
	int rc = sqlite3_extended_errcode(s->db);

	return err_set(e, store_err_code(rc), "%s: %s: %s%s", s->path, what, sqlite3_errmsg(s->db), remedy(rc));
}

static int on_wal(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct store *s = arg;

	(void)db; (void)name;
	s->wal_pages = pages;
	return SQLITE_OK;
}

/* --- opening */

static int run_sql(struct store *s, const char *sql, struct err *e)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : store_sql_err(s, sql, e);
}

/* quick_check's first line into e when it is not "ok". A small file costs about a millisecond. */
static int check_file(struct store *s, struct err *e)
{
	int64_t bytes = s->memory ? 0 : s->env->files ? s->env->files->size(s->env->files, s->path, NULL) : 0;
	sqlite3_stmt *st = NULL;
	const char *text;
	int rc = 0;

	if (bytes <= 0 || bytes > CHECK_BYTES)
		return 0;
	if (sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &st, NULL) != SQLITE_OK ||
		sqlite3_step(st) != SQLITE_ROW)
		rc = store_sql_err(s, "check", e);
	else if (text = (const char *)sqlite3_column_text(st, 0), strcmp(text ? text : "", "ok") != 0)
		rc = err_set(e, ERR_CORRUPT, "%s is corrupted: %.160s%s", s->path, text ? text : "?", remedy(SQLITE_CORRUPT));
	sqlite3_finalize(st);
	return rc;
}

static int prepare_all(struct store *s, struct err *e)
{
	for (int i = 0; i < ST_COUNT; i++)
		if (sqlite3_prepare_v3(s->db, sqls[i], -1, SQLITE_PREPARE_PERSISTENT, &s->st[i], NULL) != SQLITE_OK)
			return store_sql_err(s, "the tables are not what they should be", e);
	return 0;
}

static void close_db(struct store *s)
{
	for (int i = 0; i < ST_COUNT; i++) {
		sqlite3_finalize(s->st[i]);
		s->st[i] = NULL;
	}
	sqlite3_close(s->db);
	s->db = NULL;
}

static int open_db(struct store *s, struct err *e)
{
	int rc = sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, s->vfs);

	if (rc != SQLITE_OK)
		return s->db ? store_sql_err(s, "cannot open", e) : err_set(e, ERR_NOMEM, "%s: no memory to open it", s->path);
	sqlite3_extended_result_codes(s->db, 1);
	sqlite3_busy_timeout(s->db, 20);
	/* Before the first table: afterwards auto_vacuum could only be changed by rewriting the file. */
	if (run_sql(s, "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
		"PRAGMA foreign_keys=OFF; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-1024; "
		"PRAGMA journal_size_limit=8388608", e) < 0)
		return -1;
	if (check_file(s, e) < 0 || migrate_run(s->db, s->memory ? NULL : s->path, migrate_newest(), e) < 0 ||
		prepare_all(s, e) < 0)
		return -1;
	sqlite3_wal_hook(s->db, on_wal, s);
	return 0;
}

/* PATH and its two companions become PATH.corrupt-N. */
static int move_aside(struct store *s, struct err *e)
{
	static const char *const tails[] = { "", "-wal", "-shm" };
	char *from, *to;
	int n = 1;

	for (to = NULL; n < 10000; n++) {
		to = xasprintf("%s.corrupt-%d", s->path, n);
		if (access(to, F_OK) != 0)
			break;
		free(to);
		to = NULL;
	}
	if (!to || rename(s->path, to) < 0) {
		err_set(e, ERR_IO, "%s: cannot be moved aside: %s", s->path, strerror(errno));
		free(to);
		return -1;
	}
	for (size_t i = 1; i < sizeof tails / sizeof *tails; i++) {
		char *ft = xasprintf("%s%s", to, tails[i]);

		from = xasprintf("%s%s", s->path, tails[i]);
		if (rename(from, ft) < 0)
			unlink(from);           /* a log that does not belong to the new file must not be there */
		free(from);
		free(ft);
	}
	log_write(s->env->log, LOG_WARN_, "store", "%s was corrupted and is now %s; a new database is begun", s->path, to);
	free(to);
	return 0;
}

static void fire_settle(struct timer *t);
static void fire_retry(struct timer *t);
static void free_all(struct store *s);

struct store *store_open(struct env *env, const struct store_opts *o, struct err *e)
{
	struct store *s = xcalloc(1, sizeof *s);
	int rc;

	s->env = env;
	s->path = xstrdup(o->path);
	s->vfs = o->vfs ? xstrdup(o->vfs) : NULL;
	s->memory = strcmp(o->path, ":memory:") == 0;
	s->keep_ms = o->keep_ms ? o->keep_ms : 30ull * 86400000;
	s->keep_bytes = o->keep_bytes ? o->keep_bytes : 1ull << 30;
	s->retry_us = RETRY_MIN_US;
	s->wal_full = STORE_WAL_PAGES;
	list_init(&s->queue);
	s->settle_timer = (struct timer){ .fire = fire_settle, .name = "store settle" };
	s->retry_timer = (struct timer){ .fire = fire_retry, .name = "store retry" };
	s->keep_timer = (struct timer){ .fire = store_keep_fire, .name = "store retention" };
	rc = open_db(s, e);
	if (rc < 0 && e->code == ERR_CORRUPT && o->move_aside && !s->memory) {
		struct err why = *e;

		close_db(s);
		rc = move_aside(s, e) < 0 ? -1 : open_db(s, e);
		if (rc == 0)
			store_event(s, LOG_WARN_, "store.moved", NULL, NULL, NULL, "a new database was begun: %s", why.text);
	}
	if (rc < 0) {
		free_all(s);
		return NULL;
	}
	store_shelf(s);
	env_after(env, &s->keep_timer, STORE_KEEP_US);
	return s;
}

static void drop_op(struct store *s, struct op *op)
{
	list_del(&op->link);
	free(op);
	s->queued--;
}

static void free_all(struct store *s)
{
	while (!list_empty(&s->queue))
		drop_op(s, list_entry(s->queue.next, struct op, link));
	close_db(s);
	free(s->path);
	free(s->vfs);
	free(s);
}

/* --- the queue */

/* First pass measures (out NULL), second fills. */
static size_t take_args(const char *fmt, va_list ap, struct op *op)
{
	size_t at = 0;

	for (unsigned i = 0; fmt[i]; i++) {
		struct val v = { VAL_NULL, 0, 0, at, 0 };
		const void *p = NULL;

		switch (fmt[i]) {
		case 'i': v.type = VAL_INT; v.i = va_arg(ap, int64_t); break;
		case 'd': v.d = va_arg(ap, double); v.type = v.d == v.d ? VAL_REAL : VAL_NULL; break;
		case 's': p = va_arg(ap, const char *); v.n = p ? strlen(p) : 0; v.type = p ? VAL_TEXT : VAL_NULL; break;
		case 'b': p = va_arg(ap, const void *); v.n = va_arg(ap, size_t); v.type = VAL_BLOB; break;
		default: assert(!"store_push: unknown letter");
		}
		if (op) {
			op->v[i] = v;
			if (v.n)
				memcpy(op->data + at, p, v.n);
		}
		at += v.n;
	}
	return at;
}

/* What quick epochs write again and again. Losing the last of it with a crash hurts nobody; everything else may be what
 * somebody was told is done. */
static bool is_history(const struct op *op)
{
	switch (op->stmt) {
	case ST_EPOCH: case ST_EPOCH_VALIDATED: case ST_ROUND: case ST_EVENT: return true;
	case ST_RUN_UPDATE: return op->v[1].type == VAL_NULL && op->v[2].type == VAL_NULL;
	default: return false;
	}
}

/* Right after this event; history alone so that a disk has TOGETHER_US between two transactions. Memory needs none. */
static void settle_soon(struct store *s)
{
	uint64_t since = env_now(s->env) - s->committed_us;

	if (s->urgent || s->memory || !s->commits || since >= TOGETHER_US)
		env_after(s->env, &s->settle_timer, 0);
	else if (s->settle_timer.at_us == 0)
		env_after(s->env, &s->settle_timer, TOGETHER_US - since);
}

void store_push(struct store *s, enum store_stmt stmt, const char *fmt, ...)
{
	struct op *op;
	va_list ap;
	size_t bytes;

	if (s->queued >= STORE_QUEUE_MAX) {
		if (s->lost++ == 0)
			log_write(s->env->log, LOG_ERROR_, "store", "%d writes wait for the disk: recording stops, training "
				"goes on (%s)",
				STORE_QUEUE_MAX, s->error.text);
		return;
	}
	va_start(ap, fmt);
	bytes = take_args(fmt, ap, NULL);
	va_end(ap);
	op = xcalloc(1, sizeof *op + bytes + 1);
	op->stmt = stmt;
	op->n = (unsigned)strlen(fmt);
	assert(op->n <= sizeof op->v / sizeof *op->v);
	va_start(ap, fmt);
	take_args(fmt, ap, op);
	va_end(ap);
	list_push(&s->queue, &op->link);
	s->queued++;
	if (s->failing)
		return;
	if (s->settle_timer.at_us == 0 || (!s->urgent && !is_history(op))) {
		s->urgent = s->urgent || !is_history(op);
		settle_soon(s);
	}
}

static int bind_op(sqlite3_stmt *st, const struct op *op)
{
	int rc = SQLITE_OK;

	for (unsigned i = 0; i < op->n && rc == SQLITE_OK; i++) {
		const struct val *v = &op->v[i];
		int k = (int)i + 1;

		switch (v->type) {
		case VAL_NULL: rc = sqlite3_bind_null(st, k); break;
		case VAL_INT: rc = sqlite3_bind_int64(st, k, v->i); break;
		case VAL_REAL: rc = sqlite3_bind_double(st, k, v->d); break;
		case VAL_TEXT: rc = sqlite3_bind_text(st, k, op->data + v->at, (int)v->n, SQLITE_STATIC); break;
		case VAL_BLOB: rc = sqlite3_bind_blob(st, k, op->data + v->at, (int)v->n, SQLITE_STATIC); break;
		}
	}
	return rc;
}

/* Whether the write itself is wrong (it would fail for ever), not the disk. */
static bool op_is_wrong(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_CONSTRAINT: case SQLITE_MISMATCH: case SQLITE_TOOBIG: case SQLITE_RANGE: case SQLITE_MISUSE:
		return true;
	default: return false;
	}
}

static int apply(struct store *s, struct op *op)
{
	sqlite3_stmt *st = s->st[op->stmt];
	int rc = bind_op(st, op);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_DONE)
		s->changed += (uint64_t)sqlite3_changes(s->db);
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static void recovered(struct store *s)
{
	uint64_t lost = s->lost;

	s->failing = false;
	s->lost = 0;
	s->retry_us = RETRY_MIN_US;
	env_timer(s->env, &s->retry_timer, 0);
	memset(&s->error, 0, sizeof s->error);
	log_write(s->env->log, lost ? LOG_WARN_ : LOG_INFO_, "store", "the disk takes writes again; %llu were not recorded",
		(unsigned long long)lost);
	store_event(s, lost ? LOG_WARN_ : LOG_INFO_, "store.recovered", NULL, NULL, json_pack("{s:I}", "lost",
		(json_int_t)lost),
		"the disk takes writes again; %llu were not recorded", (unsigned long long)lost);
}

static int failed(struct store *s, const char *what)
{
	struct err e;

	store_sql_err(s, what, &e);
	if (sqlite3_get_autocommit(s->db) == 0)
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	if (!s->failing || e.code != s->error.code)
		log_write(s->env->log, LOG_ERROR_, "store", "%s (up to %d writes wait, training goes on)", e.text,
			STORE_QUEUE_MAX);
	s->error = e;
	s->failing = true;
	env_after(s->env, &s->retry_timer, s->retry_us);
	s->retry_us = s->retry_us * 2 > RETRY_MAX_US ? RETRY_MAX_US : s->retry_us * 2;
	return -1;
}

/* One transaction with everything that waits. The writes leave the queue only when the commit has worked. */
int store_commit(struct store *s, bool full)
{
	if (list_empty(&s->queue) || s->settling)
		return s->failing ? -1 : 0;
	s->settling = true;
	s->changed = 0;
	int rc = sqlite3_exec(s->db, full ? "PRAGMA synchronous=FULL; BEGIN IMMEDIATE" : "BEGIN IMMEDIATE", NULL, NULL,
		NULL);
	const char *what = "begin";

	if (rc == SQLITE_OK) {
		list_each_safe(i, &s->queue) {
			struct op *op = list_entry(i, struct op, link);

			rc = apply(s, op);
			if (op_is_wrong(rc)) {
				log_write(s->env->log, LOG_ERROR_, "store", "%s: a row was refused: %s", s->path,
					sqlite3_errmsg(s->db));
				drop_op(s, op);
				rc = SQLITE_OK;
			}
			if (rc != SQLITE_OK)
				break;
		}
		what = "write";
	}
	if (rc == SQLITE_OK && FAILPOINT(s->env, "store.commit.before") == 0) {
		rc = sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
		what = "commit";
	} else if (rc == SQLITE_OK) {
		rc = SQLITE_IOERR;
	}
	if (rc != SQLITE_OK)
		failed(s, what);
	while (!list_empty(&s->queue) && (rc == SQLITE_OK || PLANTED(STORE_LOST_WRITE)))
		drop_op(s, list_entry(s->queue.next, struct op, link));
	if (rc == SQLITE_OK) {
		s->urgent = false;
		s->commits++;
		s->committed_us = env_now(s->env);
		(void)FAILPOINT(s->env, "store.commit.after");
		s->unsynced = !full;
	}
	if (full)
		sqlite3_exec(s->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
	s->settling = false;
	if (rc == SQLITE_OK && s->failing)
		recovered(s);
	store_wal_look(s);
	return rc == SQLITE_OK ? 0 : -1;
}

void store_settle(struct store *s)
{
	env_timer(s->env, &s->settle_timer, 0);
	store_commit(s, false);
}

void store_settle_told(struct store *s)
{
	if (s->urgent && !s->failing)
		store_settle(s);
}

int store_sync(struct store *s, struct err *e)
{
	if (list_empty(&s->queue) && s->unsynced)
		store_push(s, ST_BARRIER, "");
	env_timer(s->env, &s->settle_timer, 0);
	if (store_commit(s, true) == 0)
		return 0;
	if (e)
		*e = s->error;
	return -1;
}

static void fire_settle(struct timer *t)
{
	struct store *s = container_of(t, struct store, settle_timer);

	if (s->failing)
		return;
	if (store_wal_waits(s))
		env_after(s->env, t, TOGETHER_US);
	else
		store_commit(s, false);
}

static void fire_retry(struct timer *t)
{
	store_commit(container_of(t, struct store, retry_timer), false);
}

bool store_healthy(const struct store *s)
{
	return !s->failing;
}

void store_free(struct store *s)
{
	if (!s)
		return;
	store_commit(s, true);
	env_timer(s->env, &s->settle_timer, 0);
	env_timer(s->env, &s->retry_timer, 0);
	env_timer(s->env, &s->keep_timer, 0);
	store_wal_forget(s);
	if (s->queued)
		log_write(s->env->log, LOG_ERROR_, "store", "%zu writes could not be recorded: %s", s->queued, s->error.text);
	free_all(s);
}
