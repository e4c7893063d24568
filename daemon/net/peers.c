/* The address book: who is where, with which sessions. Bounded: when it is full, the peer that was used longest ago
 * makes room, unless somebody still needs it; first of those that were only heard of. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "net/inner.h"

#define KNOWN_US (600 * SECOND)         /* whoever was of no use for so long is as good as a stranger */
#define NAMED_PER_S 16.0                /* others who make room for whom somebody names: a search asks some a second, */
#define NAMED_BURST 64.0                /* and one key may have thousands of records */

static bool endpoint_dialable(const struct endpoint *at)
{
	return at->port[CHAN_CTRL] || at->port[CHAN_DOOR];
}

bool peer_busy(const struct peer *p)
{
	return p->pins || p->care > 0 || p->hello || !list_empty(&p->calls) || !list_empty(&p->waiting) ||
		p->banned_until_us || !list_empty(&p->unsure);
}

/* It has said nothing under a session's seal, or was of no use for long. */
static bool stranger(const struct peer *p, uint64_t now)
{
	return p->used_us + KNOWN_US < now || (list_empty(&p->sessions) && !p->heard_us);
}

/* Why somebody is to be in the book: it has spoken, or the rooms above need to know where it is, or anybody says so. */
enum reason { SPOKEN, NAMED, HEARD_OF };

static bool make_room(struct net *n, enum reason why)
{
	struct peer *old[2] = { NULL };         /* any, stranger */
	uint64_t now = env_now(n->env);

	if (map_len(n->peers) < n->conf.peers_max)
		return true;
	list_each(it, &n->peer_list) {
		struct peer *p = list_entry(it, struct peer, link);

		for (int i = 0; i < 2 && !peer_busy(p); i++)
			if ((!i || stranger(p, now)) && (!old[i] || p->used_us < old[i]->used_us))
				old[i] = p;
	}
	struct peer *out = old[1];
	if (!out && (why == SPOKEN || (why == NAMED && limit_take(&n->named, now, NAMED_PER_S, NAMED_BURST))))
		out = old[0];
	if (out)
		peer_free(out);
	return out;
}

static struct peer *make(struct net *n, const struct id *id, enum reason why)
{
	struct peer *p = peer_find(n, id);

	if (p)
		return p;
	if (!make_room(n, why))
		return NULL;
	p = xcalloc(1, sizeof *p);
	p->net = n;
	p->id = *id;
	p->serial = ++n->serial;
	p->next_request = 1;
	p->used_us = env_now(n->env);
	p->fresh_backoff_us = FRESH_MIN_US;
	p->door_timer = (struct timer){ .fire = n->does->door, .name = "net door" };
	list_init(&p->care_link);
	list_init(&p->tend_link);
	list_init(&p->serve_link);
	list_init(&p->sessions);
	list_init(&p->waiting);
	list_init(&p->calls);
	list_init(&p->served_list);
	list_init(&p->door_queue);
	list_init(&p->door_bulk);
	list_init(&p->door_answers);
	list_init(&p->cached);
	list_init(&p->unsure);
	list_push(&n->peer_list, &p->link);
	map_put(n->peers, id->b, sizeof id->b, p);
	return p;
}

struct peer *peer_make(struct net *n, const struct id *id) { return make(n, id, SPOKEN); }

void peer_drop_session(struct session *s)
{
	struct net *n = s->peer->net;

	map_del(n->sessions, &s->id, sizeof s->id);
	list_del(&s->link);
	s->dead = true;
	s->peer = NULL;
	n->count.sessions--;
	session_unref(s);
}

void peer_drop_sessions(struct peer *p)
{
	list_each_safe(it, &p->sessions)
		peer_drop_session(list_entry(it, struct session, link));
}

void peer_drop_keys(struct peer *p, uint32_t oldest)
{
	list_each_safe(it, &p->sessions) {
		struct session *s = list_entry(it, struct session, link);

		if (s->key_no < oldest)
			peer_drop_session(s);
	}
}

/* Nobody points here: no outs, no calls, no kept requests. */
void peer_free(struct peer *p)
{
	struct net *n = p->net;

	assert(!p->pins && list_empty(&p->calls));
	if (p->hello)
		hello_free(p->hello);
	out_drop_waiting(p, UINT64_MAX);
	door_done(p);
	served_free(p);
	peer_drop_sessions(p);
	list_del(&p->link);
	list_del(&p->care_link);
	list_del(&p->tend_link);
	list_del(&p->serve_link);
	map_del(n->peers, p->id.b, sizeof p->id.b);
	free(p->twin);
	free(p->ban_why);
	free(p);
}

/* What waits at the address that was in use goes to the new one. A connection that dies there unseen would swallow the
 * first frames when that address is used again. */
static void leave(struct peer *p, const struct endpoint *at)
{
	if (list_empty(&p->sessions) || endpoint_eq(at, &p->at))
		return;
	p->torn = true;
	p->net->env->ops->close_link(p->net->env, &p->at, false);
}

/* Better founded knowledge replaces worse, and what the peer itself says replaces all (it may have moved); what
 * others say about a peer whose address is proven is only remembered,
 * and tried when the proven one has stopped answering. */
void peer_set_address(struct peer *p, const struct endpoint *at, enum at_level level)
{
	if (!endpoint_dialable(at))
		return;
	if (level == AT_CLAIMED && p->at_level > AT_CLAIMED && endpoint_eq(at, &p->at))
		return;
	if (level >= p->at_level || level == AT_CLAIMED || p->misses >= 4) {
		if (!others_used(p, at) && level == AT_HINT)
			p->also.n = 0;          /* hints that belong to another address */
		leave(p, at);
		p->at = *at;
		p->at_level = level;
		p->has_hint = false;
	} else if (endpoint_eq(at, &p->at)) {
		p->at_level = level == AT_ANSWERED ? level : p->at_level;       /* it was its own once */
	} else {
		p->hint = *at;
		p->has_hint = true;
	}
}

/* Amendment C12: of two sessions made by both sides at about the same time, both sides send on the one that the
 * smaller id initiated; otherwise the newest is the best. */
struct session *peer_session(struct peer *p)
{
	bool small = id_cmp(&p->net->self.id, &p->id) < 0;      /* this side's id is the smaller one */
	uint64_t now = env_now(p->net->env);
	struct session *best = NULL, *any = NULL;

	list_each(it, &p->sessions) {
		struct session *s = list_entry(it, struct session, link);

		if (s->dead || (s->retire_us && s->retire_us < now))
			continue;
		any = s;
		if (s->doubted || s->tx_bytes >= p->net->conf.rekey_bytes || s->tx_counter[0] >= p->net->conf.rekey_frames ||
		    s->tx_counter[1] >= p->net->conf.rekey_frames || now - s->made_us >= SESSION_AGE_MAX_US)
			continue;
		if (PLANTED(SESSION_CHOICE))
			best = NULL;
		if (best && s->key_no != best->key_no) {        /* the swarm's new key goes before its old one */
			best = s->key_no > best->key_no ? s : best;
			continue;
		}
		if (!best || s->made_us > best->made_us + BOTH_KEPT_US || s->initiator == best->initiator ||
		    s->initiator == small)
			best = s;
	}
	if (!best && any)                       /* worn or doubted: usable until the new one is there */
		hello_start(p);
	return best || p->life == LIFE_DEAD ? best : any;
}

/* ---- the public part ---- */

static void learn(struct net *n, const struct id *peer, const struct endpoint *at, enum reason why)
{
	struct peer *p;

	if (id_eq(peer, &n->self.id) || !endpoint_dialable(at) || !others_may_be(n, at))
		return;
	p = make(n, peer, why);
	if (p)
		peer_set_address(p, at, AT_HINT);
}

void net_learn(struct net *n, const struct id *peer, const struct endpoint *at) { learn(n, peer, at, NAMED); }
void net_heard_of(struct net *n, const struct id *peer, const struct endpoint *at) { learn(n, peer, at, HEARD_OF); }

bool net_address(const struct net *n, const struct id *peer, struct endpoint *ret)
{
	struct peer *p = map_get(n->peers, peer->b, sizeof peer->b);

	if (!p || p->at_level == AT_NONE)
		return false;
	*ret = p->at;
	return true;
}

static void info(struct peer *p, struct peer_info *ret)
{
	struct linkinfo li = {0};

	memset(ret, 0, sizeof *ret);
	ret->id = p->id;
	ret->at = p->at;
	memcpy(ret->version, p->software, sizeof ret->version);
	ret->session = !list_empty(&p->sessions);
	ret->client = p->client;
	if (p->at_level != AT_NONE && p->net->env->ops->linkinfo(p->net->env, &p->at, &li))
		ret->maybe_dead = li.maybe_dead;
	ret->maybe_dead = ret->maybe_dead || p->life == LIFE_DEAD;
	ret->rtt_us = p->rtt[0].smooth_us;
	ret->last_seen_us = p->heard_us;
	ret->banned_until_us = p->banned_until_us;
	ret->failures = p->failures;
	ret->bandwidth_bps = p->bandwidth_bps;
	ret->proven = p->mailbox && ret->session && !p->client && !p->as_client;
	if (ret->session && p->net->has_old) {
		const struct session *s = peer_session(p);

		ret->old_key = s && s->key_no != p->net->key_no;
	}
	snprintf(ret->ban_why, sizeof ret->ban_why, "%s", p->ban_why ? p->ban_why : "");
	ret->bytes = p->bytes;
	ret->nalso = p->also.n;
	memcpy(ret->also, p->also.v, sizeof ret->also);
}

unsigned net_own_moves(const struct net *n) { return n->conf.moves; }

#define SHORT_US (5 * MS)
unsigned net_moves(struct net *n, const struct id *peer)
{
	const struct peer *p = peer_find(n, peer);

	if (!p)
		return 0;
	/* The shortest round trip: under load they are long on short paths, too. */
	return p->moves & n->conf.moves & (p->rtt_min_us && p->rtt_min_us < SHORT_US ? ~0u : ~(unsigned)MOVES_LARGE);
}

bool net_peer(struct net *n, const struct id *peer, struct peer_info *ret)
{
	struct peer *p = peer_find(n, peer);

	if (p)
		info(p, ret);
	return p;
}

size_t net_peers(struct net *n, struct peer_info *out, size_t max)
{
	size_t k = 0;

	list_each(it, &n->peer_list) {
		if (k < max)
			info(list_entry(it, struct peer, link), &out[k]);
		k++;
	}
	return k;
}

void net_measured(struct net *n, const struct id *peer, uint64_t bytes, uint64_t us)
{
	struct peer *p = peer_find(n, peer);
	uint64_t bps;

	if (!p || !us)
		return;
	bps = (uint64_t)((double)bytes * 1e6 / (double)us);
	p->bandwidth_bps = p->bandwidth_bps ? (3 * p->bandwidth_bps + bps) / 4 : bps;
}
