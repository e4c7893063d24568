/* Inside of a state download: fetch.c asks and agrees on a list, piece.c gets the pieces, fetch_ends.c lets go of
 * them. */
#ifndef RUN_FETCH_H
#define RUN_FETCH_H
#include "common/hash.h"
#include "run/int.h"

#define RETRY_MIN_US 50000              /* also between looks for a live member: they cost nothing */
#define DONORS_MAX 8

enum piece { PIECE_NEEDED, PIECE_FLYING, PIECE_HERE };
struct donor {
	struct fetch *f; struct id id; struct call *call;
	bool out, listed;               /* gives nothing any more; list, hash and point are its answer */
	enum hashes hashes;             /* of that */
	struct avg_point point;
	uint8_t list[TREE256], *hash;
	unsigned flying, given, misses;
	uint64_t rest_us;               /* it was busy: not asked before */
};
/* data: where it comes; what is not what the list says never gets into the state. over: nobody waits for its job. */
struct flight { struct list link; struct fetch *f; struct donor *d; size_t piece, len; struct call *call;
	struct xfer *x; uint8_t *data, hash[TREE256]; struct job job; enum hashes hashes; bool hashing, over; };
struct fetch {
	struct run *r;
	struct donor d[DONORS_MAX]; size_t nd;
	struct donor *ref;              /* whose list is the state; NULL: not agreed yet */
	size_t piece, n, left, bytes;
	enum hashes hashes;             /* that all know who are asked */
	uint8_t *hash, *have;           /* of the state; enum piece of each */
	struct pieces aside;            /* not into the state, which is still needed; v NULL: in place */
	struct list flights;
	struct timer timer;
	net_news_fn *news;              /* it hears who goes */
	bool resting;                   /* the timer asks anew; else it is for answers or for who was busy */
	uint64_t backoff_us;
	unsigned tries;
	char why[sizeof ((struct err *)0)->text];             /* the last refusal */
};

void flight_end(struct flight *l);
void flight_free(struct flight *l);             /* that has ended, when no job reads it */
void piece_free(struct pieces *p, size_t i);
void pieces_drop(struct pieces *p);             /* all, and their list */
void pieces_take(struct fetch *f);              /* asks for more, while somebody has what is needed */
void fetch_drop(struct fetch *f, struct donor *d, bool tell);   /* it gives nothing any more */
bool fetch_usable(const struct fetch *f, const struct donor *d);
bool fetch_same_list(const struct donor *a, const struct donor *b);
bool fetch_all_answered(const struct fetch *f);
void fetch_forget_donors(struct fetch *f);

#endif
