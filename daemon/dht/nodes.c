/* The nodes we know: the routing table's upkeep, the addresses we join through, and what survives a restart. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "dht/int.h"

#define BACKOFF_MIN_US 100000
#define BACKOFF_MAX_US 30000000
#define DIAL_US 5000000
#define SAVE_SOON_US 1000000
#define SAVE_SOON_NODES 16              /* when so many are known already, the next ones need not be written at once */
#define SAVE_LATER_US 10000000
#define CARE_US 100000
#define SELF_AGAIN_US 1000000
/* So long silent, and whoever answered at an address of ours is asked whether it is there; in a large swarm, where many
 * ask the same few, less often. */
#define SILENT_US 10000000
#define SILENT_PER_NODE_US 250000
#define SILENT_MAX_US 60000000

#define OLD_US 60000000                 /* silent for so long, the oldest of a full bucket is asked */
#define ASK_OLDEST_US 1000000

/* ---- whoever does not answer ---- */

#define SHUN_PEERS 4096

struct shun { uint64_t until_us, us; };

bool dht_shunned(const struct dht *d, const struct id *id)
{
	const struct shun *s = map_get(d->shunned, id->b, 32);
	return s && s->until_us > env_now(d->env);
}

static void shun(struct dht *d, const struct id *id)
{
	struct shun *s = map_get(d->shunned, id->b, 32);
	uint64_t now = env_now(d->env);
	if (!s) {
		if (map_len(d->shunned) >= SHUN_PEERS)
			return;
		s = xcalloc(1, sizeof *s);
		map_put(d->shunned, id->b, 32, s);
	}
	if (s->until_us > now)                  /* several calls that fail together are one failure */
		return;
	s->us = s->us ? s->us * 2 : SHUN_US;
	if (s->us > SHUN_MAX_US)
		s->us = SHUN_MAX_US;
	s->until_us = now + s->us;
}

static void unshun(struct dht *d, const struct id *id)
{
	if (map_len(d->shunned))
		free(map_del(d->shunned, id->b, 32));
}

/* Forgets those who were silent long ago; the next failure starts from the beginning. */
void shun_sweep(struct dht *d, uint64_t now)
{
	struct shun *s;
	const void *key;
	for (size_t i = 0; (s = map_next(d->shunned, &i, &key, NULL));)
		if (s->until_us + 2 * SHUN_MAX_US < now) {
			struct id id;
			memcpy(id.b, key, 32);
			unshun(d, &id);
		}
}

void shun_free(struct dht *d)
{
	struct shun *s;
	for (size_t i = 0; (s = map_next(d->shunned, &i, NULL, NULL));)
		free(s);
	map_free(d->shunned);
}

static void oldest_answered(void *arg, const struct frame *f, const struct err *e)
{
	struct asking *a = arg;
	struct dht *d = a->d;
	struct id id = a->id;
	list_del(&a->link);
	free(a);
	if (f)
		dht_heard(d, &id, false);
	else if (e->code != ERR_CANCELLED)
		dht_lost(d, &id);
}

/* A newcomer waits among the spares of a full bucket: whoever is longest there and silent is asked whether it still is
 * (Kademlia 2.2). One at a time, so that a crowd of newcomers is no flood of questions. */
static void ask_oldest(struct dht *d, const struct id *newcomer)
{
	uint64_t now = env_now(d->env);
	if (now < d->asking_at_us || !list_empty(&d->askings))
		return;
	d->asking_at_us = now + ASK_OLDEST_US;
	const struct dnode *oldest = table_oldest(&d->table, newcomer);
	if (!oldest || oldest->seen_us + OLD_US > now || id_eq(&oldest->id, newcomer))
		return;
	struct asking *a = xcalloc(1, sizeof *a);
	*a = (struct asking){ .d = d, .id = oldest->id };
	list_push(&d->askings, &a->link);
	net_learn(d->net, &oldest->id, &oldest->at);
	a->call = net_call(d->net, &oldest->id, KIND_PING, NULL, NO_BLOB, CLASS_control,
		net_deadline(d->net, &oldest->id, CALL_FLOOR_US), oldest_answered, a);
}

void askings_free(struct dht *d)
{
	list_each_safe(it, &d->askings) {
		struct asking *a = list_entry(it, struct asking, link);
		net_cancel(d->net, a->call);
		list_del(&a->link);
		free(a);
	}
}

void dht_heard(struct dht *d, const struct id *id, bool client)
{
	struct endpoint at;
	unshun(d, id);
	if (client || !net_address(d->net, id, &at) || !at.port[CHAN_CTRL])
		return;
	if (table_seen(&d->table, id, &at, env_now(d->env))) {
		handover_start(d, id);
		nodes_save_soon(d);
	} else {
		ask_oldest(d, id);
	}
}

void dht_lost(struct dht *d, const struct id *id)
{
	shun(d, id);
	table_failed(&d->table, id);
}

void node_write(struct buf *b, const struct id *id, const struct endpoint *at)
{
	buf_put(b, id->b, 32);
	buf_put(b, at->ip, 16);
	for (int i = 0; i < CHANS; i++)
		buf_u16(b, at->port[i]);
}

/* Who knows nothing of several addresses reads the same node twice. */
size_t node_write_all(const struct dht *d, struct buf *b, const struct id *id, const struct endpoint *at)
{
	struct endpoint also[NET_ALSO];
	unsigned n = net_also(d->net, id, also);
	size_t written = 1;
	node_write(b, id, at);
	for (unsigned i = 0; i < n; i++) {
		if (!memcmp(&also[i], at, sizeof *at))
			continue;
		node_write(b, id, &also[i]);
		written++;
	}
	return written;
}

bool node_learn(struct dht *d, const struct id *id, const struct endpoint *at, struct id *last)
{
	if (id_eq(id, last)) {
		net_learn_also(d->net, id, at);
		return false;
	}
	*last = *id;
	net_heard_of(d->net, id, at);
	return true;
}

bool node_read(struct rd *r, struct id *ret_id, struct endpoint *ret_at)
{
	const uint8_t *id = rd_bytes(r, 32), *ip = rd_bytes(r, 16);
	if (!id || !ip)
		return false;
	memcpy(ret_id->b, id, 32);
	memcpy(ret_at->ip, ip, 16);
	for (int i = 0; i < CHANS; i++)
		ret_at->port[i] = rd_u16(r);
	return !r->bad;
}

/* ---- joining ---- */

static void nothing(void *arg, const struct look_end *l)
{
}

/* Several addresses are mostly joined at the same moment: one search now, and one for all that came since. */
static void look_self(struct dht *d)
{
	uint64_t now = env_now(d->env);
	if (d->self_looked_us && now < d->self_looked_us + SELF_AGAIN_US) {
		d->self_at_us = d->self_looked_us + SELF_AGAIN_US;
		tick_by(d, d->self_at_us);
		return;
	}
	d->self_looked_us = now;
	d->self_at_us = 0;
	lookup_start(d, net_self(d->net), LOOK_NODES, nothing, NULL);
}

static void boot_state(const struct dht *d, const struct boot *b, struct dht_address *ret)
{
	uint64_t now = env_now(d->env);
	*ret = (struct dht_address){ .joined = b->joined, .self = b->self, .id = b->id };
	if (!b->joined && !b->dialing && b->next_us > now)
		ret->next_us = b->next_us - now;
	memcpy(ret->error, b->error, sizeof ret->error);
	struct err e;
	if (b->dialing && !b->error[0] && net_dial_refused(d->net, &b->at, &e))
		snprintf(ret->error, sizeof ret->error, "%.*s", (int)sizeof ret->error - 1, e.text);
}

static void boot_tell(struct dht *d, const struct boot *b)
{
	struct dht_address now;
	boot_state(d, b, &now);
	if (d->on_address)
		d->on_address(d->on_address_arg, &b->at, &now);
}

bool dht_address(const struct dht *d, const struct endpoint *at, struct dht_address *ret)
{
	for (size_t i = 0; i < d->nboots; i++)
		if (!memcmp(&d->boots[i].at, at, sizeof *at)) {
			boot_state(d, &d->boots[i], ret);
			return true;
		}
	return false;
}

void dht_on_address(struct dht *d, dht_address_fn *fn, void *arg)
{
	d->on_address = fn;
	d->on_address_arg = arg;
}

static void dialed(void *arg, const struct id *peer, const struct err *e)
{
	struct dialing *g = arg;
	struct dht *d = g->d;
	struct boot *b = d && g->boot != DIAL_STALE ? &d->boots[g->boot] : NULL;
	list_del(&g->link);
	free(g);
	if (!b)
		return;
	b->dialing = false;
	if (!peer) {
		bool first = !b->error[0];
		b->self = e->code == ERR_INVALID;       /* the one mistake that an address can be */
		snprintf(b->error, sizeof b->error, "%.*s", (int)sizeof b->error - 1, e->text);
		b->backoff_us = b->backoff_us ? b->backoff_us * 2 : BACKOFF_MIN_US;
		if (b->backoff_us > BACKOFF_MAX_US)
			b->backoff_us = BACKOFF_MAX_US;
		b->next_us = env_now(d->env) + b->backoff_us / 2 + env_rand(d->env) % (b->backoff_us / 2 + 1);
		if (b->self)
			b->next_us = env_now(d->env) + BACKOFF_MAX_US;
		tick_by(d, b->next_us);
		if (first)
			boot_tell(d, b);
		return;
	}
	if (b->cared)                           /* about whoever answered here before */
		net_care(d->net, &b->id, -1);
	b->cared = false;
	b->joined = true;
	b->removals = UINT64_MAX;
	b->self = false;
	b->backoff_us = 0;
	b->error[0] = 0;
	b->id = *peer;
	boot_tell(d, b);
	dht_heard(d, peer, false);
	look_self(d);
	around_begin(d, peer);
}

/* An operator reads in `status` that an address is joined: it must not have died long ago. */
static void boot_ask(struct dht *d, struct boot *b, const struct peer_info *p, uint64_t now)
{
	uint64_t patience = SILENT_US + d->table.n * SILENT_PER_NODE_US;
	if (patience > SILENT_MAX_US)
		patience = SILENT_MAX_US;
	bool silent = b->joined && p->session && now - p->last_seen_us > patience;
	b->look_us = p->last_seen_us + patience;
	if (silent)
		tick_by(d, now + CARE_US);      /* its sockets are polled meanwhile: not longer than needed */
	if (silent == b->cared)
		return;
	b->cared = silent;
	net_care(d->net, &b->id, silent ? 1 : -1);
}

#define ALIVE_MOST 64

/* Whoever failed to answer is out of the table, though it lives and no news of it will come: who knows nobody else
 * asks it again, and is not alone for ever. */
static void hear_alive(struct dht *d)
{
	struct peer_info *p = xcalloc(ALIVE_MOST, sizeof *p);
	size_t n = net_peers(d->net, p, ALIVE_MOST);
	for (size_t i = 0; i < n && i < ALIVE_MOST; i++)
		if (p[i].session && !p[i].maybe_dead && !p[i].banned_until_us && !dht_shunned(d, &p[i].id))
			dht_heard(d, &p[i].id, p[i].client);
	free(p);
}

/* An address that led to a node counts as joined until the table forgets that node; then it is dialled again. */
void boots_tick(struct dht *d, uint64_t now)
{
	if (d->self_at_us && now >= d->self_at_us)
		look_self(d);
	else if (d->self_at_us)
		tick_by(d, d->self_at_us);
	if (!d->table.n)
		hear_alive(d);
	for (size_t i = 0; i < d->nboots; i++) {
		struct boot *b = &d->boots[i];
		struct peer_info p = { 0 };
		bool in_table = b->joined && (b->removals == d->table.removals || table_find(&d->table, &b->id));
		b->removals = in_table ? d->table.removals : UINT64_MAX;
		if (in_table && !b->cared && now < b->look_us)
			continue;
		bool known = !id_zero(&b->id) && net_peer(d->net, &b->id, &p);
		if (b->joined && !in_table && !(known && p.session && !p.maybe_dead)) {
			b->joined = false;      /* alive, it would be among the spares of a full bucket */
			b->next_us = now;
		}
		if (known)
			boot_ask(d, b, &p, now);
		if (b->joined || b->dialing)
			continue;
		if (now < b->next_us) {
			tick_by(d, b->next_us);
			continue;
		}
		b->dialing = true;
		struct dialing *g = xcalloc(1, sizeof *g);
		*g = (struct dialing){ .d = d, .boot = i };
		list_push(&d->dials, &g->link);
		net_dial(d->net, &b->at, DIAL_US, dialed, g);
	}
}

bool boot_move(struct dht *d, const struct endpoint *from, const struct endpoint *to)
{
	for (size_t i = 0; i < d->nboots; i++) {
		struct boot *b = &d->boots[i];
		if (memcmp(&b->at, from, sizeof *from))
			continue;
		list_each(it, &d->dials)
			if (list_entry(it, struct dialing, link)->boot == i)
				list_entry(it, struct dialing, link)->boot = DIAL_STALE;
		if (b->cared)
			net_care(d->net, &b->id, -1);
		*b = (struct boot){ .at = *to, .removals = UINT64_MAX };
		tick_by(d, env_now(d->env) + 1);
		return true;
	}
	return false;
}

void boots_add(struct dht *d, const struct endpoint *at, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool known = false;
		for (size_t k = 0; k < d->nboots; k++)
			known |= !memcmp(&d->boots[k].at, &at[i], sizeof *at);
		if (known || d->nboots == DHT_ADDRESSES)
			continue;
		d->boots[d->nboots++] = (struct boot){ .at = at[i], .removals = UINT64_MAX };
	}
	tick_by(d, env_now(d->env) + 1);
}

void dials_orphan(struct dht *d)
{
	list_each_safe(it, &d->dials) {
		struct dialing *g = list_entry(it, struct dialing, link);
		list_del(&g->link);
		list_init(&g->link);
		g->d = NULL;
	}
}

/* ---- across a restart ---- */

struct saving { struct dht *d; int rc; struct err *e; };

static void save_one(void *arg, struct dnode *n)
{
	struct saving *g = arg;
	struct shelf *s = g->d->env->shelf;
	struct buf b = { 0 };
	if (n->saved || g->rc)
		return;
	node_write_all(g->d, &b, &n->id, &n->at);
	g->rc = s->put(s, "dht_nodes", n->id.b, 32, b.p, b.len, g->e);
	n->saved = !g->rc;
	buf_free(&b);
}

struct names { struct id *v; size_t n, cap; };

static int collect_gone(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct names *g = arg;
	if (klen == 32 && g->n < g->cap)
		memcpy(g->v[g->n++].b, key, 32);
	return 0;
}

/* Whoever is killed a moment after it came must still know through whom to come back. */
void nodes_save_soon(struct dht *d)
{
	uint64_t at = env_now(d->env) + (d->table.n <= SAVE_SOON_NODES ? SAVE_SOON_US : SAVE_LATER_US);
	if (!d->save_at_us || d->save_at_us > at)
		d->save_at_us = at;
	tick_by(d, d->save_at_us);
}

static int forget_gone(struct dht *d, struct err *e)
{
	struct shelf *s = d->env->shelf;
	uint64_t removals = d->table.removals;
	struct names g = { .v = xcalloc(4096, sizeof(struct id)), .cap = 4096 };
	int rc = s->each(s, "dht_nodes", collect_gone, &g, e);
	for (size_t i = 0; i < g.n && !rc; i++)
		if (!table_find(&d->table, &g.v[i]))
			rc = s->del(s, "dht_nodes", g.v[i].b, 32, e);
	free(g.v);
	if (!rc)
		d->saved_removals = removals;
	return rc;
}

int nodes_save(struct dht *d, struct err *e)
{
	struct saving w = { .d = d, .e = e };
	/* an empty table keeps the old list: it is what we rejoin through */
	if (!d->table.n || d->saved_changes == d->table.changes)
		return 0;
	if (d->saved_removals != d->table.removals)
		w.rc = forget_gone(d, e);
	table_each(&d->table, save_one, &w);
	if (!w.rc)
		d->saved_changes = d->table.changes;
	return w.rc;
}

static int load_one(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct dht *d = arg;
	struct rd r = rd_of(val, vlen);
	struct id id, last = { 0 };
	struct endpoint at;
	while (rd_left(&r) && node_read(&r, &id, &at)) {
		if (!at.port[CHAN_CTRL] || id_eq(&id, net_self(d->net)))
			return 0;
		if (node_learn(d, &id, &at, &last))
			table_seen(&d->table, &id, &at, env_now(d->env));
	}
	return 0;
}

int nodes_load(struct dht *d, struct err *e)
{
	struct shelf *s = d->env->shelf;
	return s->each(s, "dht_nodes", load_one, d, e);
}

void nodes_ask(struct dht *d)
{
	if (d->table.n)
		look_self(d);
}
