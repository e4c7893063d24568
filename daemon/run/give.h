/* What the two files of a donor share: donor.c has the copies and answers with their lists, give.c gives their
 * pieces. */
#ifndef RUN_GIVE_H
#define RUN_GIVE_H
#include "common/buf.h"
#include "common/hash.h"
#include "run/int.h"

#define ASKERS 64
struct asker { struct id id; uint64_t us; };
struct held {
	struct list link;
	struct donors *d;
	struct id run;
	struct snapshot *snap;          /* NULL: it is being made */
	size_t piece, n;                /* bytes of one; pieces */
	enum hashes hashes;
	struct buf answer;              /* tree256 of every piece, then the point as JSON */
	uint8_t list[TREE256];          /* SHA-256 of the hashes: names this copy */
	bool ready, gone;               /* gone: its hashing job still runs */
	unsigned lent;                  /* pieces on their way or in line */
	uint64_t used_us;               /* it was made, a piece of it moved, or somebody had its list for the first time */
	struct asker asker[ASKERS]; size_t asked;
	struct list waiters;
	struct job job;
};
/* Who has pieces in line or on their way: served in turn. */
struct taker { struct list link, line; struct id id; unsigned waiting, sending; };
/* moved_us: it got its place, or bytes of it were acknowledged. */
struct given { struct list link; struct held *h; struct taker *t; struct id tag; size_t piece; struct xfer *x;
	uint64_t moved_us, bytes; };
struct donors { struct runs *rs; struct list held, takers, sending; size_t nline, nsending, nwaiters;
	struct timer sweep; uint64_t made /* copies */, stalled; };

static inline uint64_t donors_now(const struct donors *d) { return env_now(d->rs->ctx.env); }

void give_piece(struct donors *d, struct request *req, const struct id *run);
void give_some(struct donors *d);               /* while there are places */
void give_tick(struct donors *d);               /* takes places from those who take nothing */
void give_stop(struct donors *d, const struct held *h, const struct id *to);    /* NULL: of all copies; to all */

#endif
