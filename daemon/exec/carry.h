/* Who carries what leaves this peer, for the executor (exec_ops.net): SEND, RECV and REPLY as chunk transfers, ALLTOALL
 * of rows, SUM, GATHER and SCATTER of strict groups. A value is named on the network by run,
 * generation, label, stream and index (D1.9), so that frames of another generation find no taker. The version of the
 * weights travels in front of each value, and its length, which a `bounded` buffer leaves open: behind a shorter value
 * there are zeros.
 *
 * All members or an error: a member that dies, a deadline, another length are errors of the instruction, told to the
 * executor, whose failed() decides. GATHER: the whole is the members' parts in group order; SCATTER: part i of the
 * result is member i's, summed in group order; both cut into parts that differ by at most one float. A peer that is in
 * a group with two slots takes part once. What may wait for ever by the plan waits patience_us.
 *
 * RECV of any waits without end, unless the plan has a deadline, and goes on as plan.h says. It asks the peers of its
 * group what they have for it, takes one value of each in turn into equal parts of its buffer (length / most), and
 * waits for what has begun to come when the batch closes. Part k is of token_news.from[k]; parts without a value are
 * zero. Values of a wrong length are refused, and their senders told. It takes what SEND, REPLY and "x route ->" send.
 * REPLY cuts its input into as many parts and sends each sender as large a share of its part as the sender's value had
 * of its own. ALLTOALL: see CARRY_NOBODY. Who does not take its answer, or its rows, is left out. Rows that do not come
 * fail the ALLTOALL, or are zero where the plan goes on without them.
 * SAVE is the executor's own. */
#ifndef EXEC_CARRY_H
#define EXEC_CARRY_H
#include "net/chunk.h"
#include "exec/ops.h"

/* A route has a 32-bit number for every row of x or y: the member of the group, counted from 0 in its order with each
 * peer once, to whom row r of x goes, and from whom row r of y comes ("x route ->", "route -> y"); this one: nobody.
 * "x route -> y": y has the rows that each member sent, in group order, this peer's own among them. */
#define CARRY_NOBODY UINT32_MAX

struct carry_conf { struct env *env; struct net *net; struct chunks *chunks; struct id run;
	uint64_t patience_us;                   /* of instructions without a deadline; 0: 60 s */
};
struct carry;
struct carry *carry_new(const struct carry_conf *conf);
void carry_free(struct carry *c);               /* no executor uses it any more; NULL is fine */
size_t carry_open(const struct carry *c);       /* instructions under way */
/* net, cancel, busy; ops_arg is the carry. LOAD is somebody else's. */
extern const struct exec_ops carry_ops;

#endif
