/* Prepared data in a file: what the first steps made of every sample, kept once for all epochs, all runs and all
 * daemons of a machine that ask for the same ("materialize_after" in a spec; PRESTO, Isenko et al., SIGMOD 2022).
 *
 * A cache is DIR/NAME.cache: the name is a digest of where the source is and of the steps, the key inside one of the
 * source itself: files, sizes, times of change. With another key it is stale, and is made again. It is written aside
 * (NAME.NUMBER.making) and renamed when it is whole: a daemon sees all of it or nothing, and two that make the same one
 * rename the same bytes. Header, index and every sample have digests: what is damaged is
 * found, at the latest when it is read. A file that is mapped must not be cut by others: it is replaced, never changed.
 *
 *   4096 bytes   magic, key, entries, bytes of a target, where the index is, digests, what raw 0 has become
 *   samples      64-byte aligned: values, then the target
 *   index        32 bytes a sample: place, planes, rows, columns, bytes or reals (or broken, with its reason), digest
 *
 * Numbers are in the machine's own order: the file never leaves it. */
#ifndef TRAIN_CACHE_H
#define TRAIN_CACHE_H
#include "env.h"
#include "train/step.h"

struct cache_id { uint8_t name[32], key[32]; };
struct cache;
/* NULL: ERR_NOT_FOUND, ERR_CORRUPT (stale or damaged: it has been removed), ERR_IO. */
struct cache *cache_open(struct files *f, const char *dir, const struct cache_id *id, uint64_t entries, size_t y_bytes,
	struct err *e);
void cache_close(struct cache *c);                      /* NULL is fine */
uint64_t cache_bytes(const struct cache *c);
/* Sample i into s (one of its rooms) and y. By several workers at once. ERR_CORRUPT: it was broken when the cache was
 * made, and e says how; ERR_MISMATCH: the cache itself is damaged here. */
int cache_get(const struct cache *c, uint64_t i, struct sample *s, void *y, struct err *e);
void cache_remove(struct files *f, const char *dir, const struct cache_id *id);

/* --- making one: samples in order, by one job at a time */
struct cache_maker;
/* bytes_guess: what it will take, about. ERR_FULL: there is not so much, and 256 MiB more. */
struct cache_maker *cache_begin(struct files *f, const char *dir, const struct cache_id *id, uint64_t entries,
	size_t y_bytes, uint64_t bytes_guess, struct err *e);
/* s NULL: broken, and why says how. */
int cache_put(struct cache_maker *m, const struct sample *s, const void *y, const char *why, struct err *e);
int cache_finish(struct cache_maker *m, struct err *e); /* after the last; then cache_drop it, too */
uint64_t cache_making(const struct cache_maker *m);     /* of the file, as long as no more comes */
void cache_drop(struct cache_maker *m);                 /* what was not finished is removed; NULL is fine */

#endif
