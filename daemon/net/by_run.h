/* Calls and posts that are about a run: the net has one handler for a kind, and "run" of the frame's JSON says whose it
 * is of several runs in this process. The first owner registers the kinds, the last one takes them back. */
#ifndef NET_BY_RUN_H
#define NET_BY_RUN_H
#include "common/list.h"
#include "net/net.h"

struct by_run_hub;
typedef void by_run_fn(void *owner, struct request *req);
/* In the owner; its list must be initialised. */
struct by_run { struct list link; struct by_run_hub *hub; const struct id *run; by_run_fn *hand; void *owner; };

/* All owners of these kinds name them in the same order. run must stay. ERR_EXISTS: that run has an owner already. */
int by_run_enter(struct by_run *b, struct net *net, const enum kind *kinds, size_t n, const struct id *run,
	by_run_fn *hand, void *owner, struct err *e);
void by_run_leave(struct by_run *b);            /* nothing, when it is in none */

#endif
