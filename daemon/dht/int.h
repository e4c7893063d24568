/* Inside the DHT's room: the whole of it, and the steps its files lend each other. */
#ifndef DHT_INT_H
#define DHT_INT_H
#include "dht/dht.h"
#include "dht/table.h"
#include "dht/values.h"

#define NODE_BYTES 54                           /* id 32, IPv6 16, three ports */
#define CALL_FLOOR_US 1500000
#define SHORTLIST 64
#define CACHE_MAX 1024
#define CACHE_US 30000000
#define VERIFY_INLINE 8                         /* more signatures than this go to the reduce lane (C29) */
#define VERIFIED_SLOTS 2048

struct boot { struct endpoint at; uint64_t backoff_us, next_us; bool dialing, joined, self, cared;
	struct id id;
	char error[160]; };
struct dialing { struct list link; struct dht *d; /* NULL: the room is gone */ size_t boot; };
struct handover { struct list link; struct id to; size_t cursor; bool busy; struct call *call; };

struct dht {
	struct env *env;
	struct net *net;
	struct dht_conf conf;
	struct table table;
	struct values values;
	struct map *cache;                      /* key id -> struct cached */
	struct list lookups, puts, keeps, handovers, batches, refusals, finds, dials;
	struct map *gets;                       /* key id + latest -> open get */
	struct boot boots[DHT_ADDRESSES]; size_t nboots;
	dht_address_fn *on_address; void *on_address_arg;
	struct timer tick;
	uint64_t verified[VERIFIED_SLOTS], hash_key;
	uint64_t republish_at_us, sweep_at_us, save_at_us;
	size_t republish_cursor; bool republishing;
	bool closing;
};

/* ---- nodes.c: what we know of others ---- */
void dht_heard(struct dht *d, const struct id *id, bool client);        /* a peer answered or asked */
void dht_lost(struct dht *d, const struct id *id);                      /* it did not answer */
void node_write(struct buf *b, const struct id *id, const struct endpoint *at);
bool node_read(struct rd *r, struct id *ret_id, struct endpoint *ret_at);
void boots_tick(struct dht *d, uint64_t now);
void boots_add(struct dht *d, const struct endpoint *at, size_t n);
void nodes_load(struct dht *d);
void nodes_save(struct dht *d);
void nodes_save_soon(struct dht *d);
void dials_orphan(struct dht *d);
void puts_free(struct dht *d);                  /* puts, keeps, gets, refusals, cache */
void keeps_tick(struct dht *d, uint64_t now);

/* ---- verify.c ---- */
/* Checks the signatures of recs; done gets the list without the bad ones, now or after a job. Takes the list. */
struct batch;
typedef void batch_fn(void *arg, struct list *good, size_t bad);
void dht_verify(struct dht *d, struct list *recs, batch_fn *done, void *arg);
void batches_orphan(struct dht *d);             /* the room closes: results of running jobs are dropped */
bool rec_must_sign(const struct rec *r);        /* its subkey is a peer's id */
/* the signer of a protected record is the peer that its subkey names */
bool rec_owner_ok(const struct rec *r);
void rec_sign(struct dht *d, struct rec *r);

/* ---- lookup.c: the iterative search ---- */
enum look { LOOK_NODES, LOOK_VALUE, LOOK_LATEST };
/* recs: verified; may be kept by moving out */
typedef void look_fn(void *arg, const struct dnode *near, size_t n, struct list *recs);
struct lookup *lookup_start(struct dht *d, const struct id *target, enum look what, look_fn *done, void *arg);
void lookups_free(struct dht *d);

/* ---- serve.c: what we answer ---- */
void serve_init(struct dht *d);
int store_local(struct dht *d, struct rec *r, struct err *e);  /* takes r; 0 refused, 1 new, 2 same */
/* Writes a STORE's blob record by record; false when the frame is full. Send it with KIND_DHT_STORE. */
bool store_add(struct buf *b, const struct rec *r, uint64_t now_us);
struct call *store_send(struct dht *d, const struct id *to, struct buf *b /* taken */, net_done_fn *done, void *arg);
/* The answer to a STORE: how many records were taken. */
uint32_t store_accepted(const struct frame *f);

/* ---- keep.c: republishing, handing over, remembering ---- */
void keep_tick(struct dht *d, uint64_t now);
void keep_free(struct dht *d);
void handover_start(struct dht *d, const struct id *to);
void records_load(struct dht *d);
void record_save(struct dht *d, const struct rec *r);
void records_forget_ended(struct dht *d);

#endif
