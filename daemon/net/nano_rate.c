/* The real transport: limits of upload and download (net/rate.h). What waits to be sent stays in its link's
 * bounded queue; what is not read stays in the sockets, and TCP holds the sender back. */
#include "net/nano_int.h"

bool rate_may(struct nano *n, struct rate *r)
{
	uint64_t wait = rate_wait(r, env_now(n->env));

	if (wait && !r->timer.at_us)
		env_timer(n->env, &r->timer, wait);
	return !wait;
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

	rate_set(&n->up, up, now);
	rate_set(&n->down, down, now);
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
