/* Putting and keeping. */
#include "dht/dht.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "dht/int.h"

#define KEEP_AGAIN_US 1000000

/* In a swarm of so many, of which nobody has come or gone for a while, everybody knows everybody: who seems nearest is
 * sent the record while it is still searched for nearer ones, which saves a round trip. */
#define EARLY_NODES 48
#define EARLY_STILL_US 10000000
#define WHOLE_US 10000000
enum early_state { EARLY_OPEN, EARLY_TOOK, EARLY_REFUSED, EARLY_GONE };
struct early { struct id to; enum early_state state; };

/* A put on its way: the search for the k nearest, then one STORE each. */
struct put {
	struct list link, calls;
	struct dht *d;
	struct rec *rec;
	struct keep *keep;                      /* it belongs to; NULL */
	struct spares spares;
	struct early early[TABLE_BUCKET]; size_t nearly;
	uint32_t accepted, wanted, open;
	struct err last;
	dht_stored_fn *done; void *arg;
};
/* early: of the put's; NULL: it counts. */
struct put_call { struct list link; struct put *p; struct id to; struct call *call; struct early *early; };
/* to: who took it last, nearest first, when a search had found them. */
struct keep { struct list link; struct dht *d; char *key; char subkey[SUBKEY_MAX + 1]; json_t *value; uint64_t life_ms,
	next_us; bool sign; struct put *put; struct dnode to[TABLE_BUCKET]; size_t nto; uint64_t found_us; };

/* ---- put ---- */

static void put_free(struct put *p)
{
	list_each_safe(it, &p->calls) {
		struct put_call *c = list_entry(it, struct put_call, link);
		net_cancel(p->d->net, c->call);
		list_del(&c->link);
		free(c);
	}
	if (p->keep)
		p->keep->put = NULL;
	list_del(&p->link);
	rec_free(p->rec);
	free(p);
}

static void put_end(struct put *p)
{
	struct err e = p->last;
	dht_stored_fn *done = p->done;
	void *arg = p->arg;
	uint32_t accepted = p->accepted, wanted = p->wanted;
	put_free(p);
	if (done)
		done(arg, accepted, wanted, accepted ? NULL : &e);
}

static void put_answered(void *arg, const struct frame *f, const struct err *e);

/* One of those who had it is gone: who has it now is searched for soon, not at the next third of its life. */
static void keep_again(struct keep *k)
{
	uint64_t at = env_now(k->d->env) + KEEP_AGAIN_US + env_rand(k->d->env) % KEEP_AGAIN_US;
	k->nto = 0;
	if (k->next_us > at)
		k->next_us = at;
	tick_by(k->d, k->next_us);
}

static void put_send(struct put *p, const struct id *to, struct early *early)
{
	struct buf b = { 0 };
	struct put_call *c = xcalloc(1, sizeof *c);
	store_add(&b, p->rec, env_now(p->d->env));
	*c = (struct put_call){ .p = p, .to = *to, .early = early };
	list_push(&p->calls, &c->link);
	p->open += !early;
	c->call = store_send(p->d, to, &b, put_answered, c);
}

/* Who cannot be reached gives its place to the next nearest. */
static void put_gone(struct put *p)
{
	if (p->keep)
		keep_again(p->keep);
	if (p->spares.n)
		put_send(p, &spare_take(&p->spares)->id, NULL);
}

static void put_answered(void *arg, const struct frame *f, const struct err *e)
{
	struct put_call *c = arg;
	struct put *p = c->p;
	struct early *early = c->early;
	if (f) {
		const char *why = json_string_value(json_object_get(f->json, "why"));
		bool took = store_accepted(f) > 0;
		dht_heard(p->d, &c->to, false);
		if (early)
			early->state = took ? EARLY_TOOK : EARLY_REFUSED;
		else
			p->accepted += took;
		if (why)
			err_set(&p->last, ERR_REFUSED, "%s", why);
	} else {
		p->last = *e;
		dht_lost(p->d, &c->to);
		if (early)
			early->state = EARLY_GONE;
		else
			put_gone(p);
	}
	list_del(&c->link);
	free(c);
	if (!early && --p->open == 0)
		put_end(p);
}

size_t put_targets(struct dht *d, const struct rec *r, const struct dnode *near, size_t n, bool *ret_here)
{
	bool here = !d->conf.client && (n < d->conf.k || id_closer(&r->key, net_self(d->net), &near[n - 1].id) < 0);
	*ret_here = here || !n;
	return here && n == d->conf.k ? n - 1 : n;
}

static bool is_still(struct dht *d)
{
	uint64_t now = env_now(d->env);
	if (d->table.changes != d->still_changes) {
		d->still_changes = d->table.changes;
		d->still_since_us = now;
		d->whole_us = 0;
	}
	return d->table.n <= EARLY_NODES && now >= d->still_since_us + EARLY_STILL_US;
}

static void put_early(struct put *p)
{
	struct dht *d = p->d;
	struct dnode near[TABLE_BUCKET];
	bool here;
	if (!is_still(d))
		return;
	size_t n = put_targets(d, p->rec, near, table_nearest(&d->table, &p->rec->key, near, d->conf.k), &here);
	for (size_t i = 0; i < n; i++) {
		if (dht_shunned(d, &near[i].id))
			continue;
		struct early *e = &p->early[p->nearly++];
		e->to = near[i].id;
		put_send(p, &e->to, e);
	}
}

/* It is one of the nearest indeed. False: nothing was sent to it. */
static bool put_early_counts(struct put *p, const struct id *to)
{
	struct early *e = p->early;
	while (e < p->early + p->nearly && !id_eq(&e->to, to))
		e++;
	if (e == p->early + p->nearly)
		return false;
	p->accepted += e->state == EARLY_TOOK;
	if (e->state == EARLY_GONE)
		put_gone(p);
	list_each(it, &p->calls) {
		struct put_call *c = list_entry(it, struct put_call, link);
		if (c->early == e) {
			c->early = NULL;
			p->open++;
		}
	}
	return true;
}

static void put_to(struct put *p, const struct dnode *near, size_t n)
{
	struct dht *d = p->d;
	bool here;
	size_t most = put_targets(d, p->rec, near, n, &here);
	p->wanted = (uint32_t)most + here;
	if (here)
		p->accepted += store_local(d, rec_copy(p->rec), &p->last) > 0;
	for (size_t i = 0; i < most; i++)
		if (!put_early_counts(p, &near[i].id))
			put_send(p, &near[i].id, NULL);
	if (!p->open)
		put_end(p);
}

static void put_found(void *arg, const struct look_end *l)
{
	struct put *p = arg;
	struct keep *k = p->keep;
	if (k) {
		memcpy(k->to, l->near, l->n * sizeof *l->near);
		k->nto = l->n;
		k->found_us = env_now(p->d->env);
	}
	if (is_still(p->d) && !l->silent && l->n >= p->d->table.n)
		p->d->whole_us = env_now(p->d->env);
	put_to(p, l->near, l->n);
}

/* Where records lie with everybody, and everybody has said lately that there is nobody else, a search would only hear
 * that again; behind a link that loses packets it has twice as many to lose. Newcomers get what is theirs (keep.c). */
static bool put_known(struct put *p)
{
	struct dht *d = p->d;
	struct dnode near[TABLE_BUCKET];
	bool here;
	if (!is_still(d) || !d->whole_us || env_now(d->env) > d->whole_us + WHOLE_US)
		return false;
	size_t n = table_nearest(&d->table, &p->rec->key, near, d->conf.k);
	if (n < d->table.n || !put_targets(d, p->rec, near, n, &here))
		return false;
	for (size_t i = 0; i < n; i++)
		if (dht_shunned(d, &near[i].id))
			return false;
	put_to(p, near, n);
	return true;
}

/* Those who took a kept record last take it again without a search, for a while: as long as this peer has heard of
 * nobody nearer. */
static bool put_again(struct put *p)
{
	struct keep *k = p->keep;
	struct dht *d = p->d;
	struct dnode near[TABLE_BUCKET];
	if (!k || k->nto < d->conf.k || k->found_us + d->conf.refresh_us < env_now(d->env))
		return false;
	size_t n = table_nearest(&d->table, &p->rec->key, near, d->conf.k);
	for (size_t i = 0; i < n; i++) {
		bool known = id_closer(&p->rec->key, &near[i].id, &k->to[k->nto - 1].id) > 0;
		for (size_t j = 0; j < k->nto; j++)
			known |= id_eq(&near[i].id, &k->to[j].id);
		if (!known)
			return false;
	}
	put_to(p, k->to, k->nto);
	return true;
}

/* Two puts in one millisecond, or after our clock was set back, still come in their order. */
static uint64_t next_rank(struct dht *d)
{
	uint64_t wall = env_wall(d->env), rank = wall;
	if (d->last_rank >= wall && d->last_rank < wall + 3 * CLOCK_SLACK_MS)
		rank = d->last_rank + 1;
	return d->last_rank = rank;
}

struct rec *rec_make(struct dht *d, const char *key, const char *subkey, const json_t *value, uint64_t life_ms,
	bool sign, struct err *e)
{
	size_t len = 0;
	if (subkey && strlen(subkey) > SUBKEY_MAX) {
		err_set(e, ERR_INVALID, "subkey of %zu bytes: at most %d", strlen(subkey), SUBKEY_MAX);
		return NULL;
	}
	if (!life_ms || life_ms > LIFE_MAX_MS) {
		err_set(e, ERR_INVALID, "life of %llu ms is outside 1 ms .. 7 days", (unsigned long long)life_ms);
		return NULL;
	}
	char *text = json_line(value, &len);
	if (!len || len > VALUE_MAX) {
		err_set(e, ERR_INVALID, "value of %zu bytes: at most %d", len, VALUE_MAX);
		free(text);
		return NULL;
	}
	json_t *same = json_any(text, len, JSON_RECORD, e);    /* who gets it reads it so */
	if (!same) {
		err_wrap(e, "value");
		free(text);
		return NULL;
	}
	json_decref(same);
	struct rec *r = xcalloc(1, sizeof *r);
	list_init(&r->link);
	id_of(&r->key, key, strlen(key));
	snprintf(r->subkey, sizeof r->subkey, "%s", subkey ? subkey : "");
	r->value = text;
	r->vlen = (uint32_t)len;
	rec_weigh(r);
	r->rank = next_rank(d);
	r->life_ms = life_ms;
	r->ends_us = env_now(d->env) + life_ms * 1000;
	r->owner = r->from = *net_self(d->net);
	if (sign || rec_must_sign(r))
		rec_sign(d, r);
	if (!rec_owner_ok(r)) {
		err_set(e, ERR_AUTH, "subkey %.8s... is a peer's id: only that peer may store under it", subkey);
		rec_free(r);
		return NULL;
	}
	if (schema_check(d, r, e)) {
		rec_free(r);
		return NULL;
	}
	return r;
}

/* Errors are told later, like everything else. */
struct refusal { struct timer t; struct dht *d; dht_stored_fn *done; void *arg; struct err e; struct list link; };

static void refuse_later(struct timer *t)
{
	struct refusal *r = container_of(t, struct refusal, t);
	dht_stored_fn *done = r->done;
	void *arg = r->arg;
	struct err e = r->e;
	list_del(&r->link);
	free(r);
	if (done)
		done(arg, 0, 0, &e);
}

static void put_start(struct dht *d, const char *key, const char *subkey, json_t *value, uint64_t life_ms, bool sign,
	struct keep *keep, dht_stored_fn *done, void *arg)
{
	struct err e;
	struct rec *rec = rec_make(d, key, subkey, value, life_ms, sign, &e);
	json_decref(value);
	if (!rec) {
		struct refusal *r = xcalloc(1, sizeof *r);
		*r = (struct refusal){ .t = { .fire = refuse_later, .name = "dht.refuse" }, .d = d, .done = done, .arg = arg,
			.e = e };
		list_push(&d->refusals, &r->link);
		env_after(d->env, &r->t, 1);
		return;
	}
	cache_forget(d, &rec->key);
	struct put *p = xcalloc(1, sizeof *p);
	*p = (struct put){ .d = d, .rec = rec, .done = done, .arg = arg };
	list_init(&p->calls);
	list_push(&d->puts, &p->link);
	err_set(&p->last, ERR_UNREACHABLE, "no node took the record");
	if (keep && !keep->put) {
		p->keep = keep;
		keep->put = p;
	}
	if (put_again(p) || put_known(p))
		return;
	struct lookup *l = lookup_new(d, &p->rec->key, LOOK_NODES, put_found, p);
	l->spares = &p->spares;
	put_early(p);
	lookup_begin(l);
}

void dht_put(struct dht *d, const char *key, const char *subkey, json_t *value, uint64_t life_ms, bool sign,
	dht_stored_fn *done, void *arg)
{
	put_start(d, key, subkey, value, life_ms, sign, NULL, done, arg);
}

/* ---- keep ---- */

static struct keep *keep_find(struct dht *d, const char *key, const char *subkey)
{
	list_each(it, &d->keeps) {
		struct keep *k = list_entry(it, struct keep, link);
		if (!strcmp(k->key, key) && !strcmp(k->subkey, subkey ? subkey : ""))
			return k;
	}
	return NULL;
}

void dht_keep(struct dht *d, const char *key, const char *subkey, json_t *value, uint64_t life_ms, bool sign)
{
	struct keep *k = keep_find(d, key, subkey);
	if (!k) {
		k = xcalloc(1, sizeof *k);
		k->d = d;
		k->key = xstrdup(key);
		snprintf(k->subkey, sizeof k->subkey, "%s", subkey ? subkey : "");
		list_push(&d->keeps, &k->link);
	}
	json_decref(k->value);
	k->value = value;
	k->life_ms = life_ms;
	k->sign = sign;
	k->next_us = 0;
	tick_by(d, env_now(d->env) + 1);
}

static void keep_drop(struct keep *k)
{
	if (k->put)
		k->put->keep = NULL;
	list_del(&k->link);
	json_decref(k->value);
	free(k->key);
	free(k);
}

void dht_unkeep(struct dht *d, const char *key, const char *subkey)
{
	struct keep *k = keep_find(d, key, subkey);
	if (k)
		keep_drop(k);
}

/* Kept records are stored again at a third of their life; sooner while nobody but ourselves has them. */
void keeps_tick(struct dht *d, uint64_t now)
{
	list_each(it, &d->keeps) {
		struct keep *k = list_entry(it, struct keep, link);
		if (now < k->next_us) {
			tick_by(d, k->next_us);
			continue;
		}
		uint64_t every = k->life_ms * 1000 / 3;
		k->next_us = now + every - env_rand(d->env) % (every / 8 + 1);
		if (!d->table.n && k->next_us > now + 1000000)
			k->next_us = now + 1000000;
		tick_by(d, k->next_us);
		put_start(d, k->key, k->subkey[0] ? k->subkey : NULL, json_incref(k->value), k->life_ms, k->sign, k, NULL,
			NULL);
	}
}

void puts_free(struct dht *d)
{
	struct err e;
	err_set(&e, ERR_CANCELLED, "dht: this peer is stopping");
	list_each_safe(it, &d->puts) {
		struct put *p = list_entry(it, struct put, link);
		p->last = e;
		p->accepted = 0;
		put_end(p);
	}
	list_each_safe(it, &d->keeps)
		keep_drop(list_entry(it, struct keep, link));
	list_each_safe(it, &d->refusals) {
		struct refusal *r = list_entry(it, struct refusal, link);
		env_timer(d->env, &r->t, 0);
		list_del(&r->link);
		free(r);
	}
}
