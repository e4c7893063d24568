/* The simulator's own structures, shared by its files: sim.c (time, nodes), sim_net.c (sockets, pipes), sim_work.c
 * (lanes), sim_disk.c (files, shelf), sim_fault.c (what the scenario does to them). */
#ifndef TESTS_SIM_SIM_INT_H
#define TESTS_SIM_SIM_INT_H
#include <string.h>
#include "common/heap.h"
#include "common/list.h"
#include "common/map.h"
#include "common/mem.h"
#include "common/rng.h"
#include "net/rate.h"
#include "sim.h"

#define SIM_LANES 10
#define SIM_CHECKS_MAX 16
#define VERDICT 512
#define DIALLED DOOR_DIALLED                    /* a token that names a door this node dialled */

/* Something that waits for a node's loop. */
enum item_kind { ITEM_RECV, ITEM_FLUSH, ITEM_RETURN, ITEM_DONE, ITEM_RESOLVED };
struct item { struct list link; uint64_t at; enum item_kind kind; bool queued; };

/* A message on its way. */
struct wire { struct item item; struct list link; struct pipe *pipe; uint64_t at; size_t len; uint8_t bytes[]; };

/* A TCP connection in one direction; lives until it is empty and nobody's. */
struct pipe {
	struct list all, into;                  /* sim->pipes; node->pipes of the receiver */
	struct sim *sim;
	int from, to;
	uint32_t to_life;                       /* the receiver's life number */
	enum chan chan;
	uint64_t id;                            /* door: the token of the dialled side */
	struct slink *owner;                    /* the sender's socket; NULL: nobody sends any more */
	struct pipe *rev;                       /* door: the other direction; both know each other */
	bool backward;                          /* door: from the dialled side to the dialler */
	uint64_t dialler_serial;                /* door: the dialler's link */
	struct list flight;                     /* struct wire, in order */
	size_t bytes;                           /* taken and not yet read by the receiver */
	size_t held;                            /* read, but the acknowledgement cannot come back */
	uint32_t refs;                          /* messages in a receiver's inbox */
	uint64_t last_at, blocked_at;           /* last delivery planned; head blocked since */
	uint64_t last_sent, free_at;            /* door, backward: last message taken; when nano.c sends the next */
	int tries;
	bool dead;                              /* the receiver is gone; what is sent is lost */
	bool mute;                              /* ... and nothing says so, but TCP's own patience */
	struct timer pump, notice;
};

/* A sending socket of a node. */
enum slink_state { LINK_IDLE, LINK_CONNECTING, LINK_UP };
struct slink {
	struct list link;                       /* node->links */
	struct snode *node;
	struct item flush;
	struct endpoint to;
	enum chan chan;
	unsigned lane;
	uint64_t serial;
	enum slink_state state;
	uint32_t number;
	struct list queue; size_t queued;
	struct pipe *pipe;
	struct timer connect;
	int tries;
	uint64_t broke_at, waiting_since;       /* last break; first packet that waits for a connection */
	bool ever_up;
};

struct simjob {
	struct item item; struct list link; struct timer t; struct snode *node; struct job *job; bool begun, ran;
};
struct lane { const char *name; int threads, busy; unsigned slower; struct list waiting; };
struct answer { struct item item; struct list link; struct timer t; struct snode *node; struct resolving *r; };

struct inode { char *live, *safe; size_t len, safe_len; int refs; };
struct entry { struct list link; char *path; struct inode *live, *safe; bool dir; };
struct fd { struct inode *inode; int flags; };
struct disk { struct list entries; struct fd *fds; int nfds; int fail_in, kill_in; enum err_code fail_code;
	int64_t free; };
struct cupboard { struct map *tables; int fail_in; enum err_code fail_code; };

struct snode {
	struct env env;                         /* first: an env is its node */
	struct sim *sim;
	int index;
	uint32_t life;                          /* grows with each start */
	struct sim_app app; void *self;
	struct endpoint at;
	bool alive, paused, dying, detached, running, quiet;
	bool struck;                            /* a fault has hit it in this life */
	uint64_t stalled_until;                 /* what came before is taken in any order of connections */
	uint64_t busy_until, burn;
	struct heap timers;
	struct timer wake, doom;
	struct rate up, down;                   /* sim_rates */
	int line;                               /* of sim->lines, from 1; 0: none */
	struct list inbox, links, pipes, returned, jobs, answers;
	struct item returns;
	struct map *link_map, *serial_map;
	struct rng rng, secret;
	int64_t wall_ms;
	struct lane lanes[SIM_LANES];
	struct files files; struct shelf shelf;
	struct disk disk; struct cupboard cupboard;
};

struct pair { struct sim_link l; uint64_t free_at; };
struct line { uint64_t latency_us, bytes_per_s, free_at[2] /* from the nodes that share it, to them */; };
struct rule { struct list link; int from, to; struct sim_link l; };
struct failpoint { struct list link; int node; char name[96]; enum sim_fate fate; int left; bool hit; sim_who_fn *who;
	void *arg; };
struct script { struct timer t; struct sim *sim; struct list link; void (*fn)(struct sim *s, void *arg); void *arg; };
struct check { int (*fn)(struct sim *s, void *arg, struct err *e); void *arg; };
struct last { struct list link; void (*fn)(void *arg); void *arg; };

struct sim {
	uint64_t seed, now, seq;
	struct heap heap;
	struct rng rng, world;                  /* the scenario's; the network's */
	struct snode *node[SIM_NODES_MAX]; int nodes;
	struct pair **pair;                     /* SIM_NODES_MAX squared, filled by need */
	uint8_t *cut;                           /* the same */
	struct line lines[SIM_LINES_MAX]; int nlines;
	struct list rules, pipes, scripts, failpoints, lasts;
	struct map *ports, *doors;              /* (ip, port) -> node; token -> pipe */
	uint64_t next_id; uint32_t next_number;
	struct check checks[SIM_CHECKS_MAX]; int nchecks;
	struct snode *on;                       /* whose code is running: loop, lane or start */
	int touched; bool outside;              /* sim_touched; the scenario has had its say since the last event */
	struct snode *starved; int starve_in;   /* sim_memory_fail */
	bool ending;                            /* sim_free has begun: nobody is told of deaths */
	struct sim_costs costs;
	struct sim_stats stats;
	uint64_t hash, same_time;
	char failed[VERDICT], late[VERDICT];           /* the two verdicts; empty: neither */
	void (*tap)(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len); void *tap_arg;
};

/* sim.c */
void sim_item(struct snode *n, struct item *i, enum item_kind kind);    /* now, unless it waits already */
void sim_unitem(struct item *i);
void sim_wake(struct snode *n);
void sim_mark(struct sim *s, const char *what, uint64_t a, uint64_t b); /* into the hash */
int sim_start(struct snode *n);
void sim_doom(struct snode *n);         /* SIGKILL in the middle of its own code */
void sim_stop(struct snode *n, bool quiet);
void sim_touch(struct snode *n);        /* its code runs in this event */
static inline struct snode *snode_of(struct env *e) { return (struct snode *)e; }
static inline bool sim_is_cut(const struct sim *s, int from, int to) { return s->cut[from * SIM_NODES_MAX + to]; }

/* sim_net.c */
void simnet_send(struct env *e, const struct endpoint *to, enum chan chan, uint64_t token, struct packet *p);
void simnet_close_link(struct env *e, const struct endpoint *to, bool waiting);
bool simnet_linkinfo(struct env *e, const struct endpoint *to, struct linkinfo *ret);
void simnet_flush(struct slink *l);
void simnet_door_spoke(struct pipe *fwd);         /* a message came through it: an answer may leave at once */
void simnet_handled(struct wire *w);            /* the receiver has read it: frees it and the space it took */
void simnet_drop_links(struct snode *n);        /* frees all sockets of the node; packets were given back before */
void simnet_died(struct snode *n, bool quiet);  /* its connections at the others' end */
void simnet_break(struct sim *s, struct pipe *p);
void simnet_release(struct sim *s);             /* after a heal: acknowledgements come back */
void simnet_return(struct snode *n, struct packet *p);  /* gone(false), later */
void simnet_give_back(struct snode *n);         /* all waiting packets, now */
void simnet_free(struct sim *s);
/* sim_pipe.c */
struct pipe *simpipe_new(struct sim *s, int from, int to, enum chan chan);
struct wire *simpipe_room(size_t len);
void simpipe_put(struct pipe *p, struct wire *w);       /* takes w */
void simpipe_lose(struct pipe *p, size_t keep_bytes);   /* all that is not in the first keep_bytes */
void simpipe_maybe_free(struct pipe *p);
void simpipe_free(struct pipe *p);
struct pair *simpipe_pair(struct sim *s, int from, int to);
uint64_t simpipe_delay(struct sim *s, int from, int to);        /* one latency with jitter */
size_t simpipe_cap(const struct pipe *p);

/* sim_rate.c */
bool simrate_up(struct snode *n, enum chan chan, size_t bytes);         /* false: later; the links are flushed then */
uint64_t simrate_down(struct pipe *p, size_t bytes);    /* 0: the receiver reads it now; else when to ask again */

/* sim_work.c */
void simwork_init(struct snode *n);
void simwork_put(struct env *e, struct job *j);
int simwork_lane(struct env *e, const char *name);
void simwork_done(struct simjob *j);            /* from the inbox */
void simwork_resolve(struct env *e, struct resolving *r);
void simwork_resolved(struct answer *a);
void simwork_drain(struct snode *n);

/* sim_fault.c */
void sim_lasts(struct sim *s);                  /* calls what sim_at_end was given, once */

/* sim_disk.c */
void simdisk_init(struct snode *n);
void simdisk_crash(struct snode *n);            /* what was not synced may be lost; descriptors close */
void simdisk_free(struct snode *n);
/* sim_shelf.c */
void simshelf_init(struct snode *n);
void simshelf_free(struct snode *n);

#endif
