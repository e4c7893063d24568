/* Inside the state: state.c (life), copy.c (copies), fill.c. */
#ifndef STATE_INT_H
#define STATE_INT_H
#include "common/list.h"
#include "state/state.h"

struct state {
	struct env *env;
	struct layout l;
	struct shard *s; uint32_t n;            /* what is held here, one at least */
	struct state_cb cb; void *arg;
	struct list copies;                     /* that wait for a boundary */
	uint32_t running;                       /* of them */
	bool filling, closed;
	bool freed; void (*gone)(void *arg); void *gone_arg;
};

void state_job_over(struct state *st);          /* a job that touched it has ended, and is counted out */
void copies_drop(struct state *st);

#endif
