/* What the store tells of a run's epochs: which commits led to one of them, and how far the run had come. */
#include "store/int.h"

#include <math.h>
#include <string.h>

#include <sqlite3.h>

#include "common/id.h"

#define BEST_OF 100000                  /* newest epochs, in which the best accuracy is looked for: the loop waits */

/* Only what is needed, in the order of the table's own key: a run has thousands, and the loop waits. */
static const char history_sql[] = "SELECT epoch, digest, prev FROM epochs WHERE run = ?1 AND epoch <= ?2 "
	"ORDER BY epoch DESC";

size_t store_history(struct store *s, const char *run, uint64_t epoch, const uint8_t digest[32], struct store_link *ret,
	size_t max)
{
	struct id want, prev;
	sqlite3_stmt *st = NULL;
	size_t n = 0;
	struct err e;
	int rc;

	memcpy(want.b, digest, sizeof want.b);
	store_settle(s);
	rc = sqlite3_prepare_v2(s->db, history_sql, -1, &st, NULL);
	if (rc == SQLITE_OK) {
		sqlite3_bind_text(st, 1, run, -1, SQLITE_STATIC);
		sqlite3_bind_int64(st, 2, (sqlite3_int64)epoch);
		while (n < max && (rc = sqlite3_step(st)) == SQLITE_ROW) {
			const char *own = (const char *)sqlite3_column_text(st, 1);
			const char *before = (const char *)sqlite3_column_text(st, 2);
			uint64_t at = (uint64_t)sqlite3_column_int64(st, 0);
			struct id is;

			if (at < epoch)                 /* a gap: that epoch is not there, or not of this history */
				break;
			if (!own || id_parse(&is, own, &e) || !id_eq(&is, &want))
				continue;
			ret[n].epoch = epoch--;
			memcpy(ret[n++].digest, is.b, sizeof is.b);
			if (!before || id_parse(&prev, before, &e))
				break;
			want = prev;
		}
	}
	if (rc != SQLITE_DONE && rc != SQLITE_ROW && rc != SQLITE_OK)
		log_write(s->env->log, LOG_ERROR_, "store", "%s: reading epochs: %s", s->path, sqlite3_errmsg(s->db));
	sqlite3_finalize(st);
	return n;
}

/* One row's columns from the first on, NAN where it has none. */
static void numbers_of(struct store *s, const char *sql, const char *run, double *ret, int n)
{
	sqlite3_stmt *st = NULL;
	bool row;
	int rc;

	rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
	if (rc == SQLITE_OK) {
		sqlite3_bind_text(st, 1, run, -1, SQLITE_STATIC);
		sqlite3_bind_int64(st, 2, BEST_OF);
		rc = sqlite3_step(st);
	}
	row = rc == SQLITE_ROW;
	for (int i = 0; i < n; i++)
		ret[i] = row && sqlite3_column_type(st, i) != SQLITE_NULL ? sqlite3_column_double(st, i) : NAN;
	if (!row && rc != SQLITE_DONE)
		log_write(s->env->log, LOG_ERROR_, "store", "%s: reading epochs: %s", s->path, sqlite3_errmsg(s->db));
	sqlite3_finalize(st);
}

void store_run_end(struct store *s, const char *run, struct store_end *ret)
{
	double last[2], val[3];

	store_settle(s);
	numbers_of(s, "SELECT members, loss, ?2 FROM epochs WHERE run = ?1 AND discarded = 0 ORDER BY epoch DESC LIMIT 1",
		run, last, 2);
	numbers_of(s, "SELECT epoch, val_loss, val_accuracy FROM (SELECT * FROM epochs WHERE run = ?1 AND discarded = 0 "
		"ORDER BY epoch DESC LIMIT ?2) WHERE val_loss IS NOT NULL OR val_accuracy IS NOT NULL LIMIT 1", run, val, 3);
	numbers_of(s, "SELECT max(val_accuracy) FROM (SELECT val_accuracy FROM epochs WHERE run = ?1 AND discarded = 0 "
		"ORDER BY epoch DESC LIMIT ?2)", run, &ret->best_accuracy, 1);
	ret->members = last[0] > 0 ? (uint64_t)last[0] : 0;
	ret->loss = last[1];
	ret->val_epoch = val[0] > 0 ? (uint64_t)val[0] : 0;
	ret->val_loss = val[1];
	ret->val_accuracy = val[2];
}
