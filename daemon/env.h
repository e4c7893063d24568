/* THE SEAM. Everything that a peer can do to the outside world goes through struct env; nothing right of
 * `run` opens a socket, reads a clock, draws a random number, touches a disk or starts a thread by itself.
 * Two implementations: the real one (loop.c, loop/work.c, net/nano.c) and the simulated one (tests/sim).
 *
 * Rules: one loop thread owns all state. A callback never re-enters its caller synchronously: send, resolve
 * and work complete from the loop, later, even when they fail at once. Nothing sleeps. */
#ifndef DAEMON_ENV_H
#define DAEMON_ENV_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "common/err.h"
#include "common/heap.h"
#include "common/list.h"
#include "common/log.h"

/* Where a peer's three sockets are. IPv4 is mapped (::ffff:a.b.c.d). Ports 0: none. */
struct endpoint { uint8_t ip[16]; uint16_t port[3]; };
static inline bool ip_is_v4(const uint8_t ip[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(ip, mapped, sizeof mapped);
}
static inline bool ip_is_loopback(const uint8_t ip[16])
{
	static const uint8_t one[16] = { [15] = 1 };

	return ip_is_v4(ip) ? ip[12] == 127 : !memcmp(ip, one, sizeof one);
}
/* Whom an address stands for when addresses are counted: who has one of IPv6 has the /64 around it. */
static inline void ip_group(const uint8_t ip[16], uint8_t ret[16])
{
	memcpy(ret, ip, 16);
	if (!ip_is_v4(ip))
		memset(ret + 8, 0, 8);
}
enum chan { CHAN_CTRL, CHAN_BULK, CHAN_DOOR, CHANS };
/* Longer is refused, much longer breaks the connection. */
#define WIRE_MAX (322 * 1024)                   /* control */
#define WIRE_LARGE (578 * 1024)                 /* where bulk goes */
static inline size_t wire_max(enum chan c) { return c == CHAN_CTRL ? WIRE_MAX : WIRE_LARGE; }

/* A token that dials: the k-th connection besides the first to the door of `to`, k = 1 .. 255. */
#define DOOR_LANE(k) ((uint64_t)1 << 62 | (k))
static inline unsigned door_lane(uint64_t token) { return token >> 8 == (uint64_t)1 << 54 ? token & 255 : 0; }

/* A token of a connection that this side has dialled; others are of its own door. */
#define DOOR_DIALLED ((uint64_t)1 << 63)

/* A received wire message knows its way back only through the door; elsewhere token is 0. A token stays good while
 * that connection lives (then a message sent to it is lost); it works both for who dialled and for who was dialled. */
struct via { enum chan chan; uint64_t door_token; };

/* An outgoing message. It waits in a bounded queue until the socket takes it; only then is it sealed, because the
 * sealing counter belongs to the connection. `seal` writes wire_len bytes to out and returns 0, or -1 to drop
 * it (session gone: the owner is told through `gone`). `gone` is called exactly once, on the loop: sent says whether
 * a socket took it (accepted is not delivered). The packet then belongs to its owner again. */
struct packet {
	struct list link;                       /* the transport's queue */
	size_t wire_len;
	int (*seal)(struct packet *p, uint32_t connection, uint8_t *out);
	void (*gone)(struct packet *p, bool sent);
	struct endpoint to;                     /* set by send */
	enum chan chan;
	bool asked;                             /* on the word of who has proved nothing: few such are dialled at a time */
	uint64_t door_token;                    /* CHAN_DOOR: 0 or DOOR_LANE = dial the door of `to`; else answer there */
};

/* Work off the loop. The job and all it points to belong to the lane from work() until done(). Cancelling is
 * dropping the result by a generation number in the owner. */
struct job {
	struct list link;
	const char *name;
	int lane;                               /* from env_lane() */
	uint64_t cost_us;                       /* modelled time; used by the simulator only */
	bool here;                              /* it takes microseconds: may run at once, on the loop */
	void (*run)(struct job *j);             /* in the lane, or here; sees only the job */
	void (*done)(struct job *j);            /* on the loop; may free the job */
};

struct resolving { struct list link; char name[256]; struct endpoint at; int rc; struct err error;
	void (*done)(struct resolving *r);      /* on the loop; port[] of `at` are kept as the caller set them */
};

/* Persistence for rooms that never see SQLite. Keys and values are bytes, at most 64 KiB. */
struct shelf {
	int (*put)(struct shelf *s, const char *table, const void *key, size_t klen, const void *val, size_t vlen,
		struct err *e);
	/* ERR_NOT_FOUND */
	int (*get)(struct shelf *s, const char *table, const void *key, size_t klen, void *out, size_t cap,
		size_t *ret_len, struct err *e);
	int (*each)(struct shelf *s, const char *table, int (*row)(void *arg, const void *key, size_t klen,
		const void *val, size_t vlen), void *arg, struct err *e);
	int (*del)(struct shelf *s, const char *table, const void *key, size_t klen, struct err *e);
};

/* Files: blocking, so called from jobs of the disk and data lanes (and at start). fd is the implementation's own. */
struct files {
	int (*open)(struct files *f, const char *path, int flags, int mode, struct err *e);    /* O_* flags; fd >= 0 */
	/* short only at the end */
	int64_t (*pread)(struct files *f, int fd, void *buf, size_t n, uint64_t at, struct err *e);
	int (*pwrite)(struct files *f, int fd, const void *buf, size_t n, uint64_t at, struct err *e);
	int (*fsync)(struct files *f, int fd, struct err *e);
	int (*close)(struct files *f, int fd, struct err *e);
	int (*rename)(struct files *f, const char *from, const char *to, struct err *e);       /* and syncs the directory */
	int (*unlink)(struct files *f, const char *path, struct err *e);
	/* -1: ERR_NOT_FOUND or ERR_IO */
	int64_t (*size)(struct files *f, const char *path, struct err *e);
	int64_t (*free_bytes)(struct files *f, const char *path, struct err *e);
	/* existing is fine; of a new one the directory is synced */
	int (*mkdir)(struct files *f, const char *path, int mode, struct err *e);
	int (*list)(struct files *f, const char *dir, int (*row)(void *arg, const char *name), void *arg, struct err *e);
	int (*rmdir)(struct files *f, const char *path, struct err *e);        /* an empty one */
	/* The rest may be NULL. The file's first n bytes, to be read only, until unmap; NULL and e. */
	const void *(*map)(struct files *f, int fd, size_t n, struct err *e);
	void (*unmap)(struct files *f, const void *p, size_t n);
	int64_t (*changed_ns)(struct files *f, const char *path, struct err *e);        /* time of the last change */
	uint64_t (*ticks_ns)(struct files *f);          /* to measure what takes how long, from any thread; not the time */
};

/* failed: attempts to connect that ended at once, for whatever reason: no program listens, or no way leads there.
 * waits_us: so long something has waited for a connection that does not come about. */
struct linkinfo {
	bool connected, maybe_dead; uint64_t rtt_us /* 0 = unknown */, queued_bytes, failed, waits_us;
};

struct env;
struct env_ops {
	uint64_t (*now)(struct env *);                          /* us, CLOCK_BOOTTIME, cached per event */
	uint64_t (*wall)(struct env *);                         /* ms since 1970; may jump */
	void (*timer)(struct env *, struct timer *, uint64_t at_us);    /* 0 disarms */
	void (*send)(struct env *, const struct endpoint *to, enum chan, uint64_t door_token, struct packet *);
	/* Fresh sockets on next send; waiting: only in place of those that have no connection. */
	void (*close_link)(struct env *, const struct endpoint *to, bool waiting);
	bool (*linkinfo)(struct env *, const struct endpoint *to, struct linkinfo *ret);   /* false: no socket to it */
	void (*work)(struct env *, struct job *);
	/* train reduce disk data copy-in copy-out serve; -1 unknown */
	int (*lane)(struct env *, const char *name);
	uint64_t (*rand)(struct env *);                         /* jitter; seeded in the simulator */
	void (*secure)(struct env *, void *out, size_t n);      /* keys and nonces; seeded in the simulator */
	void (*resolve)(struct env *, struct resolving *);
	int (*fail)(struct env *, const char *point);           /* fail points; 0 = go on, -1 = fail here */
	/* The first thing that freeing a node does: waits for running jobs, calls every pending done, gone (false) and
	 * resolving->done now, receives nothing more. Afterwards send, work and resolve complete before they return. */
	void (*detach)(struct env *);
	/* Hints to the transport; may be NULL, so use env_heard and env_ban. heard: a HELLO was completed with who
	 * is at this address; or, with a token, a peer has spoken by this connection of our door, whatever address the
	 * transport sees there. ban: closes what it sends, until (absolute us; 0 lifts it). */
	void (*heard)(struct env *, const uint8_t ip[16], uint64_t door_token);
	void (*ban)(struct env *, const uint8_t ip[16], uint64_t until_us);
};
struct env {
	const struct env_ops *ops;
	struct files *files;
	struct shelf *shelf;
	struct log *log;
	/* Inward: what the transport received. msg belongs to the transport, and may be written over. Set by node. */
	void (*recv)(void *arg, struct via via, uint8_t *msg, size_t len);
	void *recv_arg;
};

static inline uint64_t env_now(struct env *e) { return e->ops->now(e); }
static inline uint64_t env_wall(struct env *e) { return e->ops->wall(e); }
static inline void env_timer(struct env *e, struct timer *t, uint64_t at_us) { e->ops->timer(e, t, at_us); }
static inline void env_after(struct env *e, struct timer *t, uint64_t us)
{
	e->ops->timer(e, t, e->ops->now(e) + (us ? us : 1));
}
static inline void env_work(struct env *e, struct job *j) { e->ops->work(e, j); }
static inline int env_lane(struct env *e, const char *name) { return e->ops->lane(e, name); }
static inline void env_heard(struct env *e, const uint8_t ip[16], uint64_t door_token)
{
	if (e->ops->heard)
		e->ops->heard(e, ip, door_token);
}
static inline void env_ban(struct env *e, const uint8_t ip[16], uint64_t until_us)
{
	if (e->ops->ban)
		e->ops->ban(e, ip, until_us);
}
static inline uint64_t env_rand(struct env *e) { return e->ops->rand(e); }

/* Fail points: one before and one after every protocol message and durable write; compiled in with -Dfailpoints=true.
 * FAILPOINT(env, "avg.commit.before") is 0 or -1; names are listed in daemon/failpoints.h, one per line. */
#ifdef FAILPOINTS
/* In parentheses, because cmocka has a macro fail(). */
static inline int env_failpoint(struct env *e, const char *name) { return e->ops->fail ? (e->ops->fail)(e, name) : 0; }
#define FAILPOINT(env, name) env_failpoint((env), (name))
#else
static inline int env_no_failpoint(void) { return 0; }
#define FAILPOINT(env, name) env_no_failpoint()
#endif

#endif
