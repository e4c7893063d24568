/* The room as a whole: birth, death, the tick that drives its upkeep, and what it tells an operator. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "dht/int.h"

#define TICK_US 5000000
#define TICK_CACHE_US 1000000           /* while something is in the cache */
#define TICK_BUSY_US 20000
#define PEER_RECORDS 10000              /* of one peer at most, */
#define PEER_SHARE 4                    /* and no more than a quarter of the records and of the bytes */
#define SWEEP_US 20000000               /* what has ended goes when it is asked for; this is for the memory */
#define SAVE_US 60000000
#define FORGET_US 600000000
#define AROUND_US 2000000
#define AROUND_MAX 10                   /* subtrees: what lies deeper is near, whatever the size of the swarm */

struct find { struct list link; struct dht *d; dht_found_fn *done; void *arg; };

static void found(void *arg, const struct look_end *l)
{
	struct find *f = arg;
	struct id ids[TABLE_BUCKET];
	dht_found_fn *done = f->done;
	void *darg = f->arg;
	for (size_t i = 0; i < l->n; i++)
		ids[i] = l->near[i].id;
	list_del(&f->link);
	free(f);
	done(darg, ids, l->n, NULL);
}

void dht_find(struct dht *d, const struct id *target, dht_found_fn *done, void *arg)
{
	struct find *f = xcalloc(1, sizeof *f);
	*f = (struct find){ .d = d, .done = done, .arg = arg };
	list_push(&d->finds, &f->link);
	lookup_start(d, target, LOOK_NODES, found, f);
}

static void nothing(void *arg, const struct look_end *l)
{
}

/* One stale subtree per tick: a search for a random id that falls into it (Kademlia 2.3, bucket refresh). */
static void refresh_tick(struct dht *d, uint64_t now)
{
	uint64_t every = d->conf.refresh_us;
	struct id target;
	unsigned bits;
	if (now <= every || now < d->stale_at_us)
		return;
	if (!table_stale(&d->table, now - every, now, &target, &bits)) {
		d->stale_at_us = now + every / 32;
		return;
	}
	if (bits % 8)
		target.b[bits / 8] ^= (uint8_t)(env_rand(d->env) & (0xffu >> bits % 8));
	for (unsigned i = (bits + 7) / 8; i < 32; i++)
		target.b[i] = (uint8_t)env_rand(d->env);
	lookup_start(d, &target, LOOK_NODES, nothing, NULL);
}

/* Whoever has joined knows its neighbours, and they may know as little of the rest of the space as it does: a search
 * that starts among them ends among them. So it looks at each subtree beside its own way down the tree, one at a time,
 * by way of the peer that let it in, which knows whom it let in before. The neighbours come first (Kademlia 2.3). */
void around_begin(struct dht *d, const struct id *by)
{
	if (d->around_us)
		return;
	d->around_by = *by;
	d->around_us = env_now(d->env) + AROUND_US + env_rand(d->env) % AROUND_US;
	tick_by(d, d->around_us);
}

bool dht_young(const struct dht *d)
{
	return d->around_us && d->around_us != UINT64_MAX;
}

static void around_tick(struct dht *d, uint64_t now)
{
	const struct id *self = net_self(d->net);
	struct id target = *self;
	struct dnode near[TABLE_BUCKET];
	struct endpoint at;
	if (!dht_young(d))
		return;
	if (now < d->around_us) {
		tick_by(d, d->around_us);
		return;
	}
	size_t n = table_nearest(&d->table, self, near, d->conf.k);
	unsigned bit = d->around++;
	if (n < d->conf.k || bit >= AROUND_MAX || bit >= (unsigned)id_prefix_bits(self, &near[n - 1].id) ||
			!net_address(d->net, &d->around_by, &at)) {
		d->around_us = n ? UINT64_MAX : 0;      /* what is left are the neighbours */
		return;
	}
	for (unsigned i = 0; i < 32; i++)
		target.b[i] = i < bit / 8 ? self->b[i] : (uint8_t)env_rand(d->env);
	for (unsigned i = bit / 8 * 8; i <= bit; i++) {
		uint8_t mask = (uint8_t)(0x80 >> i % 8);
		target.b[i / 8] = (uint8_t)((target.b[i / 8] & ~mask) | ((self->b[i / 8] ^ (i == bit ? mask : 0)) & mask));
	}
	struct lookup *l = lookup_new(d, &target, LOOK_NODES, nothing, NULL);
	l->cand[0] = (struct cand){ .node = { .id = d->around_by, .at = at }, .hop = 1 };
	l->n = 1;
	lookup_begin(l);
	d->around_us = now + AROUND_US + env_rand(d->env) % AROUND_US;
	tick_by(d, d->around_us);
}

void tick_by(struct dht *d, uint64_t at_us)
{
	if (!d->tick.at_us || d->tick.at_us > at_us)
		env_timer(d->env, &d->tick, at_us);
}

static void tick(struct timer *t)
{
	struct dht *d = container_of(t, struct dht, tick);
	uint64_t now = env_now(d->env);
	boots_tick(d, now);
	keeps_tick(d, now);
	keep_tick(d, now);
	cache_tick(d, now);
	refresh_tick(d, now);
	around_tick(d, now);
	if (now >= d->sweep_at_us) {
		values_sweep(&d->values, now);
		shun_sweep(d, now);
		d->sweep_at_us = now + SWEEP_US;
	}
	if (now >= d->save_at_us) {
		bool first = !d->save_at_us;
		d->save_at_us = now + SAVE_US;
		if (!first)
			shelf_write(d);
	}
	if (now >= d->forget_at_us) {
		if (d->forget_at_us)
			records_forget_ended(d);
		d->forget_at_us = now + FORGET_US;
	}
	if (d->save_error.code)
		tick_by(d, d->save_at_us);      /* it is tried again when it was said to be */
	bool busy = d->republishing || !list_empty(&d->handovers);
	tick_by(d, now + (busy ? TICK_BUSY_US : map_len(d->cache) ? TICK_CACHE_US : TICK_US));
}

static void news(void *arg, const struct id *peer, enum net_news what)
{
	struct dht *d = arg;
	if (what == NEWS_DEAD || what == NEWS_GOODBYE) {
		table_remove(&d->table, peer);
		dht_lost(d, peer);      /* others will still name it for a while */
	} else if (what == NEWS_ALIVE) {
		dht_heard(d, peer, false);      /* it only seemed so */
	}
}

struct dht *dht_new(struct env *env, struct net *net, const struct dht_conf *conf, struct err *e)
{
	struct dht *d = xcalloc(1, sizeof *d);
	d->env = env;
	d->net = net;
	d->conf = *conf;
	d->conf.k = conf->k ? conf->k : 8;
	d->conf.alpha = conf->alpha ? conf->alpha : 3;
	d->conf.records_max = conf->records_max ? conf->records_max : 100000;
	d->conf.per_peer_max = conf->per_peer_max ? conf->per_peer_max : d->conf.records_max / PEER_SHARE < PEER_RECORDS ?
		d->conf.records_max / PEER_SHARE : PEER_RECORDS;
	d->conf.bytes_max = conf->bytes_max ? conf->bytes_max : 64u << 20;
	d->conf.refresh_us = conf->refresh_us ? conf->refresh_us : 600ull * 1000000;
	d->conf.republish_us = conf->republish_us ? conf->republish_us : 600ull * 1000000;
	if (look_width(d) > TABLE_BUCKET) {
		err_set(e, ERR_INVALID, "dht.k = %u, alpha = %u: at most %d", d->conf.k, d->conf.alpha, TABLE_BUCKET);
		free(d);
		return NULL;
	}
	env->ops->secure(env, &d->hash_key, sizeof d->hash_key);
	table_init(&d->table, net_self(net));
	values_init(&d->values, &(struct values_conf){ .records_max = d->conf.records_max,
		.per_peer_max = d->conf.per_peer_max, .bytes_max = d->conf.bytes_max,
		.per_peer_bytes = d->conf.bytes_max / PEER_SHARE, .dropped = record_drop, .arg = d }, d->hash_key);
	d->cache = map_new(d->hash_key ^ 1);
	d->shunned = map_new(d->hash_key ^ 3);
	d->gets = map_new(d->hash_key ^ 2);
	struct list *lists[] = { &d->lookups, &d->puts, &d->keeps, &d->handovers, &d->batches, &d->refusals, &d->finds,
		&d->dials, &d->traces, &d->manies, &d->fetching, &d->schemas,
		&d->queued, &d->bundles, &d->askings, &d->storings,
		&d->checks, &d->checks_asked };
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		list_init(lists[i]);
	d->saved_removals = UINT64_MAX;         /* what an earlier life left on the shelf is looked through once */
	d->tick = (struct timer){ .fire = tick, .name = "dht.tick" };
	d->republish_at_us = env_now(env) + d->conf.republish_us / 2 + env_rand(env) % d->conf.republish_us;
	serve_init(d);
	net_watch(net, news, d);
	shelf_read(d);
	nodes_ask(d);
	env_after(env, &d->tick, 1);
	return d;
}

void dht_free(struct dht *d)
{
	if (!d)
		return;
	if (!d->unread)
		shelf_write(d);
	net_unwatch(d->net, news, d);
	net_on(d->net, KIND_DHT_FIND, NULL, NULL);
	net_on(d->net, KIND_DHT_GET, NULL, NULL);
	net_on(d->net, KIND_DHT_STORE, NULL, NULL);
	env_timer(d->env, &d->tick, 0);
	batches_orphan(d);
	storings_free(d);
	dials_orphan(d);
	askings_free(d);
	manies_free(d);
	lookups_free(d);
	traces_free(d);
	keep_free(d);
	puts_free(d);
	gets_free(d);
	shun_free(d);
	schemas_free(d);
	list_each_safe(it, &d->finds)
		free(list_entry(it, struct find, link));
	table_done(&d->table);
	values_done(&d->values);
	free(d);
}

void dht_join(struct dht *d, const struct endpoint *at, size_t n)
{
	boots_add(d, at, n);
}

bool dht_join_moved(struct dht *d, const struct endpoint *from, const struct endpoint *to)
{
	return boot_move(d, from, to);
}

static size_t silent(const struct dht *d)
{
	size_t n = 0;
	const void *key;
	for (size_t i = 0; map_next(d->shunned, &i, &key, NULL);) {
		struct id id;
		memcpy(id.b, key, 32);
		n += dht_shunned(d, &id);
	}
	return n;
}

void dht_state(struct dht *d, struct dht_state *ret)
{
	uint64_t now = env_now(d->env);
	*ret = (struct dht_state){ .nodes = (uint32_t)d->table.n, .buckets = (uint32_t)table_buckets(&d->table),
		.records = (uint32_t)d->values.records,
		.lookups_open = (uint32_t)(list_len(&d->lookups) + list_len(&d->queued)),
		.silent = (uint32_t)silent(d), .joined = d->table.n > 0, .join_addresses = (uint32_t)d->nboots };
	for (size_t i = 0; i < d->nboots; i++) {
		const struct boot *b = &d->boots[i];
		if (b->joined || b->self || !b->error[0])
			continue;
		ret->join_unreachable++;
		if (b->next_us > now && (!ret->next_retry_us || b->next_us - now < ret->next_retry_us))
			ret->next_retry_us = b->next_us - now;
		snprintf(ret->join_error, sizeof ret->join_error, "%s", b->error);
	}
}

json_t *dht_status(struct dht *d)
{
	struct dht_state s;
	dht_state(d, &s);
	json_t *j = json_pack("{s:b,s:i,s:i,s:i,s:i,s:I,s:i,s:i}", "joined", s.joined, "nodes", s.nodes, "buckets",
		s.buckets, "silent", s.silent, "records", s.records,
		"bytes", (json_int_t)d->values.bytes, "lookups_open", s.lookups_open, "join_addresses",
		s.join_addresses);
	if (d->surplus)
		json_object_set_new(j, "surplus", json_integer((json_int_t)d->surplus));
	if (d->save_failures)
		json_object_set_new(j, "save_failures", json_integer((json_int_t)d->save_failures));
	if (d->save_error.code)
		json_object_set_new(j, "save_error", json_string(d->save_error.text));
	if (s.join_unreachable) {
		json_object_set_new(j, "join_unreachable", json_integer(s.join_unreachable));
		json_object_set_new(j, "join_error", json_string(s.join_error));
		json_object_set_new(j, "retry_in_ms", json_integer((json_int_t)(s.next_retry_us / 1000)));
	}
	return j;
}
