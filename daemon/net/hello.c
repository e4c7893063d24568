/* HELLO as the one who dials: M1 until M2 comes, over fresh sockets when nothing does, through the other side's door
 * when its answers cannot reach us. The session is usable at M2; M3 rides in front of its frames until the other side
 * has shown that it has it. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "net/inner.h"

#define TRY_FIRST_US (200 * MS)
#define TRY_MAX_US (5 * SECOND)
#define PROOF_TRIES 3
#define UNREACHED_US (1 * SECOND)               /* who could not be reached by its mailboxes may have been busy */
#define PROOF_AGAIN_US (10 * SECOND)
#define AGAIN_US (1 * SECOND)                   /* not more often per peer when it did not help */

static void hello_fire(struct timer *t);

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
static void make_m1(struct hello *h)
{
	struct net *n = h->net;
	struct hello1 m = { .version_min = n->version_min, .version_max = n->version_max, .suites = n->suites,
		.boot = n->conf.boot_id, .at = *others_self(n, &h->at, h->own),
		.flags = (n->conf.client ? HELLO_CLIENT : 0) | (h->unreached ? HELLO_UNREACHED : 0) };

	forget_m1(h);
	buf_clear(&h->m1);
	memcpy(m.e, h->e, 32);
	memcpy(m.software, n->software, sizeof m.software);
	others_list(n, &m.at, &m.also);
	hello1_write(&m, key_bytes(n, h->key_no), &h->m1);
	sha256_of(h->m1.p, h->m1.len, h->m1_hash);
	map_put(n->hellos, h->m1_hash, HELLO_REF, h);
}

static struct hello *hello_new(struct net *n, struct peer *p, const struct endpoint *at)
{
	struct hello *h = xcalloc(1, sizeof *h);

	h->net = n;
	h->peer = p;
	h->at = *at;
	h->key_no = key_for(n, p);
	h->own = p ? p->own : 0;
	h->through_door = at->port[CHAN_DOOR] &&
		(n->conf.client || !at->port[CHAN_CTRL] || !p || p->as_client || !peer_partner(p));
	h->timer = (struct timer){ .fire = hello_fire, .name = "net hello" };
	list_init(&h->dials);
	list_push(&n->hello_list, &h->link);
	n->env->ops->secure(n->env, h->priv, sizeof h->priv);
	x25519_public(h->priv, h->e);
	h->began_us = env_now(n->env);
	make_m1(h);
	return h;
}

static void send_m1(struct hello *h)
{
	if (!h->tries++)
		h->began_us = env_now(h->net->env);
	if (FAILPOINT(h->net->env, "net.hello1.before"))
		return;                         /* as if lost */
	out_plain(h->net, &h->at, h->through_door ? CHAN_DOOR : CHAN_CTRL, 0, h->m1.p, h->m1.len,
		h->peer && h->peer->at_level == AT_CLAIMED);
	(void)FAILPOINT(h->net->env, "net.hello1.after");
}

/* Over fresh connections M2 takes five round trips through mailboxes, three through a door (C19). */
static uint64_t try_wait(const struct hello *h)
{
	uint64_t us = TRY_FIRST_US, least = h->peer ? (h->through_door ? 4 : 6) * h->peer->rtt[0].smooth_us : 0;

	us = (us > least ? us : least) << (h->tries > 5 ? 5 : h->tries ? h->tries - 1 : 0);
	if (us > TRY_MAX_US)
		us = TRY_MAX_US;
	return us - us / 5 + env_rand(h->net->env) % (2 * us / 5 + 1);
}

static void begin(struct hello *h)
{
	send_m1(h);
	env_after(h->net->env, &h->timer, try_wait(h));
}

/* Ends the dials that wait for this HELLO, and the HELLO. peer NULL: failed, e says why. */
static void end(struct hello *h, const struct id *peer, const struct err *e)
{
	struct list dials;

	list_init(&dials);
	list_move(&h->dials, &dials);
	hello_free(h);
	dials_end(&dials, peer, e);
}

void hello_cancel(struct hello *h, const struct err *e)
{
	end(h, NULL, e);
}

static void why_not(const struct hello *h, struct err *e)
{
	char at[64];

	if (h->why.code)
		*e = h->why;
	else
		err_set(e, ERR_UNREACHABLE, "no answer from %s after %u HELLOs in %.1f s: is a daemon listening there, with "
			"the same swarm key, and may packets pass both ways?",
			at_text(&h->at, h->at.port[CHAN_CTRL] ? CHAN_CTRL : CHAN_DOOR, at), h->tries,
			(double)(env_now(h->net->env) - h->began_us) / 1e6);
}

void hello_by_door(struct peer *p, bool client, bool as_client)
{
	if ((client && !p->client) || (as_client && !p->as_client))
		p->prove_next_us = env_now(p->net->env) + UNREACHED_US;
	p->client = client;
	p->as_client = as_client;
}

/* A refusal that settles the matter. */
static void fail(struct hello *h, const struct err *e)
{
	struct peer *p = h->peer;
	struct err copy = *e;
	bool proof = h->proof;

	end(h, NULL, &copy);
	if (!p)
		return;
	/* its mailboxes cannot be reached from here: the door it has dialled must do */
	if (proof) {
		hello_by_door(p, p->door_token, p->as_client);
		out_flush(p);
		return;
	}
	p->failures++;
	p->hello_next_us = env_now(p->net->env) + AGAIN_US;
	rpc_hello_failed(p, &copy);
	out_drop_waiting(p, UINT64_MAX);
}

static bool still_wanted(struct hello *h, uint64_t now)
{
	if (h->proof)
		return h->tries < PROOF_TRIES;
	if (h->peer) {
		out_drop_waiting(h->peer, now);
		return !list_empty(&h->peer->waiting) || !list_empty(&h->peer->calls) || h->tries < 4;
	}
	return now < h->until_us;
}

/* While the swarm's key is replaced, nobody knows which one the other side has: one after the other. */
static bool take_other_key(struct hello *h)
{
	uint32_t other = key_other(h->net, h->key_no);

	if (!other)
		return false;
	h->key_no = other;
	make_m1(h);
	return true;
}

/* Tries that may be on their way yet before another route is taken: to who is as far as can be, when nobody knows. */
static uint32_t patience(const struct hello *h)
{
	return h->peer && h->peer->rtt[0].samples ? 2 : 3;
}

static void hello_fire(struct timer *t)
{
	struct hello *h = container_of(t, struct hello, timer);
	struct net *n = h->net;
	uint64_t now = env_now(n->env);
	struct err e;

	if (!still_wanted(h, now)) {
		why_not(h, &e);
		fail(h, &e);
		return;
	}
	if (h->peer && h->tries >= 3 && h->peer->has_hint && h->peer->at_level != AT_NONE && !h->peer->also.n) {
		struct endpoint old = h->peer->at;      /* somebody says that it is elsewhere: take turns */

		h->peer->at = h->at = h->peer->hint;
		h->peer->hint = old;
	}
	/* Whether the door can be done without: it goes on carrying everything meanwhile. */
	if (h->proof && peer_by_door(h->peer)) {
		send_m1(h);
		env_after(n->env, &h->timer, try_wait(h));
		return;
	}
	if (h->tries >= patience(h)) {
		n->env->ops->close_link(n->env, &h->at);
		if (h->peer)
			h->peer->torn = true;
	}
	if (others_next(h) || others_own(h, h->tries >= patience(h))) {
		make_m1(h);
	} else if (h->tries >= patience(h) && h->at.port[CHAN_DOOR] && h->at.port[CHAN_CTRL] && !n->conf.client) {
		h->unreached = !h->through_door;        /* the mailbox has been tried: answers do not find their way */
		h->through_door = !h->through_door;
		make_m1(h);
	}
	if (h->tries >= 2 && h->tries % 2 == 0)
		take_other_key(h);
	send_m1(h);
	if (h->peer || now + try_wait(h) < h->until_us)
		env_after(n->env, &h->timer, try_wait(h));
	else
		env_timer(n->env, &h->timer, h->until_us > now ? h->until_us : now + 1);
}

void hello_start(struct peer *p)
{
	struct net *n = p->net;

	if (p->hello || p->at_level == AT_NONE || n->freeing || p->banned_until_us ||
	    p->barred_us > env_now(n->env) ||
	    (p->client && !p->at.port[CHAN_DOOR]) ||
	    map_len(n->hellos) >= HELLOS_MAX)
		return;
	p->hello = hello_new(n, p, &p->at);
	/* Not again at once; but whoever waits for a session counts on one that begins then. */
	if (!list_empty(&p->sessions) && env_now(n->env) < p->hello_next_us)
		env_timer(n->env, &p->hello->timer, p->hello_next_us);
	else
		begin(p->hello);
}

/* The first frames go through a door (C19). Before much is sent, a HELLO over the mailboxes shows both sides that they
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
	p->hello = hello_new(n, p, &p->at);
	p->hello->proof = true;
	p->hello->through_door = false;
	make_m1(p->hello);
	begin(p->hello);
	return true;
}

void net_dial(struct net *n, const struct endpoint *at, uint64_t timeout_us, net_dial_fn *done, void *arg)
{
	struct hello *h = hello_new(n, NULL, at);
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
		if (timeout_us < try_wait(h))
			env_timer(n->env, &h->timer, h->until_us);
	}
}

/* ---- what comes back ---- */

/* Is M2 acceptable? Fills e with why not. */
static int check_m2(struct hello *h, const struct hello2 *m, struct err *e)
{
	struct net *n = h->net;
	char a[9], b[9], at[64];

	if (id_eq(&m->id, &n->self.id)) {
		if (m->boot == n->conf.boot_id)
			return err_set(e, ERR_INVALID, "%s is this daemon itself", at_text(&h->at, CHAN_CTRL, at));
		net_tell(n, LOG_ERROR_, "duplicate_identity", &m->id,
			"another daemon at %s runs with this daemon's own key: the "
			"state directory was copied; stop one of the two, or delete its key file and start it again",
			at_text(&h->at, CHAN_CTRL, at));
		return err_set(e, ERR_AUTH, "another daemon at %s has this daemon's own key; give it a key of its own",
			at_text(&h->at, CHAN_CTRL, at));
	}
	if (m->version < n->version_min || m->version > n->version_max || !(m->suite & n->suites) ||
		(m->suite & (m->suite - 1)))
		return err_set(e, ERR_PROTOCOL, "an answer to HELLO that chose version %u and suite %u, which were not offered",
			m->version, m->suite);
	if (!guard_allowed(n, &m->id)) {
		n->count.not_allowed++;
		return err_set(e, ERR_REFUSED, "at %s is peer %s, which is not on this daemon's list ([network] allow)",
			at_text(&h->at, CHAN_CTRL, at), id_short(&m->id, a));
	}
	if (h->peer && !id_eq(&h->peer->id, &m->id))
		return err_set(e, ERR_AUTH, "at %s is peer %s now, not %s", at_text(&h->at, CHAN_CTRL, at), id_short(&m->id, a),
			id_short(&h->peer->id, b));
	return 0;
}

static struct session *derive(struct hello *h, const struct hello2 *m, const uint8_t *p, size_t len)
{
	struct net *n = h->net;
	uint8_t dh[32], transcript[32];
	struct sha256 sum;
	struct session *s;

	if (x25519_dh(h->priv, m->e, dh))
		return NULL;
	sha256_init(&sum);
	sha256_add(&sum, h->m1.p, h->m1.len);
	sha256_add(&sum, p, len);
	sha256_end(&sum, transcript);
	s = session_new(true, m->suite, dh, key_bytes(n, h->key_no), transcript);
	s->key_no = h->key_no;
	wipe(dh, sizeof dh);
	m3_make(s->m3, &n->self, transcript);
	s->version = m->version;
	s->boot = m->boot;
	return s;
}

/* Another peer answers where this one was said to be: the hint was wrong (or the machine has a new tenant). */
static void moved(struct hello *h, const struct hello2 *m)
{
	struct peer *other = peer_make(h->net, &m->id);

	if (other)
		peer_set_address(other, &h->at, AT_PROVEN);
	if (h->peer->has_hint) {
		h->peer->at = h->peer->hint;
		h->peer->at_level = AT_HINT;
		h->peer->has_hint = false;
	} else {
		h->peer->at_level = AT_NONE;
	}
}

void hello_on_m2(struct net *n, struct via via, const uint8_t *p, size_t len)
{
	struct hello2 m;
	struct hello *h;
	struct peer *peer;
	struct session *s;
	struct err e;
	char who[9];

	if (hello2_look(&m, p, len, &e)) {
		n->count.bad_frame++;
		return;
	}
	h = map_get(n->hellos, m.ref, HELLO_REF);
	if (!h)
		return;                         /* late, or somebody else's */
	if (hello2_verify(&m, p, len, h->m1_hash, key_bytes(n, h->key_no), &e)) {
		n->count.bad_seal++;            /* anybody could have sent it: the true answer may still come */
		return;
	}
	if (check_m2(h, &m, &e)) {
		if (h->peer && !id_eq(&h->peer->id, &m.id))
			moved(h, &m);
		fail(h, &e);
		return;
	}
	peer = h->peer ? h->peer : peer_make(n, &m.id);
	if (peer && peer->barred_us > env_now(n->env)) {
		err_set(&e, ERR_REFUSED, "peer %s does not let this daemon in: it is banned there, or not on the list",
			id_short(&peer->id, who));
		fail(h, &e);
		return;
	}
	s = peer && !peer->banned_until_us ? derive(h, &m, p, len) : NULL;
	if (!s) {
		err_set(&e, peer ? ERR_REFUSED : ERR_FULL, peer ? "the peer is banned" :
			"the address book is full of peers in use");
		fail(h, &e);
		return;
	}
	if (h->tries == 1)
		live_sample(peer, false, env_now(n->env) - h->began_us);
	memcpy(peer->software, m.software, sizeof peer->software);
	memcpy(peer->m1_ref, h->m1_hash, HELLO_REF);
	peer->own = h->through_door ? peer->own : h->own;
	hello_by_door(peer, h->through_door && peer->client, h->through_door && (m.flags & HELLO_AS_CLIENT));
	peer_set_address(peer, &h->at, AT_PROVEN);
	others_told(peer, &m.at, &m.also);
	peer->hello_next_us = env_now(n->env) + AGAIN_US;
	env_heard(n->env, h->at.ip, 0);
	if (h->peer) {
		h->peer->hello = NULL;
		h->peer = NULL;
	}
	live_heard(peer);
	peer_install(peer, s, !h->through_door);
	/* Something has to carry M3, so that the other side has the session too: what waited, a ping, or a bare sign. */
	if (peer_session(peer) != s || s->refs == 1)
		live_probe(peer, 2 * SECOND);
	if (peer_session(peer) == s && s->refs == 1)
		net_post(n, &peer->id, KIND_PING, NULL, NO_BLOB, CLASS_control);
	if (peer->barred_told) {
		list_move(&h->dials, &peer->unsure);
		peer_tend(peer);
	}
	end(h, &m.id, NULL);
}

void hello_on_too_old(struct net *n, struct via via, const uint8_t *p, size_t len)
{
	struct too_old t;
	struct hello *h;
	struct err e;
	char at[64];

	if (too_old_read(&t, p, len, n->mac_key, &e))
		return;
	if (t.why == REFUSAL_BARRED) {
		if (t.authentic || (n->has_old && !too_old_read(&t, p, len, n->old_key, &e) && t.authentic))
			hello_barred(n, t.ref);
		return;
	}
	if (!(h = map_get(n->hellos, t.ref, HELLO_REF)))
		return;
	too_old_read(&t, p, len, key_bytes(n, h->key_no), &e);
	if (t.why == REFUSAL_SWARM_KEY && !h->other_key && take_other_key(h)) {
		h->other_key = true;            /* once; then the timer goes on */
		send_m1(h);
		return;
	}
	at_text(&h->at, h->through_door ? CHAN_DOOR : CHAN_CTRL, at);
	switch (t.why) {
	case REFUSAL_VERSION:
		err_set(&e, ERR_VERSION,
			"%s speaks protocol versions %u to %u, this daemon %u to %u: upgrade the older of the two",
			at, t.version_min, t.version_max, n->version_min, n->version_max);
		break;
	case REFUSAL_SWARM_KEY:
		err_set(&e, ERR_AUTH, "%s has another swarm key: both daemons need the same --swarm-key-file", at);
		break;
	case REFUSAL_SUITE:
		err_set(&e, ERR_VERSION, "%s shares no cipher suite with this daemon", at);
		break;
	default:
		return;                         /* busy: the next try may do better */
	}
	h->why = e;
	/* A refusal under the swarm key is sure, and so is one on the connection that we made; others are hints. */
	if (!t.authentic && !(via.chan == CHAN_DOOR && (via.door_token & DOOR_DIALLED)))
		return;
	net_tell(n, LOG_WARN_, t.why == REFUSAL_SWARM_KEY ? "wrong_swarm_key" : "version_mismatch", NULL, "%s", e.text);
	fail(h, &e);
}

/* A hint to say HELLO again; the session goes on being received. */
void hello_on_reset(struct net *n, const uint8_t *p, size_t len)
{
	struct reset r;
	struct session *s;
	struct err e;

	if (reset_read(&r, p, len, n->mac_key, &e) && (!n->has_old || reset_read(&r, p, len, n->old_key, &e))) {
		n->count.bad_seal += e.code == ERR_AUTH;
		return;
	}
	s = map_get(n->sessions, &r.session, sizeof r.session);
	if (!s || !s->peer || !id_eq(&r.to, &n->self.id) || !id_eq(&r.from, &s->peer->id))
		return;
	s->doubted = true;
	hello_start(s->peer);
}
