/* Records that must stay: what this peer keeps alive, what it passes to nearer newcomers, what outlives a restart. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/planted.h"
#include "dht/int.h"

#define SLICE_US 20000
#define SLICE_KEYS 64
#define REPUBLISH_FRAMES 8                      /* of one key to one node at a time: DICT_MAX small records */
#define RETRY_US 1000000
#define RETRY_MAX_US 60000000
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

/* The newcomer belongs to the k nearest. Every holder near the key gives: which of several newcomers has the record
 * already cannot be known, and one that comes twice changes nothing. Who holds it from the time when the swarm was
 * small, and has been left behind since, does not. */
static bool mine_to_give(struct dht *d, const struct id *key, const struct id *to)
{
	struct dnode near[TABLE_BUCKET];
	size_t most = 2 * d->conf.k < TABLE_BUCKET ? 2 * d->conf.k : TABLE_BUCKET;
	size_t n = table_nearest(&d->table, key, near, most);
	if (n == most && id_closer(key, &near[n - 1].id, net_self(d->net)) < 0)
		return false;
	for (size_t i = 0; i < n && i < d->conf.k; i++)
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

/* A key's records from the at-th on, of which nobody has told since, for as long as there is room. False: the frame is
 * full, and *at is where the next one begins. */
static bool give(struct buf *b, const struct entry *en, size_t *at, uint64_t now, uint64_t heard_until_us)
{
	size_t i = 0;
	list_each(it, &en->recs) {
		const struct rec *r = list_entry(it, struct rec, link);
		if (i++ < *at || r->ends_us <= now || r->heard_us > heard_until_us || (PLANTED(DHT_LOST_SUBKEY) && i > 1))
			continue;
		if (!store_add(b, r, now)) {
			*at = i - 1;
			return false;
		}
	}
	*at = 0;
	return true;
}

/* One slice of keys; false when the end is reached with nothing to send. */
static bool handover_slice(struct dht *d, struct handover *h)
{
	struct buf b = { 0 };
	struct entry *en = NULL;
	uint64_t now = env_now(d->env);
	size_t seen = 0, at = h->cursor;
	while (seen++ < SLICE_KEYS && (en = map_next(d->values.keys, &at, NULL, NULL))) {
		if (!mine_to_give(d, &en->key, &h->to))
			h->given = 0;
		else if (!give(&b, en, &h->given, now, UINT64_MAX))
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

/* Whoever stored it here has stored it on the other nearest nodes, too: nothing to do for a while (Kademlia 2.5). So
 * one replica of k republishes, and none of a record whose owner keeps it. */
static void republish_entry(struct dht *d, struct entry *en, uint64_t now)
{
	struct dnode near[TABLE_BUCKET];
	uint64_t quiet = d->conf.republish_us * 3 / 4;
	size_t n = table_nearest(&d->table, &en->key, near, d->conf.k);
	if (now < quiet || (n == d->conf.k && id_closer(&en->key, &near[n - 1].id, net_self(d->net)) < 0))
		return;                         /* others are nearer: theirs to do */
	for (size_t i = 0; i < n && i + 1 < d->conf.k; i++) {
		bool all = false;
		size_t at = 0;
		for (int frames = 0; frames < REPUBLISH_FRAMES && !all; frames++) {
			struct buf b = { 0 };
			all = give(&b, en, &at, now, now - quiet);
			if (b.len)
				store_send(d, &near[i].id, &b, ignored, NULL);
		}
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

/* The operator reads it in `status`; it is tried again, less and less often. */
static void shelf_failed(struct dht *d, const struct err *e)
{
	uint64_t now = env_now(d->env);
	d->save_failures++;
	d->save_error = *e;
	d->save_retry_us = d->save_retry_us ? 2 * d->save_retry_us : RETRY_US;
	if (d->save_retry_us > RETRY_MAX_US)
		d->save_retry_us = RETRY_MAX_US;
	d->save_at_us = now + d->save_retry_us;
	tick_by(d, d->save_at_us);
}

static int save(struct dht *d, struct rec *r, struct err *e)
{
	struct buf b = { 0 };
	uint8_t key[48];
	if (r->saved || r->life_ms < SAVE_LIFE_MIN_MS)
		return 0;
	uint64_t now = env_now(d->env);
	save_key(r, key);
	buf_u64(&b, env_wall(d->env) + (r->ends_us > now ? (r->ends_us - now) / 1000 : 0));
	buf_put(&b, r->from.b, 32);
	rec_write(&b, r, now);
	int rc = d->env->shelf->put(d->env->shelf, "dht_records", key, sizeof key, b.p, b.len, e);
	r->saved = !rc;
	buf_free(&b);
	return rc;
}

/* What is no longer held here is no longer there after a restart, and takes no room until then. It is tried, and what
 * comes instead is saved, after a failure, too: else an older rank would lie there alone until all is tried again, and
 * come back when this peer is killed meanwhile. */
void record_drop(void *arg, const struct rec *r)
{
	struct dht *d = arg;
	uint8_t key[48];
	struct err e;
	if (!r->saved || !d->env->shelf || d->unread)
		return;                         /* then it goes when it has ended */
	save_key(r, key);
	if (d->env->shelf->del(d->env->shelf, "dht_records", key, sizeof key, &e) && !d->save_error.code)
		shelf_failed(d, &e);
}

void record_save(struct dht *d, struct rec *r)
{
	struct err e;
	if (d->env->shelf && !d->unread && save(d, r, &e) && !d->save_error.code)
		shelf_failed(d, &e);
}

/* After a failure: everything that came since and is not there. */
static int save_rest(struct dht *d, struct err *e)
{
	struct entry *en;
	int rc = 0;
	for (size_t i = 0; !rc && (en = map_next(d->values.keys, &i, NULL, NULL));)
		list_each(it, &en->recs)
			if (!rc)
				rc = save(d, list_entry(it, struct rec, link), e);
	return rc;
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
		rec->saved = true;
		if (values_put(&l->d->values, rec, now, wall, NULL) == PUT_NEW)
			rec->heard_us = 0;
		return 0;
	}
	if (!rec && klen == 48 && l->n < l->cap)
		memcpy(l->gone[l->n++], key, 48);
	return 0;
}

static int walk_saved(struct dht *d, bool load, struct err *e)
{
	struct shelf *s = d->env->shelf;
	struct loading l = { .d = d, .load = load, .cap = 4096 };
	int rc;
	l.gone = xcalloc(l.cap, 48);
	do {
		l.n = 0;
		rc = s->each(s, "dht_records", load_record, &l, e);
		l.load = false;                 /* once */
		for (size_t i = 0; i < l.n && !rc; i++)
			rc = s->del(s, "dht_records", l.gone[i], 48, e);
	} while (!rc && l.n == l.cap);
	free(l.gone);
	return rc;
}

void records_forget_ended(struct dht *d)
{
	struct err e;
	if (d->env->shelf && !d->unread && walk_saved(d, false, &e))
		shelf_failed(d, &e);
}

/* A rank that lies there unread may be greater than one that has come since: so nothing is written over it before. */
void shelf_read(struct dht *d)
{
	struct err e;
	if (!d->env->shelf)
		return;
	d->unread = true;                       /* and nothing is written or deleted meanwhile */
	d->unread = walk_saved(d, true, &e) || nodes_load(d, &e);
	if (d->unread)
		shelf_failed(d, &e);
}

void shelf_write(struct dht *d)
{
	struct err e;
	if (!d->env->shelf)
		return;
	if (d->unread) {
		shelf_read(d);
		if (d->unread)
			return;
		nodes_ask(d);
	}
	if ((d->save_error.code && save_rest(d, &e)) || nodes_save(d, &e)) {
		shelf_failed(d, &e);
		return;
	}
	d->save_error = (struct err){ 0 };
	d->save_retry_us = 0;
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
