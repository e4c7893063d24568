/* HELLO as the one who dials: nothing has come back in its time, or something that settles the matter. What that means
 * depends on what the HELLO is for. */
#include <string.h>
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

bool net_dial_refused(const struct net *n, const struct endpoint *at, struct err *ret)
{
	list_each(it, &n->hello_list) {
		struct hello *h = list_entry(it, struct hello, link);

		if (h->what != FOR_DIAL || memcmp(&h->at, at, sizeof *at))
			continue;
		look(h);
		if (h->refused && !h->met) {
			why_not(h, ret);
			return true;
		}
	}
	return false;
}

/* ---- what a HELLO is for: how long it is wanted, and what hangs on it ---- */

static bool in_time(struct hello *h, uint64_t now) { return now < h->until_us; }

static bool waited_for(struct hello *h, uint64_t now)
{
	out_drop_waiting(h->peer, now);
	return !list_empty(&h->peer->waiting) || !list_empty(&h->peer->calls) || h->tries < 4;
}

/* Two for the first address and two for the next one. */
static bool few_tries(struct hello *h, uint64_t now) { return h->tries < PROOF_TRIES + (h->peer->also.n > 0); }

static void no_session(struct peer *p, const struct err *e)
{
	p->failures++;
	p->hello_next_us = env_now(p->net->env) + HELLO_AGAIN_US;
	rpc_hello_failed(p, e);
	out_drop_waiting(p, UINT64_MAX);
}

/* Its mailboxes cannot be reached from here: the door it has dialled must do. */
static void door_must_do(struct peer *p, const struct err *e)
{
	hello_by_door(p, p->door_token, p->as_client);
	out_flush(p);
}

struct purpose { bool (*wanted)(struct hello *h, uint64_t now); void (*failed)(struct peer *p, const struct err *e); };
static const struct purpose purposes[] = {
	[FOR_DIAL] = { in_time, NULL },
	[FOR_ASK] = { in_time, NULL },
	[FOR_SESSION] = { waited_for, no_session },
	[FOR_PROOF] = { few_tries, door_must_do },
};

void hello_fail(struct hello *h, const struct err *e)
{
	enum hello_for what = h->what;
	struct peer *p = h->peer;
	struct err copy = *e;

	hello_end(h, NULL, &copy);
	if (purposes[what].failed)
		purposes[what].failed(p, &copy);
}

/* ---- no answer: what the next try does otherwise ---- */

/* Tries that may be on their way yet before another route is taken: to who is as far as can be, when nobody knows. */
static bool patient(const struct hello *h) { return h->tries < (h->peer && h->peer->rtt[0].samples ? 2 : 3); }

/* Somebody says that it is elsewhere: take turns. */
static void to_hint(struct hello *h)
{
	struct peer *p = h->peer;
	struct endpoint old;

	if (!p || h->tries < 3 || !p->has_hint || p->at_level == AT_NONE || p->also.n)
		return;
	old = p->at;
	p->at = h->at = p->hint;
	p->at_level = AT_HINT;
	p->hint = old;
	hello_make_m1(h);
}

static void fresh_sockets(struct hello *h)
{
	if (patient(h) || (h->what == FOR_PROOF && h->at.port[CHAN_DOOR]))      /* that door carries everything meanwhile */
		return;
	h->net->env->ops->close_link(h->net->env, &h->at, false);
	if (h->peer)
		h->peer->torn = true;
}

static bool other_address(struct hello *h) { return others_next(h) || others_own(h, !patient(h)); }

/* From the mailbox to the door: it has been tried, and answers do not find their way. And back. */
static bool other_entrance(struct hello *h)
{
	if (patient(h) || !h->at.port[CHAN_DOOR] || !h->at.port[CHAN_CTRL] || h->net->conf.client)
		return false;
	h->unreached = !h->through_door;
	h->through_door = !h->through_door;
	return true;
}

void hello_fire(struct timer *t)
{
	struct hello *h = container_of(t, struct hello, timer);
	struct env *env = h->net->env;
	uint64_t now = env_now(env);
	struct err e;

	look(h);
	if (!purposes[h->what].wanted(h, now)) {
		why_not(h, &e);
		hello_fail(h, &e);
		return;
	}
	to_hint(h);
	/* Whether the door can be done without: it goes on carrying everything meanwhile, and nothing else is tried. */
	if (!(h->what == FOR_PROOF && peer_by_door(h->peer))) {
		fresh_sockets(h);
		if (other_address(h) || other_entrance(h))
			hello_make_m1(h);
		if (h->tries >= 2 && h->tries % 2 == 0)
			hello_other_key(h);
	}
	hello_send(h);
	if (h->peer || now + hello_wait(h) < h->until_us)
		env_after(env, &h->timer, hello_wait(h));
	else
		env_timer(env, &h->timer, h->until_us > now ? h->until_us : now + 1);
}
