/* Records that must stay: what this peer keeps alive, what it passes to nearer newcomers, what outlives a restart. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/planted.h"
#include "dht/int.h"

#define SLICE_US 20000
#define SLICE_KEYS 64
#define SAVE_LIFE_MIN_MS (5ull * 60 * 1000)     /* shorter lives are not worth a write */

/* ---- handing over: a new node that is now among the k nearest of a key gets its records ---- */

void handover_start(struct dht *d, const struct id *to)
{
	if (!d->values.records)
		return;
	struct handover *h = xcalloc(1, sizeof *h);
	*h = (struct handover){ .to = *to };
	list_push(&d->handovers, &h->link);
	tick_by(d, env_now(d->env) + SLICE_US);
}

/* The newcomer belongs to the k nearest. Every holder gives: which of several newcomers has the record already cannot
 * be
 * known, and one that comes twice changes nothing. */
static bool mine_to_give(struct dht *d, const struct id *key, const struct id *to)
{
	struct dnode near[TABLE_BUCKET];
	size_t n = table_nearest(&d->table, key, near, d->conf.k);
	for (size_t i = 0; i < n; i++)
		if (id_eq(&near[i].id, to))
			return true;
	return false;
}

static void handed(void *arg, const struct frame *f, const struct err *e)
{
	struct handover *h = arg;
	if (f) {
		h->busy = false;
		return;
	}
	list_del(&h->link);
	free(h);
}

/* One slice of keys; false when the end is reached with nothing to send. */
static bool handover_slice(struct dht *d, struct handover *h)
{
	struct buf b = { 0 };
	struct entry *en = NULL;
	uint64_t now = env_now(d->env);
	size_t seen = 0, at = h->cursor;
	while (seen++ < SLICE_KEYS && (en = map_next(d->values.keys, &at, NULL, NULL))) {
		bool full = false;
		if (mine_to_give(d, &en->key, &h->to))
			list_each(it, &en->recs) {
				struct rec *r = list_entry(it, struct rec, link);
				if (PLANTED(DHT_LOST_SUBKEY) && it != en->recs.next)
					continue;
				if (r->ends_us > now && !store_add(&b, r, now))
					full = true;
			}
		if (full)
			break;
		h->cursor = at;
	}
	bool more = en != NULL;
	if (b.len) {
		h->busy = true;
		h->call = store_send(d, &h->to, &b, handed, h);
	}
	return more || h->busy;
}

static void handovers_tick(struct dht *d)
{
	list_each_safe(it, &d->handovers) {
		struct handover *h = list_entry(it, struct handover, link);
		if (h->busy || handover_slice(d, h))
			continue;
		list_del(&h->link);
		free(h);
	}
}

/* ---- republishing: replicas refresh each other, so that a record outlives the nodes that first took it ---- */

static void ignored(void *arg, const struct frame *f, const struct err *e)
{
}

static void republish_entry(struct dht *d, struct entry *en, uint64_t now)
{
	struct dnode near[TABLE_BUCKET];
	size_t n = table_nearest(&d->table, &en->key, near, d->conf.k);
	if (n == d->conf.k && id_closer(&en->key, &near[n - 1].id, net_self(d->net)) < 0)
		return;                         /* others are nearer: theirs to do */
	for (size_t i = 0; i < n && i + 1 < d->conf.k; i++) {
		struct buf b = { 0 };
		list_each(it, &en->recs)
			if (!store_add(&b, list_entry(it, struct rec, link), now))
				break;
		if (b.len)
			store_send(d, &near[i].id, &b, ignored, NULL);
	}
}

static void republish_tick(struct dht *d, uint64_t now)
{
	if (!d->republishing && now >= d->republish_at_us) {
		d->republishing = true;
		d->republish_cursor = 0;
	}
	if (!d->republishing)
		return;
	struct entry *en = NULL;
	for (int i = 0; i < SLICE_KEYS && (en = map_next(d->values.keys, &d->republish_cursor, NULL, NULL)); i++)
		if (en->n)
			republish_entry(d, en, now);
	if (en)
		return;
	d->republishing = false;
	uint64_t every = d->conf.republish_us;
	d->republish_at_us = now + every / 2 + env_rand(d->env) % every;
}

/* ---- across a restart ---- */

static void save_key(const struct rec *r, uint8_t out[48])
{
	uint8_t h[32];
	memcpy(out, r->key.b, 32);
	sha256_of(r->subkey, strlen(r->subkey), h);
	memcpy(out + 32, h, 16);
}

void record_save(struct dht *d, const struct rec *r)
{
	struct buf b = { 0 };
	uint8_t key[48];
	if (!d->env->shelf || r->life_ms < SAVE_LIFE_MIN_MS)
		return;
	uint64_t now = env_now(d->env);
	save_key(r, key);
	buf_u64(&b, env_wall(d->env) + (r->ends_us > now ? (r->ends_us - now) / 1000 : 0));
	buf_put(&b, r->from.b, 32);
	rec_write(&b, r, now);
	d->env->shelf->put(d->env->shelf, "dht_records", key, sizeof key, b.p, b.len, NULL);
	buf_free(&b);
}

struct loading { struct dht *d; bool load; uint8_t (*gone)[48]; size_t n, cap; };

static int load_record(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct loading *l = arg;
	struct rd r = rd_of(val, vlen);
	uint64_t ends_ms = rd_u64(&r), wall = env_wall(l->d->env), now = env_now(l->d->env);
	const uint8_t *from = rd_bytes(&r, 32);
	struct id id = { 0 };
	struct rec *rec = NULL;
	if (klen == 48)
		memcpy(id.b, key, 32);
	if (!l->load && klen == 48 && from && ends_ms > wall)
		return 0;
	if (klen == 48 && from && ends_ms > wall)
		rec = rec_read(&r, &id, now);
	if (rec) {
		uint64_t left_ms = ends_ms - wall < rec->life_ms ? ends_ms - wall : rec->life_ms;
		rec->ends_us = now + left_ms * 1000;
		memcpy(rec->from.b, from, 32);
		values_put(&l->d->values, rec, now, wall, NULL);
		return 0;
	}
	if (!rec && klen == 48 && l->n < l->cap)
		memcpy(l->gone[l->n++], key, 48);
	return 0;
}

static void walk_saved(struct dht *d, bool load)
{
	struct shelf *s = d->env->shelf;
	if (!s)
		return;
	struct loading l = { .d = d, .load = load, .cap = 4096 };
	l.gone = xcalloc(l.cap, 48);
	s->each(s, "dht_records", load_record, &l, NULL);
	for (size_t i = 0; i < l.n; i++)
		s->del(s, "dht_records", l.gone[i], 48, NULL);
	free(l.gone);
}

void records_load(struct dht *d)
{
	walk_saved(d, true);
}

void records_forget_ended(struct dht *d)
{
	walk_saved(d, false);
}

void keep_tick(struct dht *d, uint64_t now)
{
	handovers_tick(d);
	republish_tick(d, now);
}

void keep_free(struct dht *d)
{
	list_each_safe(it, &d->handovers) {
		struct handover *h = list_entry(it, struct handover, link);
		if (h->busy)
			net_cancel(d->net, h->call);
		list_del(&h->link);
		free(h);
	}
}
