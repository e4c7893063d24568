/* Many searches at once: each next question goes to the node that most of them want to ask, and takes along every other
 * key for which that node is among the nearest not asked yet (Hivemind's queries_per_call, its "extra queries packed
 * by nearness to the chosen peer"). A value search has one question open, the others all k. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"

struct bundle { struct list link; struct dht *d; struct timer t; struct list packs; struct lookup **l; size_t n, cap; };
/* One frame under way. */
struct pack { struct list link; struct bundle *b; struct id to; struct call *call; struct lookup *l[PACK_KEYS];
	struct id key[PACK_KEYS]; size_t n; bool values; };
/* A search could ask this candidate. */
struct wish { const struct id *to; size_t at /* in the bundle */; struct cand *c; };

static void fire(struct timer *t);

struct bundle *bundle_new(struct dht *d)
{
	struct bundle *b = xcalloc(1, sizeof *b);
	*b = (struct bundle){ .d = d, .t = { .fire = fire, .name = "dht.bundle" } };
	list_init(&b->packs);
	list_push(&d->bundles, &b->link);
	return b;
}

void bundle_add(struct bundle *b, struct lookup *l)
{
	if (b->n == b->cap) {
		b->cap = b->cap ? 2 * b->cap : 64;
		b->l = xrealloc(b->l, b->cap * sizeof(struct lookup *));
	}
	b->l[b->n++] = l;
	l->bundle = b;
}

void bundle_forget(struct lookup *l)
{
	struct bundle *b = l->bundle;
	for (size_t i = 0; i < b->n; i++)
		if (b->l[i] == l)
			b->l[i] = NULL;
	list_each(it, &b->packs) {
		struct pack *p = list_entry(it, struct pack, link);
		for (size_t i = 0; i < p->n; i++)
			if (p->l[i] == l)
				p->l[i] = NULL;
	}
	l->bundle = NULL;
}

/* A frame has ended: there is room for one of any bundle. */
static void go_on(struct dht *d)
{
	list_each(it, &d->bundles)
		env_after(d->env, &list_entry(it, struct bundle, link)->t, 1);
}

void bundle_free(struct bundle *b)
{
	list_del(&b->link);
	b->d->packs -= list_len(&b->packs);
	go_on(b->d);
	for (size_t i = 0; i < b->n; i++)
		if (b->l[i])
			b->l[i]->bundle = NULL;
	list_each_safe(it, &b->packs) {
		struct pack *p = list_entry(it, struct pack, link);
		net_cancel(b->d->net, p->call);
		list_del(&p->link);
		free(p);
	}
	env_timer(b->d->env, &b->t, 0);
	free(b->l);
	free(b);
}

/* Candidates that the search may ask next: among the k nearest that have not failed. Those who were silent lately only
 * when nobody else is left. v may be NULL; returns how many. */
static size_t wishes(struct lookup *l, size_t at, struct wish *v)
{
	size_t n = 0, rank = 0, answered = 0;
	for (int silent = 0; silent < 2 && !n; silent++) {
		rank = 0;
		for (size_t i = 0; i < l->n && rank < look_width(l->d); i++) {
			struct cand *c = &l->cand[i];
			bool out = c->state == CAND_FAILED || (c->state == CAND_NEW && !silent &&
				dht_shunned(l->d, &c->node.id));
			if (out)
				continue;
			rank++;
			answered += c->state != CAND_NEW;
			if (c->state != CAND_NEW)
				continue;
			if (v)
				v[n] = (struct wish){ &c->node.id, at, c };
			n++;
		}
		if (answered)
			break;
	}
	return n;
}

bool bundle_step(struct lookup *l)
{
	if (!l->packed && !wishes(l, 0, NULL))
		return false;
	env_after(l->d->env, &l->bundle->t, 1);
	return true;
}

static void packed(void *arg, const struct frame *f, const struct err *e)
{
	struct pack *p = arg;
	struct bundle *b = p->b;
	struct dht *d = b->d;
	struct rd r = f ? rd_of(f->blob, f->blob_len) : (struct rd){ .bad = true };
	bool alone = e && e->code == ERR_PROTOCOL;      /* an older one, which takes one key at a time */
	size_t told = f ? (size_t)json_integer_value(json_object_get(f->json, "keys")) : 0;
	list_del(&p->link);
	d->packs--;
	go_on(d);
	if (f || alone)
		dht_heard(d, &p->to, false);
	else if (e->code != ERR_CANCELLED)
		dht_lost(d, &p->to);
	for (size_t i = 0; i < p->n; i++) {
		struct lookup *l = p->l[i];
		struct cand *c = l ? lookup_cand(l, &p->to) : NULL;
		bool more = false, good = f && i < told;
		struct dht_hop seen = { 0 };
		if (l)
			l->packed--;
		if (l)
			l->stepping = true;
		if (good) {
			good = lookup_take(d, l, &p->to, &p->key[i], p->values, &r, &seen);
			more = p->values && rd_u8(&r);
			good = good && !r.bad;
		}
		c = l ? lookup_cand(l, &p->to) : NULL;
		if (c && (alone || (good && more)))     /* more: a large dictionary, which takes several frames */
			lookup_ask(l, c, seen.records);
		else if (c)
			c->state = good ? CAND_ANSWERED : f && i >= told && told ? CAND_NEW : CAND_FAILED;
		if (l)
			l->stepping = false;
	}
	for (size_t i = 0; i < p->n; i++)
		if (p->l[i])
			lookup_step(p->l[i]);
	free(p);
}

static void pack_send(struct bundle *b, const struct dnode *to, struct wish *const *w, size_t n)
{
	struct pack *p = xcalloc(1, sizeof *p);
	struct buf keys = { 0 };
	struct dht *d = b->d;
	json_t *j = json_object();
	*p = (struct pack){ .b = b, .to = to->id, .n = n, .values = b->l[w[0]->at]->what != LOOK_NODES };
	for (size_t i = 0; i < n; i++) {
		struct lookup *l = b->l[w[i]->at];
		buf_put(&keys, l->target.b, 32);
		p->l[i] = l;
		p->key[i] = l->target;
		l->packed++;
		w[i]->c->state = CAND_ASKED;
	}
	if (d->conf.client)
		json_object_set_new(j, "client", json_true());
	json_object_set_new(j, "many", json_true());
	net_learn(d->net, &to->id, &to->at);
	list_push(&b->packs, &p->link);
	d->packs++;
	p->call = net_call(d->net, &to->id, p->values ? KIND_DHT_GET : KIND_DHT_FIND, j,
		blob_steal(&keys), CLASS_control, net_deadline(d->net, &to->id, CALL_FLOOR_US), packed, p);
}

static int by_node(const void *a, const void *b)
{
	const struct wish *x = a, *y = b;
	int c = memcmp(x->to->b, y->to->b, 32);
	return c ? c : x->at < y->at ? -1 : x->at > y->at;
}

/* May this wish still be had: a value search asks one node at a time. */
static bool open_wish(const struct bundle *b, const struct wish *w)
{
	const struct lookup *l = b->l[w->at];
	return w->c->state == CAND_NEW && !(l->what == LOOK_VALUE && l->packed);
}

/* Sends the frame that serves most searches; false when nobody is left to be asked. v is sorted by node. */
static bool send_best(struct bundle *b, struct wish *v, size_t n)
{
	size_t best = 0, most = 0;
	for (size_t i = 0; i < n;) {
		size_t end = i, count = 0;
		for (; end < n && id_eq(v[end].to, v[i].to); end++)
			count += open_wish(b, &v[end]);
		if (count > most) {
			most = count;
			best = i;
		}
		i = end;
	}
	if (!most)
		return false;
	struct wish *go[PACK_KEYS];
	struct dnode to = v[best].c->node;
	size_t k = 0;
	for (size_t i = best; i < n && id_eq(v[i].to, &to.id) && k < PACK_KEYS; i++)
		if (open_wish(b, &v[i]))
			go[k++] = &v[i];
	pack_send(b, &to, go, k);
	return true;
}

static void fire(struct timer *t)
{
	struct bundle *b = container_of(t, struct bundle, t);
	size_t n = 0;
	if (b->d->packs >= PACKS_MAX)
		return;                         /* the next one that ends comes back to us */
	struct wish *v = xcalloc(b->n * TABLE_BUCKET + 1, sizeof *v);
	for (size_t i = 0; i < b->n; i++) {
		struct lookup *l = b->l[i];
		if (!l || l->over || (l->what == LOOK_VALUE && (l->packed || l->verifying || !list_empty(&l->asks))))
			continue;
		size_t more = wishes(l, i, v + n);
		n += more;
		if (!more && !l->packed)        /* whom it wished to ask has been found silent since: no answer will step it */
			lookup_step(l);
	}
	qsort(v, n, sizeof *v, by_node);
	while (b->d->packs < PACKS_MAX && send_best(b, v, n))
		;
	free(v);
}
