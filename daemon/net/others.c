/* A daemon that listens on several addresses says all of them in HELLO, first the one of the kind that was dialled:
 * whoever reached it by IPv6 is to be reached by IPv6 itself. The other side keeps the list and tries the next when the
 * one in use has stopped answering: first the mailbox there, then the door. */
#include <string.h>
#include "net/inner.h"

const struct endpoint *others_self(const struct net *n, const struct endpoint *to)
{
	const struct endpoint *best = &n->conf.self;
	int score = -1;

	for (unsigned i = 0; i <= n->conf.nalso; i++) {
		const struct endpoint *at = i ? &n->conf.also[i - 1] : &n->conf.self;
		int s = 2 * (ip_is_v4(at->ip) == ip_is_v4(to->ip)) + (ip_is_loopback(at->ip) == ip_is_loopback(to->ip));

		if (s > score) {
			best = at;
			score = s;
		}
	}
	return best;
}

bool others_is_self(const struct net *n, const struct endpoint *at)
{
	bool self = endpoint_eq(at, &n->conf.self);

	for (unsigned i = 0; i < n->conf.nalso; i++)
		self |= endpoint_eq(at, &n->conf.also[i]);
	return self;
}

/* What M1 or M2 says beside `at`. */
void others_list(const struct net *n, const struct endpoint *at, struct others *ret)
{
	ret->n = 0;
	if (n->conf.client || !n->conf.nalso)
		return;
	for (unsigned i = 0; i <= n->conf.nalso && ret->n < NET_ALSO; i++) {
		const struct endpoint *x = i ? &n->conf.also[i - 1] : &n->conf.self;

		if (x->port[CHAN_CTRL] && !endpoint_eq(x, at))
			ret->v[ret->n++] = *x;
	}
}

void others_told(struct peer *p, const struct endpoint *at, const struct others *o)
{
	p->also.n = 0;
	for (unsigned i = 0; i <= o->n && o->n; i++) {
		const struct endpoint *x = i ? &o->v[i - 1] : at;

		if (x->port[CHAN_CTRL] && !endpoint_eq(x, &p->at) && p->also.n < NET_ALSO)
			p->also.v[p->also.n++] = *x;
	}
}

/* `at` is in use from now on: what was before it is one of the others. */
void others_used(struct peer *p, const struct endpoint *at)
{
	for (unsigned i = 0; i < p->also.n; i++)
		if (endpoint_eq(&p->also.v[i], at))
			p->also.v[i] = p->at;
}

/* The address that this HELLO tries does not answer: takes the next one, after two tries; after one, when not even a
 * connection came about. */
bool others_next(struct hello *h)
{
	struct peer *p = h->peer;
	struct linkinfo li = {0};
	struct endpoint old;

	h->here++;
	if (!p || !p->also.n || p->at_level == AT_NONE)
		return false;
	if (h->here < 2 && (h->tries > 1 || (h->net->env->ops->linkinfo(h->net->env, &h->at, &li) && li.connected)))
		return false;
	h->here = 0;
	old = p->at;
	p->at = h->at = p->also.v[0];
	memmove(p->also.v, p->also.v + 1, (p->also.n - 1) * sizeof *p->also.v);
	p->also.v[p->also.n - 1] = old;
	h->net->env->ops->close_link(h->net->env, &old);        /* what waits there goes to the new one */
	h->through_door = h->net->conf.client;
	h->unreached = false;
	return true;
}
