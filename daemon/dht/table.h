/* Kademlia's routing table (Maymounkov and Mazieres 2002, 2.4 and 4.2): a binary tree of buckets of at most
 * TABLE_BUCKET live nodes, oldest first, each with a replacement cache behind it. A full bucket is split when it
 * contains our own id or its depth is no multiple of `split`: with 5, of N nodes about 20 x (16 log2(N/20) / 5) are
 * known and a search advances up to 5 bits a hop (Hivemind's bucket_size and depth_modulo; S18, S19). No I/O. */
#ifndef DHT_TABLE_H
#define DHT_TABLE_H
#include <stdbool.h>
#include <stddef.h>
#include "common/id.h"
#include "env.h"

#define TABLE_BUCKET 20                          /* nodes of a bucket, unless said otherwise; answers name no more */
#define TABLE_SPARE 8
#define TABLE_SPLIT 5
#define TABLE_FAILS_MAX 2                       /* unanswered calls in a row before a node gives way */

struct dnode { struct id id; struct endpoint at; uint64_t seen_us; uint32_t fails; bool saved /* so, on the shelf */; };
struct bucket { struct bucket *child[2] /* both or none */; struct dnode *node /* live, then spares */;
	uint16_t depth; uint8_t n, spares; uint64_t touched_us; };
struct table { struct id self; struct bucket root; unsigned split, bucket; size_t n, buckets;
	uint64_t changes; /* of who is live, and where */ uint64_t removals; };

void table_init(struct table *t, const struct id *self);
void table_done(struct table *t);
/* The node answered or asked: moves it to the tail, or adds it. True when it is new among the live ones. */
bool table_seen(struct table *t, const struct id *id, const struct endpoint *at, uint64_t now_us);
/* The node did not answer. True when it was taken out (a spare took its place, if there was one). */
bool table_failed(struct table *t, const struct id *id);
void table_remove(struct table *t, const struct id *id);
const struct dnode *table_find(const struct table *t, const struct id *id);
/* Who of the bucket that id falls into was heard from longest ago, when spares wait for its place; NULL. */
const struct dnode *table_oldest(const struct table *t, const struct id *id);
/* The n nodes nearest to target, nearest first; ourselves excluded. Returns how many. */
size_t table_nearest(const struct table *t, const struct id *target, struct dnode *out, size_t n);
/* One subtree beside the way to our own id, or our own bucket, of which no node was heard since before_us: its ids
 * begin with ret_bits bits of ret_prefix. It counts as touched now. False: there is none. */
bool table_stale(struct table *t, uint64_t before_us, uint64_t now_us, struct id *ret_prefix, unsigned *ret_bits);
size_t table_buckets(const struct table *t);
void table_each(struct table *t, void (*fn)(void *arg, struct dnode *n), void *arg);

#endif
