/* Big things in pieces: a transfer moves len bytes from one peer to another as CHUNK frames of 256 or 512 KiB, with a
 * window that never exceeds the receiver's credit, resume after lost frames or new sockets, and a hash at the end, that
 * peers leave out when both take what was sealed for whole (net_conf.moves).
 *
 * A transfer is named by a 32-byte tag that both sides can compute (SHA-256 over run, epoch, term, attempt, what, part:
 * the caller's business). The receiver says where the bytes go before or after the first chunk comes; a chunk with no
 * taker is answered "wait" (nothing is buffered) and sent again when the receiver says CHUNK_WANT, or after a while. */
#ifndef NET_CHUNK_H
#define NET_CHUNK_H
#include "net/net.h"

struct chunks;
struct chunks *chunks_new(struct env *env, struct net *net);
void chunks_free(struct chunks *c);

struct xfer;
/* done: exactly once, later; e == NULL when the receiver has confirmed all bytes and the hash, if they have one. */
typedef void xfer_done_fn(void *arg, struct xfer *x, const struct err *e);
/* data stays the caller's and must not change until done or xfer_cancel. Gives up at deadline_us (absolute) with
 * TIMEOUT. */
struct xfer *xfer_send(struct chunks *c, const struct id *to, const struct id *tag, const void *data, size_t len,
	enum net_class cls, uint64_t deadline_us, xfer_done_fn *done, void *arg);
/* The same to who may not want it: nothing of it is on its way before the other side has said that it takes it, one
 * round trip later. What is queued for a thin link is not taken back, and all that comes after it waits behind it. */
struct xfer *xfer_offer(struct chunks *c, const struct id *to, const struct id *tag, const void *data, size_t len,
	enum net_class cls, uint64_t deadline_us, xfer_done_fn *done, void *arg);
/* Writes what `from` sends under tag into out[0..len). A sender's length that differs is refused and told to both.
 * deadline_us 0 = none. */
struct xfer *xfer_recv(struct chunks *c, const struct id *from, const struct id *tag, void *out, size_t len,
	uint64_t deadline_us, xfer_done_fn *done, void *arg);
/* The same of what may never come: room(arg) says where the bytes go, once the first of them are here; NULL: there is
 * no memory, and the sender waits. */
typedef void *xfer_room_fn(void *arg);
struct xfer *xfer_recv_room(struct chunks *c, const struct id *from, const struct id *tag, size_t len,
	uint64_t deadline_us, xfer_room_fn *room, xfer_done_fn *done, void *arg);
void xfer_cancel(struct xfer *x);               /* done is not called; the memory is the caller's again at once */
uint64_t xfer_bytes(const struct xfer *x);      /* so far */
bool xfer_waits(const struct xfer *x);          /* of one that is sent: the other side does not take it, or not now */
const struct id *xfer_peer(const struct xfer *x);
/* A transfer that nobody expects is offered here once (e.g. "may I send you the state?"); may call xfer_recv.
 * Optional. */
typedef void chunk_offer_fn(void *arg, const struct id *from, const struct id *tag, uint64_t len);
void chunks_offer(struct chunks *c, chunk_offer_fn *fn, void *arg);

#endif
