/* The averager's strict face: collectives in a fixed group, all members or an error (tensor parallelism, ZeRO,
 * pipelines; amendments A11). No rendezvous: the group, its order and a generation are agreed before. */
#ifndef AVG_COLL_H
#define AVG_COLL_H
#include "net/chunk.h"

enum coll_op { COLL_SUM, COLL_MAX, COLL_MEAN };
/* ordered; tag = run, generation, group */
struct coll_group { const struct id *members; uint32_t n, me; struct id tag; };
struct coll;
struct coll *coll_new(struct env *env, struct net *net, struct chunks *chunks);
/* drops what is open without a word; no sum may be in a lane (env detached, or all done) */
void coll_free(struct coll *c);
typedef void coll_done_fn(void *arg, const struct err *e);
/* All-reduce of len floats in place, summed in member order: every member ends with the same bytes. seq: the
 * how-manieth
 * collective of this group. Ends exactly once; a dead member or the deadline is an error for all. */
void coll_allreduce(struct coll *c, const struct coll_group *g, uint64_t seq, float *x, size_t len, enum coll_op op,
	uint64_t deadline_us, coll_done_fn *done, void *arg);

/* Ends the collective that was begun with arg. true: it is gone, done is not called and x is the caller's again;
 * false: a lane still sums, and done comes with an error. */
bool coll_cancel(struct coll *c, void *arg);

#endif
