/* The real transport (5/5): limits of upload and download. All bytes are counted, but only bulk waits: a heartbeat goes
 * at once and what it took is missing for the bulk behind it. What waits to be sent stays in its link's bounded queue;
 * what is not read stays in the sockets, and TCP holds the sender back. */
#include "net/nano_int.h"

#define BURST_S 0.05
#define SMALL 16384                     /* through a door everything goes: what is smaller than this does not wait */

static double burst_of(const struct rate *r)
{
	double b = (double)r->per_s * BURST_S;

	return b > WIRE_MAX ? b : WIRE_MAX;
}

static void refill(struct rate *r, uint64_t now)
{
	double burst = burst_of(r);

	r->tokens += (double)(now - r->at_us) * 1e-6 * (double)r->per_s;
	r->at_us = now;
	if (r->tokens > burst)
		r->tokens = burst;
}

bool rate_may(struct nano *n, struct rate *r)
{
	uint64_t now = env_now(n->env);

	if (!r->per_s)
		return true;
	refill(r, now);
	if (r->tokens > 0)
		return true;
	if (!r->timer.at_us)
		env_timer(n->env, &r->timer, now + (uint64_t)(-r->tokens / (double)r->per_s * 1e6) + 1000);
	return false;
}

void rate_spend(struct rate *r, size_t bytes)
{
	if (r->per_s)
		r->tokens -= (double)bytes;
}

bool rate_waits(enum chan chan, size_t bytes)
{
	return chan == CHAN_BULK || (chan == CHAN_DOOR && bytes > SMALL);
}

static void up_again(struct timer *t)
{
	struct nano *n = container_of(t, struct nano, up.timer);

	list_each(i, &n->links) {               /* least recently used first: who was parked goes before who was served */
		struct nlink *l = list_entry(i, struct nlink, link);

		if (!l->parked || l->dirty)
			continue;
		l->dirty = true;
		list_push(&n->dirty, &l->dirty_link);
	}
	nano_mark(n);
}

static void down_again(struct timer *t)
{
	struct nano *n = container_of(t, struct nano, down.timer);

	if (!rate_may(n, &n->down))
		return;
	if (n->box[CHAN_BULK].s >= 0)
		loop_watch_fd(n->loop, &n->box[CHAN_BULK].in, WATCH_READ);
	list_each(i, &n->links) {
		struct nlink *l = list_entry(i, struct nlink, link);

		if (l->chan == CHAN_DOOR)
			loop_watch_fd(n->loop, &l->in, WATCH_READ);
	}
}

void rate_init(struct nano *n)
{
	n->up.timer = (struct timer){ .fire = up_again, .name = "upload limit" };
	n->down.timer = (struct timer){ .fire = down_again, .name = "download limit" };
	nano_set_rates(n, n->conf.rate_up, n->conf.rate_down);
}

void nano_set_rates(struct nano *n, uint64_t up, uint64_t down)
{
	uint64_t now = env_now(n->env);

	n->up.per_s = up;
	n->down.per_s = down;
	n->up.at_us = n->down.at_us = now;
	n->up.tokens = burst_of(&n->up);
	n->down.tokens = burst_of(&n->down);
	if (!n->plugged)
		return;
	up_again(&n->up.timer);                 /* what waited under the limit of before */
	down_again(&n->down.timer);
}

void rate_stop(struct nano *n)
{
	env_timer(n->env, &n->up.timer, 0);
	env_timer(n->env, &n->down.timer, 0);
}
