/* Inside the DHT's room: the whole of it, and the steps its files lend each other. */
#ifndef DHT_INT_H
#define DHT_INT_H
#include "dht/dht.h"
#include "dht/table.h"
#include "dht/values.h"

#define NODE_BYTES 54                           /* id 32, IPv6 16, three ports */
#define CALL_FLOOR_US 1500000
#define SHORTLIST 64
/* How many searches, and frames of bundles, a peer has under way at one time; the others wait here, where waiting
 * costs nothing. What matters is the sum over a machine: a question must be answered in CALL_FLOOR_US, and takes 60
 * to 130 us of processor time at both ends together (a first contact 900, a frame of 64 keys 6 000). With N daemons
 * on C cores the last of those asked at once is answered after N * alpha * SEARCHES_MAX * 130 us / C: 64 daemons on
 * 2 cores wait 100 ms, or 0.7 s when all are first contacts. Measured there, 6 400 keys asked of all at once: with
 * 4 searches and 4 frames 3 900 keys/s one by one and 16 400/s in bulk, with 8 and 16 the same within the noise,
 * with 32 and 64 2 300 and 11 300, and a quarter of the first keys is not found because questions time out. More
 * than 4 are for long links, where a search is mostly waiting: 8 keep 80 searches/s going at 100 ms, 16 frames 10
 * 000 keys/s. */
#define SEARCHES_MAX 8
#define PACKS_MAX 16
#define CACHE_MAX 1024
#define CACHE_WEIGHT (64u << 20)                /* of all that is in it, once it is read; */
#define CACHE_WEIGHT_ONE (8u << 20)             /* what is larger is searched each time */
#define COPIES_MAX 256                          /* that others have brought, among those: plain values */
#define COPIES_OF_ONE 32
#define CACHE_US 30000000
#define CACHE_REFRESH_US 5000000                /* what was asked for is fetched again so long before it goes */
#define CACHE_REFRESH_MAX 16                    /* at one time */
#define NEGATIVE_US 1000000                     /* so long a key that nobody had is not searched again */
#define SHUN_US 5000000                         /* the first time; doubled up to */
#define SHUN_MAX_US 60000000
#define VERIFIED_SLOTS 2048
#define INLINED_SLOTS 256                       /* peers of whom something was checked on the loop of late, by four */
#define INLINED_ROW 4
struct inlined { uint64_t who, since_us; uint32_t n; };

struct boot { struct endpoint at; uint64_t backoff_us, next_us, look_us /* at who answered there */,
	removals /* of the table, when it was in there last */; bool dialing, joined, self, cared;
	struct id id;
	char error[160]; };
#define DIAL_STALE SIZE_MAX                     /* the address has moved meanwhile */
struct dialing { struct list link; struct dht *d; /* NULL: the room is gone */ size_t boot; };
struct asking { struct list link; struct dht *d; struct id id; struct call *call; };
struct handover { struct list link; struct id to; size_t cursor, given /* records of the key there */; bool busy;
	struct call *call; };

#define GET_BYTES_MAX (NET_BLOB_MAX - 16384)    /* of an answer: room for one more record and the nodes */
/* Of one node's dictionary. A page that is not the last has STORE_RECS_MAX records, or so many bytes of them that none
 * of the largest would go in: 8 and 146 pages are the whole of what a key may have. */
#define PAGES_MAX 160
#define STORE_RECS_MAX 512                      /* records in a frame */

struct dht {
	struct env *env;
	struct net *net;
	struct dht_conf conf;
	struct table table;
	struct values values;
	struct map *cache;                      /* key id -> struct cached */
	struct map *shunned;                    /* id -> struct shun */
	struct list traces, manies, fetching, schemas, queued /* searches */, bundles, askings;
	uint64_t asking_at_us;                  /* the oldest of a full bucket: not before */
	size_t packs;                           /* frames of bundles under way */
	size_t searching;                       /* that are not in a bundle */
	uint64_t cache_at_us, stale_at_us, forget_at_us, saved_changes, saved_removals, last_rank;
	unsigned fetches;                       /* of the cache, under way */
	size_t copies, cache_weight;            /* in the cache */
	struct list lookups, puts, keeps, handovers, batches, refusals, finds, dials, storings;
	struct map *gets;                       /* key id + latest -> open get */
	struct boot boots[DHT_ADDRESSES]; size_t nboots;
	dht_address_fn *on_address; void *on_address_arg;
	struct timer tick;
	uint64_t verified[VERIFIED_SLOTS], hash_key;
	struct inlined inlined[INLINED_SLOTS], inlined_all;
	struct list checks_asked, checks; struct batch *checking;       /* in line for the lane, and in it */
	uint64_t republish_at_us, sweep_at_us, save_at_us, save_retry_us, save_failures;
	struct err save_error;                  /* code 0: the shelf has all that belongs there */
	bool unread;                            /* the shelf could not be read: nothing is written before it was */
	size_t republish_cursor; bool republishing;
	struct id around_by; unsigned around; uint64_t around_us;       /* looking around after joining: room.c */
	uint64_t still_changes, still_since_us; /* of the table: nobody has come or gone since */
	uint64_t surplus;                       /* records of answers beyond what a key may have: dropped */
	uint64_t whole_us;                      /* a search ended at everybody in it, and all have answered */
	uint64_t self_looked_us, self_at_us;    /* our neighbours were searched, and will be again; 0: never */
	bool closing;
};

void tick_by(struct dht *d, uint64_t at_us);    /* room.c: the upkeep runs then at the latest */
void around_begin(struct dht *d, const struct id *by);
bool dht_young(const struct dht *d);            /* it has joined, and looks around still */

/* ---- nodes.c: what we know of others ---- */
void dht_heard(struct dht *d, const struct id *id, bool client);        /* a peer answered or asked */
void dht_lost(struct dht *d, const struct id *id);                      /* it did not answer */
/* Whoever does not answer is left out of searches for a while, twice as long each time, until it is heard (S20). */
bool dht_shunned(const struct dht *d, const struct id *id);
void shun_sweep(struct dht *d, uint64_t now);
void shun_free(struct dht *d);
void node_write(struct buf *b, const struct id *id, const struct endpoint *at);
/* The same with its other addresses behind it, as entries of their own; how many were written. */
size_t node_write_all(const struct dht *d, struct buf *b, const struct id *id, const struct endpoint *at);
/* One entry of such a list: learnt as another address of the node before it (last), or as a node. True: a node. */
bool node_learn(struct dht *d, const struct id *id, const struct endpoint *at, struct id *last);
bool node_read(struct rd *r, struct id *ret_id, struct endpoint *ret_at);
void boots_tick(struct dht *d, uint64_t now);
void boots_add(struct dht *d, const struct endpoint *at, size_t n);
bool boot_move(struct dht *d, const struct endpoint *from, const struct endpoint *to);
int nodes_load(struct dht *d, struct err *e);
int nodes_save(struct dht *d, struct err *e);
void nodes_ask(struct dht *d);                  /* those of the table: who is near us? */
void nodes_save_soon(struct dht *d);
void dials_orphan(struct dht *d);
void askings_free(struct dht *d);
void puts_free(struct dht *d);                  /* puts, keeps, refusals */
void keeps_tick(struct dht *d, uint64_t now);

/* ---- verify.c ---- */
/* Checks the signatures of recs, which came from that peer, in an answer to our question (asked) or else; done gets the
 * list without the bad ones, now or after a job; who sends wrong signatures is struck. Takes the list. ret_why, at
 * once, may be NULL: what is wrong with the first ill-formed one. */
struct batch;
typedef void batch_fn(void *arg, struct list *good, size_t bad);
void dht_verify(struct dht *d, struct list *recs, const struct id *from, bool asked, struct err *ret_why,
	batch_fn *done, void *arg);
bool verify_full(struct dht *d, const struct id *from);         /* no more of what that peer brings unasked */
void batches_orphan(struct dht *d);             /* the room closes: results of running jobs are dropped */
/* the signer of a protected record is the peer that its subkey names */
bool rec_owner_ok(const struct rec *r);
void rec_sign(struct dht *d, struct rec *r);

/* ---- lookup.c: the iterative search ---- */
enum look { LOOK_NODES, LOOK_VALUE, LOOK_LATEST };
/* near: the nearest that answered, nearest first. silent: nearer than the last of them and did not. recs: verified; may
 * be kept by moving out */
struct look_end { const struct dnode *near; size_t n; uint32_t silent; struct list *recs; };
typedef void look_fn(void *arg, const struct look_end *l);
struct lookup *lookup_start(struct dht *d, const struct id *target, enum look what, look_fn *done, void *arg);
/* In two parts: what is set in between (trail, bundle) holds from the first question on. */
struct lookup *lookup_new(struct dht *d, const struct id *target, enum look what, look_fn *done, void *arg);
void lookup_step(struct lookup *l);
void lookup_begin(struct lookup *l);            /* the first step, now or when its turn comes */

enum cand_state { CAND_NEW, CAND_ASKED, CAND_ANSWERED, CAND_FAILED };
struct cand { struct dnode node; enum cand_state state; uint8_t hop /* 1: from our own table */;
	bool had /* it gave records */, late /* asked long ago */, over /* more than a key may have */;
	uint32_t pages, records; size_t weight /* that it gave */; };
struct trail { struct dht_hop *v; size_t n, cap; };
struct bundle;
struct lookup {
	struct list link, asks;
	struct dht *d;
	struct id target;
	enum look what;
	struct cand cand[SHORTLIST]; size_t n;
	size_t added; unsigned refills;         /* candidates so far; times that our own table was asked again */
	struct list found;                      /* verified records */
	uint32_t verifying;                     /* batches on their way */
	uint32_t more;                          /* questions for the rest of a dictionary */
	unsigned page;                          /* records in the answer that was read last */
	bool over, stepping, counted;
	struct timer later;                     /* so that done never runs inside lookup_start */
	struct timer hedge; bool wide;          /* a value search asks one node, and alpha at a time from then on */
	bool guided;                            /* who let this peer in was asked (ask_guide) */
	struct timer tardy; uint32_t late;      /* questions that are under way for long, and no longer counted */
	struct trail *trail;                    /* NULL: nobody follows the steps */
	struct bundle *bundle;                  /* NULL: it asks for itself */
	struct portion *portion;                    /* of what one call may find; NULL: what a key may have */
	uint32_t packed;                        /* questions of it under way in the bundle's frames */
	struct spares *spares;                  /* filled when it ends; NULL: nobody wants them */
	look_fn *done; void *arg;
};
/* The next nearest behind the k that a search ends with: for a STORE whose target does not answer. */
#define SPARES 8
struct spares { struct dnode v[SPARES]; size_t n, taken; };
static inline const struct dnode *spare_take(struct spares *s)  /* nearest first; s->n of them are left */
{
	s->n--;
	return &s->v[s->taken++];
}
/* So many of the nearest are asked: whoever follows one way only ends at the first that knows nobody nearer. */
static inline uint32_t look_width(const struct dht *d)
{
	return d->conf.k > d->conf.alpha ? d->conf.k : d->conf.alpha;
}
struct cand *lookup_cand(struct lookup *l, const struct id *id);
void lookup_ask(struct lookup *l, struct cand *c, uint32_t at);
bool lookup_take(struct dht *d, struct lookup *l, const struct id *from, const struct id *key, bool with_recs,
	struct rd *r, struct dht_hop *ret_hop);
size_t trail_add(struct trail *t, const struct dnode *to, uint8_t hop, uint64_t now_us);        /* its index */
void lookups_free(struct dht *d);
void traces_free(struct dht *d);

/* ---- bundle.c: many searches whose questions to one node travel in one frame ---- */
#define PACK_KEYS 64
struct bundle *bundle_new(struct dht *d);
void bundle_add(struct bundle *b, struct lookup *l);
void bundle_free(struct bundle *b);             /* its searches have ended */
bool bundle_step(struct lookup *l);             /* false: it has nothing left to ask */
void bundle_forget(struct lookup *l);

/* ---- many.c ---- */
/* What one call may have found, for all of its keys together, while it is searched and when it is handed over: records,
 * and their bytes once they are read. It is what one key may have, twice. A key whose records find no room gives back
 * what it has, and is told as one too many: asked for by itself it is found. */
#define MANY_RECS_MAX 65536
#define MANY_WEIGHT_MAX (64u << 20)
struct budget { size_t n, weight; };
struct portion { struct budget *of; size_t n, weight; bool cut /* no room, for good */; };
/* recs are its now; false: it is cut, and has none. */
bool portion_take(struct portion *s, const struct list *recs);
void manies_free(struct dht *d);

/* ---- recs.c ---- */
void recs_copy(struct list *to, const struct list *from);
void recs_free(struct list *recs);
/* Takes all of `from`: the greatest rank of each subkey stays; of one rank, the life that ends first. */
void recs_merge(struct dht *d, struct list *to, struct list *from);
/* Adds what lies here to what others gave. */
void recs_add_own(struct dht *d, const struct id *key, struct list *recs);
/* Records as callers see them, without the ended ones; returns how many. */
size_t records_out(const struct list *recs, uint64_t now_us, struct record **ret_v);
void records_free(struct record *v, size_t n);

/* ---- get.c ---- */
/* In dht.cache; no records: nobody had the key. */
struct cached { struct list recs; uint64_t until_us; bool used /* since it was fetched */, copy /* another's */;
	size_t weight; };
void found_put(struct dht *d, const struct id *key, const struct list *recs);
/* A copy that another has brought: for others who ask, counted as that one's, and no answer to our own questions. */
void copy_put(struct dht *d, const struct rec *r);
/* What may be given to others from the cache: one plain value, which no copy of a part of a dictionary is. */
struct list *found_plain(struct dht *d, const struct id *key);
bool recs_plain(const struct list *recs);
/* A search for a value has ended: adds our own records to its, and keeps them as found. */
void get_looked(struct dht *d, const struct id *key, bool latest, const struct look_end *l);
void cache_forget(struct dht *d, const struct id *key);
struct list *found_get(struct dht *d, const struct id *key);    /* NULL; empty: known to be nowhere */
void cache_tick(struct dht *d, uint64_t now);
void gets_free(struct dht *d);

/* ---- schema.c ---- */
int schema_check(const struct dht *d, const struct rec *r, struct err *e);
void schemas_free(struct dht *d);

/* ---- dht.c ---- */
/* The record of a put, NULL and e. */
struct rec *rec_make(struct dht *d, const char *key, const char *subkey, const json_t *value, uint64_t life_ms,
	bool sign, struct err *e);
/* Of the n nearest that answered: to how many from the first on it goes, and whether it stays here too. */
size_t put_targets(struct dht *d, const struct rec *r, const struct dnode *near, size_t n, bool *ret_here);

/* ---- serve.c: what we answer ---- */
void storings_free(struct dht *d);              /* after batches_orphan */
void serve_init(struct dht *d);
int store_local(struct dht *d, struct rec *r, struct err *e);  /* takes r; 0 refused, 1 new, 2 same */
/* Writes a STORE's blob record by record; false when the frame is full. Send it with KIND_DHT_STORE. */
bool store_add(struct buf *b, const struct rec *r, uint64_t now_us);
struct call *store_send(struct dht *d, const struct id *to, struct buf *b /* taken */, net_done_fn *done, void *arg);
void store_copy(struct dht *d, const struct id *to, const struct rec *r);       /* for its cache, no replica */
/* The answer to a STORE: how many records were taken. */
uint32_t store_accepted(const struct frame *f);
bool store_took(const struct frame *f, size_t i, size_t n);     /* the i-th of the n that were sent */

/* ---- keep.c: republishing, handing over, remembering ---- */
void keep_tick(struct dht *d, uint64_t now);
void keep_free(struct dht *d);
void handover_start(struct dht *d, const struct id *to);
void record_drop(void *dht, const struct rec *r);        /* values_conf.dropped */
void record_save(struct dht *d, struct rec *r);
void records_forget_ended(struct dht *d);
void shelf_read(struct dht *d);                 /* records and nodes; what fails is tried again */
void shelf_write(struct dht *d);                /* nodes, and the records that could not be written when they came */

#endif
