/* Migrations: the database's schema as an append-only list of SQL texts. Version N of a file means that
 * the first N ran. Never edit a text that was released: append one. */
#include "store/migrate.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#define APPLICATION_ID 0x68766d64       /* "hvmd" */

static const char *const migrations[] = {
	/* 1: what happened */
	"CREATE TABLE runs(run TEXT PRIMARY KEY, name TEXT NOT NULL, author TEXT NOT NULL, state TEXT NOT NULL,"
	" spec TEXT NOT NULL, local TEXT, error TEXT, epoch INTEGER NOT NULL DEFAULT 0, samples INTEGER NOT NULL DEFAULT 0,"
	" params_version INTEGER NOT NULL DEFAULT 0, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,"
	" resume INTEGER NOT NULL DEFAULT 0);"
	"CREATE TABLE params(run TEXT NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL, old_value TEXT, new_value "
		"TEXT,"
	" author TEXT, state TEXT NOT NULL, note TEXT, epoch INTEGER NOT NULL, wall_ms INTEGER NOT NULL,"
	" PRIMARY KEY(run, version, key));"
	"CREATE TABLE epochs(run TEXT NOT NULL, epoch INTEGER NOT NULL, digest TEXT NOT NULL, prev TEXT, samples INTEGER,"
	" members INTEGER, took_us INTEGER, params_version INTEGER, weight REAL, loss REAL, val_loss REAL, val_accuracy "
		"REAL,"
	" discarded INTEGER NOT NULL DEFAULT 0, minority INTEGER NOT NULL DEFAULT 0, wall_ms INTEGER NOT NULL,"
	" PRIMARY KEY(run, epoch, digest));"
	"CREATE INDEX epochs_thin ON epochs(wall_ms) WHERE epoch % 100 <> 0;"
	"CREATE TABLE rounds(id INTEGER PRIMARY KEY, run TEXT NOT NULL, epoch INTEGER NOT NULL, term INTEGER, attempt "
		"INTEGER,"
	" leader TEXT, outcome TEXT NOT NULL, reason TEXT, without TEXT, members INTEGER, bytes_sent INTEGER,"
	" bytes_received INTEGER, took_us INTEGER, wall_ms INTEGER NOT NULL);"
	"CREATE INDEX rounds_run ON rounds(run, epoch);"
	"CREATE INDEX rounds_thin ON rounds(wall_ms) WHERE epoch % 100 <> 0;"
	"CREATE TABLE peers(peer TEXT PRIMARY KEY, address TEXT, version TEXT, state TEXT NOT NULL, rtt_us INTEGER,"
	" bytes_sent INTEGER, bytes_received INTEGER, failures INTEGER, first_ms INTEGER NOT NULL, last_ms INTEGER NOT "
		"NULL);"
	"CREATE TABLE events(id INTEGER PRIMARY KEY, wall_ms INTEGER NOT NULL, level TEXT NOT NULL, kind TEXT NOT NULL,"
	" run TEXT, peer TEXT, text TEXT NOT NULL, data TEXT);"
	"CREATE INDEX events_run ON events(run) WHERE run IS NOT NULL;"
	"CREATE TABLE checkpoints(path TEXT PRIMARY KEY, run TEXT NOT NULL, epoch INTEGER NOT NULL, bytes INTEGER,"
	" digest TEXT, state TEXT NOT NULL, wall_ms INTEGER NOT NULL);"
	"CREATE INDEX checkpoints_run ON checkpoints(run, epoch);",
	/* 2: what rooms that never see SQLite keep (records, sessions, bans), and a row to make a commit durable with */
	"CREATE TABLE shelf(tab TEXT NOT NULL, key BLOB NOT NULL, val BLOB NOT NULL, PRIMARY KEY(tab, key)) WITHOUT ROWID;"
	"CREATE TABLE barrier(id INTEGER PRIMARY KEY CHECK(id = 1), n INTEGER NOT NULL);"
	"INSERT INTO barrier VALUES(1, 0);",
	/* 3: the newest of a run, however many there are */
	"CREATE INDEX epochs_newest ON epochs(run, wall_ms);"
	"DROP INDEX rounds_run;"
	"CREATE INDEX rounds_newest ON rounds(run);",
	/* 4: a change that gave way stands beside the one that holds; which positions a commit took */
	"CREATE TABLE params_new(run TEXT NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL, old_value TEXT,"
	" new_value TEXT, author TEXT, state TEXT NOT NULL, note TEXT, epoch INTEGER NOT NULL, wall_ms INTEGER NOT NULL);"
	"INSERT INTO params_new SELECT * FROM params ORDER BY rowid;"
	"DROP TABLE params;"
	"ALTER TABLE params_new RENAME TO params;"
	"CREATE INDEX params_newest ON params(run, version);"
	"CREATE UNIQUE INDEX params_holds ON params(run, version, key) WHERE state <> 'superseded';"
	"ALTER TABLE epochs ADD COLUMN positions TEXT;"
	"CREATE INDEX epochs_discarded ON epochs(run, epoch) WHERE discarded <> 0;",
};

int migrate_newest(void)
{
	return (int)(sizeof migrations / sizeof *migrations);
}

/* The integer that a one-value statement gives, -1 when it gives none. */
static int64_t number(struct sqlite3 *db, const char *sql)
{
	sqlite3_stmt *st = NULL;
	int64_t v = -1;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
		v = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return v;
}

int migrate_version(struct sqlite3 *db)
{
	return (int)number(db, "PRAGMA user_version");
}

static int copy_first(struct sqlite3 *db, const char *path, int version, struct err *e)
{
	char bak[4096];
	sqlite3_stmt *st = NULL;
	int rc;

	if (snprintf(bak, sizeof bak, "%s.v%d.bak", path, version) >= (int)sizeof bak)
		return err_set(e, ERR_INVALID, "%s: the path is too long", path);
	unlink(bak);
	rc = sqlite3_prepare_v2(db, "VACUUM INTO ?", -1, &st, NULL);
	if (rc == SQLITE_OK) {
		sqlite3_bind_text(st, 1, bak, -1, SQLITE_STATIC);
		rc = sqlite3_step(st);
	}
	if (rc != SQLITE_DONE)
		err_set(e, rc == SQLITE_FULL ? ERR_FULL : ERR_IO,
			"%s: cannot copy the database to %s before migrating it (%s); nothing was changed", path, bak,
				sqlite3_errmsg(db));
	sqlite3_finalize(st);
	if (rc != SQLITE_DONE)
		unlink(bak);
	return rc == SQLITE_DONE ? 0 : -1;
}

static int step(struct sqlite3 *db, const char *path, int version, struct err *e)
{
	char mark[64];

	snprintf(mark, sizeof mark, "PRAGMA user_version = %d; COMMIT", version + 1);
	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_exec(db, migrations[version], NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_exec(db, mark, NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	err_set(e, sqlite3_errcode(db) == SQLITE_FULL ? ERR_FULL : ERR_IO, "%s: migration %d failed and was undone: %s",
		path ? path : "database", version + 1, sqlite3_errmsg(db));
	sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return -1;
}

int migrate_run(struct sqlite3 *db, const char *path, int to, struct err *e)
{
	char sql[64];
	int version = migrate_version(db);
	const char *name = path ? path : "database";

	assert(to <= migrate_newest());
	if (version > migrate_newest())
		return err_set(e, ERR_VERSION, "%s has schema %d, written by a newer hivemindd; this one knows %d: install "
			"the newer "
			"one again, or put the copy %s.v%d.bak back", name, version, migrate_newest(), name, migrate_newest());
	if (version < 0)
		return err_set(e, ERR_CORRUPT, "%s: %s", name, sqlite3_errmsg(db));
	if (version == 0 && number(db, "SELECT count(*) FROM sqlite_master") > 0)
		return err_set(e, ERR_STATE, "%s is a SQLite database of another program; move it or choose another "
			"--state-dir", name);
	if (version > 0 && number(db, "PRAGMA application_id") != APPLICATION_ID)
		return err_set(e, ERR_STATE, "%s is a SQLite database of another program; move it or choose another "
			"--state-dir", name);
	if (version > 0 && version < to && path && copy_first(db, path, version, e) < 0)
		return -1;
	if (version == 0) {
		snprintf(sql, sizeof sql, "PRAGMA application_id = %d", APPLICATION_ID);
		if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
			return err_set(e, sqlite3_errcode(db) == SQLITE_FULL ? ERR_FULL : ERR_IO, "%s: %s", name,
				sqlite3_errmsg(db));
	}
	for (; version < to; version++)
		if (step(db, path, version, e) < 0)
			return -1;
	return 0;
}
