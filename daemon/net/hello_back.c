/* HELLO as the one who dials: what comes back, M2, a refusal, or a hint that a session is unknown. */
#include <string.h>
#include "common/hash.h"
#include "net/inner.h"

#define OWN_AGAIN_US (600 * SECOND)             /* to the address that a peer says, when another one was dialled */

/* Is M2 acceptable? Fills e with why not. */
static int check_m2(struct hello *h, const struct hello2 *m, struct err *e)
{
	struct net *n = h->net;
	char a[9], b[9], at[64];

	if (id_eq(&m->id, &n->self.id)) {
		if (m->boot == n->conf.boot_id)
			return err_set(e, ERR_INVALID, "%s is this daemon itself", at_text(&h->at, CHAN_CTRL, at));
		twin_found(n, at_text(&h->at, CHAN_CTRL, at));
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
	s->seen_us = h->m1_us;
	return s;
}

/* Another peer answers where this one was said to be: the hint was wrong (or the machine has a new tenant). */
static void moved(struct hello *h, const struct hello2 *m)
{
	struct peer *other = peer_make(h->net, &m->id);

	if (other)
		peer_set_address(other, &h->at, m->flags & HELLO_MINE ? AT_PROVEN : AT_ANSWERED);
	if (h->peer->has_hint) {
		h->peer->at = h->peer->hint;
		h->peer->at_level = AT_HINT;
		h->peer->has_hint = false;
	} else {
		h->peer->at_level = AT_NONE;
	}
}

/* M1 may have been passed on: who answers says whether the address that it was sent to is its own. If not, it may be
 * behind a NAT, or somebody who would like to stand in its place: the address is used while it does, and the one that
 * it says itself is tried. */
static void where(struct peer *p, const struct hello *h, const struct hello2 *m)
{
	struct net *n = p->net;
	uint64_t now = env_now(n->env);
	bool mine = m->flags & HELLO_MINE;

	peer_set_address(p, &h->at, mine ? AT_PROVEN : AT_ANSWERED);
	others_told(p, &m->at, &m->also);
	if (mine || p->at_level == AT_PROVEN || now < p->own_next_us || !m->at.port[CHAN_CTRL] ||
	    endpoint_eq(&m->at, &h->at))
		return;
	p->own_next_us = now + OWN_AGAIN_US;
	hello_ask(n, &m->at);
}

/* M2 of another process than the one that has been heard of since M1 was sent: either may be the newer one. A question
 * that is asked now is answered by who is there. */
static bool too_old(struct hello *h, const struct peer *p, const struct hello2 *m)
{
	if (!p || !p->boot || m->boot == p->boot || p->boot_since_us <= h->m1_us)
		return false;
	hello_renew(h);
	return true;
}

/* The session with who has answered by m; NULL and e: nobody is let in. */
static struct session *session_with(struct hello *h, const struct peer *peer, const struct hello2 *m, const uint8_t *p,
	size_t len, struct err *e)
{
	struct session *s = peer && !peer->banned_until_us ? derive(h, m, p, len) : NULL;

	if (!s)
		err_set(e, peer ? ERR_REFUSED : ERR_FULL, peer ? "the peer is banned" :
			"the address book is full of peers in use");
	return s;
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
	others_clean(n, &m.at, &m.also);
	if (check_m2(h, &m, &e)) {
		if (h->peer && !id_eq(&h->peer->id, &m.id))
			moved(h, &m);
		hello_fail(h, &e);
		return;
	}
	peer = h->peer ? h->peer : peer_make(n, &m.id);
	if (peer && peer->barred_us > env_now(n->env)) {
		err_set(&e, ERR_REFUSED, "peer %s does not let this daemon in: it is banned there, or not on the list",
			id_short(&peer->id, who));
		hello_fail(h, &e);
		return;
	}
	if (too_old(h, peer, &m))
		return;
	s = session_with(h, peer, &m, p, len, &e);
	if (!s) {
		hello_fail(h, &e);
		return;
	}
	if (h->tries == 1)
		rtt_sample(peer, false, env_now(n->env) - h->began_us);
	memcpy(peer->software, m.software, sizeof peer->software);
	peer->moves = m.flags / HELLO_MOVES & MOVES_ALL;
	memcpy(peer->m1_ref, h->m1_hash, HELLO_REF);
	peer->own = h->through_door ? peer->own : h->own;
	hello_by_door(peer, h->through_door && peer->client, h->through_door && (m.flags & HELLO_AS_CLIENT));
	where(peer, h, &m);
	peer->hello_next_us = env_now(n->env) + HELLO_AGAIN_US;
	env_heard(n->env, h->at.ip, 0);
	if (h->peer) {
		h->peer->hello = NULL;
		h->peer = NULL;
	}
	live_heard(peer);
	list_each(it, &peer->sessions)          /* what was said under them was not answered: M3 must go, by the new one */
		list_entry(it, struct session, link)->doubted |= peer->torn;
	peer_install(peer, s, !h->through_door);
	/* Something has to carry M3, so that the other side has the session too: what waited, a ping, or a bare sign. */
	if (peer_session(peer) != s || s->refs == 1)
		rpc_probe(peer, 2 * SECOND);
	if (peer_session(peer) == s && s->refs == 1)
		net_post(n, &peer->id, KIND_PING, NULL, NO_BLOB, CLASS_control);
	if (peer->barred_told) {
		list_move(&h->dials, &peer->unsure);
		peer_tend(peer);
	}
	hello_end(h, &m.id, NULL);
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
	if (t.why == REFUSAL_SWARM_KEY && !h->other_key && hello_other_key(h)) {
		h->other_key = true;            /* once; then the timer goes on */
		hello_send(h);
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
	hello_fail(h, &e);
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
