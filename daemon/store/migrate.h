/* The schema of the database and its history. store.c only; migrations are appended, never edited. */
#ifndef DAEMON_MIGRATE_H
#define DAEMON_MIGRATE_H
#include "common/err.h"

struct sqlite3;
int migrate_newest(void);                       /* the schema version that this binary writes */
int migrate_version(struct sqlite3 *db);        /* of the file; 0: empty, -1: unreadable */
/* Brings db to version `to`, each step in its own transaction. A file that has something in it is first copied to
 * PATH.vN.bak (path NULL: not copied). ERR_VERSION: the file is newer; ERR_STATE: it belongs to another program. */
int migrate_run(struct sqlite3 *db, const char *path, int to, struct err *e);

#endif
