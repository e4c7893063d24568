/* HELLO as the one who is dialled. Nothing is believed before M3: an M1 whose MAC fits costs one X25519 and one
 * signature, is charged to where it comes from, and leaves a half-open session that is forgotten after ten seconds. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "net/inner.h"

#define HELLOS_PER_S 100.0                      /* per source address; 0.2 ms each */
#define HELLOS_BURST 512.0
#define DOOR_HELLOS_PER_S 10.0                  /* by one connection to the door, one daemon's */
#define DOOR_HELLOS_BURST 64.0
#define AGAIN_PER_S 10.0                        /* the same HELLO */
#define AGAIN_BURST 20.0
#define REFUSALS_PER_S 1.0                      /* by one connection to the door; */
#define REFUSALS_BURST 2.0                      /* one for each key, while the swarm's is replaced */
#define RESETS_PER_S 20.0                       /* in all; one a second per peer */
#define SOURCES_MAX 4096
#define NOT_ALLOWED_US (60 * SECOND)

struct source { struct list link; uint8_t key[17]; struct limit hellos, refusals; };

/* What a HELLO costs is charged to where it came from. nanomsg tells no address: of the door it names the connection,
 * of which an address has few (nano_sweep.c); of a mailbox nothing, so there it is the address that M1 names, where the
 * answer goes. The table is bounded: who was used longest ago makes room. */
static struct source *source_of(struct net *n, struct via via, const uint8_t ip[16])
{
	uint8_t key[17] = { via.chan == CHAN_DOOR };
	struct source *s;

	if (via.chan == CHAN_DOOR)
		memcpy(key + 1, &via.door_token, sizeof via.door_token);
	else
		ip_group(ip, key + 1);
	s = map_get(n->sources, key, sizeof key);
	if (!s && map_len(n->sources) >= SOURCES_MAX) {
		s = list_entry(n->source_list.next, struct source, link);
		map_del(n->sources, s->key, sizeof s->key);
		list_del(&s->link);
		free(s);
		s = NULL;
	}
	if (!s) {
		s = xcalloc(1, sizeof *s);
		memcpy(s->key, key, sizeof key);
		list_init(&s->link);
		map_put(n->sources, key, sizeof key, s);
	}
	list_del(&s->link);
	list_push(&n->source_list, &s->link);
	return s;
}

static bool may_greet(struct net *n, struct via via, const uint8_t ip[16])
{
	struct source *s = source_of(n, via, ip);
	bool door = via.chan == CHAN_DOOR;

	return limit_take(&s->hellos, env_now(n->env), door ? DOOR_HELLOS_PER_S : HELLOS_PER_S,
		door ? DOOR_HELLOS_BURST : HELLOS_BURST);
}

/* What a stranger is told by its own connection to the door: refusals, and that its session is unknown. */
static bool may_refuse(struct net *n, struct via via)
{
	static const uint8_t nowhere[16];

	return limit_take(&source_of(n, via, nowhere)->refusals, env_now(n->env), REFUSALS_PER_S, REFUSALS_BURST);
}

void greet_free(struct net *n)
{
	struct list *i;

	while ((i = list_pop(&n->source_list)))
		free(list_entry(i, struct source, link));
	map_free(n->sources);
}

void half_free(struct half *h)
{
	struct net *n = h->net;

	map_del(n->halves, h->ref, HELLO_REF);
	if (h->s) {
		map_del(n->sessions, &h->s->id, sizeof h->s->id);
		h->s->half = NULL;
		h->s->dead = true;
		session_unref(h->s);
	}
	list_del(&h->link);
	buf_free(&h->m2);
	free(h);
}

void greet_expire(struct net *n, uint64_t now)
{
	while (!list_empty(&n->half_list)) {
		struct half *h = list_entry(n->half_list.next, struct half, link);

		if (h->made_us + HALF_US > now)
			return;
		half_free(h);
	}
}

/* The answer goes where M1 came from: on the door's connection, or to the mailbox that M1 names under its MAC. */
static void answer(struct net *n, struct via via, const struct endpoint *at, const void *p, size_t len)
{
	if (FAILPOINT(n->env, "net.hello2.before"))
		return;
	if (via.chan == CHAN_DOOR)
		out_plain(n, at, CHAN_DOOR, via.door_token, p, len, false);
	else if (at->port[CHAN_CTRL])
		out_plain(n, at, CHAN_CTRL, 0, p, len, true);
	(void)FAILPOINT(n->env, "net.hello2.after");
}

static void refuse(struct net *n, struct via via, const struct endpoint *at, enum refusal why, uint32_t key_no,
	const uint8_t ref[HELLO_REF])
{
	struct too_old t = { .why = why, .version_min = n->version_min, .version_max = n->version_max };
	uint8_t out[TOO_OLD_BYTES];

	if (via.chan == CHAN_DOOR && !may_refuse(n, via)) {
		n->count.hello_limited++;
		return;
	}
	memcpy(t.ref, ref, HELLO_REF);
	too_old_write(&t, key_bytes(n, key_no), out);
	answer(n, via, at, out, sizeof out);
}

static void stranger(struct net *n, struct via via, const uint8_t *p, size_t len)
{
	static const struct endpoint nowhere;
	uint8_t hash[32];

	n->count.wrong_swarm_key++;
	net_tell(n, LOG_WARN_, "wrong_swarm_key", NULL,
		"a daemon with another swarm key tried to connect (%llu times so far): "
		"if it belongs to this swarm, give it the same --swarm-key-file", (unsigned long long)n->count.wrong_swarm_key);
	/* Nothing is dialled on account of an M1 whose MAC does not fit; its own connection may hear why. */
	sha256_of(p, len, hash);
	if (via.chan == CHAN_DOOR)
		refuse(n, via, &nowhere, REFUSAL_SWARM_KEY, 0, hash);
}

static void respond(struct net *n, struct via via, const struct hello1 *m1, const uint8_t *p, size_t len,
	uint16_t version, unsigned suite, uint32_t key_no)
{
	struct hello2 m2 = { .version = version, .suite = suite, .boot = n->conf.boot_id,
		.at = *others_self(n, &m1->at, 0) };
	uint8_t priv[32], dh[32], hash[32];
	struct half *h;
	struct sha256 sum;

	n->env->ops->secure(n->env, priv, sizeof priv);
	if (x25519_dh(priv, m1->e, dh)) {
		n->count.bad_frame++;
		return;
	}
	x25519_public(priv, m2.e);
	wipe(priv, sizeof priv);
	if (map_len(n->halves) >= HALVES_MAX)
		half_free(list_entry(n->half_list.next, struct half, link));
	h = xcalloc(1, sizeof *h);
	h->net = n;
	h->m1 = *m1;
	h->made_us = env_now(n->env);
	h->through_door = via.chan == CHAN_DOOR;
	sha256_of(p, len, hash);
	memcpy(h->ref, hash, HELLO_REF);
	memcpy(m2.ref, hash, HELLO_REF);
	m2.id = n->self.id;
	m2.flags = h->through_door && (m1->flags & (HELLO_CLIENT | HELLO_UNREACHED)) ? HELLO_AS_CLIENT : 0;
	m2.flags |= (others_is_self(n, &m1->to) ? HELLO_MINE : 0) | n->conf.moves * HELLO_MOVES;
	memcpy(m2.software, n->software, sizeof m2.software);
	others_list(n, &m2.at, &m2.also);
	hello2_write(&m2, hash, &n->self, key_bytes(n, key_no), &h->m2);
	sha256_init(&sum);
	sha256_add(&sum, p, len);
	sha256_add(&sum, h->m2.p, h->m2.len);
	sha256_end(&sum, h->transcript);
	h->s = session_new(false, suite, dh, key_bytes(n, key_no), h->transcript);
	h->s->key_no = key_no;
	wipe(dh, sizeof dh);
	h->s->half = h;
	h->s->version = version;
	h->s->boot = m1->boot;
	h->s->seen_us = h->made_us;             /* M3 answers M2 */
	list_push(&n->half_list, &h->link);
	map_put(n->halves, h->ref, HELLO_REF, h);
	map_put(n->sessions, &h->s->id, sizeof h->s->id, h->s);
	answer(n, via, &m1->at, h->m2.p, h->m2.len);
}

/* Which of the swarm's keys its MAC was made with; 0: none, or it is no M1 at all, and e says why. */
static uint32_t read_m1(const struct net *n, struct hello1 *m1, const uint8_t *p, size_t len, struct err *e)
{
	uint32_t other = key_other(n, n->key_no);

	if (!hello1_read(m1, p, len, n->mac_key, e))
		return n->key_no;
	return other && !hello1_read(m1, p, len, key_bytes(n, other), e) ? other : 0;
}

void greet_on_m1(struct net *n, struct via via, const uint8_t *p, size_t len)
{
	struct hello1 m1;
	struct half *h;
	uint8_t hash[32];
	uint16_t version;
	unsigned suite;
	struct err e;
	uint32_t key_no = read_m1(n, &m1, p, len, &e);

	if (!key_no) {
		if (e.code == ERR_AUTH)
			stranger(n, via, p, len);
		else
			n->count.bad_frame++;
		return;
	}
	others_clean(n, &m1.at, &m1.also);
	/* Sent again, or replayed: the same answer, no new work, and nothing of what the address that it names may do. */
	sha256_of(p, len, hash);
	h = map_get(n->halves, hash, HELLO_REF);
	if (h ? !limit_take(&h->again, env_now(n->env), AGAIN_PER_S, AGAIN_BURST) : !may_greet(n, via, m1.at.ip)) {
		n->count.hello_limited++;
		return;
	}
	if (h) {
		answer(n, via, &m1.at, h->m2.p, h->m2.len);
		return;
	}
	version = m1.version_max < n->version_max ? m1.version_max : n->version_max;
	suite = suite_choose(n->suites, m1.suites);
	if (version < m1.version_min || version < n->version_min) {
		n->count.bad_version++;
		net_tell(n, LOG_WARN_, "version_mismatch", NULL,
			"a daemon (%s) that speaks protocol versions %u to %u was refused, "
			"this one speaks %u to %u: upgrade the older of the two", m1.software, m1.version_min, m1.version_max,
			n->version_min, n->version_max);
		refuse(n, via, &m1.at, REFUSAL_VERSION, key_no, hash);
	} else if (!suite) {
		refuse(n, via, &m1.at, REFUSAL_SUITE, key_no, hash);
	} else {
		respond(n, via, &m1, p, len, version, suite, key_no);
	}
}

/* Now that it has said who it is it may hear that it is not wanted; NULL. */
static struct peer *barred(struct net *n, struct half *h, struct via via)
{
	refuse(n, via, &h->m1.at, REFUSAL_BARRED, h->s->key_no, h->ref);
	half_free(h);
	return NULL;
}

struct peer *greet_on_m3(struct net *n, struct half *h, struct via via, const struct header *hd, const uint8_t *m3)
{
	struct session *s = h->s;
	struct id id;
	bool mailbox = !h->through_door;
	struct peer *p;
	char at[64];

	if (!m3 || m3_check(m3, h->transcript, &id) || !id_eq(&id, &hd->sender)) {
		n->count.bad_seal++;
		half_free(h);
		return NULL;
	}
	if (id_eq(&id, &n->self.id)) {
		if (h->m1.boot != n->conf.boot_id)
			twin_found(n, at_text(&h->m1.at, CHAN_CTRL, at));
		half_free(h);
		return NULL;
	}
	if (!guard_allowed(n, &id)) {
		if (!n->count.not_allowed++ || env_now(n->env) >= n->not_allowed_us + NOT_ALLOWED_US) {
			n->not_allowed_us = env_now(n->env);    /* it tries for ever */
			net_tell(n, LOG_WARN_, "not_allowed", &id, "a peer that is not on this daemon's list was refused (%s); if "
				"it may come in, add its id to [network] allow", at_text(&h->m1.at, CHAN_CTRL, at));
		}
		return barred(n, h, via);
	}
	p = peer_make(n, &id);
	if (!p || p->banned_until_us)
		return barred(n, h, via);
	/* That process had begun before the one of now was heard of: its M3 was kept back, and it is over. Were it not, it
	 * would hear RESET and say HELLO again. */
	if (p->boot && p->boot != s->boot && h->made_us < p->boot_seen_us) {
		n->count.replayed++;
		half_free(h);
		return NULL;
	}
	if (mailbox)                            /* M2 has been there; what a door's connection claims is nobody's proof */
		env_heard(n->env, h->m1.at.ip, 0);
	memcpy(p->software, h->m1.software, sizeof p->software);
	p->moves = h->m1.flags / HELLO_MOVES & MOVES_ALL;
	if (p->barred_told)                     /* whoever dials us wants us */
		hello_let_in(p);
	hello_by_door(p, h->through_door && (h->m1.flags & (HELLO_CLIENT | HELLO_UNREACHED)), p->as_client);
	if (!(h->m1.flags & HELLO_CLIENT)) {
		peer_set_address(p, &h->m1.at, h->through_door ? AT_CLAIMED : AT_PROVEN);
		others_told(p, &h->m1.at, &h->m1.also);
	}
	h->s = NULL;
	s->half = NULL;
	s->confirmed = true;
	half_free(h);
	map_del(n->sessions, &s->id, sizeof s->id);
	if (via.chan == CHAN_DOOR)
		door_is(p, via, hd);
	peer_install(p, s, mailbox);
	return p;
}

void greet_unknown(struct net *n, struct via via, const struct header *h)
{
	struct reset r = { .session = h->session, .boot = n->conf.boot_id, .from = n->self.id, .to = h->sender };
	struct peer *p = peer_find(n, &h->sender);
	uint64_t now = env_now(n->env);
	uint8_t out[RESET_BYTES];

	n->count.unknown_session++;
	if ((p && p->reset_us > now) || (via.chan != CHAN_DOOR && (!p || p->at_level == AT_NONE)) ||
	    (via.chan == CHAN_DOOR && !may_refuse(n, via)) || !limit_take(&n->resets, now, RESETS_PER_S, RESETS_PER_S))
		return;
	if (p)
		p->reset_us = now + SECOND;
	reset_write(&r, key_bytes(n, key_for(n, p)), out);
	answer(n, via, p ? &p->at : &n->conf.self, out, sizeof out);
}
