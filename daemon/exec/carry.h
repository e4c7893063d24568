/* Who carries what leaves this peer, for the executor (exec_ops.net): SEND and RECV of one peer as chunk transfers,
 * SUM, GATHER and SCATTER of strict groups (amendments A11). A value is named on the network by run, generation, label,
 * stream and index (D1.9), so that frames of another generation find no taker. The version of the weights travels with
 * a SEND.
 *
 * All members or an error: a member that dies, a deadline, another length are errors of the instruction, told to the
 * executor, whose failed() decides. GATHER: the whole is the members' parts in group order; SCATTER: part i of the
 * result is member i's, summed in group order; both cut into parts that differ by at most one float. A peer that is in
 * a group with two slots takes part once. What may wait for ever by the plan waits patience_us.
 * Not carried: ALLTOALL, RECV of any, REPLY; they are refused by name. */
#ifndef EXEC_CARRY_H
#define EXEC_CARRY_H
#include "net/chunk.h"
#include "exec/ops.h"

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
