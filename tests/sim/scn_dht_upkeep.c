/* What keeps the table and its records good by itself: the newest among replicas that disagree (S11), copies beside the
 * replicas (Kademlia 2.3), who is asked before a newcomer is turned away (Kademlia 2.2), who takes a record when one of
 * the nearest has died, and requests that are heard once (S31). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"
#include "dht_world.h"

static const struct id *self_of(struct sim *s, int node) { return net_self(dht_net(s, node)); }

static struct id key_id(const char *key)
{
	struct id id;
	id_of(&id, key, strlen(key));
	return id;
}

static bool holds(struct sim *s, int node, const struct id *key)
{
	return values_get(&dht_of(s, node)->values, key, sim_now(s)) != NULL;
}

/* ---- S11: without `latest` any value that lives will do; with it the newest of all replicas, all subkeys ---- */

static void scn_S11_latest(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 3 } };
	struct id key = key_id("k");
	int asleep = -1;
	dht_add(s, &w, 12);
	dht_joined(s);
	sim_check(s, dht_put_wait(s, 0, "k", NULL, json_integer(1), 600000, false).accepted == 3);
	sim_check(s, dht_put_wait(s, 0, "d", "a", json_integer(1), 600000, false).accepted == 3);
	for (int i = 1; i < 12; i++)
		if (holds(s, i, &key))
			asleep = i;
	sim_pause(s, asleep);
	dht_put_wait(s, 0, "k", NULL, json_integer(2), 600000, false);
	dht_put_wait(s, 0, "d", "b", json_integer(2), 600000, false);
	sim_resume(s, asleep);
	sim_run_for(s, 30 * SEC);               /* nobody leaves it out any more */
	for (int i = 0; i < 12; i++) {
		struct dht_get_end g = dht_get_wait(s, i, "k", false);
		sim_check(s, g.n == 1 && (!strcmp(g.value, "1") || !strcmp(g.value, "2")));
		dht_want(s, i, "k", 2);
		sim_check(s, dht_get_wait(s, i, "d", true).n == 2);
	}
}

/* ---- Kademlia 2.3: a copy goes to the nearest node on the way that did not have the record, for a while ---- */

static void no_holder_known(struct sim *s, int node, const struct id *key)
{
	for (int i = 0; i < sim_nodes(s); i++)
		if (holds(s, i, key))
			table_remove(&dht_of(s, node)->table, self_of(s, i));
}

/* Who holds a copy that is no replica; -1: none, -2: several. */
static int copy_at(struct sim *s, int asker, const struct id *key)
{
	int at = -1;
	for (int i = 0; i < sim_nodes(s); i++)
		if (i != asker && map_get(dht_of(s, i)->cache, key->b, 32))
			at = at == -1 ? i : -2;
	return at;
}

static void knows_only(struct sim *s, int node, int other)
{
	for (int i = 0; i < sim_nodes(s); i++)
		if (i != other)
			table_remove(&dht_of(s, node)->table, self_of(s, i));
	dht_heard(dht_of(s, node), self_of(s, other), false);
}

struct hops { bool done; size_t asked, found; uint64_t took_us; struct id first; };
static void on_hops(void *arg, const struct dht_trace *t, const struct err *e)
{
	struct hops *h = arg;
	*h = (struct hops){ true, t ? t->nhop : 0, t ? t->nfound : 0, t ? t->took_us : 0, { { 0 } } };
	if (t && t->nhop)
		h->first = t->hop[0].id;
}

static struct hops hops_of(struct sim *s, int node, const char *key)
{
	struct hops *h = xcalloc(1, sizeof *h), ret;
	dht_trace(dht_of(s, node), key, false, on_hops, h);
	sim_await(s, dht_flag, &h->done, 60 * SEC);
	ret = *h;
	if (ret.done)
		free(h);
	return ret;
}

/* Sixteen peers know the way to the key, four hold it; returns the first of those who do not. */
static int four_hold(struct sim *s, struct dht_world *w, const struct id *key)
{
	int asker = 0;
	dht_add(s, w, 16);
	dht_joined(s);
	for (int i = 0; i < 16; i++)
		dht_find_wait(s, i, key);
	sim_check(s, dht_put_wait(s, 3, "k", NULL, json_integer(1), 600000, false).accepted == 4);
	while (holds(s, asker, key))
		asker++;
	return asker;
}

static void scn_S22_nearest(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 4, .alpha = 1 } };
	struct id key = key_id("k");
	int asker = four_hold(s, &w, &key), other = 0;
	no_holder_known(s, asker, &key);
	sim_check(s, dht_get_wait(s, asker, "k", false).n == 1);
	sim_run_for(s, SEC);
	int near = copy_at(s, asker, &key);
	if (near == -1)
		sim_late(s, "nobody has a copy");
	if (near == -2)
		sim_fail(s, "several have copies");
	if (near < 0)
		return;
	sim_check(s, !holds(s, near, &key));
	sim_in_time(s, dht_copies(s) == 4);     /* a fifth took it and was not heard */
	while (other == asker || other == near || holds(s, other, &key))
		other++;
	knows_only(s, other, near);
	struct hops h = hops_of(s, other, "k");
	if (h.found != 1)
		sim_fail(s, "node %d, copy at %d: %zu asked, %zu found", other, near, h.asked, h.found);
	if (h.asked != 1)
		sim_late(s, "node %d asked %zu, and the first had a copy", other, h.asked);
	dht_put_wait(s, 5, "k", NULL, json_integer(2), 600000, false);
	dht_want(s, other, "k", 2);             /* the copy is no replica */
	sim_run_for(s, 90 * SEC);
	sim_check(s, !map_get(dht_of(s, near)->cache, key.b, 32));
	sim_in_time(s, dht_copies(s) == 4);
}

/* ---- one question is enough when the nearest has the record; when it is silent, others are asked soon ---- */

static void scn_one_question(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 4 } };
	struct id key = key_id("k");
	int asker = four_hold(s, &w, &key), first = 0;
	sim_run_for(s, SEC);                    /* connections that were being made are there */
	struct hops h = hops_of(s, asker, "k");
	sim_check(s, h.found == 1);
	sim_in_time(s, h.asked == 1);
	if (sim_failed(s))
		return;
	while (!id_eq(self_of(s, first), &h.first))
		first++;
	sim_power_off(s, first);
	h = hops_of(s, asker, "k");
	if (h.found != 1)
		sim_fail(s, "%zu asked, %zu found after %llu us", h.asked, h.found, (unsigned long long)h.took_us);
	else if (h.asked < 2 || h.took_us > 60000)
		sim_late(s, "%zu asked, %zu found after %llu us", h.asked, h.found, (unsigned long long)h.took_us);
}

/* ---- whom the table has lost though it lives, and who is the only one known: it is back soon ---- */

static bool know_each_other(struct sim *s, void *arg)
{
	for (int i = 0; i < 2; i++)
		if (!table_find(&dht_of(s, i)->table, self_of(s, !i)))
			return false;
	return true;
}

static void scn_only_one(struct sim *s)
{
	struct dht_world w = { 0 };
	dht_add(s, &w, 2);
	dht_joined(s);
	sim_run_for(s, 5 * SEC);
	for (int i = 0; i < 2; i++)             /* a question that was lost as the other started again, and its retries */
		for (int k = 0; k < 8; k++)
			dht_lost(dht_of(s, i), self_of(s, !i));
	for (int i = 0; i < 2; i++)
		table_remove(&dht_of(s, i)->table, self_of(s, !i));
	sim_run_for(s, 30 * SEC);
	sim_await(s, know_each_other, NULL, 0);
	dht_put_wait(s, 1, "k", NULL, json_integer(1), 600000, false);
	sim_check(s, dht_get_wait(s, 0, "k", true).n == 1);
}

/* ---- Kademlia 2.2: the oldest of a full bucket is asked; if it is silent, a newcomer has its place ---- */

static struct id beside(const struct id *id, int n)
{
	struct id ret = *id;
	ret.b[31] ^= (uint8_t)(n + 1);
	return ret;
}

static void hear(struct sim *s, int node, const struct id *id)
{
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10, [13] = 9 }, .port = { 4237, 4238, 4239 } };
	at.ip[15] = id->b[31];
	net_learn(dht_net(s, node), id, &at);
	dht_heard(dht_of(s, node), id, false);
}

static void scn_oldest_asked(struct sim *s)
{
	struct dht_world w = { 0 };
	dht_add(s, &w, 2);
	dht_joined(s);
	struct dht *d = dht_of(s, 0);
	const struct id *b = self_of(s, 1);
	struct id ghost;
	for (int i = 0; i < TABLE_BUCKET - 1; i++) {
		ghost = beside(b, i);
		hear(s, 0, &ghost);
	}
	sim_check(s, table_find(&d->table, b) && d->table.n == TABLE_BUCKET);
	sim_run_for(s, 70 * SEC);               /* they are all old now, the peer is the oldest, and it answers */
	ghost = beside(b, 100);
	hear(s, 0, &ghost);
	sim_run_for(s, 5 * SEC);
	sim_check(s, table_find(&d->table, b));
	sim_in_time(s, table_find(&d->table, b) && table_find(&d->table, b)->seen_us + 10 * SEC > sim_now(s));
	for (int i = 0; i < 2 * TABLE_BUCKET; i++) {    /* the others do not: whoever is new takes their places */
		sim_run_for(s, 10 * SEC);
		ghost = beside(b, 101 + i);
		hear(s, 0, &ghost);
	}
	size_t old = 0;
	for (int i = 0; i < TABLE_BUCKET - 1; i++) {
		ghost = beside(b, i);
		old += table_find(&d->table, &ghost) != NULL;
	}
	if (old > TABLE_BUCKET / 2)
		sim_late(s, "%zu silent nodes hold their places", old);
	sim_check(s, table_find(&d->table, b));
}

/* ---- who dies between the search and the STORE is replaced by the next nearest ---- */

struct sniper { struct sim *s; int left, hit[4]; int nhit; };

static void shoot(struct sim *s, void *arg)
{
	struct sniper *k = arg;
	for (int i = 0; i < k->nhit; i++)
		if (sim_alive(s, k->hit[i]))
			sim_power_off(s, k->hit[i]);
}

static void on_wire(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct sniper *k = arg;
	bool store = len > 8 && (wire[6] | wire[7] << 8) == KIND_DHT_STORE;
	if (!store || from != 0 || !k->left)
		return;
	for (int i = 0; i < k->nhit; i++)
		if (k->hit[i] == to)
			return;
	k->left--;
	k->hit[k->nhit++] = to;
	sim_at(k->s, sim_now(k->s), shoot, k);
}

static uint32_t copies_alive(struct sim *s, const char *key)
{
	struct id id = key_id(key);
	uint32_t n = 0;
	for (int i = 0; i < sim_nodes(s); i++)
		n += sim_alive(s, i) && holds(s, i, &id);
	return n;
}

static void on_many(void *arg, const struct dht_item_end *v, size_t n, const struct err *e)
{
	*(bool *)arg = n == 1 && v[0].accepted == 4 && v[0].wanted == 4 && !v[0].error.code;
}

static void scn_next_nearest(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 4 } };
	static struct sniper k;                 /* outlives a failed run */
	dht_add(s, &w, 20);
	dht_joined(s);
	sim_run_for(s, 5 * SEC);
	k = (struct sniper){ .s = s, .left = 2 };
	sim_tap(s, on_wire, &k);
	struct dht_put_end p = dht_put_wait(s, 0, "k", NULL, json_integer(1), 600000, false);
	sim_in_time(s, k.nhit == 2);
	sim_check(s, p.wanted == 4 && p.accepted == 4 && !p.code);
	sim_check(s, copies_alive(s, "k") >= 4);
	sim_in_time(s, copies_alive(s, "k") == 4);      /* a fifth took it and was not heard */
	k = (struct sniper){ .s = s, .left = 1 };
	struct dht_item item = { "m", NULL, json_integer(2), 600000, false };
	static bool done;
	struct err e;
	done = false;
	sim_check(s, !dht_put_many(dht_of(s, 0), &item, 1, on_many, &done, &e));
	sim_await(s, dht_flag, &done, 60 * SEC);
	sim_check(s, copies_alive(s, "m") >= 4);
	sim_in_time(s, k.nhit == 1 && copies_alive(s, "m") == 4);
}

/* ---- the power of all who are near a key has gone, and nothing says so: who searches there does not wait for them
 * three at a time ---- */

static int nearness(const void *a, const void *b, void *target)
{
	return id_closer(target, a, b);
}

static void scn_dead_crowd(struct sim *s)
{
	enum { PEERS = 40, DEAD = 15 };
	struct dht_world w = { .conf = { .k = 8 } };
	struct id id[PEERS - 1], key = key_id("k");
	dht_add(s, &w, PEERS);
	dht_joined(s);
	sim_run_for(s, 30 * SEC);               /* everybody has met everybody */
	for (int i = 1; i < PEERS; i++)
		id[i - 1] = *self_of(s, i);
	qsort_r(id, PEERS - 1, sizeof *id, nearness, &key);
	for (int i = 1; i < PEERS; i++)
		for (int n = 0; n < DEAD; n++)
			if (sim_alive(s, i) && id_eq(&id[n], self_of(s, i)))
				sim_power_off(s, i);
	uint64_t began = sim_now(s);
	struct dht_find_end f = dht_find_wait(s, 0, &key);
	sim_check(s, f.n == 8);
	for (int i = 0; i < 8; i++)
		sim_check(s, id_eq(&f.id[i], &id[DEAD + i]));
	if (sim_now(s) - began > 4 * SEC)       /* a question waits a second and a half */
		sim_late(s, "the search took %llu ms", (unsigned long long)(sim_now(s) - began) / 1000);
}

/* ---- a dictionary that takes several frames is handed over whole, and once ---- */

static void count_stores(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	*(unsigned *)arg += len > 8 && (wire[6] | wire[7] << 8) == KIND_DHT_STORE;
}

static void on_large(void *arg, const struct dht_item_end *v, size_t n, const struct err *e)
{
	*(bool *)arg = !e;
}

enum { SUBKEYS = 900, HOLDERS = 3 };
static bool newcomer_has_all(struct sim *s, void *arg) { return dht_records(s, HOLDERS) == SUBKEYS; }

static void scn_large_handover(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 8, .republish_us = 3600 * SEC } };
	static char sub[SUBKEYS][8];
	static unsigned stores;
	static bool done;
	struct dht_item *item = xcalloc(SUBKEYS, sizeof *item);
	struct err e;
	dht_add(s, &w, HOLDERS);
	dht_joined(s);
	for (int i = 0; i < SUBKEYS; i++) {
		snprintf(sub[i], sizeof sub[i], "s%d", i);
		item[i] = (struct dht_item){ "d", sub[i], json_integer(i), 600000, false };
	}
	done = false;
	sim_check(s, !dht_put_many(dht_of(s, 0), item, SUBKEYS, on_large, &done, &e));
	sim_await(s, dht_flag, &done, 60 * SEC);
	free(item);
	stores = 0;
	sim_tap(s, count_stores, &stores);
	dht_add(s, &w, 1);
	sim_run_for(s, 20 * SEC);
	sim_tap(s, NULL, NULL);
	sim_await(s, newcomer_has_all, NULL, 0);
	if (stores > HOLDERS * 4)               /* two frames, and again what was lost */
		sim_late(s, "%u STOREs hand over %d records of %d peers", stores, SUBKEYS, HOLDERS);
}

/* ---- S31: a request counts when its sender signed it for this peer, now, and once ---- */

struct taken { int to; enum chan chan; uint8_t bytes[4096]; size_t len; };

static void on_take(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct taken *t = arg;
	bool store = len > 8 && len <= sizeof t->bytes && (wire[6] | wire[7] << 8) == KIND_DHT_STORE;
	if (!store || t->len || chan == CHAN_DOOR)
		return;
	t->to = to;
	t->chan = chan;
	t->len = len;
	memcpy(t->bytes, wire, len);
}

static void replay(struct sim *s, int node, const struct taken *t)
{
	struct env *env = sim_env(s, node);
	uint8_t bytes[sizeof t->bytes];         /* whoever gets them may write over them */
	memcpy(bytes, t->bytes, t->len);
	env->recv(env->recv_arg, (struct via){ .chan = t->chan }, bytes, t->len);
}

static void scn_S31_once(struct sim *s)
{
	struct dht_world w = { 0 };
	static struct taken t;
	struct net_counters before, after;
	dht_add(s, &w, 5);
	dht_joined(s);
	for (int i = 0; i < 20; i++)            /* mailboxes are open: doors have connections of their own */
		dht_put_wait(s, 0, "warm", NULL, json_integer(i), 600000, false);
	memset(&t, 0, sizeof t);
	sim_tap(s, on_take, &t);
	sim_check(s, dht_put_wait(s, 0, "k", NULL, json_integer(1), 3000, false).accepted == 5);
	sim_tap(s, NULL, NULL);
	if (!t.len) {
		sim_late(s, "no STORE was seen beside those through doors");
		return;
	}
	sim_run_for(s, 10 * SEC);               /* it has ended everywhere */
	net_counters(dht_net(s, t.to), &before);
	replay(s, t.to, &t);
	net_counters(dht_net(s, t.to), &after);
	sim_check(s, after.replayed == before.replayed + 1 && after.frames_in == before.frames_in);
	int other = t.to == 4 ? 3 : 4;          /* it was not meant for this one */
	net_counters(dht_net(s, other), &before);
	replay(s, other, &t);
	net_counters(dht_net(s, other), &after);
	sim_check(s, after.frames_in == before.frames_in && after.unknown_session == before.unknown_session + 1);
	struct taken bent = t;                  /* somebody changed it, and its counter so that it is not a replay */
	bent.bytes[88] ^= 0x40;
	net_counters(dht_net(s, t.to), &before);
	replay(s, t.to, &bent);
	net_counters(dht_net(s, t.to), &after);
	sim_check(s, after.bad_seal == before.bad_seal + 1 && after.frames_in == before.frames_in);
	sim_restart(s, t.to);                   /* nor does it count in another life */
	sim_run_for(s, SEC);
	net_counters(dht_net(s, t.to), &before);
	replay(s, t.to, &t);
	net_counters(dht_net(s, t.to), &after);
	sim_check(s, after.frames_in == before.frames_in);
	sim_check(s, !copies_alive(s, "k"));
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(S11_latest), SCN(S22_nearest), SCN(one_question), SCN(only_one),
		SCN(oldest_asked), SCN(next_nearest), SCN(dead_crowd), SCN(large_handover),
		SCN(S31_once), { 0 } };
	return scn_main(list, argc, argv);
}
