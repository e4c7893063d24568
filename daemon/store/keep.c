/* The store's upkeep: retention, and copying the write-ahead log into the file on the disk lane. */
#include "store/int.h"

#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include "common/mem.h"

#define KEEP_AGAIN_US 1000000u

/* --- retention, in slices of 500 rows so that the loop is never held up */

void store_keep_fire(struct timer *t)
{
	struct store *s = container_of(t, struct store, keep_timer);
	uint64_t now = env_wall(s->env), again = STORE_KEEP_US;

	if (!s->failing) {
		store_commit(s, false);
		if (now > s->keep_ms) {
			store_push(s, ST_THIN_EPOCHS, "i", (int64_t)(now - s->keep_ms));
			store_push(s, ST_THIN_ROUNDS, "i", (int64_t)(now - s->keep_ms));
		}
		if (store_live_bytes(s) > (int64_t)s->keep_bytes) {
			store_push(s, ST_CUT_EPOCHS, "");
			store_push(s, ST_CUT_ROUNDS, "");
			store_push(s, ST_CUT_EVENTS, "");
		}
		if (store_commit(s, false) == 0 && s->changed > 0) {
			sqlite3_exec(s->db, "PRAGMA incremental_vacuum(256)", NULL, NULL, NULL);
			again = s->changed >= 500 ? KEEP_AGAIN_US : STORE_KEEP_US;
		}
	}
	env_after(s->env, &s->keep_timer, again);
}

/* --- the write-ahead log is copied into the file by the disk lane, through its own connection. SQLite begins the log
 * anew when a commit finds all of it copied and nobody reading: commits that nobody waits for are kept back meanwhile,
 * or a run of quick epochs would always be ahead of the copying, and the log would grow for ever. */

#define WAIT_US 2000000u                /* kept back no longer than this, nor with half of the queue full */

struct wal_job {
	struct job job;
	struct store *s;                    /* NULL: the store is gone */
	char *path, *vfs;
	int rc, copied;
	char text[160];
};

static void wal_run(struct job *j)
{
	struct wal_job *w = container_of(j, struct wal_job, job);
	sqlite3 *db = NULL;

	/* A connection that has read nothing does not know that there is a log, and copies nothing without a word. */
	w->rc = sqlite3_open_v2(w->path, &db, SQLITE_OPEN_READWRITE, w->vfs);
	if (w->rc == SQLITE_OK)
		w->rc = sqlite3_exec(db, "PRAGMA schema_version", NULL, NULL, NULL);
	if (w->rc == SQLITE_OK)
		w->rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, &w->copied);
	if (w->rc != SQLITE_OK)
		snprintf(w->text, sizeof w->text, "%s", db ? sqlite3_errmsg(db) : "no memory");
	sqlite3_close(db);
}

static void wal_done(struct job *j)
{
	struct wal_job *w = container_of(j, struct wal_job, job);

	struct store *s = w->s;

	if (s) {
		s->wal = NULL;
		/* A reader or a commit in between: then it needs another look, later. */
		s->wal_full = STORE_WAL_PAGES + (w->rc == SQLITE_OK && w->copied == s->wal_pages ? 0 : s->wal_pages);
		s->wal_pages = 0;           /* counted anew by the next commit */
		if (w->rc != SQLITE_OK && (w->rc & 0xff) != SQLITE_BUSY)
			log_write(s->env->log, LOG_WARN_, "store", "%s: copying the log into the file: %s", w->path, w->text);
		if (!s->failing)
			store_commit(s, false);
	}
	free(w->path);
	free(w->vfs);
	free(w);
}

bool store_wal_waits(const struct store *s)
{
	return s->wal && !s->urgent && env_now(s->env) - s->wal_since < WAIT_US && s->queued < STORE_QUEUE_MAX / 2;
}

void store_wal_look(struct store *s)
{
	struct wal_job *w;

	if (s->memory || s->wal || s->wal_pages < s->wal_full)
		return;
	w = xcalloc(1, sizeof *w);
	w->job = (struct job){ .name = "store checkpoint", .lane = env_lane(s->env, "disk"), .cost_us = 1000,
		.run = wal_run, .done = wal_done };
	w->s = s;
	w->path = xstrdup(s->path);
	w->vfs = s->vfs ? xstrdup(s->vfs) : NULL;
	s->wal = w;
	s->wal_since = env_now(s->env);
	env_work(s->env, &w->job);
}

void store_wal_forget(struct store *s)
{
	if (s->wal)
		s->wal->s = NULL;
	s->wal = NULL;
}
