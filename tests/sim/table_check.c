/* The invariants of the table; see table_check.h. */
#include "table_check.h"
#include <stdlib.h>
#include <string.h>
#include "common/map.h"
#include "common/mem.h"
#include "dht/int.h"

#define SWEEP_SLACK_US 30000000         /* what has ended and is not asked for is swept every 20 s, by a tick of 5 s */
#define TRANSIT_US 60000000             /* the remaining life travels: time on the way is not counted */

#define SAVE_LIFE_MIN_MS 300000         /* records of shorter lives do not outlive a restart (keep.c) */

/* A record anywhere (its end, as who made it had it), or what lies under a name on one peer. */
struct known { uint64_t rank, ends_us, life; };
struct name { int32_t node; struct id key, owner; uint64_t rank; char subkey[SUBKEY_MAX + 1]; };
/* What a table was like when it was looked at: the same, and before late_us, it need not be looked at again. */
struct looked { uint64_t life, hands, puts, changes, late_us; size_t records, bytes, nodes, cached; };
/* What one peer has stored, as it was counted in that look. */
struct tally { struct share has; uint64_t look; };
struct table_check { struct sim *s; struct dht *(*of)(void *arg, int node); void *arg; size_t per_event;
	struct map *records, *here, *from; uint64_t looks, hands /* times that anything may have changed */, clocks_us;
	struct looked looked[SIM_NODES_MAX]; size_t may[SIM_NODES_MAX]; };
/* One look at one peer; records whose end was set since seen have come since the last one. */
struct looking { struct table_check *c; int node; const struct dht *d; uint64_t now, late_us, seen; struct share all;
	size_t peers, entries; };

/* ---- records ---- */

static struct known *know(struct map *m, const struct name *n, bool *ret_new)
{
	struct known *k = map_get(m, n, sizeof *n);
	*ret_new = !k;
	if (!k) {
		k = xcalloc(1, sizeof *k);
		map_put(m, n, sizeof *n, k);
	}
	return k;
}

/* Against what it was elsewhere, and here before. */
static void lives(const struct looking *l, const struct rec *r)
{
	struct table_check *c = l->c;
	struct name anywhere, here;
	bool fresh;
	memset(&anywhere, 0, sizeof anywhere);
	anywhere.key = r->key;
	memcpy(anywhere.subkey, r->subkey, strnlen(r->subkey, SUBKEY_MAX));
	here = anywhere;
	here.node = l->node;
	anywhere.owner = r->owner;
	anywhere.rank = r->rank;
	struct known *k = know(c->records, &anywhere, &fresh);
	if (fresh)
		k->ends_us = r->ends_us;
	else if (r->ends_us > k->ends_us + TRANSIT_US + (r->life_ms < SAVE_LIFE_MIN_MS ? 0 : c->clocks_us))
		sim_fail(c->s, "node %d: a record (%.8s) lives %llu ms longer than it was made for", l->node, r->subkey,
			(unsigned long long)(r->ends_us - k->ends_us) / 1000);
	if (l->now > r->ends_us + SWEEP_SLACK_US)
		sim_fail(c->s, "node %d: a record (%.8s) lies there %llu ms after its end", l->node, r->subkey,
			(unsigned long long)(l->now - r->ends_us) / 1000);
	k = know(c->here, &here, &fresh);
	bool forgotten = k->life != l->d->hash_key && r->life_ms < SAVE_LIFE_MIN_MS;    /* by a restart */
	if (!fresh && !forgotten && r->rank < k->rank && k->ends_us > l->now)
		sim_fail(c->s, "node %d: rank %llu of a record (%.8s) was replaced by %llu", l->node,
			(unsigned long long)k->rank, r->subkey, (unsigned long long)r->rank);
	*k = (struct known){ r->rank, r->ends_us, l->d->hash_key };
}

static void is_record(const struct looking *l, const struct entry *en, const struct rec *r)
{
	const struct heap *h = &l->d->values.ends;
	bool will_end = r->end.slot && r->end.slot <= h->n && h->v[r->end.slot - 1].t == &r->end &&
		r->end.at_us == r->ends_us;
	if (!will_end)
		sim_fail(l->c->s, "node %d: nothing ends a record (%.8s) at its end", l->node, r->subkey);
	if (!id_eq(&r->key, &en->key) || !r->vlen || r->vlen > VALUE_MAX || !memchr(r->subkey, 0, sizeof r->subkey) ||
			!r->life_ms || r->life_ms > LIFE_MAX_MS || r->ends_us > l->now + r->life_ms * 1000)
		sim_fail(l->c->s, "node %d: no record can be like this one (%.8s): %u bytes, life of %llu ms, %llu ms left",
			l->node, r->subkey, r->vlen, (unsigned long long)r->life_ms,
			(unsigned long long)(r->ends_us - l->now) / 1000);
	if (!rec_owner_ok(r))
		sim_fail(l->c->s, "node %d: a record (%.8s) of a peer that is not its owner", l->node, r->subkey);
}

/* To the account of who has sent it. */
static void charge(struct looking *l, const struct rec *r)
{
	struct tally *t = map_get(l->c->from, r->from.b, 32);
	if (!t) {
		t = xcalloc(1, sizeof *t);
		map_put(l->c->from, r->from.b, 32, t);
	}
	if (t->look != l->c->looks) {
		*t = (struct tally){ .look = l->c->looks };
		l->peers++;
	}
	t->has.records++;
	t->has.bytes += r->vlen + REC_OVERHEAD;
}

static void count(struct looking *l, const struct rec *r)
{
	charge(l, r);
	l->all.records++;
	l->all.bytes += r->vlen + REC_OVERHEAD;
}

/* No two of one subkey; where there are many, the map by subkey has each of them. */
static void look_subkeys(const struct looking *l, const struct entry *en)
{
	size_t found = 0;
	list_each(it, &en->recs) {
		const struct rec *r = list_entry(it, struct rec, link);
		if (en->by_subkey)
			found += map_get(en->by_subkey, r->subkey, strlen(r->subkey)) == r;
		for (struct list *k = it->next; !en->by_subkey && k != &en->recs; k = k->next)
			if (!strcmp(list_entry(k, struct rec, link)->subkey, r->subkey))
				sim_fail(l->c->s, "node %d: two records of one subkey (%.8s)", l->node, r->subkey);
	}
	if (en->by_subkey && found != en->n)
		sim_fail(l->c->s, "node %d: %zu of %zu records under a key are found by their subkeys", l->node, found, en->n);
}

static void look_entry(struct looking *l, const struct entry *en)
{
	size_t n = 0;
	bool plain = false, fresh = false;
	list_each(it, &en->recs) {
		const struct rec *r = list_entry(it, struct rec, link);
		if (r->end.seq > l->seen) {
			lives(l, r);
			is_record(l, en, r);
			fresh = true;
		}
		count(l, r);
		n++;
		plain |= !r->subkey[0];
	}
	l->entries++;
	if (!n || n > DICT_MAX || (plain && n > 1))
		sim_fail(l->c->s, "node %d: %zu records under a key%s, at most %d", l->node, n,
			plain ? ", a plain value among them" : "", plain ? 1 : DICT_MAX);
	if (n != en->n || (en->by_subkey && map_len(en->by_subkey) != n))
		sim_fail(l->c->s, "node %d: %zu records under a key, counted as %zu, by their subkeys as %zu", l->node, n,
			en->n, en->by_subkey ? map_len(en->by_subkey) : n);
	if (fresh)
		look_subkeys(l, en);
}

static void look_values(struct looking *l)
{
	const struct values *v = &l->d->values;
	const struct entry *en;
	const struct share *s;
	const void *from;
	for (size_t i = 0; (en = map_next(v->keys, &i, NULL, NULL));)
		look_entry(l, en);
	if (l->all.records != v->records || v->records > v->conf.records_max || l->all.bytes != v->bytes ||
			v->bytes > v->conf.bytes_max || l->entries != map_len(v->keys))
		sim_fail(l->c->s, "node %d: %zu records of %zu bytes, counted as %zu of %zu, at most %zu of %zu", l->node,
			l->all.records, l->all.bytes, v->records, v->bytes, v->conf.records_max, v->conf.bytes_max);
	const struct cached *f;
	for (size_t i = 0; (f = map_next(l->d->cache, &i, NULL, NULL));)
		if (f->copy)
			charge(l, list_entry(f->recs.next, struct rec, link));
	if (l->peers != map_len(v->quota))
		sim_fail(l->c->s, "node %d: records of %zu peers, of %zu there is an account", l->node, l->peers,
			map_len(v->quota));
	for (size_t i = 0; (s = map_next(v->quota, &i, &from, NULL));) {
		const struct tally *t = map_get(l->c->from, from, 32);
		bool has = t && t->look == l->c->looks;
		if (!has || t->has.records != s->records || t->has.bytes != s->bytes)
			sim_fail(l->c->s, "node %d: %zu records of %zu bytes of one peer, its account has %zu of %zu", l->node,
				has ? t->has.records : 0, has ? t->has.bytes : 0, s->records, s->bytes);
		if (s->records > v->conf.per_peer_max || (v->conf.per_peer_bytes && s->bytes > v->conf.per_peer_bytes))
			sim_fail(l->c->s, "node %d: %zu records of one peer, at most %zu; %zu bytes, at most %zu", l->node,
				s->records, v->conf.per_peer_max, s->bytes, v->conf.per_peer_bytes);
	}
}

/* What was found lately; that nobody has a key is known for a second only. */
static void look_cache(struct looking *l)
{
	const struct cached *f;
	for (size_t i = 0; (f = map_next(l->d->cache, &i, NULL, NULL));) {
		uint64_t most = list_empty(&f->recs) ? NEGATIVE_US : CACHE_US;
		if (f->until_us > l->now + most || l->now > f->until_us + SWEEP_SLACK_US)
			sim_fail(l->c->s, "node %d: what was found (%zu records) is believed for %lld ms, at most %llu", l->node,
				list_len(&f->recs), (long long)(f->until_us - l->now) / 1000, (unsigned long long)most / 1000);
		if (list_len(&f->recs) > DICT_MAX)
			sim_fail(l->c->s, "node %d: %zu records were found under a key, at most %d", l->node,
				list_len(&f->recs), DICT_MAX);
		l->late_us = f->until_us + SWEEP_SLACK_US < l->late_us ? f->until_us + SWEEP_SLACK_US : l->late_us;
	}
}

/* ---- the routing table ---- */

struct walk { const struct looking *l; size_t nodes, leaves; };

static bool twice(const struct dnode *const *v, size_t n)
{
	for (size_t i = 0; i + 1 < n; i++)
		if (id_eq(&v[i]->id, &v[n - 1]->id))
			return true;
	return false;
}

/* way: the ids of this subtree begin with its first `depth` bits. */
static void look_bucket(struct walk *w, const struct bucket *b, struct id way)
{
	const struct looking *l = w->l;
	const struct table *t = &l->d->table;
	const struct dnode *v[UINT8_MAX * 2];
	size_t n = 0;
	if (b->child[0]) {
		for (int i = 0; i < 2; i++) {
			if (b->child[i]->depth != b->depth + 1 || b->n || b->spares)
				sim_fail(l->c->s, "node %d: a bucket of depth %u is not split as it should", l->node, b->depth);
			way.b[b->depth / 8] |= (uint8_t)(i << (7 - b->depth % 8));
			look_bucket(w, b->child[i], way);
		}
		return;
	}
	w->nodes += b->n;
	w->leaves++;
	if (b->n > t->bucket || b->spares > TABLE_SPARE || (b->spares && b->n < t->bucket)) {
		sim_fail(l->c->s, "node %d: a bucket of %u nodes and %u spares, at most %u and %d", l->node, b->n, b->spares,
			t->bucket, TABLE_SPARE);
		return;
	}
	for (unsigned i = 0; i < (unsigned)b->n + b->spares; i++) {
		const struct dnode *x = i < b->n ? &b->node[i] : &b->node[t->bucket + i - b->n];
		v[n++] = x;
		if (twice(v, n) || id_eq(&x->id, &t->self) || (unsigned)id_prefix_bits(&x->id, &way) < b->depth)
			sim_fail(l->c->s, "node %d: %02x%02x... does not belong into its bucket, or not once more", l->node,
				x->id.b[0], x->id.b[1]);
		if (!x->at.port[CHAN_CTRL] || x->seen_us > l->now || x->fails >= TABLE_FAILS_MAX)
			sim_fail(l->c->s, "node %d: a node in its table that cannot be called or has failed %u times", l->node,
				x->fails);
	}
}

static void look_table(const struct looking *l)
{
	struct walk w = { .l = l };
	const struct table *t = &l->d->table;
	look_bucket(&w, &t->root, (struct id){ { 0 } });
	if (w.nodes != t->n || w.leaves != t->buckets)
		sim_fail(l->c->s, "node %d: %zu nodes in %zu buckets, counted as %zu in %zu", l->node, w.nodes, w.leaves, t->n,
			t->buckets);
}

/* ---- when ---- */

static struct looked as_it_is(const struct table_check *c, const struct dht *d)
{
	return (struct looked){ .life = d->hash_key, .hands = c->hands, .puts = d->values.ends.seq,
		.changes = d->table.changes, .records = d->values.records, .bytes = d->values.bytes,
		.nodes = d->table.n, .cached = map_len(d->cache) };
}

static bool as_it_was(const struct table_check *c, int node, const struct dht *d)
{
	struct looked is = as_it_is(c, d);
	is.late_us = c->looked[node].late_us;
	return !memcmp(&is, &c->looked[node], sizeof is) && sim_now(c->s) <= is.late_us;
}

static void look(struct table_check *c, int node, const struct dht *d)
{
	struct looking l = { .c = c, .node = node, .d = d, .now = sim_now(c->s), .late_us = UINT64_MAX };
	const struct looked *last = &c->looked[node];
	c->looks++;
	if (last->life == d->hash_key && last->hands == c->hands)
		l.seen = last->puts;
	look_values(&l);
	look_cache(&l);
	look_table(&l);
	c->looked[node] = as_it_is(c, d);
	c->looked[node].late_us = l.late_us;
	c->may[node] = 0;
}

/* What can be seen without looking around. */
static void glance(const struct table_check *c, int node, const struct dht *d)
{
	const struct values *v = &d->values;
	const struct timer *first = heap_peek(&v->ends);
	if (first && sim_now(c->s) > first->at_us + SWEEP_SLACK_US)
		sim_fail(c->s, "node %d: a record lies there %llu ms after its end", node,
			(unsigned long long)(sim_now(c->s) - first->at_us) / 1000);
	if (v->records != v->ends.n || v->records > v->conf.records_max || v->bytes > v->conf.bytes_max ||
			map_len(v->keys) > v->records || map_len(v->quota) > v->records + d->copies)
		sim_fail(c->s, "node %d: %zu records of %zu bytes, %zu of them with an end, under %zu keys, counted as of %zu "
			"peers, at most %zu of %zu", node, v->records, v->bytes, v->ends.n, map_len(v->keys), map_len(v->quota),
			v->conf.records_max, v->conf.bytes_max);
	if (map_len(d->cache) > CACHE_MAX || d->fetches > CACHE_REFRESH_MAX || d->searching > SEARCHES_MAX ||
			d->packs > PACKS_MAX || d->nboots > DHT_ADDRESSES)
		sim_fail(c->s, "node %d: %zu keys are cached, %u fetched, %zu searches and %zu frames under way: over a bound",
			node, map_len(d->cache), d->fetches, d->searching, d->packs);
}

static void see(struct table_check *c, int node)
{
	struct dht *d = sim_alive(c->s, node) ? c->of(c->arg, node) : NULL;
	if (!d)
		return;
	glance(c, node, d);
	if (as_it_was(c, node, d))
		return;
	c->may[node] += c->per_event;
	if (c->may[node] >= d->values.records + d->table.n + map_len(d->cache))
		look(c, node, d);
}

static int every_event(struct sim *s, void *arg, struct err *e)
{
	struct table_check *c = arg;
	int node = sim_touched(s);
	if (node >= 0) {
		see(c, node);
	} else if (node == SIM_ANYBODY) {       /* the scenario may have laid hands on them */
		c->hands++;
		for (int i = 0; i < sim_nodes(s); i++)
			see(c, i);
	}
	return 0;
}

void table_check_all(struct table_check *c)
{
	for (int i = 0; i < sim_nodes(c->s); i++) {
		struct dht *d = sim_alive(c->s, i) ? c->of(c->arg, i) : NULL;
		if (d)
			look(c, i, d);
	}
}

struct table_check *table_check_new(struct sim *s, struct dht *(*of)(void *arg, int node), void *arg, size_t per_event)
{
	struct table_check *c = xcalloc(1, sizeof *c);
	*c = (struct table_check){ .s = s, .of = of, .arg = arg, .per_event = per_event, .records = map_new(1),
		.here = map_new(2), .from = map_new(3), .hands = 1 };
	sim_after_event(s, every_event, c);
	return c;
}

static void free_all(struct map *m)
{
	void *x;
	for (size_t i = 0; (x = map_next(m, &i, NULL, NULL));)
		free(x);
	map_free(m);
}

void table_check_free(struct table_check *c)
{
	free_all(c->records);
	free_all(c->here);
	free_all(c->from);
	free(c);
}

void table_check_clocks(struct table_check *c, uint64_t us) { c->clocks_us = us; }
uint64_t table_check_records(const struct table_check *c) { return map_len(c->records); }
