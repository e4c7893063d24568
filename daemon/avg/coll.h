/* The averager's strict face: collectives in a fixed group, all members or an error (tensor parallelism, ZeRO,
 * pipelines). No rendezvous: the group, its order and a generation are agreed before.
 *
 * Every member calls the same function with the same group, seq, sizes and operation. done is called exactly once and
 * never from inside the call; a dead member, or the deadline, is an error for all. The memory is the collective's until
 * then. Any two collectives of a group with different seq may be under way at once. Part i of a vector of len elements
 * belongs to member i: coll_part says which. */
#ifndef AVG_COLL_H
#define AVG_COLL_H
#include "net/chunk.h"

enum coll_op { COLL_SUM, COLL_MAX, COLL_MEAN };
/* Types of elements, whose order of bytes is the machine's. Sums go in member order: of floats and doubles in their own
 * precision, of IEEE halves and bfloat16 in float, rounded once at the end (nearest even, halves overflow to infinity),
 * of whole numbers modulo 2^32 or 2^64; their mean is that sum divided, towards zero. The largest of floats is NaN when
 * one of them is. */
enum coll_type { COLL_F32, COLL_F64, COLL_I32, COLL_I64, COLL_F16, COLL_BF16 };
size_t coll_size(enum coll_type type);                  /* bytes of an element */
/* ordered; tag = run, generation, group; cls: what its bytes count as */
struct coll_group { const struct id *members; uint32_t n, me; struct id tag; enum net_class cls; };
struct coll;
struct coll *coll_new(struct env *env, struct net *net, struct chunks *chunks);
/* drops what is open without a word; no sum may be in a lane (env detached, or all done) */
void coll_free(struct coll *c);
typedef void coll_done_fn(void *arg, const struct err *e);

/* Where part i of len elements over n members begins and ends: sizes differ by one at most. */
void coll_part(uint32_t n, uint32_t i, size_t len, size_t *ret_lo, size_t *ret_hi);

/* All-reduce of len elements in place, summed in member order: every member ends with the same bytes. */
void coll_allreduce(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, void *x, size_t len,
	enum coll_op op, uint64_t deadline_us, coll_done_fn *done, void *arg);
/* root's x ends as after an all-reduce; the others' x stay as they are. */
void coll_reduce(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t root, enum coll_type type, void *x,
	size_t len, enum coll_op op, uint64_t deadline_us, coll_done_fn *done, void *arg);
/* This member's part of x, reduced, ends in out, which may be that part's place in x; the rest of x is as before. */
void coll_reduce_scatter(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, void *x,
	size_t len, enum coll_op op, void *out, uint64_t deadline_us, coll_done_fn *done, void *arg);
/* Of x this member brings its own part; all end with all. */
void coll_allgather(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, void *x, size_t len,
	uint64_t deadline_us, coll_done_fn *done, void *arg);
/* root's x becomes everybody's. */
void coll_broadcast(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t root, enum coll_type type,
	void *x, size_t len, uint64_t deadline_us, coll_done_fn *done, void *arg);
/* Part i of x goes to member i; y, n times as long as this member's part of x, ends with what the members sent, in
 * order. x and y do not overlap. */
void coll_alltoall(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, const void *x,
	size_t len, void *y, uint64_t deadline_us, coll_done_fn *done, void *arg);
/* From one member to one other; the rest of the group takes no part. */
void coll_send(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t to, enum coll_type type,
	const void *x, size_t len, uint64_t deadline_us, coll_done_fn *done, void *arg);
void coll_recv(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t from, enum coll_type type, void *x,
	size_t len, uint64_t deadline_us, coll_done_fn *done, void *arg);
/* Ends when every member has begun it. */
void coll_barrier(struct coll *c, const struct coll_group *g, uint64_t seq, uint64_t deadline_us, coll_done_fn *done,
	void *arg);

/* Ends the collective that was begun with arg. true: it is gone, done is not called and x is the caller's again;
 * false: a lane still sums, and done comes with an error. */
bool coll_cancel(struct coll *c, void *arg);

#endif
