/* The iterative search (Kademlia 2.3): alpha calls in flight to the nearest nodes not asked yet, until the k nearest
 * that answer have all been asked; a value search ends with the first value unless the latest is wanted. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"

enum cand_state { CAND_NEW, CAND_ASKED, CAND_ANSWERED, CAND_FAILED };
struct cand { struct dnode node; enum cand_state state; };
struct ask { struct list link; struct lookup *l; struct id to; struct call *call; uint32_t at; };

struct lookup {
	struct list link, asks;
	struct dht *d;
	struct id target;
	enum look what;
	struct cand cand[SHORTLIST]; size_t n;
	struct list found;                      /* verified records */
	uint32_t verifying;                     /* batches on their way */
	bool over, stepping;
	struct timer later;                     /* so that done never runs inside lookup_start */
	look_fn *done; void *arg;
};

static void step(struct lookup *l);

static void add(struct lookup *l, const struct id *id, const struct endpoint *at)
{
	if (id_eq(id, net_self(l->d->net)))
		return;
	size_t pos = l->n;
	for (size_t i = 0; i < l->n; i++)
		if (id_eq(&l->cand[i].node.id, id))
			return;
	while (pos > 0 && id_closer(&l->target, id, &l->cand[pos - 1].node.id) < 0)
		pos--;
	if (pos >= SHORTLIST || (l->n == SHORTLIST && l->cand[l->n - 1].state == CAND_ASKED))
		return;
	size_t tail = l->n < SHORTLIST ? l->n - pos : SHORTLIST - 1 - pos;
	memmove(l->cand + pos + 1, l->cand + pos, tail * sizeof *l->cand);
	l->cand[pos] = (struct cand){ .node = { .id = *id, .at = *at } };
	l->n += l->n < SHORTLIST;
}

static struct cand *cand_of(struct lookup *l, const struct id *id)
{
	for (size_t i = 0; i < l->n; i++)
		if (id_eq(&l->cand[i].node.id, id))
			return &l->cand[i];
	return NULL;
}

static void drop_recs(struct list *recs)
{
	struct list *it;
	while ((it = list_pop(recs)))
		rec_free(list_entry(it, struct rec, link));
}

static void lookup_free(struct lookup *l)
{
	list_each_safe(it, &l->asks) {
		struct ask *a = list_entry(it, struct ask, link);
		net_cancel(l->d->net, a->call);
		list_del(&a->link);
		free(a);
	}
	env_timer(l->d->env, &l->later, 0);
	list_del(&l->link);
	drop_recs(&l->found);
	free(l);
}

static void finish(struct lookup *l)
{
	struct dnode near[TABLE_BUCKET];
	size_t n = 0;
	for (size_t i = 0; i < l->n && n < l->d->conf.k; i++)
		if (l->cand[i].state == CAND_ANSWERED)
			near[n++] = l->cand[i].node;
	look_fn *done = l->done;
	void *arg = l->arg;
	struct list found;
	list_init(&found);
	struct list *it;
	while ((it = list_pop(&l->found)))
		list_push(&found, it);
	lookup_free(l);
	done(arg, near, n, &found);
	drop_recs(&found);
}

/* Merges by rank: strictly greater wins; a plain value and a dictionary exclude each other. */
static void merge(struct lookup *l, struct list *good)
{
	struct list *it;
	while ((it = list_pop(good))) {
		struct rec *r = list_entry(it, struct rec, link);
		bool keep = true;
		list_each_safe(o, &l->found) {
			struct rec *c = list_entry(o, struct rec, link);
			bool rivals = !strcmp(c->subkey, r->subkey) || !c->subkey[0] || !r->subkey[0];
			if (!rivals)
				continue;
			if (c->rank >= r->rank) {
				if (c->rank == r->rank && !strcmp(c->subkey, r->subkey) && r->ends_us < c->ends_us)
					c->ends_us = r->ends_us;
				keep = false;
				break;
			}
		}
		if (!keep) {
			rec_free(r);
			continue;
		}
		list_each_safe(o, &l->found) {
			struct rec *c = list_entry(o, struct rec, link);
			if (!strcmp(c->subkey, r->subkey) || !c->subkey[0] || !r->subkey[0]) {
				list_del(&c->link);
				rec_free(c);
			}
		}
		list_push(&l->found, &r->link);
	}
}

static void verified(void *arg, struct list *good, size_t bad)
{
	struct lookup *l = arg;
	l->verifying--;
	merge(l, good);
	step(l);
}

static bool read_nodes(struct lookup *l, struct rd *r)
{
	unsigned n = rd_u8(r);
	for (unsigned i = 0; i < n; i++) {
		struct id id;
		struct endpoint at;
		if (!node_read(r, &id, &at))
			return false;
		if (!at.port[CHAN_CTRL])
			continue;
		net_learn(l->d->net, &id, &at);
		add(l, &id, &at);
	}
	return true;
}

static void read_recs(struct lookup *l, const struct id *from, struct rd *r)
{
	unsigned n = rd_u16(r);
	struct list recs;
	list_init(&recs);
	for (unsigned i = 0; i < n && !r->bad; i++) {
		struct rec *rec = rec_read(r, &l->target, env_now(l->d->env));
		if (!rec)
			break;
		rec->from = *from;
		list_push(&recs, &rec->link);
	}
	if (list_empty(&recs))
		return;
	l->verifying++;
	dht_verify(l->d, &recs, verified, l);
}

static void ask(struct lookup *l, struct cand *c, uint32_t at);

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct ask *a = arg;
	struct lookup *l = a->l;
	struct cand *c = cand_of(l, &a->to);
	list_del(&a->link);
	if (!f) {
		if (c)
			c->state = CAND_FAILED;
		if (e->code != ERR_CANCELLED)
			dht_lost(l->d, &a->to);
	} else {
		if (c)
			c->state = CAND_ANSWERED;
		dht_heard(l->d, &a->to, false);
		struct rd r = rd_of(f->blob, f->blob_len);
		l->stepping = true;             /* records verified on the spot must not step in between */
		if (!l->over && read_nodes(l, &r) && l->what != LOOK_NODES)
			read_recs(l, &a->to, &r);
		json_int_t next = json_integer_value(json_object_get(f->json, "next"));
		if (c && !l->over && next > (json_int_t)a->at && next < DICT_MAX)
			ask(l, c, (uint32_t)next);
		l->stepping = false;
	}
	free(a);
	step(l);
}

static void ask(struct lookup *l, struct cand *c, uint32_t at)
{
	struct dht *d = l->d;
	struct ask *a = xcalloc(1, sizeof *a);
	uint8_t *key = xmemdup(l->target.b, 32);
	json_t *j = json_object();
	if (d->conf.client)
		json_object_set_new(j, "client", json_true());
	if (at)
		json_object_set_new(j, "at", json_integer(at));
	*a = (struct ask){ .l = l, .to = c->node.id, .at = at };
	list_push(&l->asks, &a->link);
	c->state = CAND_ASKED;
	net_learn(d->net, &c->node.id, &c->node.at);
	a->call = net_call(d->net, &c->node.id, l->what == LOOK_NODES ? KIND_DHT_FIND : KIND_DHT_GET, j,
		(struct blob){ .data = key, .len = 32, .release = free, .arg = key }, CLASS_control,
		net_deadline(d->net, &c->node.id, CALL_FLOOR_US), answered, a);
}

static void step(struct lookup *l)
{
	size_t open = list_len(&l->asks), good = 0;
	if (l->stepping || l->over)
		return;
	l->over = l->what == LOOK_VALUE && !list_empty(&l->found);
	for (size_t i = 0; i < l->n && good < l->d->conf.k && open < l->d->conf.alpha && !l->over; i++) {
		struct cand *c = &l->cand[i];
		if (c->state == CAND_NEW) {
			ask(l, c, 0);
			open++;
		}
		good += c->state != CAND_FAILED;
	}
	if (open || l->verifying)
		if (!l->over)
			return;
	if (l->verifying) {                     /* the batch still points at us */
		l->over = false;
		return;
	}
	l->over = true;
	env_after(l->d->env, &l->later, 1);
}

static void later(struct timer *t)
{
	finish(container_of(t, struct lookup, later));
}

struct lookup *lookup_start(struct dht *d, const struct id *target, enum look what, look_fn *done, void *arg)
{
	struct lookup *l = xcalloc(1, sizeof *l);
	struct dnode near[TABLE_BUCKET];
	*l = (struct lookup){ .d = d, .target = *target, .what = what, .done = done, .arg = arg,
		.later = { .fire = later, .name = "dht.lookup" } };
	list_init(&l->asks);
	list_init(&l->found);
	list_push(&d->lookups, &l->link);
	size_t n = table_nearest(&d->table, target, near, TABLE_BUCKET);
	for (size_t i = 0; i < n; i++)
		add(l, &near[i].id, &near[i].at);
	step(l);
	return l;
}

void lookups_free(struct dht *d)
{
	list_each_safe(it, &d->lookups)
		lookup_free(list_entry(it, struct lookup, link));
}
