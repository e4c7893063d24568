/* Shared by begin.c, lead.c, commit.c and recover.c: the leader's calls in a round. */
#ifndef AVG_LEAD_H
#define AVG_LEAD_H
#include "avg/int.h"
#include "common/jrpc.h"

struct lead_call { struct list link; struct round *r; size_t member; uint32_t attempt; struct call *call; };
void shape_make(struct avg *a, struct body *b);  /* rows, parts, who sums them; members and hyperparameters are there */
struct lead *lead_new(struct round *r);
void lead_calls_drop(struct lead *l);
void lead_hashes(struct round *r, struct wire_part *part);
void lead_next_attempt(struct round *r);
bool lead_reduces(const struct round *r, size_t member);        /* does the round wait for what it sums? */
void complaints_free(struct lead *l);
bool complaints_heeded(const struct lead *l, size_t member);    /* what it sums goes to another: it has said why */
uint64_t farthest_us(const struct avg *a);      /* the longest round trip to a member */
void commit_send(struct avg *a, const struct body *c, const struct buf *bytes);
/* told.c. r->commit, which this peer has written, is on its way to the others: applied when one of them holds it. */
void told_wait(struct round *r);
bool told_waits(const struct round *r);
void told_step(struct round *r);                /* has somebody answered, has somebody gone? */
void told_seen(struct avg *a, const uint8_t *digest);   /* another has said so: of the COMMIT that is its point */
void told_drop(struct round *r);                /* it waits, and is not applied */
void told_free(struct round *r);
bool told_holds(const struct avg *a, const struct body *c, const uint8_t *digest);
void round_inherit(struct round *r, const struct round *old);
int commit_take(struct avg *a, struct body *c /* moved when 0 */, const void *bytes, size_t n, struct err *e);
#define ATTEMPTS_MAX(members) ((members) + 2)   /* then the round is given up */
int attempt_check(struct round *r, const struct attempt *at, struct err *e);
void tell_begin(struct round *r);
void round_reap(struct avg *a, bool force);
uint64_t unmeasured_us(const struct avg *a);

#endif
