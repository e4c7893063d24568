/* Inside of audits: what is held for who looks at it (held.c), and who looks (audit.c). */
#ifndef AVG_HELD_H
#define AVG_HELD_H
#include "avg/audit.h"
#include "common/hash.h"

#define HELD_US (30 * SECOND)
#define LOOK_US (20 * SECOND)                   /* for an answer and all that comes with it */

/* What was summed: by contributor, in the order of the members, hashes, signature and piece in one. */
struct held {
	struct list link; uint8_t round[DIGEST]; size_t part, n, bytes; void **data; float *mean /* or NULL */; size_t len;
	uint64_t until_us;
};
struct audits {
	struct avg *a; struct list held, given, said; struct timer sweep;
	struct audit *one;                      /* at a time */
	uint64_t not_before_us, right, wrong;
};

struct audits *audits_of(struct avg *a);
static inline size_t held_bytes(size_t parts, size_t len) { return parts * TREE256 + SIG_BYTES + len * sizeof(float); }
void held_put(struct audits *s, struct held *h);
void held_own(struct round *r, size_t part);    /* of a part that this peer has summed */
void held_free(struct audits *s, struct held *h);
void held_sweep(struct timer *t);
void held_tag(const uint8_t tag[32], size_t i, struct id *ret);        /* of the transfer of contributor i */

#endif
