/* Limits of upload and download on the simulated sockets, with the buckets of net/rate.h and in the places where nano.c
 * has them: bulk waits in its link's queue, and is not read by the receiver, whose socket buffers fill. */
#include "sim_int.h"

static void up_again(struct timer *t)
{
	struct snode *n = container_of(t, struct snode, up.timer);
	list_each(i, &n->links) {
		struct slink *l = list_entry(i, struct slink, link);
		if (!list_empty(&l->queue))
			sim_item(n, &l->flush, ITEM_FLUSH);
	}
}

void sim_rates(struct sim *s, int node, uint64_t up, uint64_t down)
{
	struct snode *n = s->node[node];
	n->up.timer = (struct timer){ .at_us = n->up.timer.at_us, .seq = n->up.timer.seq, .slot = n->up.timer.slot,
		.fire = up_again };
	rate_set(&n->up, up, s->now);
	rate_set(&n->down, down, s->now);
	if (n->alive)
		up_again(&n->up.timer);
}

bool simrate_up(struct snode *n, enum chan chan, size_t bytes)
{
	uint64_t wait = rate_waits(chan, bytes) ? rate_wait(&n->up, n->sim->now) : 0;
	if (wait && !n->up.timer.at_us)
		heap_set(&n->sim->heap, &n->up.timer, wait);
	return !wait;
}

/* nano.c reads its own door without a limit: what comes there is small, or from a client with a limit of its own. */
uint64_t simrate_down(struct pipe *p, size_t bytes)
{
	bool waits = p->chan == CHAN_DOOR ? p->backward && rate_waits(CHAN_DOOR, bytes) : rate_waits(p->chan, bytes);
	return waits ? rate_wait(&p->sim->node[p->to]->down, p->sim->now) : 0;
}
