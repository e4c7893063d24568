/* The form of a cache's file, for cache.c (reading) and cache_make.c (writing). */
#ifndef TRAIN_CACHE_INT_H
#define TRAIN_CACHE_INT_H
#include "train/data/cache.h"

#define CACHE_MAGIC "HMCACHE1"
#define CACHE_HEAD 4096u
#define CACHE_SIDE_MAX (1u << 24)
enum { CACHE_BYTES = 1, CACHE_BROKEN = 2 };
struct cache_head {
	char magic[8];
	uint8_t key[32];
	uint64_t entries, y_bytes, real_bytes, index_at, bytes, index_sum;
	double zero[STEP_CHANNELS];
	uint64_t sum;                           /* of this header with sum 0 */
};
/* broken: w bytes of text */
struct cache_entry { uint64_t at; uint32_t c, h, w, flags; uint64_t sum; };
uint64_t cache_sum(const void *p, size_t n);
char *cache_path(const char *dir, const struct cache_id *id, const char *end);      /* free() */

#endif
