/* Bulk get and store over a bundle of searches. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"

struct one { struct many *m; struct id key; struct list recs /* found */; struct portion portion;
	struct rec *rec /* to store */;
	struct dnode to[TABLE_BUCKET]; size_t nto; struct spares spares; uint32_t silent; struct dht_item_end end; };
struct many { struct list link, sends; struct dht *d; struct bundle *bundle; struct one *v; size_t n, open; bool latest;
	struct budget budget;
	struct timer begin; dht_got_many_fn *got; dht_stored_many_fn *stored; void *arg; };
/* Records to one node: a frame of at most FRAME_RECS at a time. */
#define FRAME_RECS 128
struct send { struct list link; struct many *m; struct id to; struct call *call; struct one *v[FRAME_RECS]; size_t n;
	struct buf b; };

static void many_free(struct many *m)
{
	list_each_safe(it, &m->sends) {
		struct send *s = list_entry(it, struct send, link);
		if (s->call)
			net_cancel(m->d->net, s->call);
		buf_free(&s->b);
		free(s);
	}
	for (size_t i = 0; i < m->n; i++) {
		recs_free(&m->v[i].recs);
		rec_free(m->v[i].rec);
	}
	env_timer(m->d->env, &m->begin, 0);
	bundle_free(m->bundle);
	list_del(&m->link);
	free(m->v);
	free(m);
}

static struct many *many_new(struct dht *d, size_t n, void (*begin)(struct timer *), void *arg)
{
	struct many *m = xcalloc(1, sizeof *m);
	*m = (struct many){ .d = d, .v = xcalloc(n + 1, sizeof *m->v), .n = n, .arg = arg,
		.begin = { .fire = begin, .name = "dht.many" } };
	for (size_t i = 0; i < n; i++) {
		m->v[i].m = m;
		m->v[i].portion.of = &m->budget;
		list_init(&m->v[i].recs);
	}
	m->bundle = bundle_new(d);
	list_init(&m->sends);
	list_push(&d->manies, &m->link);
	env_after(d->env, &m->begin, 1);
	return m;
}

static int check_count(size_t n, struct err *e)
{
	if (n && n <= DHT_MANY)
		return 0;
	return err_set(e, ERR_INVALID, "%zu keys at once: between 1 and %d", n, DHT_MANY);
}

/* ---- get ---- */

bool portion_take(struct portion *s, const struct list *recs)
{
	s->of->n -= s->n;
	s->of->weight -= s->weight;
	s->n = s->weight = 0;
	list_each(it, recs) {
		const struct rec *r = list_entry(it, struct rec, link);
		s->n++;
		s->weight += r->weight == REC_UNREADABLE ? VALUE_MAX : r->weight;
	}
	s->cut |= s->of->n + s->n > MANY_RECS_MAX || s->of->weight + s->weight > MANY_WEIGHT_MAX;
	if (s->cut)
		s->n = s->weight = 0;
	s->of->n += s->n;
	s->of->weight += s->weight;
	return !s->cut;
}

static void got_all(struct many *m, const struct err *e)
{
	struct record **out = xcalloc(m->n + 1, sizeof *out);
	struct dht_many *v = xcalloc(m->n + 1, sizeof *v);
	uint64_t now = env_now(m->d->env);
	for (size_t i = 0; i < m->n && !e; i++) {
		v[i].n = records_out(&m->v[i].recs, now, &out[i]);
		v[i].r = out[i];
		v[i].silent = v[i].n ? 0 : m->v[i].silent;
		v[i].over = m->v[i].portion.cut;
	}
	m->got(m->arg, v, e ? 0 : m->n, e);
	for (size_t i = 0; i < m->n && !e; i++)
		records_free(out[i], v[i].n);
	free(out);
	free(v);
	many_free(m);
}

static void got_one(void *arg, const struct look_end *l)
{
	struct one *o = arg;
	struct many *m = o->m;
	if (!o->portion.cut)                      /* else it is not all, and nothing to remember */
		get_looked(m->d, &o->key, m->latest, l);
	o->silent = l->silent;
	recs_free(&o->recs);
	if (portion_take(&o->portion, l->recs))
		recs_copy(&o->recs, l->recs);
	if (!--m->open)
		got_all(m, NULL);
}

static void get_begin(struct timer *t)
{
	struct many *m = container_of(t, struct many, begin);
	struct dht *d = m->d;
	struct lookup **l = xcalloc(m->n + 1, sizeof(struct lookup *));
	size_t n = 0;
	for (size_t i = 0; i < m->n; i++) {
		struct one *o = &m->v[i];
		struct entry *en = m->latest ? NULL : values_get(&d->values, &o->key, env_now(d->env));
		struct list *known = m->latest ? NULL : en ? &en->recs : found_get(d, &o->key);
		if (known) {
			if (portion_take(&o->portion, known))
				recs_copy(&o->recs, known);
			continue;
		}
		l[n] = lookup_new(d, &o->key, m->latest ? LOOK_LATEST : LOOK_VALUE, got_one, o);
		l[n]->portion = &o->portion;
		bundle_add(m->bundle, l[n++]);
	}
	m->open = n;
	if (!n)
		got_all(m, NULL);
	for (size_t i = 0; i < n; i++)
		lookup_step(l[i]);
	free(l);
}

int dht_get_many(struct dht *d, const char *const *keys, size_t n, bool latest, dht_got_many_fn *done, void *arg,
	struct err *e)
{
	if (check_count(n, e))
		return -1;
	struct many *m = many_new(d, n, get_begin, arg);
	m->latest = latest;
	m->got = done;
	for (size_t i = 0; i < n; i++)
		id_of(&m->v[i].key, keys[i], strlen(keys[i]));
	return 0;
}

/* ---- put ---- */

static void stored_all(struct many *m, const struct err *e)
{
	struct dht_item_end *v = xcalloc(m->n + 1, sizeof *v);
	for (size_t i = 0; i < m->n; i++) {
		v[i] = m->v[i].end;
		if (v[i].accepted)
			v[i].error.code = ERR_NONE;
	}
	m->stored(m->arg, v, e ? 0 : m->n, e);
	free(v);
	many_free(m);
}

static void send_elsewhere(const struct send *s);

static void send_ended(void *arg, const struct frame *f, const struct err *e)
{
	struct send *s = arg;
	struct many *m = s->m;
	const char *why = f ? json_string_value(json_object_get(f->json, "why")) : NULL;
	if (f)
		dht_heard(m->d, &s->to, false);
	else
		dht_lost(m->d, &s->to);
	for (size_t i = 0; i < s->n; i++) {
		struct one *o = s->v[i];
		if (f && store_took(f, i, s->n))
			o->end.accepted++;
		else if (why)
			err_set(&o->end.error, ERR_REFUSED, "%s", why);
		else if (e)
			o->end.error = *e;
	}
	list_del(&s->link);
	if (!f)
		send_elsewhere(s);
	free(s);
	if (!--m->open)
		stored_all(m, NULL);
}

static void send_go(struct send *s)
{
	s->call = store_send(s->m->d, &s->to, &s->b, send_ended, s);
	s->m->open++;
}

/* The frame to that node which still takes records. */
static struct send *send_of(struct many *m, const struct id *to)
{
	list_each(it, &m->sends) {
		struct send *s = list_entry(it, struct send, link);
		if (!s->call && id_eq(&s->to, to))
			return s;
	}
	struct send *s = xcalloc(1, sizeof *s);
	*s = (struct send){ .m = m, .to = *to };
	list_push(&m->sends, &s->link);
	return s;
}

static void send_add(struct one *o, const struct id *to)
{
	struct many *m = o->m;
	uint64_t now = env_now(m->d->env);
	struct send *s = send_of(m, to);
	if (s->n == FRAME_RECS || !store_add(&s->b, o->rec, now)) {
		send_go(s);
		s = send_of(m, to);
		store_add(&s->b, o->rec, now);
	}
	s->v[s->n++] = o;
}

static void send_rest(struct many *m)
{
	list_each(it, &m->sends) {
		struct send *s = list_entry(it, struct send, link);
		if (!s->call)
			send_go(s);
	}
}

/* That node is gone: each of its records goes to the next nearest of its key. */
static void send_elsewhere(const struct send *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i]->spares.n)
			send_add(s->v[i], &spare_take(&s->v[i]->spares)->id);
	send_rest(s->m);
}

static void send_all(struct many *m)
{
	m->open = 1;
	for (size_t i = 0; i < m->n; i++) {
		struct one *o = &m->v[i];
		bool here;
		if (!o->rec)
			continue;
		size_t most = put_targets(m->d, o->rec, o->to, o->nto, &here);
		o->end.wanted = (uint32_t)most + here;
		if (here)
			o->end.accepted += store_local(m->d, rec_copy(o->rec), &o->end.error) > 0;
		for (size_t k = 0; k < most; k++)
			send_add(o, &o->to[k].id);
	}
	send_rest(m);
	if (!--m->open)
		stored_all(m, NULL);
}

static void put_near(void *arg, const struct look_end *l)
{
	struct one *o = arg;
	o->nto = l->n;
	memcpy(o->to, l->near, l->n * sizeof *l->near);
	if (!--o->m->open)
		send_all(o->m);
}

static void put_begin(struct timer *t)
{
	struct many *m = container_of(t, struct many, begin);
	struct lookup **l = xcalloc(m->n + 1, sizeof(struct lookup *));
	size_t n = 0;
	for (size_t i = 0; i < m->n; i++) {
		struct one *o = &m->v[i];
		if (!o->rec)
			continue;
		cache_forget(m->d, &o->key);
		l[n] = lookup_new(m->d, &o->key, LOOK_NODES, put_near, o);
		l[n]->spares = &o->spares;
		bundle_add(m->bundle, l[n++]);
	}
	m->open = n;
	if (!n)
		stored_all(m, NULL);
	for (size_t i = 0; i < n; i++)
		lookup_step(l[i]);
	free(l);
}

int dht_put_many(struct dht *d, const struct dht_item *items, size_t n, dht_stored_many_fn *done, void *arg,
	struct err *e)
{
	if (check_count(n, e)) {
		for (size_t i = 0; i < n; i++)
			json_decref(items[i].value);
		return -1;
	}
	struct many *m = many_new(d, n, put_begin, arg);
	m->stored = done;
	for (size_t i = 0; i < n; i++) {
		const struct dht_item *it = &items[i];
		struct one *o = &m->v[i];
		err_set(&o->end.error, ERR_UNREACHABLE, "no node took the record");
		o->rec = rec_make(d, it->key, it->subkey, it->value, it->life_ms, it->sign, &o->end.error);
		json_decref(it->value);
		if (o->rec)
			o->key = o->rec->key;
	}
	return 0;
}

void manies_free(struct dht *d)
{
	struct err e;
	err_set(&e, ERR_CANCELLED, "dht: this peer is stopping");
	list_each_safe(it, &d->manies) {
		struct many *m = list_entry(it, struct many, link);
		if (m->got)
			got_all(m, &e);
		else
			stored_all(m, &e);
	}
}
