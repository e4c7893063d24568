/* What checkpoints of this peer hold of a run, piece by piece, for whoever gathers a model whose parts lie on many
 * machines (export.c). The run may be over, or this daemon started anew since: the files are enough.
 *
 *   RUN_SAVED {run}                                 ->  <- {hashes}, blob: saved_json's list, the newest first
 *   RUN_SAVED {run, epoch, prev, tensor, lo, n, look, hashes}  ->  <- {"digest"}: tree256 of those elements' bytes
 *   RUN_SAVED {run, epoch, prev, tensor, lo, n}     ->  <- {}, blob: the bytes
 *
 * A checkpoint that is read stays for a minute longer than it would, and its hash is checked before any of it is
 * given. */
#ifndef RUN_SAVED_H
#define RUN_SAVED_H
#include "common/buf.h"
#include "common/hash.h"
#include "run/int.h"

#define SAVED_EPOCHS 8                  /* that one peer tells of */
#define LEASES 8
#define LEASE_US 60000000ull

/* epoch 0: which checkpoints are there? Else elements lo .. lo + n - 1 of a tensor, NET_BLOB_MAX bytes at most. */
struct saved_ask { struct id run; uint64_t epoch; uint8_t prev[DIGEST]; char tensor[CKPT_NAME]; uint64_t lo, n;
	bool look; enum hashes hashes; };
/* bytes is the callee's to empty (buf_free); e says why there are none. */
typedef void saved_fn(void *arg, struct buf *bytes, const struct err *e);

/* Of one checkpoint, which is kept for those who read it. */
struct saved_lease { struct id run; uint64_t epoch, until_us; bool sound; };
struct lends { struct runs *rs; struct list line; struct lend *running; struct saved_lease lease[LEASES]; };
struct lends *lends_new(struct runs *rs);       /* answers RUN_SAVED */
void lends_free(struct lends *d);
void lends_ask(struct lends *d, const struct saved_ask *what, saved_fn *done, void *arg);      /* of this peer's own */
void lends_forget(struct lends *d, const void *arg);    /* who asked hears nothing any more */

/* ---- saved_lease.c ---- */
struct saved_lease *lends_lease(struct lends *d, const struct saved_ask *is);        /* NULL: there are too many */
uint64_t lends_epoch(const struct lends *d, const struct id *run);     /* whose checkpoint is read; 0: none */

#endif
