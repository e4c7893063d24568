/* Kademlia's routing table (Maymounkov and Mazieres 2002, 2.2): one bucket per length of the prefix shared with our own
 * id, at most TABLE_BUCKET live nodes each, oldest first, and a replacement cache behind it. No I/O. */
#ifndef DHT_TABLE_H
#define DHT_TABLE_H
#include <stdbool.h>
#include <stddef.h>
#include "common/id.h"
#include "env.h"

#define TABLE_BUCKET 20
#define TABLE_SPARE 8
#define TABLE_FAILS_MAX 2                       /* unanswered calls in a row before a node gives way */

struct dnode { struct id id; struct endpoint at; uint64_t seen_us; uint32_t fails; };
struct bucket { struct dnode live[TABLE_BUCKET], spare[TABLE_SPARE]; uint8_t n, spares; uint64_t touched_us; };
struct table { struct id self; struct bucket *bucket[256]; size_t n; };

void table_init(struct table *t, const struct id *self);
void table_done(struct table *t);
/* The node answered or asked: moves it to the tail, or adds it. True when it is new among the live ones. */
bool table_seen(struct table *t, const struct id *id, const struct endpoint *at, uint64_t now_us);
/* The node did not answer. True when it was taken out (a spare took its place, if there was one). */
bool table_failed(struct table *t, const struct id *id);
void table_remove(struct table *t, const struct id *id);
const struct dnode *table_find(const struct table *t, const struct id *id);
/* The n nodes nearest to target, nearest first; ourselves excluded. Returns how many. */
size_t table_nearest(const struct table *t, const struct id *target, struct dnode *out, size_t n);
/* The next bucket that has nodes or lies at or above the deepest such and was not touched since before_us; -1: none. */
int table_stale(const struct table *t, uint64_t before_us);
size_t table_buckets(const struct table *t);
void table_each(const struct table *t, void (*fn)(void *arg, const struct dnode *n), void *arg);

#endif
