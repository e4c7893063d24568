/* Records a node holds: rank rules, lives, quotas. No I/O.
 *
 * Strictly greater rank wins; a rejected store changes nothing (Hivemind's X1). A dictionary is a key whose records
 * have subkeys; a plain value is the record with the empty subkey. A plain value replaces a dictionary when its rank
 * is greater than all of it, and the other way round (semantics S6-S9 of Hivemind); but records under peers' ids win
 * over any plain value. A node never lengthens the
 * remaining time of a rank that it knows. */
#ifndef DHT_VALUES_H
#define DHT_VALUES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/buf.h"
#include "common/err.h"
#include "common/heap.h"
#include "common/id.h"
#include "common/list.h"
#include "common/map.h"

#define VALUE_MAX 16384                         /* bytes of a value's JSON text */
#define SUBKEY_MAX 79
#define LIFE_MAX_MS (7ull * 86400 * 1000)
#define DICT_MAX 4096                           /* records under one key */
/* What all of them may take once they are read: 4096 records of 4 KiB text and 15 values each, or 2 000 of the largest
 * value that is one string. What a node holds and what a reader takes from it end at the same place. */
#define DICT_WEIGHT_MAX (32u << 20)
#define JSON_VALUE_BYTES 240                    /* of memory for one of JSON's values: an empty object, the dearest */
#define CLOCK_SLACK_MS (10ull * 60 * 1000)
#define REC_OVERHEAD 200                        /* bytes counted per record beside its value */

/* bytes of one, as it travels */
#define REC_WIRE_MAX (2 + SUBKEY_MAX + 4 + VALUE_MAX + 3 * 8 + 32 + 1 + 64)
#define REC_UNREADABLE UINT32_MAX

/* One record as it travels and as it is stored. */
struct rec {
	struct list link;                       /* in its entry, insertion order */
	struct id key;
	char subkey[SUBKEY_MAX + 1];
	char *value; uint32_t vlen;             /* JSON text; owned */
	uint32_t weight;                        /* bytes that it takes once it is read; REC_UNREADABLE */
	uint64_t rank, life_ms;                 /* signed */
	uint64_t ends_us;                       /* env time at which it is gone */
	struct id owner; uint8_t sig[64]; bool is_signed;
	struct id from;                         /* who stored it here: quotas */
	uint16_t index;                         /* in the frame that brought it */
	bool saved;                             /* the shelf has it */
	uint64_t heard_us;                      /* when it was stored here last, the same one again included; 0: shelf */
	struct timer end;                       /* in values.ends, at ends_us, while it lies there */
};
void rec_free(struct rec *r);
struct rec *rec_copy(const struct rec *r);
bool rec_must_sign(const struct rec *r);        /* its subkey is a peer's id */
void rec_weigh(struct rec *r);                  /* after its value has been set */
/* Its value, its life, its end and its rank, which is a time of day: an old record that its owner signed is none. */
int rec_sane(const struct rec *r, uint64_t now_us, uint64_t wall_ms, struct err *e);
/* Of two records of one key: 0 both stay, 1 a stays, -1 b does. What belongs to a peer never gives way to a plain
 * value, whose rank anybody can choose. */
int rec_order(const struct rec *a, const struct rec *b);

/* by_subkey: NULL while there are few. A plain value is alone. */
struct entry { struct id key; struct list recs; size_t n, weight; struct map *by_subkey; };
/* per_peer_bytes 0: as many as there are. */
struct values_conf { size_t records_max, per_peer_max, bytes_max, per_peer_bytes;
	void (*dropped)(void *arg, const struct rec *r); void *arg; };  /* NULL: nobody is told what goes */
/* What one peer has stored here; in values.quota by its id. */
struct share { size_t records, bytes; };
struct values { struct map *keys; struct map *quota; struct heap ends; struct values_conf conf; size_t records, bytes;
	uint64_t hash_key; };

void values_init(struct values *v, const struct values_conf *conf, uint64_t hash_key);
void values_done(struct values *v);
enum put_result { PUT_NEW, PUT_SAME /* this rank and value were here: nothing changed, counts as held */, PUT_REFUSED };
/* Takes r (frees it when it is not kept). e says why it was refused. */
enum put_result values_put(struct values *v, struct rec *r, uint64_t now_us, uint64_t wall_ms, struct err *e);
/* The entry without its ended records, or NULL. Ended ones of all keys go with it: no other entry may be held. */
struct entry *values_get(struct values *v, const struct id *key, uint64_t now_us);
/* A record that lies elsewhere counts as its sender's, if that one may have it; until it is returned. */
bool values_lend(struct values *v, const struct rec *r);
void values_return(struct values *v, const struct rec *r);
void values_sweep(struct values *v, uint64_t now_us);   /* drops what has ended */

/* Wire and shelf form. Remaining time is relative to now. */
size_t rec_bytes(const struct rec *r);          /* that rec_write writes */
void rec_write(struct buf *b, const struct rec *r, uint64_t now_us);
struct rec *rec_read(struct rd *r, const struct id *key, uint64_t now_us);    /* NULL and rd->bad when malformed */
/* What the owner signs: key, subkey, value, rank, life. */
void rec_signed_bytes(struct buf *b, const struct rec *r);

#endif
