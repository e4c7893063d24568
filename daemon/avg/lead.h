/* The leader's side of a round, and the ends of a member's: what several files share. */
#ifndef AVG_LEAD_H
#define AVG_LEAD_H
#include "avg/int.h"
#include "common/jrpc.h"

struct lead_call { struct list link; struct round *r; size_t member; uint32_t attempt; struct call *call; };
void shape_make(struct avg *a, struct body *b);  /* rows, parts, who sums them; members and hyperparameters are there */
struct lead *lead_new(struct round *r);
void lead_calls_drop(struct lead *l);
/* READY of all who had made their share when BEGIN came. What others take to make theirs makes no deadline longer: they
 * would be in time however slow they are, and set the pace. */
void lead_measure(struct round *r);
void lead_next_attempt(struct round *r);
/* It was heard, and does not follow: no answer that is late or lost. */
static inline bool lead_refused(const struct err *e) { return e->code == ERR_STATE || e->code == ERR_AUTH; }
/* Does the round wait for what it sums? In a grid all wait for each other. */
static inline bool lead_reduces(const struct round *r, size_t member)
{
	return r->flow || tree_reduces(&r->lead->tree, member);
}
/* here.c. Its ACK is asked for; it has been heard since then; how many are in the round, newcomers too. */
bool lead_required(const struct round *r, size_t member);
bool lead_heard(const struct round *r, size_t member, uint64_t since_us);
size_t lead_here(const struct round *r);
bool lead_minority(const struct round *r);
size_t lead_missing_acks(const struct round *r, size_t *ret_acks);
void lead_tell_unacked(const struct round *r);
void lead_tell_late(const struct round *r);
/* complaint.c: member i says so (lead_missing). false: it is out of the round, and nothing is another. */
bool complaint_heard(struct round *r, size_t i, const uint8_t *list, size_t n, size_t nonfinite, uint64_t slow);
/* missing.c: ids of who keeps this peer from going on, then of those whose contributions are no numbers. */
size_t missing_list(const struct round *r, struct buf *b, size_t *ret_nonfinite, unsigned *ret_slow);
void complaints_free(struct lead *l);
bool complaints_heeded(const struct lead *l, size_t member);    /* what it sums goes to another: it has said why */
void commit_send(struct avg *a, const struct body *c, const struct buf *bytes);
/* told.c. r->commit, which this peer has written, is on its way to the others: applied when one of them holds it. */
void told_wait(struct round *r);
bool told_waits(const struct round *r);
/* Has somebody answered, has somebody gone? Who is believed to live, and is not heard any more: NULL, or it is gone. */
struct mate *told_step(struct round *r);
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
void avg_end(struct avg *a);                    /* it is freed */
void avg_tell_quiet(struct avg *a);
void apply_without_commit(struct round *r);     /* only as a planted bug: takes what it has for decided */

#endif
