/* Ordered map: byte-string keys to void *, iterated in insertion order (never by address), keyed SipHash inside. */
#ifndef COMMON_MAP_H
#define COMMON_MAP_H
#include <stddef.h>
#include <stdint.h>

struct map;
struct map *map_new(uint64_t hash_key);     /* per-process random key in the daemon, constant in the simulator */
void map_free(struct map *m);               /* values are the caller's; NULL is fine */
size_t map_len(const struct map *m);
void *map_get(const struct map *m, const void *key, size_t klen);           /* NULL when absent */
/* returns the value replaced, or NULL; value must not be NULL */
void *map_put(struct map *m, const void *key, size_t klen, void *value);
void *map_del(struct map *m, const void *key, size_t klen);                 /* returns the value removed, or NULL */
/* Iteration: for (size_t i = 0; (v = map_next(m, &i, &key, &klen));) ...
 * deleting the current entry is allowed, inserting is not. */
void *map_next(const struct map *m, size_t *it, const void **ret_key, size_t *ret_klen);

#endif
