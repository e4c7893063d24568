/* What chunk.c (sending), chunk_in.c (receiving), chunk_cut.c (chunks) and chunk_memo.c (names that are remembered)
 * share. */
#ifndef NET_CHUNK_INT_H
#define NET_CHUNK_INT_H
#include "common/list.h"
#include "common/map.h"
#include "common/xxh.h"
#include "net/chunk.h"

#define CHUNK_BYTES (256 * 1024)
#define WINDOW_FIRST 2                          /* until the receiver has stated its credit */
#define WINDOW_MAX 6
/* Where a round trip is long, twice what is on the wire at the rate of so far, up to this. */
#define WINDOW_FAR 32
#define FAR_US 5000
#define QUESTION UINT64_MAX             /* the flight carries nothing: it asks whether there is a taker */

struct xfer_key { struct id peer, tag; };
struct flight { struct list link; struct xfer *x; struct call *call; uint64_t index; };      /* index: or QUESTION */
struct xfer {
	struct chunks *c; struct list link; struct xfer_key key; bool sending, listed;
	uint64_t serial;                        /* of this sending: a name may be used again */
	size_t len, step /* bytes of a chunk */; uint64_t nchunks, bytes; enum net_class cls;
	uint64_t deadline_us; struct timer timer;
	xfer_done_fn *done; void *arg;
	struct err *failed;                     /* the timer ends it with this */
	XXH3_state_t *hash; uint64_t hashed;    /* chunks, from the first on, that went into it */
	uint8_t *have;                          /* a bit per chunk: acknowledged, or received */
	/* sending */
	const uint8_t *data; struct list flights; uint32_t in_flight, credit, far_credit, tried; uint64_t next;
	bool asked_last /* when all were acknowledged */;
	bool waiting; uint64_t wait_us, retry_us, began_us;
	bool has_digest; uint8_t want[16];      /* made, or told by the sender */
	bool unhashed;                          /* it is sent without */
	/* receiving */
	uint8_t *out; xfer_room_fn *room /* asked for out */; bool counted /* has begun to come */;
	struct timer hasher; struct request *whole;     /* all is there, and not all is hashed: who waits for the answer */
};
/* A name that is remembered for a while: refused for want of a taker, or finished. FIFO, bounded (chunk_memo.c). */
struct memo { struct list link, own; struct memo_peer *of; struct xfer_key key; uint64_t serial; struct err e; };
struct memos { struct map *map, *peers; struct list list; };
#define MEMOS_PEER_MAX 128                      /* of one sender, whose oldest then goes: a round has a few dozen */
#define MEMOS_MAX 4096                          /* half a KiB each */

struct chunks {
	struct env *env; struct net *net;
	struct map *sends, *recvs; struct list send_list, recv_list;
	struct memos waits, over;
	uint32_t receiving; uint64_t serial;
	chunk_offer_fn *offer; void *offer_arg;
};

struct xfer *xfer_new(struct chunks *c, bool sending, const struct id *peer, const struct id *tag, size_t len,
	uint64_t deadline_us, xfer_done_fn *done, void *arg);
void xfer_end(struct xfer *x, const struct err *e);             /* calls done; frees */
void xfer_fail_later(struct xfer *x, const struct err *e);
void xfer_free(struct xfer *x);
void xfer_arm(struct xfer *x);
void xfer_cut(struct xfer *x, size_t step);     /* of which nothing is there yet */
size_t xfer_step(const struct xfer *x);         /* that suits the path to its peer */
void xfer_digest(const struct xfer *x, uint8_t ret[16]);
void xfer_hash_prefix(struct xfer *x, const uint8_t *data);     /* hashes the next chunk of those that are there */
void recv_drop(struct xfer *x);                 /* nobody hashes any more; who waits is told that it has come */
void recv_hash_fire(struct timer *t);
static inline bool bit(const uint8_t *v, uint64_t i) { return v[i / 8] >> i % 8 & 1; }
static inline void bit_set(uint8_t *v, uint64_t i) { v[i / 8] |= (uint8_t)(1u << i % 8); }
static inline size_t chunk_len(const struct xfer *x, uint64_t i)
{
	size_t at = i * x->step;
	return x->len - at < x->step ? x->len - at : x->step;
}

struct memo *memo_get(struct memos *m, const struct xfer_key *k);
void memo_put(struct memos *m, const struct xfer_key *k, uint64_t serial, const struct err *e);
void memo_del(struct memos *m, struct memo *x);
void memos_init(struct memos *m, uint64_t key);
void memos_free(struct memos *m);
void memos_forget(struct memos *m, const struct id *peer);      /* all of its */
void send_pump(struct xfer *x);
void send_question(struct xfer *x);
void send_drop_flights(struct xfer *x);
void send_tell_over(struct xfer *x);            /* the receiver need not wait for the rest */
void on_chunk(void *arg, struct request *r);
void on_want(void *arg, struct request *r);

#endif
