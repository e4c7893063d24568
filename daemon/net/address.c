/* Addresses: as text; which may be dialled on whose word; and several of one peer. A daemon that listens on several
 * says all of them in HELLO, first the one of the kind that was dialled: whoever reached it by IPv6 is to be reached by
 * IPv6 itself. The other side keeps the list, passes it on, and tries the next when the one in use has stopped
 * answering: first the mailbox there, then the door. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include "net/inner.h"

#define NEAR_US (30 * MS)                       /* an answer takes five round trips: it has had its time */

const char *at_text(const struct endpoint *at, enum chan c, char out[64])
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (ip_is_v4(at->ip)) {
		inet_ntop(AF_INET, at->ip + 12, ip, sizeof ip);
		snprintf(out, 64, "%s:%u", ip, at->port[c]);
	} else {
		inet_ntop(AF_INET6, at->ip, ip, sizeof ip);
		snprintf(out, 64, "[%s]:%u", ip, at->port[c]);
	}
	return out;
}

const char *net_endpoint_text(const struct endpoint *at, enum chan chan, char out[64])
{
	return at_text(at, chan, out);
}

bool endpoint_eq(const struct endpoint *a, const struct endpoint *b)
{
	return !memcmp(a->ip, b->ip, 16) && !memcmp(a->port, b->port, sizeof a->port);
}

/* ---- ours, and others of a peer's ---- */

/* How much ours is of the kind that was dialled. */
static int alike(const struct endpoint *at, const struct endpoint *to)
{
	return 2 * (ip_is_v4(at->ip) == ip_is_v4(to->ip)) + (ip_is_loopback(at->ip) == ip_is_loopback(to->ip));
}

static const struct endpoint *own(const struct net *n, unsigned i)
{
	return i ? &n->conf.also[i - 1] : &n->conf.self;
}

/* How many of ours are of the best kind for it, and which is the turn-th of these. */
static unsigned of_kind(const struct net *n, const struct endpoint *to, unsigned turn, const struct endpoint **ret)
{
	unsigned count = 0;
	int best = -1;

	for (unsigned i = 0; i <= n->conf.nalso; i++)
		best = alike(own(n, i), to) > best ? alike(own(n, i), to) : best;
	for (unsigned i = 0; i <= n->conf.nalso; i++)
		if (alike(own(n, i), to) == best && count++ == turn)
			*ret = own(n, i);
	return count;
}

const struct endpoint *others_self(const struct net *n, const struct endpoint *to, unsigned turn)
{
	const struct endpoint *at = &n->conf.self;

	of_kind(n, to, turn % of_kind(n, to, 0, &at), &at);
	return at;
}

/* Nothing that the peer could see depends on whether there is a connection: it would learn of ports that it cannot
 * reach itself. */
static bool claimed(const struct hello *h)
{
	return h->what == FOR_ASK || (h->peer && h->peer->at_level < AT_ANSWERED);
}

/* It is connected, but its answers do not come: they may not find the way to the address of ours that M1 has named. On
 * a long path they may be on their way yet, and would fit no other M1. */
bool others_own(struct hello *h, bool patient)
{
	struct net *n = h->net;
	const struct endpoint *at;
	struct linkinfo li = {0};
	unsigned count = of_kind(n, &h->at, 0, &at);

	if (count < 2 || h->through_door || n->conf.client)
		return false;
	if (!claimed(h)) {
		if (!n->env->ops->linkinfo(n->env, &h->at, &li) || !li.connected)
			return false;
		if (!patient && (!li.rtt_us || li.rtt_us > NEAR_US))
			return false;
	}
	h->own = (h->own + 1) % count;
	return h->own;                          /* through all of them: another route */
}

bool others_is_self(const struct net *n, const struct endpoint *at)
{
	bool self = endpoint_eq(at, &n->conf.self);

	for (unsigned i = 0; i < n->conf.nalso; i++)
		self |= endpoint_eq(at, &n->conf.also[i]);
	return self;
}

/* Addresses that mean something else on every machine or network: loopback, and those of one link. */
static bool near_only(const uint8_t ip[16], bool *ret_loopback)
{
	*ret_loopback = ip_is_loopback(ip);
	if (ip_is_v4(ip))
		return *ret_loopback || (ip[12] == 169 && ip[13] == 254);
	return *ret_loopback || (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80);
}

/* Nobody's: unspecified, which means this machine, multicast and broadcast. */
static bool nobodys(const uint8_t ip[16])
{
	static const uint8_t zero[16];

	if (ip_is_v4(ip))
		return !ip[12] || ip[12] >= 224;
	return ip[0] == 0xff || !memcmp(ip, zero, sizeof zero);
}

/* What listens on this machine's loopback, or on its link only, trusts who can speak there: it is not dialled for who
 * comes from elsewhere, but where this daemon itself is at home there. */
bool others_may_be(const struct net *n, const struct endpoint *at)
{
	bool loopback, own_loopback, also = n->conf.client;

	if (nobodys(at->ip))
		return false;
	if (!near_only(at->ip, &loopback))
		return true;
	for (unsigned i = 0; i <= n->conf.nalso; i++)
		also |= near_only(own(n, i)->ip, &own_loopback) && own_loopback == loopback;
	return also;
}

void others_clean(const struct net *n, struct endpoint *at, struct others *o)
{
	unsigned kept = 0;

	if (!others_may_be(n, at))
		memset(at->port, 0, sizeof at->port);
	for (unsigned i = 0; i < o->n; i++)
		if (others_may_be(n, &o->v[i]))
			o->v[kept++] = o->v[i];
	o->n = kept;
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

/* `at` is in use from now on: what was before it is one of the others. False: it is none of those known. */
bool others_used(struct peer *p, const struct endpoint *at)
{
	bool known = endpoint_eq(at, &p->at);

	for (unsigned i = 0; i < p->also.n && !known; i++)
		if (endpoint_eq(&p->also.v[i], at)) {
			p->also.v[i] = p->at;
			known = true;
		}
	return known;
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
	if (h->here < 2 && (claimed(h) || h->tries > 1 ||
	    (h->net->env->ops->linkinfo(h->net->env, &h->at, &li) && li.connected)))
		return false;
	h->turned++;
	h->here = 0;
	old = p->at;
	p->at = h->at = p->also.v[0];
	p->at_level = p->at_level > AT_CLAIMED ? AT_CLAIMED : p->at_level;      /* so it says */
	memmove(p->also.v, p->also.v + 1, (p->also.n - 1) * sizeof *p->also.v);
	p->also.v[p->also.n - 1] = old;
	p->torn = true;
	h->net->env->ops->close_link(h->net->env, &old, false); /* what waits there goes to the new one */
	h->through_door = h->net->conf.client;
	h->unreached = false;
	return true;
}

void others_hint(struct peer *p, const struct endpoint *at)
{
	if (p->at_level != AT_HINT || endpoint_eq(at, &p->at) || p->also.n == NET_ALSO)
		return;
	for (unsigned i = 0; i < p->also.n; i++)
		if (endpoint_eq(&p->also.v[i], at))
			return;
	p->also.v[p->also.n++] = *at;
}

void net_learn_also(struct net *n, const struct id *peer, const struct endpoint *at)
{
	struct peer *p = at->port[CHAN_CTRL] && others_may_be(n, at) ? peer_find(n, peer) : NULL;

	if (p)
		others_hint(p, at);
}

/* Only what the peer has said itself is passed on. */
unsigned net_also(const struct net *n, const struct id *peer, struct endpoint ret[NET_ALSO])
{
	struct peer *p = map_get(n->peers, peer->b, sizeof peer->b);

	if (id_eq(peer, &n->self.id)) {
		memcpy(ret, n->conf.also, n->conf.nalso * sizeof *ret);
		return n->conf.nalso;
	}
	if (!p || p->at_level <= AT_HINT)
		return 0;
	memcpy(ret, p->also.v, p->also.n * sizeof *ret);
	return p->also.n;
}
