/* What must hold in a run of whole nodes after every event, whatever dies, read from their memory:
 *
 *   history    a trainer goes from one commit to the next only; state comes only when state was asked for
 *   one        one commit an epoch, unless the swarm was divided (forks_allowed)
 *   samples    the positions of a history are as many as its samples: each counted once; no commit takes one back
 *              (none at all, where every peer has an order of its own)
 *   same       equal digests of the chain: equal points, equal parameters and optimizer state, bit for bit
 *   rounds     every round ends within a minute */
#ifndef TESTS_SIM_CHAIN_CHECK_H
#define TESTS_SIM_CHAIN_CHECK_H
#include "node_world.h"

struct chain_check;
struct chain_check *chain_check_new(struct node_world *w);
void chain_check_free(struct chain_check *c);           /* NULL is fine */
uint64_t chain_commits(const struct chain_check *c);    /* different commits seen */
uint64_t chain_states(const struct chain_check *c);     /* commits whose state was compared on two peers or more */

#endif
