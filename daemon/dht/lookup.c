/* The iterative search (Kademlia 2.3): alpha calls in flight to the nearest nodes not asked yet, until the k nearest
 * that answer have all been asked; a value search ends with the first value unless the latest is wanted. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"

#define REFILLS_MAX 4
#define HEDGE_MIN_US 3000
#define HEDGE_MAX_US 50000
#define HEDGE_UNKNOWN_US 20000          /* its round trip was never measured: a first contact takes five */

/* Who has not answered by then no longer keeps others from being asked: dead crowds around a key would, for seconds. */
#define LATE_US 300000
#define LATE_MAX 12                     /* of one search */

struct ask { struct list link; struct lookup *l; struct id to; struct call *call; uint32_t at; size_t step;
	uint64_t late_us; bool late; };

/* The farthest that did not answer, now or lately, makes room: a dead crowd around the target must not fill a list. */
static bool dead_out(struct lookup *l, size_t *pos)
{
	for (size_t i = l->n; i-- > 0;) {
		const struct cand *c = &l->cand[i];
		if (c->state != CAND_FAILED && !(c->state == CAND_NEW && dht_shunned(l->d, &c->node.id)))
			continue;
		memmove(l->cand + i, l->cand + i + 1, (l->n - 1 - i) * sizeof *l->cand);
		*pos -= i < *pos;
		return true;
	}
	return false;
}

static void add(struct lookup *l, const struct id *id, const struct endpoint *at, uint8_t hop)
{
	if (id_eq(id, net_self(l->d->net)))
		return;
	size_t pos = l->n;
	for (size_t i = 0; i < l->n; i++)
		if (id_eq(&l->cand[i].node.id, id))
			return;
	while (pos > 0 && id_closer(&l->target, id, &l->cand[pos - 1].node.id) < 0)
		pos--;
	if (l->n == SHORTLIST && dead_out(l, &pos))
		l->n--;
	if (pos >= SHORTLIST || (l->n == SHORTLIST && l->cand[l->n - 1].state == CAND_ASKED))
		return;
	size_t tail = l->n < SHORTLIST ? l->n - pos : SHORTLIST - 1 - pos;
	memmove(l->cand + pos + 1, l->cand + pos, tail * sizeof *l->cand);
	l->cand[pos] = (struct cand){ .node = { .id = *id, .at = *at }, .hop = hop };
	l->added++;
	l->n += l->n < SHORTLIST;
}

struct cand *lookup_cand(struct lookup *l, const struct id *id)
{
	for (size_t i = 0; i < l->n; i++)
		if (id_eq(&l->cand[i].node.id, id))
			return &l->cand[i];
	return NULL;
}

static void lookup_free(struct lookup *l)
{
	if (l->bundle)
		bundle_forget(l);
	list_each_safe(it, &l->asks) {
		struct ask *a = list_entry(it, struct ask, link);
		net_cancel(l->d->net, a->call);
		list_del(&a->link);
		free(a);
	}
	env_timer(l->d->env, &l->later, 0);
	env_timer(l->d->env, &l->hedge, 0);
	env_timer(l->d->env, &l->tardy, 0);
	list_del(&l->link);
	recs_free(&l->found);
	l->d->searching -= l->counted;
	free(l);
}

/* Kademlia 2.3, Hivemind's cache_nearest = 1: the nearest that was asked and did not have the records gets a copy, so
 * that whoever comes by the same way finds them there. */
static void copy_to_nearest(struct lookup *l)
{
	if (l->what != LOOK_VALUE || !recs_plain(&l->found) || l->bundle)
		return;
	for (size_t i = 0; i < l->n; i++) {
		const struct cand *c = &l->cand[i];
		if (c->state != CAND_ANSWERED || c->had)
			continue;
		store_copy(l->d, &c->node.id, list_entry(l->found.next, struct rec, link));
		return;
	}
}

static void finish(struct lookup *l)
{
	struct dnode near[TABLE_BUCKET];
	size_t n = 0;
	uint32_t silent = 0;
	for (size_t i = 0; i < l->n; i++) {
		const struct cand *c = &l->cand[i];
		if (n < l->d->conf.k)
			silent += c->state == CAND_FAILED || (c->state == CAND_NEW && dht_shunned(l->d, &c->node.id));
		if (c->state == CAND_ANSWERED && n < l->d->conf.k)
			near[n++] = c->node;
		else if (l->spares && l->spares->n < SPARES && c->state != CAND_FAILED && !dht_shunned(l->d, &c->node.id))
			l->spares->v[l->spares->n++] = c->node;
	}
	copy_to_nearest(l);
	look_fn *done = l->done;
	void *arg = l->arg;
	struct list found;
	list_init(&found);
	struct list *it;
	while ((it = list_pop(&l->found)))
		list_push(&found, it);
	struct dht *d = l->d;
	lookup_free(l);
	while (d->searching < SEARCHES_MAX && (it = list_pop(&d->queued)))
		lookup_begin(list_entry(it, struct lookup, link));
	done(arg, &(struct look_end){ near, n, silent, &found });
	recs_free(&found);
}

static void verified(void *arg, struct list *good, size_t bad)
{
	struct lookup *l = arg;
	l->verifying--;
	if (l->portion && l->portion->cut)
		recs_free(good);
	recs_merge(l->d, &l->found, good);
	if (l->portion && !portion_take(l->portion, &l->found))
		recs_free(&l->found);
	lookup_step(l);
}

/* Of one node no more than a key may have. NULL: it is no candidate any more, and is asked for no other page. */
static bool within(struct cand *c, const struct rec *r)
{
	if (!c)
		return true;
	c->weight += r->weight == REC_UNREADABLE ? VALUE_MAX : r->weight;
	c->over |= ++c->records > DICT_MAX || c->weight > DICT_WEIGHT_MAX;
	return !c->over;
}

/* Records (u16 count). */
static void take_recs(struct dht *d, struct lookup *l, const struct id *from, const struct id *key, struct rd *r,
	struct list *recs, struct dht_hop *ret_hop)
{
	struct cand *c = l ? lookup_cand(l, from) : NULL;
	unsigned n = rd_u16(r);
	uint64_t surplus = 0;
	for (unsigned i = 0; i < n && !r->bad; i++) {
		struct rec *rec = rec_read(r, key, env_now(d->env));
		if (!rec)
			break;
		if (ret_hop)
			ret_hop->records++;
		rec->from = *from;
		if (within(c, rec)) {
			list_push(recs, &rec->link);
			continue;
		}
		surplus++;
		rec_free(rec);
	}
	d->surplus += surplus;
	if (surplus)
		net_strike(d->net, from, "more records than a key may have");
	if (c)
		c->had |= !list_empty(recs);
	if (l)
		l->page = n;
}

/* One key's part of an answer: nodes (u8 count), then, of a GET, records (u16 count). l NULL: read past it. */
bool lookup_take(struct dht *d, struct lookup *l, const struct id *from, const struct id *key, bool with_recs,
	struct rd *r, struct dht_hop *ret_hop)
{
	struct cand *c = l ? lookup_cand(l, from) : NULL;
	uint8_t hop = c && c->hop < UINT8_MAX ? (uint8_t)(c->hop + 1) : UINT8_MAX;
	struct id last = { 0 }, before = { 0 };
	struct list recs;
	list_init(&recs);
	unsigned n = rd_u8(r), named = 0;
	for (unsigned i = 0; i < n; i++) {
		struct id id;
		struct endpoint at;
		if (!node_read(r, &id, &at))
			return false;
		named += !id_eq(&id, &before);
		before = id;
		if (!at.port[CHAN_CTRL] || !l || named > TABLE_BUCKET)
			continue;
		if (!node_learn(d, &id, &at, &last))
			continue;
		add(l, &id, &at, hop);
		if (ret_hop)
			ret_hop->nodes++;
	}
	if (named > TABLE_BUCKET)               /* nobody honest names more (table.h) */
		net_strike(d->net, from, "more nodes than an answer may name");
	if (l)
		l->page = 0;
	if (with_recs)
		take_recs(d, l, from, key, r, &recs, ret_hop);
	if (!l || list_empty(&recs)) {
		recs_free(&recs);
		return !r->bad;
	}
	l->verifying++;
	dht_verify(d, &recs, from, true, NULL, verified, l);
	return !r->bad;
}

static struct dht_hop *hop_ended(struct ask *a, const struct err *e)
{
	struct trail *t = a->l->trail;
	if (!t)
		return NULL;
	struct dht_hop *h = &t->v[a->step];
	h->took_us = env_now(a->l->d->env) - h->asked_us;
	h->state = e ? DHT_HOP_FAILED : DHT_HOP_ANSWERED;
	return h;
}

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct ask *a = arg;
	struct lookup *l = a->l;
	struct cand *c = lookup_cand(l, &a->to);
	struct dht_hop *hop = hop_ended(a, e);
	l->more -= a->at > 0;
	l->late -= a->late;
	list_del(&a->link);
	if (!f) {
		l->wide = true;
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
		if (!l->over)
			lookup_take(l->d, l, &a->to, &l->target, l->what != LOOK_NODES, &r, hop);
		json_int_t next = json_integer_value(json_object_get(f->json, "next"));
		l->wide = l->wide || (list_empty(&l->found) && !l->verifying);
		c = lookup_cand(l, &a->to);         /* nearer ones may have moved it */
		/* What is not all of it fills a frame: nobody keeps a search open a record at a time. */
		bool full = l->page && !r.bad && (l->page == STORE_RECS_MAX || r.at + REC_WIRE_MAX >= NET_BLOB_MAX);
		if (c && !l->over && full && next == (json_int_t)a->at + l->page && next < DICT_MAX && !c->over &&
				++c->pages < PAGES_MAX)
			lookup_ask(l, c, (uint32_t)next);
		l->stepping = false;
	}
	free(a);
	lookup_step(l);
}

void lookup_ask(struct lookup *l, struct cand *c, uint32_t at)
{
	struct dht *d = l->d;
	struct ask *a = xcalloc(1, sizeof *a);
	uint8_t *key = xmemdup(l->target.b, 32);
	json_t *j = json_object();
	if (d->conf.client)
		json_object_set_new(j, "client", json_true());
	if (at)
		json_object_set_new(j, "at", json_integer(at));
	*a = (struct ask){ .l = l, .to = c->node.id, .at = at, .late_us = env_now(d->env) + LATE_US };
	if (!l->tardy.at_us)
		env_timer(d->env, &l->tardy, a->late_us);
	if (l->trail)
		a->step = trail_add(l->trail, &c->node, c->hop, env_now(d->env));
	list_push(&l->asks, &a->link);
	l->more += at > 0;
	c->state = CAND_ASKED;
	net_learn(d->net, &c->node.id, &c->node.at);
	a->call = net_call(d->net, &c->node.id, l->what == LOOK_NODES ? KIND_DHT_FIND : KIND_DHT_GET, j,
		(struct blob){ .data = key, .len = 32, .release = free, .arg = key }, CLASS_control,
		net_deadline(d->net, &c->node.id, CALL_FLOOR_US), answered, a);
}

/* In the order in which they were asked. */
static void tardy(struct timer *t)
{
	struct lookup *l = container_of(t, struct lookup, tardy);
	uint64_t now = env_now(l->d->env);
	list_each(it, &l->asks) {
		struct ask *a = list_entry(it, struct ask, link);
		struct cand *c;
		if (a->late)
			continue;
		if (a->late_us > now) {
			env_timer(l->d->env, &l->tardy, a->late_us);
			break;
		}
		if (l->late == LATE_MAX) {
			env_timer(l->d->env, &l->tardy, now + LATE_US);
			break;
		}
		a->late = true;
		l->late++;
		if ((c = lookup_cand(l, &a->to)))
			c->late = true;
	}
	lookup_step(l);
}

/* Who has just joined may know as little as those whom it knows (room.c, around_begin): beside the nearest of them it
 * asks the peer that let it in, which takes no one's place among the questions that are open. */
static void ask_guide(struct lookup *l)
{
	struct dht *d = l->d;
	struct endpoint at;
	struct cand *c;
	l->guided = true;
	if (!dht_young(d) || !net_address(d->net, &d->around_by, &at))
		return;
	add(l, &d->around_by, &at, 1);
	c = lookup_cand(l, &d->around_by);
	if (!c || c->state != CAND_NEW || dht_shunned(d, &c->node.id))
		return;
	lookup_ask(l, c, 0);
	list_entry(l->asks.prev, struct ask, link)->late = true;
	l->late++;
}

/* Asks nodes that were not asked yet until alpha calls are open; returns how many are. Whoever did not answer lately is
 * left out, unless the others all failed: the last to know is better than nobody. */
static size_t ask_more(struct lookup *l, bool shunned_too)
{
	if (l->wide && !l->guided)
		ask_guide(l);
	size_t open = list_len(&l->asks) - l->late, good = 0, most = l->wide ? l->d->conf.alpha : 1;
	for (size_t i = 0; i < l->n && good < look_width(l->d) && open < most; i++) {
		struct cand *c = &l->cand[i];
		if (c->state == CAND_NEW && !shunned_too && dht_shunned(l->d, &c->node.id))
			continue;
		if (c->state == CAND_NEW) {
			lookup_ask(l, c, 0);
			open++;
		}
		good += c->state == CAND_ANSWERED || (c->state != CAND_FAILED && !c->late);
	}
	return open + good;
}

/* Too few have answered and nobody is left to ask: from our own table those behind the nearest, who may know better. */
static bool refill(struct lookup *l)
{
	struct dnode near[SHORTLIST];
	size_t good = 0, before = l->added;
	for (size_t i = 0; i < l->n; i++)
		good += l->cand[i].state == CAND_ANSWERED;
	if (good >= l->d->conf.k || l->refills >= REFILLS_MAX)
		return false;
	l->refills++;
	size_t n = table_nearest(&l->d->table, &l->target, near, SHORTLIST);
	for (size_t i = 0; i < n; i++)
		if (!dht_shunned(l->d, &near[i].id))
			add(l, &near[i].id, &near[i].at, 1);
	return l->added > before;
}

void lookup_step(struct lookup *l)
{
	if (l->stepping || l->over)
		return;
	l->over = l->what == LOOK_VALUE && !list_empty(&l->found) && !l->more;
	if (!l->over && l->bundle) {
		if (bundle_step(l))
			return;
	} else if (!l->over && !ask_more(l, false) && !(refill(l) && ask_more(l, false)) && !l->late) {
		ask_more(l, true);
	}
	if (!l->over && list_empty(&l->asks) && !l->verifying && refill(l)) {
		lookup_step(l);
		return;
	}
	if (!list_empty(&l->asks) || l->verifying)
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

/* Mostly the nearest node that we know holds the record: two more questions at once would be for nothing, and are two
 * thirds of what a swarm does that looks up keys. When it has not answered after a few of its round trips, or has
 * nothing, the search goes on with alpha questions at a time. */
static void hedge(struct timer *t)
{
	struct lookup *l = container_of(t, struct lookup, hedge);
	l->wide = true;
	lookup_step(l);
}

static void hedge_arm(struct lookup *l)
{
	struct peer_info p;
	uint64_t us = HEDGE_UNKNOWN_US;
	if (l->wide || !l->n)
		return;
	if (net_peer(l->d->net, &l->cand[0].node.id, &p) && p.rtt_us)
		us = 3 * p.rtt_us < HEDGE_MIN_US ? HEDGE_MIN_US : 3 * p.rtt_us < HEDGE_MAX_US ? 3 * p.rtt_us : HEDGE_MAX_US;
	env_after(l->d->env, &l->hedge, us);
}

struct lookup *lookup_new(struct dht *d, const struct id *target, enum look what, look_fn *done, void *arg)
{
	struct lookup *l = xcalloc(1, sizeof *l);
	struct dnode near[TABLE_BUCKET];
	*l = (struct lookup){ .d = d, .target = *target, .what = what, .done = done, .arg = arg,
		.later = { .fire = later, .name = "dht.lookup" }, .hedge = { .fire = hedge, .name = "dht.hedge" },
		.tardy = { .fire = tardy, .name = "dht.late" },
		.wide = what != LOOK_VALUE };
	list_init(&l->asks);
	list_init(&l->found);
	list_push(&d->lookups, &l->link);
	size_t n = table_nearest(&d->table, target, near, TABLE_BUCKET);
	for (size_t i = 0; i < n; i++)
		add(l, &near[i].id, &near[i].at, 1);
	return l;
}

void lookup_begin(struct lookup *l)
{
	struct dht *d = l->d;
	list_del(&l->link);
	if (d->searching >= SEARCHES_MAX) {
		list_push(&d->queued, &l->link);
		return;
	}
	list_push(&d->lookups, &l->link);
	l->counted = true;
	d->searching++;
	if (!l->bundle)
		hedge_arm(l);
	lookup_step(l);
}

struct lookup *lookup_start(struct dht *d, const struct id *target, enum look what, look_fn *done, void *arg)
{
	struct lookup *l = lookup_new(d, target, what, done, arg);
	lookup_begin(l);
	return l;
}

void lookups_free(struct dht *d)
{
	list_each_safe(it, &d->lookups)
		lookup_free(list_entry(it, struct lookup, link));
	list_each_safe(it, &d->queued)
		lookup_free(list_entry(it, struct lookup, link));
}
