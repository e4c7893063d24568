/* HELLO as the one who dials: how it begins (hello_try.c: no answer; hello_back.c: what comes back). M1 goes until M2
 * comes, through the other side's door when its answers cannot reach us. The session is usable at M2; M3 rides in front
 * of its frames until the other side has shown that it has it. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "net/inner.h"

#define TRY_FIRST_US (200 * MS)
#define TRY_MAX_US (5 * SECOND)
#define ASK_US (3 * SECOND)
#define UNREACHED_US (1 * SECOND)               /* who could not be reached by its mailboxes may have been busy */
#define PROOF_AGAIN_US (10 * SECOND)

static void forget_m1(struct hello *h)
{
	if (h->m1.len)
		map_del(h->net->hellos, h->m1_hash, HELLO_REF);
}

void hello_free(struct hello *h)
{
	forget_m1(h);
	env_timer(h->net->env, &h->timer, 0);
	if (h->peer && h->peer->hello == h)
		h->peer->hello = NULL;
	list_del(&h->link);
	wipe(h->priv, sizeof h->priv);
	buf_free(&h->m1);
	free(h);
}

/* M1 says which way the answer may take, so a change of route makes another one (with the same ephemeral key). */
void hello_make_m1(struct hello *h)
{
	struct net *n = h->net;
	struct hello1 m = { .version_min = n->version_min, .version_max = n->version_max, .suites = n->suites,
		.boot = n->conf.boot_id, .at = *others_self(n, &h->at, h->own), .to = h->at,
		.flags = (n->conf.client ? HELLO_CLIENT : 0) | (h->unreached ? HELLO_UNREACHED : 0) |
			n->conf.moves * HELLO_MOVES };

	forget_m1(h);
	buf_clear(&h->m1);
	memcpy(m.e, h->e, 32);
	memcpy(m.software, n->software, sizeof m.software);
	others_list(n, &m.at, &m.also);
	hello1_write(&m, key_bytes(n, h->key_no), &h->m1);
	sha256_of(h->m1.p, h->m1.len, h->m1_hash);
	map_put(n->hellos, h->m1_hash, HELLO_REF, h);
	h->m1_us = env_now(n->env);
}

static struct hello *hello_new(struct net *n, enum hello_for what, struct peer *p, const struct endpoint *at)
{
	struct hello *h = xcalloc(1, sizeof *h);

	h->net = n;
	h->what = what;
	h->peer = p;
	h->at = *at;
	h->key_no = key_for(n, p);
	h->own = p ? p->own : 0;
	h->through_door = at->port[CHAN_DOOR] &&
		(n->conf.client || !at->port[CHAN_CTRL] || !p || p->as_client || !peer_partner(p));
	h->timer = (struct timer){ .fire = n->does->hello, .name = "net hello" };
	list_init(&h->dials);
	list_push(&n->hello_list, &h->link);
	n->env->ops->secure(n->env, h->priv, sizeof h->priv);
	x25519_public(h->priv, h->e);
	h->began_us = env_now(n->env);
	hello_make_m1(h);
	return h;
}

void hello_send(struct hello *h)
{
	if (!h->tries++)
		h->began_us = env_now(h->net->env);
	if (FAILPOINT(h->net->env, "net.hello1.before"))
		return;                         /* as if lost */
	out_plain(h->net, &h->at, h->through_door ? CHAN_DOOR : CHAN_CTRL, 0, h->m1.p, h->m1.len,
		h->what == FOR_ASK || (h->peer && h->peer->at_level == AT_CLAIMED));
	(void)FAILPOINT(h->net->env, "net.hello1.after");
}

void hello_renew(struct hello *h)
{
	h->net->env->ops->secure(h->net->env, h->priv, sizeof h->priv);
	x25519_public(h->priv, h->e);
	hello_make_m1(h);
	hello_send(h);
}

/* Twice as long each time at one address, and each time that all have had their turn.
 * Over fresh connections M2 takes five round trips through mailboxes, three through a door. */
uint64_t hello_wait(const struct hello *h)
{
	uint64_t more = h->here + h->turned / (1 + (h->peer ? h->peer->also.n : 0));
	uint64_t us = TRY_FIRST_US, least = h->peer ? (h->through_door ? 4 : 6) * h->peer->rtt[0].smooth_us : 0;

	us = (us > least ? us : least) << (more > 5 ? 5 : more);
	if (us > TRY_MAX_US)
		us = TRY_MAX_US;
	return us - us / 5 + env_rand(h->net->env) % (2 * us / 5 + 1);
}

static void begin(struct hello *h)
{
	hello_send(h);
	env_after(h->net->env, &h->timer, hello_wait(h));
}

void dials_end(struct list *dials, const struct id *peer, const struct err *e)
{
	struct list mine;
	struct list *x;

	list_init(&mine);                       /* whoever hears it may dial again */
	list_move(dials, &mine);
	while ((x = list_pop(&mine))) {
		struct dial *d = list_entry(x, struct dial, link);

		d->done(d->arg, peer, e);
		free(d);
	}
}

/* Ends the dials that wait for this HELLO, and the HELLO. peer NULL: failed, e says why. */
void hello_end(struct hello *h, const struct id *peer, const struct err *e)
{
	struct list dials;

	list_init(&dials);
	list_move(&h->dials, &dials);
	hello_free(h);
	dials_end(&dials, peer, e);
}

void hello_by_door(struct peer *p, bool client, bool as_client)
{
	if ((client && !p->client) || (as_client && !p->as_client))
		p->prove_next_us = env_now(p->net->env) + UNREACHED_US;
	p->client = client;
	p->as_client = as_client;
}

/* While the swarm's key is replaced, nobody knows which one the other side has: one after the other. */
bool hello_other_key(struct hello *h)
{
	uint32_t other = key_other(h->net, h->key_no);

	if (!other)
		return false;
	h->key_no = other;
	hello_make_m1(h);
	return true;
}

void hello_start(struct peer *p)
{
	struct net *n = p->net;

	if (p->hello || p->at_level == AT_NONE || n->freeing || p->banned_until_us ||
	    p->barred_us > env_now(n->env) ||
	    (p->client && !p->at.port[CHAN_DOOR]) ||
	    map_len(n->hellos) >= HELLOS_MAX)
		return;
	p->hello = hello_new(n, FOR_SESSION, p, &p->at);
	/* Not again at once; but whoever waits for a session counts on one that begins then. */
	if (!list_empty(&p->sessions) && env_now(n->env) < p->hello_next_us)
		env_timer(n->env, &p->hello->timer, p->hello_next_us);
	else
		begin(p->hello);
}

/* The first frames go through a door. Before much is sent, a HELLO over the mailboxes shows both sides that they
 * reach each other there; until it has succeeded the door's connection carries everything but bulk, which waits. Where
 * answers have not found their way once, everything goes by the door, and it is tried again from time to time. */
bool hello_prove(struct peer *p)
{
	struct net *n = p->net;
	uint64_t now = env_now(n->env);

	if (p->hello)
		return true;
	if (now < p->prove_next_us || !p->at.port[CHAN_CTRL] || n->freeing || map_len(n->hellos) >= HELLOS_MAX)
		return false;
	p->prove_next_us = now + PROOF_AGAIN_US;
	p->hello = hello_new(n, FOR_PROOF, p, &p->at);
	p->hello->through_door = false;
	hello_make_m1(p->hello);
	begin(p->hello);
	return true;
}

void hello_ask(struct net *n, const struct endpoint *at)
{
	struct hello *h;

	if (map_len(n->hellos) >= HELLOS_MAX || others_is_self(n, at))
		return;
	h = hello_new(n, FOR_ASK, NULL, at);
	h->until_us = env_now(n->env) + ASK_US;
	begin(h);
}

void net_dial(struct net *n, const struct endpoint *at, uint64_t timeout_us, net_dial_fn *done, void *arg)
{
	struct hello *h = hello_new(n, FOR_DIAL, NULL, at);
	struct dial *d = xcalloc(1, sizeof *d);

	d->done = done;
	d->arg = arg;
	list_push(&h->dials, &d->link);
	h->until_us = d->deadline_us = env_now(n->env) + (timeout_us ? timeout_us : 1);
	if (others_is_self(n, at)) {
		err_set(&h->why, ERR_INVALID, "that is this daemon's own address");
		h->until_us = 0;
		env_after(n->env, &h->timer, 1);
	} else if (!at->port[h->through_door ? CHAN_DOOR : CHAN_CTRL]) {
		err_set(&h->why, ERR_INVALID, "an address without a port");
		h->until_us = 0;
		env_after(n->env, &h->timer, 1);
	} else {
		begin(h);
		if (timeout_us < hello_wait(h))
			env_timer(n->env, &h->timer, h->until_us);
	}
}
