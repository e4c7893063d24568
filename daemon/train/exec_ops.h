/* What the executor asks of the outside for instructions that leave this peer. Each call is answered exactly once, later
 * (from the loop), through exec_done. */
#ifndef TRAIN_EXEC_OPS_H
#define TRAIN_EXEC_OPS_H
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"
#include "common/id.h"
#include "kernels/real.h"

struct exec_wait;                               /* one pending instruction; opaque */
struct exec_net {                               /* names a value on the network: D1.9 */
	uint64_t generation, iteration; uint32_t instance, buffer, slot;
	const char *label;                      /* of the buffer, equal on every peer */
	const struct id *peer;                  /* SEND, RECV; NULL: any of peers[] */
	const struct id *peers; uint32_t npeers, me;    /* the group (or the senders a RECV accepts) in order */
	uint32_t group, op;                     /* group number and its op (plan.h) */
	uint64_t seq;                           /* the how-manieth collective of this group */
	uint64_t deadline_us;                   /* absolute; 0 = none */
};
struct exec_ops {
	void (*sum)(void *arg, struct exec_wait *w, const struct exec_net *n, real *x, size_t len);    /* strict, in place */
	void (*send)(void *arg, struct exec_wait *w, const struct exec_net *n, const void *data, size_t bytes);
	void (*recv)(void *arg, struct exec_wait *w, const struct exec_net *n, void *out, size_t bytes);
	/* The executor no longer wants the answer (replan); memory is its own again when this returns. */
	void (*cancel)(void *arg, struct exec_wait *w);
};
void exec_done(struct exec_wait *w, const struct id *from, const struct err *e);       /* e NULL: it worked */

#endif
