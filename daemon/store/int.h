/* Inside of the store: the queue of writes and the statements. store*.c only. */
#ifndef DAEMON_STORE_INT_H
#define DAEMON_STORE_INT_H
#include "store/store.h"

/* Every write of the store. X(name, SQL) */
#define STORE_SQL(X) \
	X(RUN_PUT, "INSERT INTO runs(run, name, author, state, spec, local, error, epoch, samples, params_version, " \
		"created_ms," \
		" updated_ms, resume) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13) ON CONFLICT(run) DO UPDATE SET " \
			"name=?2," \
		" author=?3, state=?4, spec=?5, local=?6, error=?7, epoch=?8, samples=?9, params_version=?10, " \
			"updated_ms=?12, resume=?13") \
	X(RUN_UPDATE, "UPDATE runs SET state=coalesce(?2,state), error=nullif(coalesce(?3,error),''), epoch=?4, " \
		"samples=?5," \
		" updated_ms=?6 WHERE run=?1") \
	X(RUN_RESUME, "UPDATE runs SET resume=?2, updated_ms=?3 WHERE run=?1") \
	X(RUN_RM, "DELETE FROM runs WHERE run=?1") \
	X(RUN_RM_PARAMS, "DELETE FROM params WHERE run=?1") \
	X(RUN_RM_EPOCHS, "DELETE FROM epochs WHERE run=?1") \
	X(RUN_RM_ROUNDS, "DELETE FROM rounds WHERE run=?1") \
	X(RUN_RM_EVENTS, "DELETE FROM events WHERE run=?1") \
	X(RUN_RM_CKPTS, "DELETE FROM checkpoints WHERE run=?1") \
	X(PARAM, "INSERT INTO params(run, version, key, old_value, new_value, author, state, note, epoch, wall_ms)" \
		" VALUES(?,?,?,?,?,?,?,?,?,?) ON CONFLICT(run, version, key) WHERE state<>'superseded'" \
		" DO UPDATE SET old_value=excluded.old_value," \
		" new_value=excluded.new_value, author=excluded.author, state=excluded.state, note=CASE WHEN" \
		" params.state='discarded' AND excluded.state='applied' AND params.new_value<>excluded.new_value" \
		" THEN 'in place of ' || params.new_value || ', which was discarded' ELSE excluded.note END," \
		" epoch=excluded.epoch, wall_ms=excluded.wall_ms WHERE excluded.state<>'proposed' OR params.state='proposed'") \
	X(EPOCH, "INSERT OR REPLACE INTO epochs(run, epoch, digest, prev, samples, members, took_us, params_version, " \
		"weight, loss," \
		" val_loss, val_accuracy, discarded, minority, wall_ms, positions)" \
		" VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,max(?13,coalesce((SELECT discarded FROM epochs WHERE run=?1" \
		" AND epoch=?2 AND digest=?3),0)),?14,?15,?16)") \
	X(EPOCH_VALIDATED, "UPDATE epochs SET val_loss=?3, val_accuracy=?4 WHERE run=?1 AND epoch=?2 AND discarded=0") \
	X(EPOCH_DISCARD, "UPDATE epochs SET discarded=1 WHERE run=?1 AND epoch BETWEEN ?2 AND ?3") \
	X(PARAM_DISCARD, "UPDATE params SET state='discarded', note=?4 WHERE run=?1 AND epoch BETWEEN ?2 AND ?3" \
		" AND state IN ('applied','proposed')") \
	X(PARAM_SETTLE, "UPDATE params SET state=?4, note=?5 WHERE run=?1 AND version=?2 AND key=?3 AND state='proposed'") \
	X(ROUND, "INSERT INTO rounds(run, epoch, term, attempt, leader, outcome, reason, without, members, bytes_sent," \
		" bytes_received, took_us, wall_ms) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)") \
	X(PEER, "INSERT INTO peers(peer, address, version, state, rtt_us, bytes_sent, bytes_received, failures, " \
		"first_ms, last_ms)" \
		" VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?9) ON CONFLICT(peer) DO UPDATE SET address=?2, " \
			"version=coalesce(?3,version)," \
		" state=?4, rtt_us=?5, bytes_sent=?6, bytes_received=?7, failures=?8, last_ms=?9") \
	X(EVENT, "INSERT INTO events(wall_ms, level, kind, run, peer, text, data) VALUES(?,?,?,?,?,?,?)") \
	X(CKPT, "INSERT OR REPLACE INTO checkpoints(path, run, epoch, bytes, digest, state, wall_ms) " \
		"VALUES(?,?,?,?,?,?,?)") \
	X(SHELF_PUT, "INSERT OR REPLACE INTO shelf(tab, key, val) VALUES(?,?,?)") \
	X(SHELF_DEL, "DELETE FROM shelf WHERE tab=?1 AND key=?2") \
	X(BARRIER, "UPDATE barrier SET n=n+1") \
	X(THIN_EPOCHS, "DELETE FROM epochs WHERE rowid IN (SELECT rowid FROM epochs WHERE wall_ms < ?1 AND epoch % 100 " \
		"<> 0 LIMIT 500)") \
	X(THIN_ROUNDS, "DELETE FROM rounds WHERE id IN (SELECT id FROM rounds WHERE wall_ms < ?1 AND epoch % 100 <> 0 " \
		"LIMIT 500)") \
	X(CUT_EPOCHS, "DELETE FROM epochs WHERE rowid IN (SELECT rowid FROM epochs ORDER BY rowid LIMIT 500)") \
	X(CUT_ROUNDS, "DELETE FROM rounds WHERE id IN (SELECT id FROM rounds ORDER BY id LIMIT 500)") \
	X(CUT_EVENTS, "DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id LIMIT 500)")

enum store_stmt {
#define X(name, sql) ST_##name,
	STORE_SQL(X)
#undef X
	ST_COUNT
};

enum val_type { VAL_NULL, VAL_INT, VAL_REAL, VAL_TEXT, VAL_BLOB };
/* at, n: where text and blobs are in data[] */
struct val { enum val_type type; int64_t i; double d; size_t at, n; };
struct op {
	struct list link;
	enum store_stmt stmt;
	unsigned n;
	struct val v[16];
	char data[];
};

struct sqlite3;
struct sqlite3_stmt;
struct wal_job;
struct store {
	struct shelf shelf;
	struct env *env;
	struct sqlite3 *db;
	struct sqlite3_stmt *st[ST_COUNT];
	char *path, *vfs;
	bool memory;
	uint64_t keep_ms, keep_bytes;

	struct list queue;                      /* struct op, oldest first */
	size_t queued;
	uint64_t lost, commits, changed;        /* changed: rows of the last settle */
	bool failing, unsynced, settling;
	bool urgent;                            /* more than history waits */
	struct err error;                       /* why it is failing */
	uint64_t retry_us;
	struct timer settle_timer, retry_timer, keep_timer;

	uint64_t committed_us;                  /* when the last transaction ended */
	int wal_pages, wal_full;                /* in the log; from how many on it is copied */
	uint64_t wal_since;
	struct wal_job *wal;                    /* under way on the disk lane */
};

/* Queues one write. fmt: s text or NULL, i int64_t, d double (NAN is NULL), b const void * + size_t. */
void store_push(struct store *s, enum store_stmt stmt, const char *fmt, ...);
#define STORE_KEEP_US 60000000u         /* between two looks of the retention */
#define STORE_WAL_PAGES 1000            /* 4 MiB of log */
int store_commit(struct store *s, bool full);   /* one transaction with everything that waits */
void store_keep_fire(struct timer *t);
void store_wal_look(struct store *s);           /* after each commit: is it time to copy the log? */
bool store_wal_waits(const struct store *s);    /* commits that nobody waits for had better come after the copying */
void store_wal_forget(struct store *s);         /* the job under way frees itself */
int64_t store_number(struct store *s, const char *sql);
int64_t store_live_bytes(struct store *s);
int store_sql_err(struct store *s, const char *what, struct err *e);
enum err_code store_err_code(int rc);

#endif
