/* The network as the rooms above see it: authenticated peers, calls that end exactly once, one-way posts.
 *
 * A peer's id is its Ed25519 public key. Sessions (HELLO, sealing) are made by need and
 * hidden: net_call() to an id whose address is known dials, handshakes, seals, re-sends over fresh sockets, and
 * calls back exactly once: with the answer, with the other side's refusal, or with TIMEOUT / UNREACHABLE / AUTH /
 * VERSION / CANCELLED. Nothing calls back before the function that started it has returned. */
#ifndef NET_NET_H
#define NET_NET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "common/err.h"
#include "common/id.h"
#include "env.h"

enum kind {
#define KIND(name, number, who) KIND_##name = number,
#include "net/kinds.h"
#undef KIND
};
const char *kind_name(enum kind k);             /* "avg_begin"; "?" when unknown */

#define NET_BLOB_MAX (256 * 1024)               /* bytes of blob in a frame */
#define NET_CHUNK_MAX (512 * 1024)              /* in a CHUNK */
#define NET_JSON_MAX (64 * 1024)                /* bytes of JSON in a frame; control frames 8 KiB */

/* Bytes lent to net. release (may be NULL) is called exactly once, on the loop, when net needs them no more. */
struct blob { const void *data; size_t len; void (*release)(void *arg); void *arg; };
#define NO_BLOB ((struct blob){0})
struct buf;
struct blob blob_copy(const void *p, size_t n);
struct blob blob_steal(struct buf *b);          /* leaves b empty */

/* Byte counters (instrument T4) of each peer, both directions, by class and by the connection's mailbox: whole frames
 * that a connection has taken, and that came and were opened, repeated ones, too. HELLOs are nobody's yet
 * (net_counters.plain_*). */
#define NET_CLASSES(X) X(control) X(activation) X(weight) X(activation_grad) X(weight_grad) X(optimizer) X(batch)
enum net_class {
#define X(n) CLASS_##n,
	NET_CLASSES(X)
#undef X
	CLASS_COUNT_
};
struct net_bytes { uint64_t out[CLASS_COUNT_], in[CLASS_COUNT_], link_out[CHANS], link_in[CHANS]; };

#define NET_ALSO 7                              /* addresses of one peer besides the one in use */

enum moves {
	MOVES_UNHASHED = 1,                     /* without a hash of their own: what comes has been sealed */
	MOVES_LARGE = 2,                        /* in chunks of NET_CHUNK_MAX, where the path is short */
	MOVES_ALL = 3
};
struct net_conf {
	uint8_t seed[32];                       /* Ed25519 private seed: identity */
	uint8_t swarm_key[32]; bool has_swarm_key;
	/* The key before, when the swarm's key is being replaced: good for so much longer (net_rotate). */
	uint8_t old_key[32]; uint64_t old_key_us;
	struct endpoint self;                   /* what others dial; port 0 = not reachable (client) */
	struct endpoint also[NET_ALSO]; unsigned nalso;         /* and what they try when that does not answer */
	uint64_t boot_id;                       /* from env.secure at start */
	bool client;                            /* only dials out */
	unsigned moves;                         /* how transfers may come, besides as they always may: enum moves */
	uint32_t peers_max, calls_max;          /* 0 = 4096, 65536 */
	/* All of the following may stay 0: what this program speaks, what the CPU does at full speed. */
	char software[24];                      /* shown to the other side, e.g. "hivemindd 0.1.0" */
	uint16_t version_min, version_max; unsigned suites;
	uint64_t rekey_frames, rekey_bytes;     /* a new HELLO after so many in one direction */
	uint32_t peer_frames;                   /* of one peer per second, unasked for; UINT32_MAX: no limit */
};

struct net;
struct net *net_new(struct env *env, const struct net_conf *conf, struct err *e);   /* sets env->recv */
void net_free(struct net *n);                   /* every open call ends with CANCELLED, handlers are not called */
const struct id *net_self(const struct net *n);
const struct endpoint *net_endpoint(const struct net *n);
const char *net_endpoint_text(const struct endpoint *at, enum chan chan, char out[64]);    /* "10.0.0.1:4237"; out */

/* ---- peers ---- */
/* Learns (or corrects) where a peer is; hints from third parties never replace an address proven by a session. In a
 * full book few of those make room for it that have spoken lately: some a second. */
void net_learn(struct net *n, const struct id *peer, const struct endpoint *at);
/* The same by the word of anybody: in a full book only those make room of whom we know no more than such a word. */
void net_heard_of(struct net *n, const struct id *peer, const struct endpoint *at);
/* Another address of a peer of which nothing but hints is known: tried when the one that was learnt does not answer. */
void net_learn_also(struct net *n, const struct id *peer, const struct endpoint *at);
/* Where else the peer (or this daemon itself) says that it can be dialled; returns how many. */
unsigned net_also(const struct net *n, const struct id *peer, struct endpoint ret[NET_ALSO]);
bool net_address(const struct net *n, const struct id *peer, struct endpoint *ret);
/* Says HELLO to an address whose id is not known yet. done gets the id, or NULL and why. */
typedef void net_dial_fn(void *arg, const struct id *peer, const struct err *e);
void net_dial(struct net *n, const struct endpoint *at, uint64_t timeout_us, net_dial_fn *done, void *arg);
/* Is that address being dialled, and has it refused? Why, so far: it is tried until the time is over, as a daemon may
 * begin to listen there. */
bool net_dial_refused(const struct net *n, const struct endpoint *at, struct err *ret);
struct peer_info {
	struct id id; struct endpoint at; char version[24];
	bool session, client, maybe_dead; uint64_t rtt_us, last_seen_us, banned_until_us; uint32_t failures;
	uint64_t bandwidth_bps;                 /* measured outgoing, bytes/s; 0 unknown */
	bool proven;                            /* both sides have dialled the other's mailboxes since its boot */
	bool old_key;                           /* its session was made under the swarm key before */
	char ban_why[96];
	struct endpoint also[NET_ALSO]; unsigned nalso;         /* where else it says that it can be dialled */
	struct net_bytes bytes;
};
bool net_peer(struct net *n, const struct id *peer, struct peer_info *ret);
unsigned net_moves(struct net *n, const struct id *peer);       /* what both sides' conf and the path allow, as known */
unsigned net_own_moves(const struct net *n);
/* insertion order; returns how many there are */
size_t net_peers(struct net *n, struct peer_info *out, size_t max);
/* us: from now; UINT64_MAX: for ever; 0 lifts the ban. Kept on the shelf, so that a restart forgets no ban. At most
 * NET_BANS_MAX; -1: there are as many (ERR_FULL), or it is this daemon itself. */
#define NET_BANS_MAX 1024
int net_ban(struct net *n, const struct id *peer, uint64_t us, const char *why, struct err *e);
/* Only these may have a session with this daemon; count 0: everybody who has the swarm key. Others are cut off. */
void net_allow(struct net *n, const struct id *ids, size_t count);
/* It has sent garbage that only a room above could tell for such: too often, and it is banned for a while. */
void net_strike(struct net *n, const struct id *peer, const char *what);
void net_set_peer_frames(struct net *n, uint32_t per_s);        /* as in net_conf */
/* Told when a peer looks dead (linkinfo, then one unanswered ping of 3 round trips), says goodbye, or comes back.
 * Many watchers. */
enum net_news { NEWS_DEAD, NEWS_GOODBYE, NEWS_ALIVE, NEWS_RESTARTED /* new boot id */ };
typedef void net_news_fn(void *arg, const struct id *peer, enum net_news what);
void net_watch(struct net *n, net_news_fn *fn, void *arg);
void net_unwatch(struct net *n, net_news_fn *fn, void *arg);
/* While care > 0 the peer's sockets are polled every 5 ms so that its death shows in milliseconds. Counted. */
void net_care(struct net *n, const struct id *peer, int delta);
/* Somebody looks now: is it still there? Asked once, when nothing has come from it for five seconds. */
void net_look(struct net *n, const struct id *peer);
/* Somebody has measured bytes to the peer in that time (chunk.h does): feeds bandwidth_bps. */
void net_measured(struct net *n, const struct id *peer, uint64_t bytes, uint64_t us);
/* Smoothed round trip x 3, at least floor_us: the deadline rule of B18 for small calls. */
uint64_t net_deadline(struct net *n, const struct id *peer, uint64_t floor_us);

/* ---- another process with this daemon's key (twin.c) ----
 * Told once, when it is proved that one lives now: both are to stop what must be done once. */
typedef void net_twin_fn(void *arg);
void net_on_twin(struct net *n, net_twin_fn *fn, void *arg);
bool net_twin(const struct net *n);

/* ---- the swarm's key (keys.c) ----
 * While a key is replaced both are good: HELLO is said with the new one, to those who do not have it yet with the old
 * one, and sessions move to the new key as soon as both sides have it. When window_us is over, or with 0 at once,
 * sessions of the old key end. Rotating back to the old key is a rotation like any other. */
void net_rotate(struct net *n, const uint8_t key[32], uint64_t window_us);
#define KEY_PRINT 17                            /* 16 digits and NUL: names a key, tells nothing about it */
void key_print(const uint8_t key[32], char out[KEY_PRINT]);
/* Secrets: the key in force, and the one before. False: there is none before (ret_old is the current one). */
bool net_swarm_key(const struct net *n, uint8_t ret_key[32], uint8_t ret_old[32]);
struct net_keys { char now[KEY_PRINT], old[KEY_PRINT]; uint64_t old_left_us; size_t old_peers; };
void net_keys(const struct net *n, struct net_keys *ret);       /* old is "" when one key is good */

/* ---- calls and posts ---- */
struct frame {                                  /* what handlers and callers get; valid during the callback only */
	enum kind kind; struct id from; const json_t *json; const uint8_t *blob; size_t blob_len; enum net_class cls;
};
struct call;
/* exactly one of the two is NULL */
typedef void net_done_fn(void *arg, const struct frame *answer, const struct err *e);
/* Steals json (may be NULL = {}). timeout_us from now. The handle is valid until done is called. */
struct call *net_call(struct net *n, const struct id *to, enum kind k, json_t *json, struct blob blob,
	enum net_class cls, uint64_t timeout_us, net_done_fn *done, void *arg);
void net_cancel(struct net *n, struct call *c); /* done is NOT called; the answer is dropped */
/* One-way: may be lost. 0, or -1 when it cannot even be queued (no address, queue full); the blob is then given back
 * already. */
int net_post(struct net *n, const struct id *to, enum kind k, json_t *json, struct blob blob, enum net_class cls);

/* One handler per kind. A handler must answer a call with exactly one net_reply or net_refuse, now or later
 * (valid until then, even when the caller is gone); for posts req->wants_reply is false and nothing is due. */
struct request { struct net *net; struct frame f; bool wants_reply; };
typedef void net_handler_fn(void *arg, struct request *req);
void net_on(struct net *n, enum kind k, net_handler_fn *fn, void *arg);
/* What net_on was given for k, when its handler is fn; else NULL. For handlers that several owners share. */
void *net_on_arg(const struct net *n, enum kind k, net_handler_fn *fn);
/* to answer later: a copy without json and blob (f.json = NULL, f.blob = NULL, f.blob_len = 0) */
struct request *net_keep(struct request *req);
void net_reply(struct request *req, json_t *json, struct blob blob);    /* steals json; frees a kept request */
void net_refuse(struct request *req, const struct err *e);

/* ---- identity ---- */
#define SIG_BYTES 64
void net_sign(const struct net *n, const void *p, size_t len, uint8_t ret_sig[SIG_BYTES]);
bool net_verify(const struct id *who, const void *p, size_t len, const uint8_t sig[SIG_BYTES]);

/* ---- events for the operator: (level, code such as "wrong_swarm_key", peer or NULL, text with the remedy) ---- */
typedef void net_event_fn(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text);
void net_events(struct net *n, net_event_fn *fn, void *arg);
struct net_counters { uint64_t frames_in, frames_out, bad_magic, bad_frame, oversized, bad_version, bad_seal, replayed,
	bad_json, unknown_session, hello_limited, wrong_swarm_key, over_quota, door_dropped,
	not_allowed, bans, calls_open, sessions, plain_out, plain_in /* bytes */; };
void net_counters(const struct net *n, struct net_counters *ret);
json_t *net_status(struct net *n);              /* for `status` and `peers`: new reference */

#endif
