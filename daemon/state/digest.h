/* The digest of a vector, the same however it is sharded: a tree of XXH3-128 over leaves of 1024 elements, granules of
 * 64 leaves, and all granules. Who holds a part tells the leaves that lie inside of it and the elements of the two
 * leaves at its ends that it shares with its neighbours; from all parts anybody makes the digest of the whole. It is
 * for comparing one's own with others' (what must not be forged is SHA-256, common/hash.h). */
#ifndef STATE_DIGEST_H
#define STATE_DIGEST_H
#include "common/buf.h"
#include "common/err.h"

#define STATE_DIGEST 16
#define DIGEST_LEAF 1024                /* elements */
#define DIGEST_GRANULE 64               /* leaves: 64 Ki elements */

/* n elements of unit bytes each, all there is. */
void digest_of(const void *p, uint64_t n, uint32_t unit, uint8_t ret[STATE_DIGEST]);

/* Of elements lo to lo + n - 1 of a vector of `all`, which lie at p: appends what the others need to know of them. */
void digest_part(const void *p, uint64_t lo, uint64_t n, uint64_t all, uint32_t unit, struct buf *ret);
/* From the parts of a vector, in any order, each as digest_part has made it. Remote bytes: ERR_PROTOCOL says what is
 * wrong with them, which elements nobody has, or which two have. */
struct digest_bytes { const void *p; size_t len; };
int digest_join(const struct digest_bytes *part, size_t n, uint64_t all, uint32_t unit, uint8_t ret[STATE_DIGEST],
	struct err *e);

#endif
