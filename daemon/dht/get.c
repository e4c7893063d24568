/* Getting: what lies here or was found lately, else one search for all who ask meanwhile; and the cache, whose entries
 * that are in use are fetched again before they go (S21, S22). */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "dht/int.h"

#define AGAIN_MAX 4                             /* whoever was silent is asked again when it has been heard, */
#define AGAIN_US 300000                         /* which an answer under way for that long tells */

struct waiter { struct list link; dht_got_fn *done; void *arg; };
struct get { struct list waiters; struct dht *d; struct id key; bool latest; unsigned again; struct timer now; };
struct fetch { struct list link; struct dht *d; struct id key; };

/* ---- the cache ---- */

static void cached_free(struct dht *d, struct cached *c)
{
	if (c->copy) {
		values_return(&d->values, list_entry(c->recs.next, struct rec, link));
		d->copies--;
	}
	d->cache_weight -= c->weight;
	recs_free(&c->recs);
	free(c);
}

void cache_forget(struct dht *d, const struct id *key)
{
	struct cached *c = map_del(d->cache, key->b, 32);
	if (c)
		cached_free(d, c);
}

/* The oldest, or the oldest copy. */
static void forget_oldest(struct dht *d, bool copy)
{
	const struct cached *c;
	const void *key;
	for (size_t i = 0; (c = map_next(d->cache, &i, &key, NULL));)
		if (c->copy || !copy) {
			struct id id;
			memcpy(id.b, key, 32);
			cache_forget(d, &id);
			return;
		}
}

static struct cached *cache_add(struct dht *d, const struct id *key, const struct list *recs, size_t weight)
{
	uint64_t now = env_now(d->env);
	while (map_len(d->cache) >= CACHE_MAX || (map_len(d->cache) && d->cache_weight + weight > CACHE_WEIGHT))
		forget_oldest(d, false);
	struct cached *c = xcalloc(1, sizeof *c);
	recs_copy(&c->recs, recs);
	c->weight = weight;
	d->cache_weight += weight;
	c->until_us = now + (list_empty(recs) && !PLANTED(DHT_NOBODY_LONG) ? NEGATIVE_US : CACHE_US);
	map_put(d->cache, key->b, 32, c);
	tick_by(d, now + 1000000);
	return c;
}

/* An empty list says for a moment that nobody has the key. The oldest entry makes room. */
void found_put(struct dht *d, const struct id *key, const struct list *recs)
{
	size_t weight = 0;
	cache_forget(d, key);
	list_each(it, recs)
		weight += list_entry(it, struct rec, link)->weight;
	if (weight <= CACHE_WEIGHT_ONE && list_len(recs) <= DICT_MAX)
		cache_add(d, key, recs, weight);
}

void copy_put(struct dht *d, const struct rec *r)
{
	struct cached *c;
	size_t of_one = 0;
	for (size_t i = 0; (c = map_next(d->cache, &i, NULL, NULL));)
		of_one += c->copy && id_eq(&list_entry(c->recs.next, struct rec, link)->from, &r->from);
	if (of_one >= COPIES_OF_ONE || !values_lend(&d->values, r))
		return;
	if (d->copies >= COPIES_MAX)
		forget_oldest(d, true);
	struct list recs = LIST_INIT(recs);
	struct rec *copy = rec_copy(r);
	list_push(&recs, &copy->link);
	cache_forget(d, &r->key);
	c = cache_add(d, &r->key, &recs, r->weight);
	c->copy = true;
	d->copies++;
	recs_free(&recs);
}

bool recs_plain(const struct list *recs)
{
	return list_len(recs) == 1 && !list_entry(recs->next, struct rec, link)->subkey[0];
}

struct list *found_plain(struct dht *d, const struct id *key)
{
	struct cached *c = map_get(d->cache, key->b, 32);
	if (c && c->copy) {
		if (c->until_us > env_now(d->env) && list_entry(c->recs.next, struct rec, link)->ends_us > env_now(d->env))
			return &c->recs;
		cache_forget(d, key);
		return NULL;
	}
	struct list *recs = found_get(d, key);
	return recs && recs_plain(recs) ? recs : NULL;
}

/* What has ended is no longer there; when all of it has, nothing is known. */
struct list *found_get(struct dht *d, const struct id *key)
{
	struct cached *c = map_get(d->cache, key->b, 32);
	uint64_t now = env_now(d->env);
	if (!c || c->copy)
		return NULL;
	bool had = !list_empty(&c->recs);
	list_each_safe(it, &c->recs) {
		struct rec *r = list_entry(it, struct rec, link);
		if (r->ends_us <= now) {
			c->weight -= r->weight;
			d->cache_weight -= r->weight;
			list_del(&r->link);
			rec_free(r);
		}
	}
	if (c->until_us <= now || (had && list_empty(&c->recs))) {
		cache_forget(d, key);
		return NULL;
	}
	c->used = true;
	return &c->recs;
}

static void fetched(void *arg, const struct look_end *l)
{
	struct fetch *f = arg;
	if (!list_empty(l->recs))
		found_put(f->d, &f->key, l->recs);
	f->d->fetches--;
	list_del(&f->link);
	free(f);
}

/* Once a second: entries that end soon and were asked for are fetched again, the others go. */
void cache_tick(struct dht *d, uint64_t now)
{
	struct cached *c;
	const void *key;
	if (now < d->cache_at_us || !map_len(d->cache))
		return;
	d->cache_at_us = now + 1000000;
	for (size_t i = 0; (c = map_next(d->cache, &i, &key, NULL));) {
		struct id id;
		memcpy(id.b, key, 32);
		if (c->until_us <= now) {
			cache_forget(d, &id);
		} else if (c->used && !list_empty(&c->recs) && c->until_us <= now + CACHE_REFRESH_US &&
				d->fetches < CACHE_REFRESH_MAX) {
			struct fetch *f = xcalloc(1, sizeof *f);
			*f = (struct fetch){ .d = d, .key = id };
			list_push(&d->fetching, &f->link);
			c->used = false;
			d->fetches++;
			lookup_start(d, &id, LOOK_LATEST, fetched, f);
		}
	}
}

/* ---- get ---- */

static void deliver(struct dht *d, struct list *waiters, struct list *recs, uint32_t silent)
{
	struct record *out;
	struct err e;
	size_t n = records_out(recs, env_now(d->env), &out);
	struct list *it;
	if (!n && silent)
		err_set(&e, ERR_TIMEOUT, "dht: nobody who answered has it, but %u of the peers nearest to the key did not "
			"answer; try again", silent);
	while ((it = list_pop(waiters))) {
		struct waiter *w = list_entry(it, struct waiter, link);
		w->done(w->arg, out, n, !n && silent ? &e : NULL);
		free(w);
	}
	records_free(out, n);
}

static void get_key(const struct id *key, bool latest, uint8_t out[33])
{
	memcpy(out, key->b, 32);
	out[32] = latest;
}

static void get_end(struct get *g, struct list *recs, uint32_t silent)
{
	uint8_t key[33];
	struct list waiters;
	struct dht *d = g->d;
	get_key(&g->key, g->latest, key);
	map_del(d->gets, key, sizeof key);
	list_init(&waiters);
	struct list *it;
	while ((it = list_pop(&g->waiters)))
		list_push(&waiters, it);
	env_timer(d->env, &g->now, 0);
	free(g);
	deliver(d, &waiters, recs, silent);
}

/* What the others found, and what lies here; that nobody has it is known only when nobody was silent. */
void get_looked(struct dht *d, const struct id *key, bool latest, const struct look_end *l)
{
	recs_add_own(d, key, l->recs);
	if (!latest && !(list_empty(l->recs) && l->silent))
		found_put(d, key, l->recs);
}

static void get_found(void *arg, const struct look_end *l)
{
	struct get *g = arg;
	get_looked(g->d, &g->key, g->latest, l);
	if (list_empty(l->recs) && l->silent && g->again) {
		g->again--;
		env_after(g->d->env, &g->now, AGAIN_US);
		return;
	}
	get_end(g, l->recs, l->silent);
}

/* Without `latest`, what lies here or was found lately will do. */
static void get_near(struct timer *t)
{
	struct get *g = container_of(t, struct get, now);
	struct dht *d = g->d;
	struct entry *en = g->latest ? NULL : values_get(&d->values, &g->key, env_now(d->env));
	struct list *known = g->latest ? NULL : en ? &en->recs : found_get(d, &g->key), recs;
	if (!known) {
		lookup_start(d, &g->key, g->latest ? LOOK_LATEST : LOOK_VALUE, get_found, g);
		return;
	}
	recs_copy(&recs, known);
	get_end(g, &recs, 0);
	recs_free(&recs);
}

static void get_start(struct dht *d, const char *key, bool latest, unsigned again, dht_got_fn *done, void *arg)
{
	struct id id;
	uint8_t gk[33];
	id_of(&id, key, strlen(key));
	get_key(&id, latest, gk);
	struct get *g = map_get(d->gets, gk, sizeof gk);
	if (!g) {                               /* one search serves all who ask meanwhile (S21) */
		g = xcalloc(1, sizeof *g);
		*g = (struct get){ .d = d, .key = id, .latest = latest, .now = { .fire = get_near, .name = "dht.get" } };
		list_init(&g->waiters);
		map_put(d->gets, gk, sizeof gk, g);
		env_after(d->env, &g->now, 1);
	}
	g->again = again > g->again ? again : g->again;
	struct waiter *w = xcalloc(1, sizeof *w);
	w->done = done;
	w->arg = arg;
	list_push(&g->waiters, &w->link);
}

void dht_get(struct dht *d, const char *key, bool latest, dht_got_fn *done, void *arg)
{
	get_start(d, key, latest, 0, done, arg);
}

void dht_get_patient(struct dht *d, const char *key, bool latest, dht_got_fn *done, void *arg)
{
	get_start(d, key, latest, AGAIN_MAX, done, arg);
}

void gets_free(struct dht *d)
{
	struct cached *c;
	struct get *g;
	struct err e;
	err_set(&e, ERR_CANCELLED, "dht: this peer is stopping");
	for (size_t i = 0; (g = map_next(d->gets, &i, NULL, NULL));) {
		struct list *it;
		while ((it = list_pop(&g->waiters))) {
			struct waiter *w = list_entry(it, struct waiter, link);
			w->done(w->arg, NULL, 0, &e);
			free(w);
		}
		env_timer(d->env, &g->now, 0);
		free(g);
	}
	for (size_t i = 0; (c = map_next(d->cache, &i, NULL, NULL));)
		cached_free(d, c);
	list_each_safe(it, &d->fetching)
		free(list_entry(it, struct fetch, link));
	map_free(d->gets);
	map_free(d->cache);
}
