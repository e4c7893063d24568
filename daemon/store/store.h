/* State in SQLite: what happened and what must survive a restart, never weights.
 *
 * Writes never fail in the caller's face and never wait for a disk: each is an entry in a queue, and store_settle()
 * writes the whole queue as ONE transaction. A timer of the env calls it right after the event that wrote first, so
 * what an event wrote is there whole or not at all, without bookkeeping by the caller; epochs, rounds and events
 * alone wait until 50 ms after the last transaction, because quick epochs would wear out a disk. Reads settle first, so
 * they see what was written.
 * When the disk is full or failing, the queue waits (at most STORE_QUEUE_MAX entries, retried with back-off), then
 * recording stops and is counted; training never stops. store_json() shows all of it for `status`.
 *
 * Threads: everything here runs on the loop. Checkpoints of the write-ahead log run as jobs of the disk lane through a
 * second connection, queries of operators as jobs of the lane "query" (else "disk") through a third, read-only one.
 *
 * Ids are lowercase hex text (64 digits); times are wall clock milliseconds (column wall_ms); text may be NULL where
 * it says so. Strings and blobs are copied. */
#ifndef DAEMON_STORE_H
#define DAEMON_STORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "common/err.h"
#include "env.h"

#define STORE_QUEUE_MAX 10000           /* writes that wait for a disk */
#define STORE_VALUE_MAX 65536           /* bytes of a shelf key or value */

struct store;
struct store_opts {
	const char *path;                   /* file; ":memory:" for the simulator (no query, no checkpoints) */
	const char *vfs;                    /* NULL: SQLite's default; tests register one that fails */
	/* a corrupted file becomes PATH.corrupt-N and a new one is begun; else an error */
	bool move_aside;
	uint64_t keep_ms;                   /* epochs and rounds older than this are thinned to every 100th; 0: 30 days */
	uint64_t keep_bytes;                /* the oldest epochs, rounds and events go above this size; 0: 1 GiB */
};

/* Opens, migrates (after copying the file to PATH.vN.bak) and checks. NULL: ERR_CORRUPT, ERR_VERSION (written by a
 * newer hivemindd), ERR_IO or ERR_BUSY, each with path and remedy. env: now, wall, timer, work, lane and log are
 * used. */
struct store *store_open(struct env *env, const struct store_opts *o, struct err *e);
/* Settles, closes and frees; a job that is still under way frees what it holds when it is done. NULL is fine. */
void store_free(struct store *s);
void store_settle(struct store *s);
/* Before an answer is sent: what it tells outlives this process. History may wait on, and does not make it commit; nor
 * is a disk that refuses asked again (store_json says so meanwhile). */
void store_settle_told(struct store *s);
/* For what an operator was told is done (start, set, ban, key): settles with synchronous=FULL. 0: it is on the disk.
 * -1: the disk refuses (ERR_FULL, ERR_IO, ERR_CORRUPT); the writes stay queued and are tried again. */
int store_sync(struct store *s, struct err *e);
/* {path, bytes, schema, state: "recording" | "waiting" | "stopped", queued, lost, error, commits} */
json_t *store_json(struct store *s);
bool store_healthy(const struct store *s);

/* env->shelf for the rooms right of run; lives as long as the store. */
struct shelf *store_shelf(struct store *s);

/* --- what is written. Every put of an existing primary key replaces it. */
struct store_run {                          /* runs: one per run id */
	const char *run;                        /* hex */
	const char *name, *author;              /* author hex */
	const char *state;                      /* join sync train pause hold leave done failed ... */
	const char *spec, *local;               /* JSON text: the shared and the local part */
	const char *error;                      /* NULL: none */
	uint64_t epoch, samples, params_version;
	uint64_t created_ms;                    /* 0: now, kept by later puts */
	bool resume;                            /* continue after a restart of the daemon */
};
void store_run_put(struct store *s, const struct store_run *r);
/* The frequent change alone. state and error may be NULL (unchanged; error "" clears it). */
void store_run_update(struct store *s, const char *run, const char *state, const char *error, uint64_t epoch,
	uint64_t samples);
void store_run_resume(struct store *s, const char *run, bool resume);
void store_run_rm(struct store *s, const char *run);        /* with everything of it, in every table */

struct store_param {                        /* params: the history of hyperparameters */
	const char *run, *key, *old_value, *new_value;  /* JSON text; old_value may be NULL */
	const char *author;                     /* hex of who asked */
	const char *state;                      /* proposed applied superseded discarded */
	const char *note;                       /* "lr: superseded by PEER at epoch N"; may be NULL */
	uint64_t version, epoch;                /* params version; first epoch that has it */
};
/* Key: run, version, key; what is superseded has none and stands beside what holds. "proposed" never replaces what has
 * come of a proposal, in whatever order both are written; what is applied in the place of a discarded change says so
 * in its note. */
void store_param_put(struct store *s, const struct store_param *p);
/* Lost a fork: changes that were in force, or agreed, from this epoch on. */
void store_param_discard(struct store *s, const char *run, uint64_t from_epoch, uint64_t to_epoch, const char *note);

/* What came of one that is "proposed"; of another nothing is changed. */
void store_param_settle(struct store *s, const char *run, uint64_t version, const char *key, const char *state,
	const char *note);

struct store_epoch {                        /* epochs: one per committed epoch and digest */
	const char *run, *digest;               /* hex of the commit's digest; "" when alone */
	const char *prev;                       /* digest of the commit before; may be NULL */
	uint64_t epoch, samples, members, took_us, params_version;
	double weight, loss, val_loss, val_accuracy;    /* NAN: not measured, stored as NULL */
	bool discarded, minority;
	const char *positions;                  /* JSON: [[lo, hi], ...] that the commit took; may be NULL */
};
void store_epoch_put(struct store *s, const struct store_epoch *p);    /* key: run, epoch, digest */
void store_epoch_validated(struct store *s, const char *run, uint64_t epoch, double loss, double accuracy);
void store_epoch_discard(struct store *s, const char *run, uint64_t from_epoch, uint64_t to_epoch);    /* lost a fork */

struct store_round {                        /* rounds: every attempt to commit an epoch, with its explicit outcome */
	const char *run, *leader;               /* hex; leader may be NULL */
	const char *outcome;                    /* "done", "done without", "failed" */
	const char *reason;                     /* may be NULL */
	const char *without;                    /* JSON array of hex ids; may be NULL */
	uint64_t epoch, term, attempt, members, bytes_sent, bytes_received, took_us;
};
void store_round_add(struct store *s, const struct store_round *r);

struct store_peer {                         /* peers: everybody ever met */
	const char *peer, *address, *version;   /* version may be NULL */
	const char *state;                      /* live client dead banned ... */
	uint64_t rtt_us, bytes_sent, bytes_received, failures;
};
void store_peer_put(struct store *s, const struct store_peer *p);      /* first_ms is kept, last_ms is now */

/* events: what an operator should be able to read next year. kind is a stable word ("ckpt.corrupt"); run, peer may be
 * NULL; data (may be NULL) is stolen. */
void store_event(struct store *s, enum log_level level, const char *kind, const char *run, const char *peer,
	json_t *data,
	const char *fmt, ...) __attribute__((format(printf, 7, 8)));

struct store_ckpt {                         /* checkpoints: the files that were written */
	const char *run, *path, *digest;
	uint64_t epoch, bytes;
	const char *state;                      /* whole corrupt gone */
};
void store_ckpt_put(struct store *s, const struct store_ckpt *c);      /* key: path */

/* --- what is read back: arrays of objects with the column names as keys, newest first except runs (oldest first; of
 * more than rows_max those that go on after a restart, then the newest). run NULL: of every run. Never NULL: an
 * empty array when reading fails (which is logged). */
enum store_table { STORE_RUNS, STORE_PARAMS, STORE_EPOCHS, STORE_ROUNDS, STORE_PEERS, STORE_EVENTS, STORE_CKPTS,
	STORE_TABLES, STORE_DISCARDED = STORE_TABLES /* epochs that have lost a fork */ };
json_t *store_list(struct store *s, enum store_table t, const char *run, size_t rows_max);

/* The commits that have led to the one with this epoch and digest, that one first and each epoch one less than the one
 * before, as far as the table of epochs has them without a gap, at most max. Returns how many. */
struct store_link { uint64_t epoch; uint8_t digest[32]; };
size_t store_history(struct store *s, const char *run, uint64_t epoch, const uint8_t digest[32], struct store_link *ret,
	size_t max);

/* How far a run had come by the table of epochs, without those that have lost a fork: the last epoch, the last one with
 * a validation (0: none), the best of the newest 100 000. NAN: not measured; members 0: there is no epoch. */
struct store_end { uint64_t members, val_epoch; double loss, val_loss, val_accuracy, best_accuracy; };
void store_run_end(struct store *s, const char *run, struct store_end *ret);

/* --- `hivectl query`: any SELECT, read-only, off the loop. done is called once, on the loop, later; result is
 * {columns, rows, truncated, took_us} and borrowed, or NULL with e. limits: rows and 2 s. */
#define STORE_QUERY_MS 2000
#define STORE_QUERY_MEMORY (64 << 20)   /* bytes that SQLite may take for one */
void store_query(struct store *s, const char *sql, size_t rows_max,
	void (*done)(void *arg, json_t *result, const struct err *e), void *arg);

#endif
