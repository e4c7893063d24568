/* Inside of audits: what is held for who looks at it (held.c), who looks (audit.c), and who says so (accuse.c). */
#ifndef AVG_HELD_H
#define AVG_HELD_H
#include "avg/audit.h"
#include "common/hash.h"

#define HELD_US (30 * SECOND)
#define ACCUSED_US (2 * SECOND)                 /* between two accusations by one peer that are looked at */
#define LOOK_US (20 * SECOND)                   /* for an answer and all that comes with it */
#define TIMES_SILENT 3                          /* in a row: then it sums nothing for */
#define REST_US (600 * SECOND)

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
/* Of COMMIT c's part p, as `from` shows it, its owner or who accuses that one. mean: what this peer got, copied; NULL:
 * it is to come, too. */
void audit_look(struct avg *a, const struct body *c, size_t p, enum robust robust, const struct id *from,
	const float *mean);
bool audit_for(const struct audits *s, const struct id *accuser);      /* does it look, since that one says so? */
void audit_yield(struct audits *s);             /* it can wait, unless somebody accuses */
void accusations_next(struct audits *s);        /* it has time, or another COMMIT */
void accusations_free(struct audits *s);
static inline size_t held_bytes(size_t parts, size_t len) { return parts * TREE256 + SIG_BYTES + len * sizeof(float); }
void held_put(struct audits *s, struct held *h);
void held_own(struct round *r, size_t part);    /* of a part that this peer has summed */
void held_free(struct audits *s, struct held *h);
void held_sweep(struct timer *t);
void held_tag(const uint8_t tag[32], size_t i, struct id *ret);        /* of the transfer of contributor i */

#endif
