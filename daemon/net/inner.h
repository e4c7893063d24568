/* The inside of the net room: what its files share. Nothing outside daemon/net includes this. A file calls those below
 * it; out.c, door.c and rpc.c call each other. What the room's timers do is said at the top (struct net_does).
 *
 *   net.c         creation, what arrives and ends, status   serve.c, reply.c, served.c   requests, each run once
 *   greet.c       HELLO as the one who is dialled           live.c    is a peer there? its death and its news
 *   hello_back.c  HELLO as the one who dials: answers,      twin.c    two daemons with one key; view.c: how we see one
 *   hello_try.c   and none                                  rpc.c     calls; out.c: frames and routes; door.c: our door
 *   barred.c      when the other side does not let us in    peers.c   the address book
 *   rpc_end.c     how calls end                             hello.c   HELLO as the one who dials: begins
 *   rotate.c      the swarm's key is replaced               packet.c  what waits to leave
 *   guard.c       bans, the allow-list, who says too much   rtt.c, keys.c, address.c   round trips, keys, addresses
 *   admit.c       a session is there                        subscribe.c   who above hears of what
 */
#ifndef NET_INNER_H
#define NET_INNER_H
#include "common/buf.h"
#include "common/list.h"
#include "common/map.h"
#include "net/limit.h"
#include "net/session.h"

#define MS 1000ull
#define SECOND 1000000ull
#define WAITING_MAX 4096                        /* frames per peer that wait for a session */
#define WAITING_BYTES_MAX ((size_t)32 << 20)
#define HALVES_MAX 1024
#define HELLOS_MAX 4096
#define SESSIONS_PER_PEER 4
#define SERVED_PER_PEER 4096
#define CACHED_BYTES_MAX ((size_t)16 << 20)     /* answers kept in case they have to be sent again */
#define CACHED_PEER_BYTES ((size_t)4 << 20)     /* of them, for one peer: a dozen of the largest */
#define CACHED_US (30 * SECOND)
#define BOTH_KEPT_US (30 * SECOND)              /* C12 */
#define HALF_US (10 * SECOND)
#define FRESH_MIN_US (100 * MS)                 /* back-off of fresh sockets */
#define FRESH_MAX_US (5 * SECOND)
#define POST_WAIT_US (5 * SECOND)               /* a post waits that long for a session */
#define PEER_FRAMES_PER_S 50000                 /* unasked for, of one peer; more is dropped */
#define BARRED_US (5 * SECOND)
#define DOOR_FRAMES 10                          /* more than that and a partner gets mailboxes */
#define LANES_MAX 6                             /* connections for bulk through a door, of one client */
/* What waits for one client at this daemon's own door, frames and bytes; and for all of them: nobody has more than what
 * the others have left free (dynamic thresholds; Choudhury, Hahne, IEEE/ACM ToN 6(2), 1998). */
#define DOOR_WAIT_MAX 4096
#define DOOR_WAIT_BYTES ((size_t)32 << 20)
#define DOOR_ALL_BYTES ((size_t)256 << 20)

/* Said by others; by itself; it has answered a HELLO that was sent there; and it says that the address is its own. */
enum at_level { AT_NONE, AT_HINT, AT_CLAIMED, AT_ANSWERED, AT_PROVEN };
enum life { LIFE_UNKNOWN, LIFE_ALIVE, LIFE_DEAD, LIFE_LEFT };

/* What a peer may say unasked (guard.c), and since when it says more. */
struct guard { struct limit frames, strikes; uint64_t over_us, last_us, ban_us; };

struct rtt { uint64_t smooth_us, var_us; uint32_t samples, backoff; };

/* What a frame says; shared by its re-sends. The blob is given back as soon as nobody can need it. */
struct msg {
	int refs;
	enum kind kind; enum net_class cls;
	uint64_t request; uint32_t span;
	char *json; size_t json_len;
	struct blob blob;
	bool dead;                              /* not to be sent any more */
};

#define OUT_ACK 0x8000                          /* in out.flags, not on the wire: the sign that a door waits for */

/* A packet on its way. Waits in its peer's list for a session, then belongs to the transport until `gone`. */
struct out {
	struct packet p;
	struct list all, wait;
	struct net *net; struct peer *peer;     /* peer NULL: a plain message to an address */
	struct session *s; struct msg *m;
	uint8_t *plain;
	bool m3, submitted, at_door;            /* at_door: pushed through this daemon's own door, */
	uint64_t lane;                          /* by this connection for bulk; 0: by the one for calls */
	uint8_t tries; uint16_t flags;
	bool *early;                            /* set when it is freed inside send */
	size_t door_cost; struct list answer;   /* while it waits at our door: bytes; an answer: in peer->door_answers */
	uint64_t token;                         /* answer through the door, if that connection is still the peer's */
	uint64_t expire_us;                     /* while waiting; 0 = its owner looks after it */
	void (*gone)(void *arg, bool sent); void *arg;
};

/* At this daemon's own door, one client's connections for bulk (door.c); doubted: the client has dialled anew, and has
 * not spoken by this one since. */
struct lane { struct peer *peer; uint64_t token, sent_us; bool busy, doubted; unsigned silent; struct timer timer; };
struct lanes {
	struct lane v[LANES_MAX]; unsigned wanted, asked;       /* asked: in vain so far */
	uint64_t beside;                        /* the connection for calls when a lane was heard last */
	struct timer ask; struct peer *peer; struct list queue;
	bool useless;                                           /* it has none: an older client */
};

struct peer {
	struct list link, care_link;            /* net->peer_list in the order of first sight; net->care_list */
	struct list tend_link, serve_link;      /* net->tended and net->served, while something ends by time */
	struct net *net; struct id id; uint64_t serial;
	struct endpoint at; enum at_level at_level;
	struct endpoint hint; bool has_hint;    /* told by others while `at` is better founded */
	struct others also;                     /* where else it can be dialled, it says itself */
	unsigned own;                           /* which of ours has found its answers, others_self */
	char software[24];
	uint64_t boot, boot_before, boot_since_us;
	uint64_t boot_seen_us;                  /* it lived then, or later */
	struct twin *twin;                      /* NULL: its boot numbers have not come back */
	uint64_t own_next_us;                   /* not before: a HELLO to where it says that it is */
	bool mailbox;                           /* a HELLO over the mailboxes has succeeded since its boot */
	enum { BULK_UNKNOWN, BULK_TRYING, BULK_YES, BULK_NO } bulk_view;        /* its other mailbox, view.c */
	uint64_t bulk_view_us;
	bool client;                            /* answers go through this daemon's door */
	/* it answers through its own door only: this daemon cannot be dialled from there */
	bool as_client;
	uint64_t door_token, door_boot; uint32_t door_connection;       /* the client's, by its own number, in that life */
	bool door_busy; struct timer door_timer;
	struct list door_queue, door_bulk;      /* control goes first */
	struct list door_answers; unsigned door_frames; size_t door_bytes;      /* all that waits, with the lanes' queue */
	unsigned door_small; struct lanes *lanes;
	unsigned moves;                         /* enum moves, as its HELLO says */
	bool owes_ack;                          /* it pushed through its door and waits for a sign */
	struct list sessions; struct hello *hello; uint64_t hello_next_us, prove_next_us;
	struct list waiting; uint32_t waiting_n, waiting_bulk; size_t waiting_bytes;
	struct list calls; uint64_t next_request;
	struct map *served; struct list served_list; uint64_t floor; uint64_t served_boot;
	struct list cached; size_t cached_bytes;                /* its answers, oldest first */
	struct rtt rtt[2];                      /* control, bulk */
	uint64_t bulk_us, bulk_sent_us;         /* the last answer to bulk; when the newest that has one was sent */
	uint64_t heard_us, used_us, frames_out, fresh_us, fresh_backoff_us;
	uint64_t misses, missed_us;             /* since it was heard last; when what the first one lacks was sent */
	bool broken, torn;                      /* a connection to it was, when last looked at; we closed one ourselves */
	enum life life; int care; struct call *probe; struct probe *probe_of;
	uint64_t probe_next_us, link_next_us, rtt_min_us, up_us, left_us;
	uint64_t banned_until_us; uint32_t failures;    /* UINT64_MAX: for ever */
	char *ban_why; struct guard guard;
	uint8_t banned_ip[16]; bool bans_ip;            /* its address is banned, too */
	uint32_t key_no;                        /* of the swarm key that it said HELLO with; 0: never */
	bool key_asked;
	uint8_t m1_ref[HELLO_REF];              /* of the HELLO that this side dialled last */
	uint64_t barred_us;                     /* it does not let this daemon in: not asked again before */
	uint32_t barred_told;                   /* once, until it lets us in again */
	struct list unsure;                     /* dials that wait for the sign that it has */
	struct net_bytes bytes; uint64_t bandwidth_bps;
	uint64_t reset_us;                      /* the next RESET not before */
	uint32_t pins;                          /* outs and kept requests that point here */
};

/* HELLO in progress, this side dialling; key_no: of the swarm key under its M1. */
struct dial { struct list link; uint64_t deadline_us; net_dial_fn *done; void *arg; };
enum hello_for {
	FOR_DIAL,                               /* net_dial: who is there? */
	FOR_ASK,                                /* the same, of an address that somebody has named, and nobody waits */
	FOR_SESSION,                            /* with a known peer, which frames wait for */
	FOR_PROOF,                              /* a session by the door is there: can its mailboxes be reached? */
};
struct hello {
	struct net *net; struct list link; struct peer *peer;   /* peer NULL: none is known, as for DIAL and ASK */
	enum hello_for what;
	struct endpoint at; bool through_door, unreached;
	bool met, refused;                      /* a connection was made; one was not, at once */
	uint8_t priv[32], e[32], m1_hash[32]; struct buf m1;
	struct timer timer; uint64_t until_us, began_us, m1_us; uint32_t tries, here, turned, own, key_no; bool other_key;
	struct list dials;
	struct err why;                         /* the last hint of a refusal */
};
/* HELLO in progress, this side dialled: M2 is sent, M3 has not come. */
struct half {
	struct net *net; struct list link; struct session *s; uint8_t ref[HELLO_REF], transcript[32];
	struct hello1 m1; struct buf m2; uint64_t made_us; uint64_t token; bool through_door;
	struct limit again;                     /* answers to the same M1 */
};
struct call {
	struct list link; struct net *net; struct peer *peer; struct msg *m; struct out *cur;
	struct timer timer; uint64_t deadline_us, sent_us, retry_us, stuck_us;
	uint32_t tries, timeout_tries; bool pending, ending; struct err why;
	net_done_fn *done; void *arg;
};

/* The ping that asks whether a peer is there. */
struct probe { struct net *net; struct id id; uint64_t asked_us; bool second; };

enum served_state { SERVED_RUNNING, SERVED_DONE, SERVED_FORGOT };
struct served {
	struct list link, cache, own; struct peer *peer; uint64_t request, done_us; enum served_state state;
	bool stale;                             /* its caller's boot is over */
	struct msg *reply;
};
struct kept {
	struct request r; struct list link; struct peer *peer; struct served *sv; uint64_t token;
	bool in_handler, kept, answered;
};
struct watcher { net_news_fn *fn; void *arg; };

/* What happens when a time is over, or a probe has ended: who arms the timer stands below who acts on it. */
struct net_does {
	void (*call)(struct timer *t), (*hello)(struct timer *t), (*door)(struct timer *t);
	net_done_fn *probe_done;
};

#define EVENT_CODES 16
struct net {
	struct env *env; const struct net_does *does; struct net_conf conf; struct signer self;
	uint8_t mac_key[32], old_key[32];       /* the swarm's key, and the one before while it is still good */
	uint32_t key_no; bool has_old; uint64_t old_until_us, keys_next_us;
	struct map *allow; uint64_t not_allowed_us;     /* ids, empty: everybody; when it was told last */
	uint16_t version_min, version_max; unsigned suites; char software[24];
	struct map *peers, *sessions, *hellos, *halves, *calls, *sources;
	struct list peer_list, care_list, tended, served, hello_list, half_list, source_list, outs, ending, kept, cached;
	size_t cached_bytes, door_bytes; uint64_t serial, map_key, served_us;
	struct { net_handler_fn *fn; void *arg; } handlers[256];
	struct watcher *watches; size_t nwatches;
	struct timer later, tick, care_timer;
	net_event_fn *event; void *event_arg;
	struct { const char *code; uint64_t at_us; } told[EVENT_CODES];
	struct net_counters count;
	struct limit resets, twin_signs, named;
	bool twin, has_ask; uint8_t ask[32]; uint64_t twin_next_us; net_twin_fn *on_twin; void *on_twin_arg;   /* twin.c */
	json_t *empty;
	bool freeing;
};

/* ---- greet.c ---- */
void greet_on_m1(struct net *n, struct via via, const uint8_t *p, size_t len);
/* The first frame of a half-open session has opened: checks M3 and installs. NULL: refused. */
struct peer *greet_on_m3(struct net *n, struct half *h, struct via via, const struct header *hd, const uint8_t *m3);
void greet_unknown(struct net *n, struct via via, const struct header *h);      /* perhaps RESET */
void half_free(struct half *h);                 /* and its session, unless it was installed */
void greet_expire(struct net *n, uint64_t now);
void greet_free(struct net *n);

/* ---- hello_back.c ---- */
void hello_on_m2(struct net *n, struct via via, const uint8_t *p, size_t len);
void hello_on_too_old(struct net *n, struct via via, const uint8_t *p, size_t len);
void hello_on_reset(struct net *n, const uint8_t *p, size_t len);

/* ---- hello_try.c ---- */
void hello_fire(struct timer *t);               /* hello.timer */
void hello_fail(struct hello *h, const struct err *e);          /* a refusal that settles the matter */

/* ---- barred.c ---- */
void hello_barred(struct net *n, const uint8_t ref[HELLO_REF]); /* M1 with that reference was refused after M3 */
void hello_let_in(struct peer *p);              /* a frame of its has come: we are not barred, or no longer */
void hello_unsure(struct peer *p, uint64_t now, const struct err *e);   /* ends dials whose time is over; e: all */

/* ---- rpc_end.c ---- */
void call_fire(struct timer *t);                /* call.timer */
void rpc_answer(struct net *n, struct peer *p, const struct header *h, const char *json, const uint8_t *blob);
void rpc_end(struct call *c, const struct frame *f, const struct err *e);       /* calls done; frees */
void rpc_run_ending(struct net *n);

/* ---- rotate.c ---- */
void rotate_tick(struct net *n, uint64_t now);

/* ---- guard.c ---- */
void guard_load(struct net *n);                                 /* the bans of earlier lives */
bool guard_frame(struct peer *p);                               /* may it be served? false: drop it */
void guard_strike(struct peer *p, const char *what);            /* it has sent garbage under its own seal */
bool guard_allowed(const struct net *n, const struct id *id);
void guard_expire(struct peer *p, uint64_t now);

/* ---- admit.c ---- */
/* Takes the reference; flushes what waited. mailbox: the HELLO came and went over the mailboxes. */
void peer_install(struct peer *p, struct session *s, bool mailbox);

/* ---- serve.c ---- */
/* token: it came through this daemon's door, and so goes the answer; 0 = by the mailboxes. */
void serve_request(struct net *n, struct peer *p, uint64_t token, const struct header *h, const char *json,
	const uint8_t *blob);

/* ---- reply.c ---- */
struct msg *reply_refusal(const struct err *e);
void reply_send(struct peer *p, struct msg *m, uint64_t request, uint16_t flags, uint64_t token);
/* An answer that nobody keeps: it can be made again. */
void reply_plain(struct peer *p, const struct header *h, struct msg *m, uint16_t flags, uint64_t token);
void reply_free_kept(struct net *n);            /* requests that nobody has answered */

/* ---- served.c ---- */
void served_keep(struct net *n, struct served *sv);             /* its answer */
void served_drop(struct net *n, struct served *sv);
void served_prune(struct peer *p);              /* what is below peer.floor */
void served_forget_boot(struct peer *p);
void served_free(struct peer *p);               /* all of its */
void served_expire(struct net *n, uint64_t now);

/* ---- live.c ---- */
void live_heard(struct peer *p);
void live_missed(struct peer *p, uint64_t since_us);    /* nothing came since then */
void live_probe_done(void *arg, const struct frame *answer, const struct err *e);
/* Calls end with e, later; watchers hear it. */
void peer_cut(struct peer *p, const struct err *e, const char *why);
void live_dead(struct peer *p, const char *why);
void live_left(struct peer *p);
void live_news(struct peer *p, enum net_news what);
void live_care_fire(struct timer *t);

/* ---- twin.c ---- */
void twin_found(struct net *n, const char *where);              /* it is proved: another process has our key */
void twin_rebooted(struct peer *p, uint64_t boot);              /* before peer.boot becomes boot */
void twin_installed(struct peer *p);            /* a session of peer.boot is there */
json_t *twin_answer(struct net *n, const json_t *asked);        /* to "twin" of a VIEW; NULL: nothing to say */

/* ---- view.c ---- */
void serve_view(void *arg, struct request *req);                /* KIND_VIEW */

/* ---- rpc.c ---- */
#define STUCK_US (1 * SECOND)                   /* that long no socket has taken it, and nothing was heard: a miss */
struct call *rpc_find(const struct net *n, uint64_t peer, uint64_t request);    /* peer.serial; NULL: it has ended */
void rpc_try(struct call *c);
void rpc_end_later(struct call *c, const struct err *e);
void rpc_end_peer(struct peer *p, bool only_sent, const struct err *e);         /* all its calls, later */
/* A new session or connection: send again what the old one may have lost, at once. */
void rpc_hurry(struct peer *p, bool bulk_too);
void rpc_hello_failed(struct peer *p, const struct err *e);
void rpc_probe(struct peer *p, uint64_t deadline_us);   /* one ping; dead when it is not answered in that time */
void rpc_probe_second(struct peer *p, uint64_t deadline_us);     /* the last one, whatever is under way */

/* ---- out.c ---- */
/* Sends now or when there is a session; gone (may be NULL) comes exactly once, later. NULL: cannot be queued. */
struct out *out_send(struct peer *p, struct msg *m, uint16_t flags, uint64_t token, uint64_t expire_us,
	void (*gone)(void *arg, bool sent), void *arg);
void out_flush(struct peer *p);                 /* a session is there */

/* ---- door.c ---- */
void door_push(struct out *o);                  /* through this daemon's own door, when its pipe is free */
void door_fire(struct timer *t);                /* peer.door_timer */
uint16_t door_flags(const struct out *o);
bool door_is(struct peer *p, struct via via, const struct header *h);
void door_heard(struct peer *p, struct via via, const struct header *h);
void door_lost(struct out *o);

/* ---- peers.c ---- */
#define TICK_US (2 * SECOND)
static inline void net_tick_soon(struct net *n)
{
	if (n->tick.at_us > env_now(n->env) + TICK_US)
		env_after(n->env, &n->tick, TICK_US);
}
static inline struct peer *peer_find(struct net *n, const struct id *id)
{
	return map_get(n->peers, id->b, sizeof id->b);
}
/* C19: mailboxes for partners, the door for those who are asked once. */
static inline bool peer_partner(const struct peer *p)
{
	return p->frames_out > DOOR_FRAMES || p->care > 0 || p->mailbox || p->waiting_bulk;
}
/* It has mailboxes, but one of the two could not reach the other there: a door does, until a HELLO shows better. */
static inline bool peer_by_door(const struct peer *p)
{
	return !p->net->conf.client && p->at.port[CHAN_CTRL] && (p->client || p->as_client);
}
/* Waiting frames, bans, sessions: it has some that end by time. Of thousands of known peers few have: the others cost
 * nothing. */
static inline void peer_tend(struct peer *p)
{
	if (list_empty(&p->tend_link))
		list_push(&p->net->tended, &p->tend_link);
	net_tick_soon(p->net);
}
struct peer *peer_make(struct net *n, const struct id *id);     /* NULL: the book is full of peers in use */
void peer_free(struct peer *p);
void peer_set_address(struct peer *p, const struct endpoint *at, enum at_level level);
struct session *peer_session(struct peer *p);                   /* the one to send with, or NULL */
bool peer_busy(const struct peer *p);
void peer_drop_session(struct session *s);
void peer_drop_sessions(struct peer *p);
void peer_drop_keys(struct peer *p, uint32_t oldest);           /* sessions under swarm keys before that one */

/* ---- hello.c ---- */
void hello_start(struct peer *p);               /* once a time; nothing when one is on its way */
bool hello_prove(struct peer *p);               /* can its mailboxes be reached? true: that is being found out */
/* Which side a door stands in for the mailboxes of; the mailboxes are tried again a moment after that has begun. */
void hello_by_door(struct peer *p, bool client, bool as_client);
void hello_free(struct hello *h);
void hello_renew(struct hello *h);              /* another M1, which no answer of before fits; sent */
/* A HELLO to an address that somebody has named: whoever answers there is known by it. */
void hello_ask(struct net *n, const struct endpoint *at);
#define HELLO_AGAIN_US (1 * SECOND)             /* not more often per peer when it did not help */
void hello_send(struct hello *h);               /* M1, once more */
void hello_end(struct hello *h, const struct id *peer, const struct err *e);    /* and its dials; peer NULL: failed */
bool hello_other_key(struct hello *h);          /* M1 under the other one of the swarm's keys; false: there is none */
void hello_make_m1(struct hello *h);            /* anew, after another route or key was chosen; with the same secret */
uint64_t hello_wait(const struct hello *h);     /* until the next try */
void dials_end(struct list *dials, const struct id *peer, const struct err *e);

/* ---- packet.c ---- */
#define BULK_BYTES 8192                         /* blobs above go through the bulk mailbox */
static inline bool msg_bulk(const struct msg *m) { return m->blob.len > BULK_BYTES; }
struct msg *msg_new(enum kind k, enum net_class cls, json_t *json, struct blob blob);   /* steals json; too big: dead */
struct msg *msg_ref(struct msg *m);
void msg_unref(struct msg *m);
void msg_kill(struct msg *m);                   /* gives the blob back at once */
struct out *out_new(struct net *n, void (*back)(struct packet *p, bool sent), void (*gone)(void *arg, bool sent),
	void *arg);
bool out_back(struct out *o, bool sent);        /* from the transport; false: net is gone, and it with net */
void out_wait(struct out *o);                   /* for a session */
void out_wait_over(struct out *o);
/* asked: to an address that somebody has named who has proved nothing. */
void out_plain(struct net *n, const struct endpoint *to, enum chan c, uint64_t token, const void *p, size_t len,
	bool asked);
void out_forget(struct out *o);                 /* its owner no longer wants to hear; a waiting one is freed */
void out_drop_waiting(struct peer *p, uint64_t now);    /* those whose time is over; now = UINT64_MAX: all */
void out_finish(struct out *o, bool sent);      /* tells its owner; frees */
void out_detach(struct net *n);                 /* net is going: what the transport still holds will free itself */
bool door_enqueue(struct list *queue, struct out *o);           /* at our own door; false: it is dropped */
struct out *door_take(struct peer *p, struct list *queue);      /* NULL: nothing waits, or its time is over */
void door_give_up(struct peer *p);              /* what waits ends unsent */
bool door_expire(struct peer *p, uint64_t now); /* what has waited too long does; true: more waits */
void door_unqueue(struct out *o);               /* no longer waits there: not counted any more */
void door_done(struct peer *p);

/* ---- rtt.c ---- */
void rtt_sample(struct peer *p, bool bulk, uint64_t us);
void rtt_backoff(struct peer *p, bool bulk);    /* an answer came, but to a re-sent frame */
uint64_t rtt_rto(const struct peer *p, bool bulk);
void call_arm(struct call *c);                  /* its timer, for whatever is next */
void call_unsent(struct call *c);               /* again, a little later */
void call_gone(void *arg, bool sent);           /* its packet */

/* ---- keys.c ---- */
void keys_init(struct net *n);
const uint8_t *key_bytes(const struct net *n, uint32_t no);     /* the current one when no is not known (any more) */
uint32_t key_other(const struct net *n, uint32_t no);           /* the other good one; 0: there is only one */
uint32_t key_for(const struct net *n, const struct peer *p);    /* to say HELLO with; p may be NULL */

/* ---- address.c ---- */
const char *at_text(const struct endpoint *at, enum chan c, char out[64]);
bool endpoint_eq(const struct endpoint *a, const struct endpoint *b);
/* One of ours of the same kind; the first one in turn 0. */
const struct endpoint *others_self(const struct net *n, const struct endpoint *to, unsigned turn);
bool others_own(struct hello *h, bool patient); /* true: the next M1 is to name another one of ours */
bool others_is_self(const struct net *n, const struct endpoint *at);
/* Somebody says that a peer is there: may it be dialled on that word? */
bool others_may_be(const struct net *n, const struct endpoint *at);
void others_clean(const struct net *n, struct endpoint *at, struct others *o);   /* takes out what may not */
void others_list(const struct net *n, const struct endpoint *at, struct others *ret);
void others_hint(struct peer *p, const struct endpoint *at);            /* by somebody else, of one who never spoke */
void others_told(struct peer *p, const struct endpoint *at, const struct others *o);    /* by itself, in HELLO */
bool others_used(struct peer *p, const struct endpoint *at);
bool others_next(struct hello *h);              /* true: h and its peer have another address now */

/* ---- subscribe.c ---- */
void net_tell(struct net *n, enum log_level level, const char *code, const struct id *peer, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#endif
