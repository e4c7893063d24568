/* The invariants of the table; see table_check.h. */
#include "table_check.h"
#include <stdlib.h>
#include <string.h>
#include "common/map.h"
#include "common/mem.h"
#include "dht/int.h"

#define SWEEP_SLACK_US 30000000         /* what has ended and is not asked for is swept every 20 s, by a tick of 5 s */
#define TRANSIT_US 60000000             /* the remaining life travels: time on the way is not counted (C28) */

#define SAVE_LIFE_MIN_MS 300000         /* records of shorter lives do not outlive a restart (keep.c) */
#define RECORDS_PER_EVENT 1             /* looked at: large tables wait for their turn */
#define TURNS_MAX 4

/* A record anywhere (its end, as who made it had it), or what lies under a name on one peer. */
struct known { uint64_t rank, ends_us, life; };
struct name { int32_t node; struct id key, owner; uint64_t rank; char subkey[SUBKEY_MAX + 1]; };
/* What a table was like when it was looked at: the same, and before late_us, it need not be looked at again. */
struct looked { uint64_t life, puts, late_us; size_t records; };
struct table_check { struct sim *s; struct dht *(*of)(void *arg, int node); void *arg; struct map *records, *here;
	int turn; size_t may; uint64_t clocks_us; struct looked looked[SIM_NODES_MAX]; };

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

static void one(struct table_check *c, int node, uint64_t life, const struct rec *r, uint64_t now)
{
	struct name anywhere, here;
	bool fresh;
	memset(&anywhere, 0, sizeof anywhere);
	anywhere.key = r->key;
	snprintf(anywhere.subkey, sizeof anywhere.subkey, "%s", r->subkey);
	here = anywhere;
	here.node = node;
	anywhere.owner = r->owner;
	anywhere.rank = r->rank;
	struct known *k = know(c->records, &anywhere, &fresh);
	if (fresh)
		k->ends_us = r->ends_us;
	else if (r->ends_us > k->ends_us + TRANSIT_US + (r->life_ms < SAVE_LIFE_MIN_MS ? 0 : c->clocks_us))
		sim_fail(c->s, "node %d: a record (%.8s) lives %llu ms longer than it was made for", node, r->subkey,
			(unsigned long long)(r->ends_us - k->ends_us) / 1000);
	if (now > r->ends_us + SWEEP_SLACK_US)
		sim_fail(c->s, "node %d: a record (%.8s) lies there %llu ms after its end", node, r->subkey,
			(unsigned long long)(now - r->ends_us) / 1000);
	k = know(c->here, &here, &fresh);
	bool forgotten = k->life != life && r->life_ms < SAVE_LIFE_MIN_MS;     /* by a restart */
	if (!fresh && !forgotten && r->rank < k->rank && k->ends_us > now)
		sim_fail(c->s, "node %d: rank %llu of a record (%.8s) was replaced by %llu", node, (unsigned long long)k->rank,
			r->subkey, (unsigned long long)r->rank);
	*k = (struct known){ r->rank, r->ends_us, life };
}

struct sum { size_t records, bytes; struct map *from; };

static void count(struct sum *n, const struct rec *r)
{
	uintptr_t have = (uintptr_t)map_get(n->from, r->from.b, 32);
	map_put(n->from, r->from.b, 32, (void *)(have + 1));
	n->records++;
	n->bytes += r->vlen;
}

static bool as_it_was(const struct table_check *c, int node, const struct dht *d)
{
	const struct looked *l = &c->looked[node];
	return l->life == d->hash_key && l->puts == d->values.ends.seq && l->records == d->values.records &&
		sim_now(c->s) <= l->late_us;
}

static void look(struct table_check *c, int node)
{
	struct dht *d = sim_alive(c->s, node) ? c->of(c->arg, node) : NULL;
	const struct values *v = d ? &d->values : NULL;
	struct entry *en;
	if (!v || !v->records)
		return;
	struct looked l = { d->hash_key, v->ends.seq, UINT64_MAX, v->records };
	struct sum n = { .from = map_new(3) };
	for (size_t i = 0; (en = map_next(v->keys, &i, NULL, NULL));)
		list_each(it, &en->recs) {
			struct rec *r = list_entry(it, struct rec, link);
			one(c, node, d->hash_key, r, sim_now(c->s));
			count(&n, r);
			l.late_us = r->ends_us + SWEEP_SLACK_US < l.late_us ? r->ends_us + SWEEP_SLACK_US : l.late_us;
		}
	c->looked[node] = l;
	if (n.records != v->records || n.records > v->conf.records_max || v->bytes > v->conf.bytes_max ||
			n.bytes > v->bytes)
		sim_fail(c->s, "node %d: %zu records of %zu bytes, counted as %zu of %zu, at most %zu of %zu", node, n.records,
			n.bytes, v->records, v->bytes, v->conf.records_max, v->conf.bytes_max);
	uintptr_t of_one;
	for (size_t i = 0; (of_one = (uintptr_t)map_next(n.from, &i, NULL, NULL));)
		if (of_one > v->conf.per_peer_max)
			sim_fail(c->s, "node %d: %zu records of one peer, at most %zu", node, (size_t)of_one, v->conf.per_peer_max);
	map_free(n.from);
}

static int every_event(struct sim *s, void *arg, struct err *e)
{
	struct table_check *c = arg;
	struct dht *d;
	if (sim_touched(s) == SIM_ANYBODY)      /* the scenario may have laid hands on them */
		memset(c->looked, 0, sizeof c->looked);
	c->may += RECORDS_PER_EVENT;
	for (int i = 0; i < TURNS_MAX; i++) {
		c->turn = c->turn < sim_nodes(s) ? c->turn : 0;
		d = sim_alive(s, c->turn) ? c->of(c->arg, c->turn) : NULL;
		if (d && as_it_was(c, c->turn, d)) {
			c->turn++;
			continue;
		}
		if (d && d->values.records > c->may)
			return 0;
		c->may -= d ? d->values.records : 0;
		look(c, c->turn++);
	}
	return 0;
}

void table_check_all(struct table_check *c)
{
	for (int i = 0; i < sim_nodes(c->s); i++)
		look(c, i);
}

struct table_check *table_check_new(struct sim *s, struct dht *(*of)(void *arg, int node), void *arg)
{
	struct table_check *c = xcalloc(1, sizeof *c);
	*c = (struct table_check){ .s = s, .of = of, .arg = arg, .records = map_new(1), .here = map_new(2) };
	sim_after_event(s, every_event, c);
	return c;
}

void table_check_free(struct table_check *c)
{
	struct known *k;
	for (size_t i = 0; (k = map_next(c->records, &i, NULL, NULL));)
		free(k);
	for (size_t i = 0; (k = map_next(c->here, &i, NULL, NULL));)
		free(k);
	map_free(c->records);
	map_free(c->here);
	free(c);
}

void table_check_clocks(struct table_check *c, uint64_t us) { c->clocks_us = us; }
uint64_t table_check_records(const struct table_check *c) { return map_len(c->records); }
