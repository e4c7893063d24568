/* HELLO as the one who dials: nothing has come back in its time, or something that settles the matter. */
#include "net/inner.h"

#define PROOF_TRIES 3

/* What its sockets have seen; they are closed on the way. */
static void look(struct hello *h)
{
	struct linkinfo li = { 0 };

	(void)h->net->env->ops->linkinfo(h->net->env, &h->at, &li);
	h->met = h->met || li.connected || li.maybe_dead;
	h->refused = h->refused || li.failed;
}

static void why_not(const struct hello *h, struct err *e)
{
	double s = (double)(env_now(h->net->env) - h->began_us) / 1e6;
	char at[64];

	at_text(&h->at, h->at.port[CHAN_CTRL] ? CHAN_CTRL : CHAN_DOOR, at);
	if (h->why.code)
		*e = h->why;
	else if (h->met)
		err_set(e, ERR_UNREACHABLE, "%s takes connections and has answered none of %u HELLOs in %.1f s: is it a daemon "
			"with the same swarm key?", at, h->tries, s);
	else if (h->refused)
		err_set(e, ERR_UNREACHABLE, "%s refuses connections, or no way leads there (%u HELLOs in %.1f s): is a daemon "
			"listening there?", at, h->tries, s);
	else
		err_set(e, ERR_UNREACHABLE, "no answer from %s after %u HELLOs in %.1f s: is that machine on, and may packets "
			"pass both ways?", at, h->tries, s);
}

/* A refusal that settles the matter. */
void hello_fail(struct hello *h, const struct err *e)
{
	struct peer *p = h->peer;
	struct err copy = *e;
	bool proof = h->proof;

	hello_end(h, NULL, &copy);
	if (!p)
		return;
	/* its mailboxes cannot be reached from here: the door it has dialled must do */
	if (proof) {
		hello_by_door(p, p->door_token, p->as_client);
		out_flush(p);
		return;
	}
	p->failures++;
	p->hello_next_us = env_now(p->net->env) + HELLO_AGAIN_US;
	rpc_hello_failed(p, &copy);
	out_drop_waiting(p, UINT64_MAX);
}

static bool still_wanted(struct hello *h, uint64_t now)
{
	if (h->proof)                           /* two for the first address and two for the next one */
		return h->tries < PROOF_TRIES + (h->peer->also.n > 0);
	if (h->peer) {
		out_drop_waiting(h->peer, now);
		return !list_empty(&h->peer->waiting) || !list_empty(&h->peer->calls) || h->tries < 4;
	}
	return now < h->until_us;
}

/* Tries that may be on their way yet before another route is taken: to who is as far as can be, when nobody knows. */
static uint32_t patience(const struct hello *h)
{
	return h->peer && h->peer->rtt[0].samples ? 2 : 3;
}

void hello_fire(struct timer *t)
{
	struct hello *h = container_of(t, struct hello, timer);
	struct net *n = h->net;
	uint64_t now = env_now(n->env);
	struct err e;

	look(h);
	if (!still_wanted(h, now)) {
		why_not(h, &e);
		hello_fail(h, &e);
		return;
	}
	if (h->peer && h->tries >= 3 && h->peer->has_hint && h->peer->at_level != AT_NONE && !h->peer->also.n) {
		struct endpoint old = h->peer->at;      /* somebody says that it is elsewhere: take turns */

		h->peer->at = h->at = h->peer->hint;
		h->peer->at_level = AT_HINT;
		h->peer->hint = old;
		hello_make_m1(h);
	}
	/* Whether the door can be done without: it goes on carrying everything meanwhile. */
	if (h->proof && peer_by_door(h->peer)) {
		hello_send(h);
		env_after(n->env, &h->timer, hello_wait(h));
		return;
	}
	if (h->tries >= patience(h) && !(h->proof && h->at.port[CHAN_DOOR])) {  /* the door carries everything meanwhile */
		n->env->ops->close_link(n->env, &h->at);
		if (h->peer)
			h->peer->torn = true;
	}
	if (others_next(h) || others_own(h, h->tries >= patience(h))) {
		hello_make_m1(h);
	} else if (h->tries >= patience(h) && h->at.port[CHAN_DOOR] && h->at.port[CHAN_CTRL] && !n->conf.client) {
		h->unreached = !h->through_door;        /* the mailbox has been tried: answers do not find their way */
		h->through_door = !h->through_door;
		hello_make_m1(h);
	}
	if (h->tries >= 2 && h->tries % 2 == 0)
		hello_other_key(h);
	hello_send(h);
	if (h->peer || now + hello_wait(h) < h->until_us)
		env_after(n->env, &h->timer, hello_wait(h));
	else
		env_timer(n->env, &h->timer, h->until_us > now ? h->until_us : now + 1);
}
