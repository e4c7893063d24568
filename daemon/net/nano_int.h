/* The real transport's own. Each file calls only those below it:
 *
 *   nano.c        ports, receiving, the face towards the loop      nano_pace.c   how much bulk may be on its way
 *   nano_sweep.c  what nanomsg does not manage: descriptors        nano_rate.c   limits
 *   nano_link.c   what we have dialled                             nano_notes.c  addresses: whose are peers', banned
 *   nano_door.c   raw REP: who has dialled our door                nano_sock.c, nano_addr.c   sockets, addresses
 */
#ifndef NET_NANO_INT_H
#define NET_NANO_INT_H
#include "common/heap.h"
#include "common/list.h"
#include "common/map.h"
#include "net/nano.h"
#include "net/rate.h"

/* a door token that names a link of ours; else pipe << 32 | request id */
#define DIALLED DOOR_DIALLED

/* A sending socket: PUSH to a mailbox, or raw REQ to a door. Kept in order of use. */
struct nlink {
	struct list link;                       /* nano->links, least recently used first */
	struct list dirty_link;                 /* nano->dirty */
	struct nano *n;
	struct endpoint to;
	enum chan chan;
	unsigned lane;                          /* of several to one door, env.h */
	uint64_t serial;
	int s;                                  /* the nanomsg socket */
	uint32_t number;                        /* connection number */
	uint64_t established, broken, current;  /* nanomsg's counters when last read */
	uint64_t used_at, broke_at, waiting_since, rtt_us;
	uint64_t stood; unsigned descriptors;   /* the sweep: `established` when it began, if connected; what it found */
	struct list queue; size_t queued;
	struct packet *held; void *sealed;      /* sealed, but nanomsg said "not now" */
	struct watch out, in;                   /* NN_SNDFD while something waits; NN_RCVFD of a dialled door */
	bool asked;                             /* nobody has shown yet that it is there: packet.asked */
	bool dirty, parked;                     /* parked: what is next waits for the upload limit */
};

/* A bound socket; what the last sweep saw of it: connections that nanomsg accepted, packets, and how many
 * connections came and went between two sweeps. */
struct box { struct nano *n; enum chan chan; int s; struct watch in; uint64_t accepted, heard, tell_next_us;
	int64_t unseen; unsigned quiet /* sweeps without another one */; };

/* One inbound connection as the sweep sees it; token: the door's connection that it is, a peer's, as far as known;
 * late_us: nano's, when it came. */
struct inbound { int fd; enum chan chan; uint8_t ip[16]; uint16_t port; uint64_t since, late_us, received, token;
	uint8_t group[16]; bool known, last; };

/* One connection to our door by the token of its messages: what has come by it, as TCP counts; good: a peer speaks by
 * it; seen: the last sweep has found its descriptor. nanomsg tells neither its address nor its descriptor. */
struct door_last { struct list link; struct nano *n;
	uint64_t key, sent_at, free_at, heard_at, received; uint32_t request;
	bool swept, good, seen;
	struct list queue; size_t queued;       /* packets that wait; ready: in n->door_ready, else the timer runs */
	struct list ready; struct timer timer; };

/* A connection that carries bulk outwards, and the window in bytes that its delay allows (nano_pace.c). */
struct paced { int fd; uint8_t ip[16]; uint16_t port, local; bool seen, begins, rested; uint32_t window, buffer;
	uint64_t next_us, busy_us, rest_us; };
struct pace_view { uint32_t window, window_max, segment; uint64_t on_way, rtt_us, base_us; };

/* A token bucket in bytes. */

struct nano {
	struct transport transport;
	struct loop *loop;
	struct env *env;
	struct nano_conf conf;
	struct endpoint at;
	bool plugged;
	struct box box[CHANS];
	struct list links, dirty, returned;
	struct map *by_address, *by_serial;     /* endpoint + chan; serial */
	uint64_t next_serial;
	uint32_t next_number, sockets;
	struct deferred flush;
	/* the door */
	struct list door_ready; size_t door_queued[2];  /* connections that may send; bytes that wait, of peers: [true] */
	struct map *door_last;                  /* connection (token >> 32) -> struct door_last */
	struct list door_peers, door_strangers; /* the same, good or not; who was heard of longest ago first */
	/* the sweep */
	struct timer sweep;
	uint64_t swept_at, late_us;             /* the last one; how late all of them were, together */
	uint64_t counted_at; unsigned excused;  /* connections without a word: last counted then; not for so many sweeps */
	struct map *known, *banned;             /* ip -> struct until */
	uint64_t moved; unsigned quiet;         /* bytes of bulk at the last sweep; sweeps since they grew */
	struct inbound *inbound; size_t ninbound, cap_inbound;
	struct rate up, down;
	/* bulk windows */
	struct paced *paced; size_t npaced, cap_paced;
	struct map *bases;                      /* ip -> smallest round trip */
	struct timer pace;
	struct nano_stats stats;
};

/* Of one socket in one callback; then what has become ready meanwhile, sums and control, has its turn. */
#define MESSAGES_AT_ONCE 64
#define BYTES_AT_ONCE ((size_t)1 << 20)

void rate_init(struct nano *n);
void rate_stop(struct nano *n);
bool rate_may(struct nano *n, struct rate *r);  /* false: not now, and its timer will say when */

/* NULL: no socket left */
struct nlink *nlink_get(struct nano *n, const struct endpoint *to, enum chan chan, unsigned lane, bool asked);
struct nlink *nlink_find(struct nano *n, const struct endpoint *to, enum chan chan, unsigned lane);
void nlink_free(struct nlink *l);               /* what waits comes back unsent, later */
void nlink_put(struct nlink *l, struct packet *p);
void nlink_flush(struct nlink *l);
void nlink_look(struct nlink *l);               /* reads nanomsg's counters */
void nlink_used(struct nlink *l);

/* Flush at the end of this callback. */
static inline void nano_mark(struct nano *n) { loop_defer(n->loop, &n->flush); }
static inline void nano_return(struct nano *n, struct packet *p)        /* unsent, later */
{
	n->stats.refused++;
	list_push(&n->returned, &p->link);
	nano_mark(n);
}
static inline void nano_got(struct nano *n, struct via via, void *msg, size_t len)
{
	n->stats.in[via.chan]++;
	n->stats.bytes_in[via.chan] += len;
	rate_spend(&n->down, len);
	if (n->env->recv && len)
		n->env->recv(n->env->recv_arg, via, msg, len);
}

/* ---- nano_addr.c ---- of a descriptor: ours, and the other side's; -1: it has none */
int address_here(int fd, uint8_t ip[16], uint16_t *ret_port);
int address_there(int fd, uint8_t ip[16], uint16_t *ret_port);

/* ---- nano_sock.c ---- */
int nano_options(int s, const struct endpoint *at, enum chan chan, const struct nano_conf *conf);
#define REQUEST_ID 0x80000001u                  /* the high bit ends the header (SP's rule) */
void head_put(uint8_t *p, uint32_t v);
uint32_t head_get(const uint8_t *p);
/* Sends body (nn_allocmsg) behind the SP header head[0..len); takes body when it succeeds. */
int raw_send(int s, void **body, const uint8_t *head, size_t len);
/* Body and SP header of the next message; the length, or -1. *ret_body is nn_freemsg's. */
int raw_recv(int s, void **ret_body, uint8_t head[8], size_t *ret_len);

bool door_answer(struct nano *n, struct packet *p);     /* false: no room */
void door_flush(struct nano *n);
void door_ready(struct watch *w, int what);     /* the bound door */
void door_give_back(struct nano *n);
void door_good(struct nano *n, uint64_t token);
void door_match(struct nano *n);  /* which inbound connections are the peers' that speak through the door */
void door_prune(struct nano *n, uint64_t now);

void sweep_fire(struct timer *t);
void sweep_judge(struct nano *n, uint64_t now);         /* shuts what is too much of n->inbound */
void sweep_free(struct nano *n);
#define SOON_US 5000
static inline void sweep_soon(struct nano *n)   /* within SOON_US */
{
	uint64_t at = env_now(n->env) + SOON_US;

	if (n->plugged && n->sweep.at_us > at)
		env_timer(n->env, &n->sweep, at);
}
/* ---- nano_notes.c ---- */
void sweep_note(struct map *m, const uint8_t ip[16], uint64_t until_us);        /* 0: not any more */
bool sweep_noted(struct map *m, const uint8_t ip[16], uint64_t now);
void sweep_forget(struct map *m, uint64_t now); /* those whose time is over */
void sweep_know(struct nano *n, const uint8_t ip[16]);  /* that address is a peer's, for an hour */
bool sweep_same(int fd, const uint8_t ip[16], uint16_t port, uint16_t local);   /* still that connection? */

void pace_init(struct nano *n, uint64_t key);
void pace_free(struct nano *n);
/* The sweep tells what it sees: round trips of any connection, connections that carry bulk, and that it is through. */
void pace_path(struct nano *n, const uint8_t ip[16], uint32_t min_rtt_us);
void pace_see(struct nano *n, int fd, const uint8_t ip[16], uint16_t port, uint16_t local);
/* The kernel's congestion control that suits the path; of one that has not been measured nothing is changed. */
void pace_congestion(struct nano *n, int fd, const uint8_t ip[16], bool bulk);
void pace_swept(struct nano *n);
void pace_dial(struct nano *n, int s, const uint8_t ip[16]);    /* s is about to connect there, to send bulk */
/* Connections to there are about to be closed: what the kernel holds for them is dropped, it would fill the path in
 * front of whatever takes their place. */
void pace_drop(struct nano *n, const uint8_t ip[16], uint16_t port);
void pace_wake(struct nano *n);                 /* bulk is being sent */
/* The next window in bytes; *begins: still doubling. Pure. */
uint32_t pace_law(const struct pace_view *v, bool *begins);

#endif
