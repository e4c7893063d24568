/* Who may talk to this daemon, and how much: bans (kept on the shelf), the allow-list, and the flood guard. A peer that
 * says more than its share, or garbage under its own seal, is slowed first (what is too much is dropped, its calls come
 * again later, with back-off) and banned for a while when it goes on. Answers to our own calls are not counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "net/inner.h"

#define BANS "bans"                             /* table on the shelf: id -> time of day in ms (8), why */
#define OVER_US (5 * SECOND)                    /* that long too much, and it is banned */
#define PAUSE_US (1 * SECOND)                   /* that long not too much, and it begins anew */
#define STRIKES_PER_S 1.0
#define STRIKES 100.0
#define BAN_FIRST_US (60 * SECOND)
#define BAN_MAX_US (3600 * SECOND)

/* ---- bans ---- */

static void put_ban(struct peer *p, uint64_t until_ms)
{
	struct net *n = p->net;
	struct shelf *f = n->env->shelf;
	uint8_t row[8 + sizeof ((struct peer_info *)0)->ban_why];
	size_t len = strlen(p->ban_why);
	struct err e;

	if (!f)
		return;
	for (int i = 0; i < 8; i++)
		row[i] = (uint8_t)(until_ms >> (8 * i));
	memcpy(row + 8, p->ban_why, len);
	if (f->put(f, BANS, p->id.b, sizeof p->id.b, row, 8 + len, &e))
		net_tell(n, LOG_ERROR_, "ban.not_kept", &p->id, "the ban lasts until this daemon restarts only: %s", e.text);
}

static void drop_ban(struct net *n, const struct id *id)
{
	struct shelf *f = n->env->shelf;

	if (f)
		f->del(f, BANS, id->b, sizeof id->b, NULL);
}

/* The other side waits before it dials who has barred it; dialled it knows at once. */
static void lift(struct peer *p)
{
	if (!p->banned_until_us)
		return;
	p->banned_until_us = 0;
	free(p->ban_why);
	p->ban_why = NULL;
	p->net->count.bans--;
	if (p->bans_ip)
		env_ban(p->net->env, p->banned_ip, 0);
	p->bans_ip = false;
	drop_ban(p->net, &p->id);
	hello_start(p);
}

static void mark(struct peer *p, uint64_t until_us, const char *why)
{
	p->net->count.bans += !p->banned_until_us;
	p->banned_until_us = until_us;
	peer_tend(p);
	free(p->ban_why);
	p->ban_why = xasprintf("%.*s", (int)sizeof ((struct peer_info *)0)->ban_why - 1, why);
	text_clean(p->ban_why);
}

/* Other peers live behind the same address (one machine, one NAT): it cannot be banned as a whole. */
static bool shares_address(const struct peer *p)
{
	if (!memcmp(p->at.ip, p->net->conf.self.ip, 16))
		return true;
	list_each(it, &p->net->peer_list) {
		const struct peer *o = list_entry(it, struct peer, link);

		if (o != p && o->at_level != AT_NONE && !o->banned_until_us && !memcmp(o->at.ip, p->at.ip, 16))
			return true;
	}
	return false;
}

int net_ban(struct net *n, const struct id *peer, uint64_t us, const char *why, struct err *e)
{
	uint64_t now = env_now(n->env);
	struct peer *p;
	struct err ended;

	if (id_eq(peer, &n->self.id))
		return err_set(e, ERR_INVALID, "that is this daemon itself");
	p = us ? peer_make(n, peer) : peer_find(n, peer);
	if (us && (!p || (!p->banned_until_us && n->count.bans >= NET_BANS_MAX)))
		return err_set(e, ERR_FULL, "more than %d peers are banned: lift a ban (hivectl peers unban), or let only "
			"those in who are on the list: [network] allow", NET_BANS_MAX);
	if (!p)
		return 0;
	if (us)
		mark(p, us >= UINT64_MAX - now ? UINT64_MAX : now + us, why);
	if (!us) {
		lift(p);
		return 0;
	}
	/* What a peer claims to be its address, or others say, may be somebody else's. */
	if (p->at_level == AT_PROVEN && !shares_address(p)) {
		memcpy(p->banned_ip, p->at.ip, sizeof p->banned_ip);
		p->bans_ip = true;
		env_ban(n->env, p->banned_ip, p->banned_until_us);
	}
	put_ban(p, p->banned_until_us == UINT64_MAX ? UINT64_MAX : env_wall(n->env) + us / 1000);
	net_tell(n, LOG_WARN_, "peer_banned", peer, "banned: %s", why);
	err_set(&ended, ERR_REFUSED, "this daemon has banned the peer: %s", why);
	peer_cut(p, &ended, "it is banned");
	return 0;
}

void guard_expire(struct peer *p, uint64_t now)
{
	if (p->banned_until_us && p->banned_until_us <= now)
		lift(p);
}

static int load_ban(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct net *n = arg;
	const uint8_t *v = val;
	uint64_t until_ms = 0, wall = env_wall(n->env), now = env_now(n->env), left_ms;
	struct peer *p;
	struct id id;
	char why[sizeof ((struct peer_info *)0)->ban_why];

	if (klen != sizeof id.b || vlen < 8 || n->count.bans >= NET_BANS_MAX)
		return 0;
	memcpy(id.b, key, sizeof id.b);
	for (int i = 0; i < 8; i++)
		until_ms |= (uint64_t)v[i] << (8 * i);
	if (until_ms <= wall || !(p = peer_make(n, &id)))
		return 0;
	snprintf(why, sizeof why, "%.*s", (int)(vlen - 8), (const char *)v + 8);
	left_ms = until_ms - wall;
	mark(p, left_ms > (UINT64_MAX - now) / 1000 ? UINT64_MAX : now + left_ms * 1000, why);
	return 0;
}

void guard_load(struct net *n)
{
	struct shelf *f = n->env->shelf;
	struct err e;

	if (f && f->each(f, BANS, load_ban, n, &e))
		log_write(n->env->log, LOG_ERROR_, "net", "the bans of earlier could not be read: %s", e.text);
}

/* ---- the allow-list ---- */

bool guard_allowed(const struct net *n, const struct id *id)
{
	return !map_len(n->allow) || map_get(n->allow, id->b, sizeof id->b);
}

void net_allow(struct net *n, const struct id *ids, size_t count)
{
	struct err e;

	map_free(n->allow);
	n->allow = map_new(n->map_key);
	for (size_t i = 0; i < count; i++)
		map_put(n->allow, ids[i].b, sizeof ids[i].b, n);
	err_set(&e, ERR_REFUSED, "the peer is not on this daemon's list ([network] allow)");
	/* Watchers hear of each and may change the book: nobody is cut twice, because nothing of it is left. */
	for (bool again = true; again;) {
		again = false;
		list_each(it, &n->peer_list) {
			struct peer *p = list_entry(it, struct peer, link);

			if (guard_allowed(n, &p->id) || (list_empty(&p->sessions) && list_empty(&p->calls)))
				continue;
			peer_cut(p, &e, "it is not on the list of who may talk to this daemon");
			again = true;
			break;
		}
	}
}

/* ---- the flood guard ---- */

static void ban_for_a_while(struct peer *p, const char *why)
{
	struct guard *g = &p->guard;

	g->ban_us = g->ban_us ? g->ban_us * 2 < BAN_MAX_US ? g->ban_us * 2 : BAN_MAX_US : BAN_FIRST_US;
	g->frames = g->strikes = (struct limit){0};
	g->over_us = 0;
	net_ban(p->net, &p->id, g->ban_us, why, NULL);
}

bool guard_frame(struct peer *p)
{
	struct net *n = p->net;
	struct guard *g = &p->guard;
	uint32_t per_s = n->conf.peer_frames;
	uint64_t now = env_now(n->env);
	char why[96];

	if (per_s == UINT32_MAX || limit_take(&g->frames, now, per_s, 2.0 * per_s))
		return true;
	n->count.over_quota++;
	if (!g->over_us || now - g->last_us > PAUSE_US) {
		g->over_us = now;
		net_tell(n, LOG_WARN_, "peer_slowed", &p->id, "a peer sends more than %u frames a second ([network] "
			"peer_frames_max): what is too much is dropped", per_s);
	}
	g->last_us = now;
	if (now - g->over_us < OVER_US)
		return false;
	snprintf(why, sizeof why, "more than %u frames a second, for %llu s", per_s, OVER_US / SECOND);
	ban_for_a_while(p, why);
	return false;
}

void guard_strike(struct peer *p, const char *what)
{
	struct net *n = p->net;
	char why[96];

	if (n->conf.peer_frames == UINT32_MAX || limit_take(&p->guard.strikes, env_now(n->env), STRIKES_PER_S, STRIKES))
		return;
	snprintf(why, sizeof why, "more than %.0f times garbage: %s", STRIKES, what);
	ban_for_a_while(p, why);
}

void net_strike(struct net *n, const struct id *peer, const char *what)
{
	struct peer *p = peer_find(n, peer);

	if (p)
		guard_strike(p, what);
}

void net_set_peer_frames(struct net *n, uint32_t per_s)
{
	n->conf.peer_frames = per_s ? per_s : PEER_FRAMES_PER_S;
}
