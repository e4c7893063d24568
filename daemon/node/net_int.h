/* What net.c and check.c share. */
#ifndef DAEMON_NODE_NET_INT_H
#define DAEMON_NODE_NET_INT_H
#include "common/list.h"
#include "node/net.h"

/* What was refused, as it was last written down. */
struct node_refused { struct timer timer; struct net_counters was; uint64_t every_us; };
struct node_net { struct node_net_ctx x; bool rotating; struct list checks; struct node_refused refused; };

void node_check_end_all(struct node_net *nn);   /* net is gone: the questions under way are refused */

#endif
