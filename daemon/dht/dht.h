/* The distributed hash table: Kademlia over 256-bit ids (Maymounkov and Mazieres 2002) with Hivemind's record rules:
 * strictly later rank wins, subkeys with lives of their own, replication to the k nearest.
 * Records: key (any text, hashed to an id), optional subkey, a JSON value, rank (owner's clock in ms) and life.
 * Values whose subkey is the hex id of a peer are protected: signed by it, nobody else can replace them. */
#ifndef DHT_DHT_H
#define DHT_DHT_H
#include "net/net.h"

struct dht_conf { uint32_t k /* 8 */, alpha /* 3 */, records_max /* 100000 */, per_peer_max /* 10000 */;
	size_t bytes_max; bool client; uint64_t refresh_us, republish_us; };
struct dht;
struct dht *dht_new(struct env *env, struct net *net, const struct dht_conf *conf, struct err *e);
void dht_free(struct dht *d);                   /* whoever still waits hears ERR_CANCELLED, and asks nothing more */

#define DHT_ADDRESSES 64                /* more are not taken */
/* Joins through these addresses, forever: unreachable ones are tried again with back-off 0.1 s .. 30 s and shown in
 * status. */
void dht_join(struct dht *d, const struct endpoint *at, size_t n);
/* Not there but here from now on. False: it was not given. */
bool dht_join_moved(struct dht *d, const struct endpoint *from, const struct endpoint *to);
/* silent: did not answer and are left out for a while */
struct dht_state { uint32_t nodes, buckets, silent, records, lookups_open; bool joined; uint32_t join_addresses,
	join_unreachable; uint64_t next_retry_us; char join_error[160]; };
void dht_state(struct dht *d, struct dht_state *ret);
/* One address given to dht_join. next_us: from now until it is tried again; 0: joined, or a try is under way.
 * self: it is this peer's own, which is no mistake in a list that all peers share. */
struct dht_address { bool joined, self; struct id id /* who answered there */; uint64_t next_us; char error[160]; };
bool dht_address(const struct dht *d, const struct endpoint *at, struct dht_address *ret);  /* false: not given */
/* Told when an address is joined, and when the first try after that (or after the start) fails. */
typedef void dht_address_fn(void *arg, const struct endpoint *at, const struct dht_address *now);
void dht_on_address(struct dht *d, dht_address_fn *fn, void *arg);

struct record { char subkey[80]; json_t *value /* borrowed */; uint64_t rank, life_ms /* remaining */; struct id owner;
	bool is_signed; };
bool record_own(const struct record *r);        /* signed, and its subkey is its owner's id: nobody else's word */
/* value is stolen. life_ms at most 7 days. done: accepted = replicas (this peer included) that took it; wanted = how
 * many were asked. */
typedef void dht_stored_fn(void *arg, uint32_t accepted, uint32_t wanted, const struct err *e);
void dht_put(struct dht *d, const char *key, const char *subkey /* NULL */, json_t *value, uint64_t life_ms, bool sign,
	dht_stored_fn *done, void *arg);
/* Keeps it stored: republished before it ends until dht_unkeep, with the newest value given. */
void dht_keep(struct dht *d, const char *key, const char *subkey, json_t *value, uint64_t life_ms, bool sign);
void dht_unkeep(struct dht *d, const char *key, const char *subkey);
/* done: n records (n == 0: nobody has it), subkeys merged over the nodes asked, greatest rank wins. latest: ask all k
 * nearest. ERR_TIMEOUT: nobody who answered has it, and some of the nearest did not answer. */
typedef void dht_got_fn(void *arg, const struct record *r, size_t n, const struct err *e);
void dht_get(struct dht *d, const char *key, bool latest, dht_got_fn *done, void *arg);
/* The same; but while nobody has it and some of the nearest are silent, it asks again, for more than a second. */
void dht_get_patient(struct dht *d, const char *key, bool latest, dht_got_fn *done, void *arg);
/* Bulk: the questions of up to DHT_MANY keys to one node travel in one frame. done is called once, with the results in
 * the order of the keys (borrowed); it is not called when the arguments are wrong: then -1 and e. */
#define DHT_MANY 1024
struct dht_many { const struct record *r; size_t n; uint32_t silent /* n == 0: of the nearest, did not answer */;
	bool over /* n == 0: with the others' too much for one call; ask for it by itself */; };
typedef void dht_got_many_fn(void *arg, const struct dht_many *v, size_t n, const struct err *e);
int dht_get_many(struct dht *d, const char *const *keys, size_t n, bool latest, dht_got_many_fn *done, void *arg,
	struct err *e);
/* value: stolen, also on error. error.code 0: accepted by one replica at least. */
struct dht_item { const char *key, *subkey /* NULL */; json_t *value; uint64_t life_ms; bool sign; };
struct dht_item_end { uint32_t accepted, wanted; struct err error; };
typedef void dht_stored_many_fn(void *arg, const struct dht_item_end *v, size_t n, const struct err *e);
int dht_put_many(struct dht *d, const struct dht_item *items, size_t n, dht_stored_many_fn *done, void *arg,
	struct err *e);
/* One question of a search. hop: 1 from our own table, else one more than who named it. */
struct dht_hop { struct id id; struct endpoint at; uint32_t hop; uint64_t asked_us /* after the start */, took_us;
	enum { DHT_HOP_OPEN /* the search ended before */, DHT_HOP_ANSWERED, DHT_HOP_FAILED } state;
	uint32_t nodes, records /* that it named and gave */; };
/* A get that always asks others and tells each step, in the order of asking. here: records that this peer holds itself.
 * found: records that the others gave, merged, those of here not among them. */
struct dht_trace { const struct dht_hop *hop; size_t nhop; const struct record *found; size_t nfound; size_t here;
	struct id key; uint64_t took_us; };
typedef void dht_traced_fn(void *arg, const struct dht_trace *t, const struct err *e);
void dht_trace(struct dht *d, const char *key, bool latest, dht_traced_fn *done, void *arg);
/* Records under that key must look so, from now on, here: others are refused when they are put or stored, and not taken
 * from the answers of others. Several rules for one key: one must fit. rule is borrowed until dht_unexpect. Only peers
 * that know a key can check it: what travels is its hash. */
enum dht_type { DHT_TEXT, DHT_COUNT, DHT_NUMBER, DHT_BOOL, DHT_OBJECT };
struct dht_field { const char *name; enum dht_type type; bool optional; };      /* ends with name NULL */
struct dht_schema { const char *name; bool per_peer /* subkeys are ids of peers, signed by them */;
	uint64_t life_ms_max /* 0: 7 days */; const struct dht_field *fields; };
void dht_expect(struct dht *d, const char *key, const struct dht_schema *rule);
void dht_unexpect(struct dht *d, const char *key, const struct dht_schema *rule);
/* The up to k nodes nearest to target. */
typedef void dht_found_fn(void *arg, const struct id *peers, size_t n, const struct err *e);
void dht_find(struct dht *d, const struct id *target, dht_found_fn *done, void *arg);
json_t *dht_status(struct dht *d);

#endif
