/* Crowds of whole nodes that train nothing: a thousand join within a minute, three of ten die at once, attackers crowd
 * around a peer or a key. Light cryptography, with which identities can be chosen cheaply. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"
#include "net/crypt.h"
#include "node_world.h"
#include "table_check.h"

struct tally { unsigned open, good; };

static void on_put(void *arg, uint32_t accepted, uint32_t wanted, const struct err *e)
{
	struct tally *t = arg;
	t->open--;
	t->good += accepted > 0;
}

static void on_get(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct tally *t = arg;
	t->open--;
	t->good += n > 0;
}

static bool all_back(struct sim *s, void *arg) { return !((struct tally *)arg)->open; }

/* Keys first.. of the first `honest` peers, in groups; how many were stored or found. */
static unsigned keys(struct node_world *w, int honest, int first, int n, bool put)
{
	static struct tally t;                  /* answers may come after a failure */
	t = (struct tally){ 0 };
	for (int i = first; i < first + n && !sim_failed(w->s); i++) {
		char key[32];
		int from;
		snprintf(key, sizeof key, "key%d", i);
		do
			from = (int)rng_below(sim_rng(w->s), (uint64_t)honest);
		while (!sim_alive(w->s, from));
		struct dht *d = node_dht(node_peer(w, from)->node);
		t.open++;
		if (put)
			dht_put(d, key, NULL, json_integer(i), 3600000, false, on_put, &t);
		else
			dht_get(d, key, true, on_get, &t);
		if (i % 100 == 99)
			sim_await(w->s, all_back, &t, 60 * SEC);
	}
	sim_await(w->s, all_back, &t, 60 * SEC);
	return t.good;
}

static void crowd(struct node_world *w, int n, uint64_t within_us)
{
	for (int i = 0; i < n; i++) {
		node_world_add(w, 1);
		sim_run_for(w->s, within_us / (uint64_t)n);
	}
	sim_await(w->s, node_all_joined, w, 10 * SEC);
}

static void end(struct node_world *w)
{
	table_check_all(w->table);
	node_in_time(w);
	node_world_free(w);
}

/* They join within a minute: everybody's record is found from anywhere, no loop is late, and nobody has said more than
 * a few hundred things. */
static void join_in_a_minute(struct sim *s, int peers, int looks)
{
	struct node_world *w = node_world_new(s, NULL);
	struct sim_stats st;
	crowd(w, peers, 60 * SEC);
	sim_stats(s, &st);
	if (st.sent > (uint64_t)peers * 400)
		sim_late(s, "%llu messages for %d peers to join", (unsigned long long)st.sent, peers);
	sim_run_for(s, 22 * SEC);               /* presence of whoever came first has been renewed by now */
	for (int k = 0; k < looks && !sim_failed(s); k++)
		node_finds(w, node_any(w), (size_t)peers, (size_t)peers);
	unsigned stored = keys(w, peers, 0, 100, true), found = keys(w, peers, 0, 100, false);
	if (stored < 100 || found < 100)
		sim_late(s, "%u of 100 keys are stored, %u found", stored, found);
	end(w);
}

static void scn_thousand(struct sim *s) { join_in_a_minute(s, 1000, 20); }
static void scn_two_hundred(struct sim *s) { join_in_a_minute(s, 200, 10); }

/* Of how many keys somebody still holds a copy. */
static unsigned held(struct node_world *w, int first, int n)
{
	unsigned good = 0;
	for (int i = first; i < first + n; i++) {
		char key[32];
		struct id id;
		bool has = false;
		id_of(&id, key, (unsigned long)snprintf(key, sizeof key, "key%d", i));
		for (int p = 0; p < sim_nodes(w->s) && !has; p++)
			has = sim_alive(w->s, p) && map_get(node_dht(node_peer(w, p)->node)->values.keys, id.b, sizeof id.b);
		good += has;
	}
	return good;
}

/* Three of ten die at once: every key of whose eight holders one is left is found. All eight die together with a seed
 * in fifty: then it is all keys of that neighbourhood. */
static void scn_third_dies(struct sim *s)
{
	enum { PEERS = 100, KEYS = 200 };
	struct node_world *w = node_world_new(s, NULL);
	crowd(w, PEERS, 10 * SEC);
	sim_run_for(s, 45 * SEC);               /* all have looked around: a key's eight are its nearest */
	sim_in_time(s, keys(w, PEERS, 0, KEYS, true) == KEYS);
	for (int i = 0; i < PEERS * 3 / 10; i++)
		sim_kill(s, node_any(w));
	unsigned left = held(w, 0, KEYS), found = keys(w, PEERS, 0, KEYS, false);
	if (found < left || left < KEYS * 9 / 10)
		sim_late(s, "%u of %d keys are found after three of ten have died, %u are left", found, KEYS, left);
	sim_run_for(s, 90 * SEC);               /* nobody shows the dead any more */
	if (found < left && (found = keys(w, PEERS, 0, KEYS, false)) < left)
		sim_fail(s, "%u keys are found long after three of ten have died, and %u were left", found, left);
	node_finds(w, node_any(w), PEERS - PEERS * 3 / 10, PEERS - PEERS * 3 / 10);
	end(w);
}

/* ---- attackers: members of the swarm, with identities of their choice, who tell only of each other, take records and
 * forget them, and know no record ---- */

enum { HONEST = 60, ATTACKERS = 200, CHOSEN_BITS = 13 };
static struct id target_id;
static struct rec *forged;                      /* what they say lies under any key; NULL: nothing */

static bool near(const struct id *id)
{
	return id_prefix_bits(id, &target_id) >= CHOSEN_BITS;
}

static void choose(struct node_world *w, const struct id *target, int first, int n)
{
	target_id = *target;
	for (uint64_t x = 0; n; x++) {
		struct signer k;
		uint8_t seed[32] = { 0 };
		memcpy(seed, &x, sizeof x);
		signer_init(&k, seed);
		if (near(&k.id)) {
			memcpy(w->seed[first], seed, sizeof seed);
			w->has_seed[first++] = true;
			n--;
		}
		signer_done(&k);
	}
}

static void lie(struct node_world *w, struct request *req, bool records)
{
	struct buf b = { 0 };
	int at = HONEST + (int)rng_below(sim_rng(w->s), ATTACKERS - 9);
	unsigned n = 0;
	buf_u8(&b, 0);
	for (int i = at; i < at + 9; i++)
		if (i < sim_nodes(w->s) && sim_alive(w->s, i)) {
			node_write(&b, node_id(node_peer(w, i)->node), sim_endpoint(w->s, i));
			n++;
		}
	b.p[0] = (uint8_t)n;
	if (records) {
		buf_u16(&b, forged != NULL);
		if (forged)
			rec_write(&b, forged, sim_now(w->s));
	}
	net_reply(req, NULL, (struct blob){ .data = b.p, .len = b.len, .release = free, .arg = b.p });
}

static void on_find(void *arg, struct request *req) { lie(arg, req, false); }
static void on_ask(void *arg, struct request *req) { lie(arg, req, true); }

static void on_store(void *arg, struct request *req)
{
	net_reply(req, json_pack("{s:i,s:i}", "accepted", 1, "refused", 0), NO_BLOB);
}

static void born(struct node_world *w, struct node_peer *p)
{
	struct net *n = node_net(p->node);
	if (p->index < HONEST)
		return;
	net_on(n, KIND_DHT_FIND, on_find, w);
	net_on(n, KIND_DHT_GET, on_ask, w);
	net_on(n, KIND_DHT_STORE, on_store, w);
}

static struct node_world *besieged(struct sim *s, int keys_n)
{
	struct node_world *w = node_world_new(s, NULL);
	w->born = born;
	crowd(w, HONEST, 10 * SEC);
	sim_in_time(s, (int)keys(w, HONEST, 0, keys_n, true) == keys_n);
	return w;
}

static unsigned honest_of(struct node_world *w, int node)
{
	struct dht *d = node_dht(node_peer(w, node)->node);
	unsigned n = 0;
	for (int i = 0; i < HONEST; i++)
		n += i != node && sim_alive(w->s, i) && table_find(&d->table, node_id(node_peer(w, i)->node));
	return n;
}

static void attack(struct node_world *w, const struct id *target)
{
	choose(w, target, HONEST, ATTACKERS);
	for (int i = 0; i < ATTACKERS; i++) {
		node_world_add(w, 1);
		sim_run_for(w->s, 50 * MSEC);
	}
}

/* Two hundred crowd around a peer: it keeps the honest ones that it knew, finds what it looks for, also after a
 * restart; others find what does not lie next to it. */
static void scn_eclipse_peer(struct sim *s)
{
	struct node_world *w = besieged(s, 100);
	int victim = 10 + (int)rng_below(sim_rng(s), HONEST - 10);
	unsigned before = honest_of(w, victim);
	forged = NULL;
	attack(w, node_id(node_peer(w, victim)->node));
	for (int again = 0; again < 2 && !sim_failed(s); again++) {
		sim_run_for(s, 10 * SEC);
		unsigned now = honest_of(w, victim), found = 0;
		if (now * 10 < before * 9)
			sim_late(s, "the victim knows %u honest peers, it was %u", now, before);
		for (int k = 0; k < 100; k++) {
			char key[32];
			snprintf(key, sizeof key, "key%d", k);
			found += node_find_records(w, victim, key) == 1;
		}
		if (found < 99)
			sim_late(s, "the victim finds %u of 100 keys", found);
		found = keys(w, HONEST, 0, 100, false);
		if (found < 85)                 /* a sixtieth of the keys has the victim for its nearest */
			sim_late(s, "the others find %u of 100 keys", found);
		sim_restart(s, victim);
	}
	end(w);
}

struct read_ { bool over; size_t n; bool wrong; const struct id *owner; };

static void on_read(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct read_ *t = arg;
	t->over = true;
	t->n = n;
	for (size_t i = 0; i < n; i++)
		t->wrong |= !id_eq(&r[i].owner, t->owner) || json_integer_value(r[i].value) != 7;
}

static bool has_read(struct sim *s, void *arg) { return ((struct read_ *)arg)->over; }

static size_t read_key(struct node_world *w, const char *key, const struct id *owner)
{
	static struct read_ t;
	int from = (int)rng_below(sim_rng(w->s), HONEST);
	t = (struct read_){ .owner = owner };
	dht_get(node_dht(node_peer(w, from)->node), key, true, on_read, &t);
	sim_await(w->s, has_read, &t, 30 * SEC);
	if (t.wrong)
		sim_fail(w->s, "node %d believes a record that its owner never made", from);
	return t.n;
}

static bool all_read(struct node_world *w, const char *key, const struct id *owner)
{
	bool all = true;
	for (int k = 0; k < 20; k++)
		all = read_key(w, key, owner) == 1 && all;
	return all;
}

/* Two hundred crowd around a key, keep what is stored there to themselves and hand out what they have made up: members
 * can hide a record so, but nobody is told a lie; and when they are gone it is found by everybody. What keeps them out
 * is the swarm's key, [network] allow and bans. */
static void scn_eclipse_key(struct sim *s)
{
	struct node_world *w = besieged(s, 0);
	char hex[ID_HEX];
	struct id key, owner = *node_id(node_peer(w, 1)->node);
	id_hex(&owner, hex);
	id_of(&key, "known", 5);
	dht_keep(node_dht(node_peer(w, 1)->node), "known", hex, json_integer(7), 30000, true);
	sim_run_for(s, 5 * SEC);
	sim_in_time(s, read_key(w, "known", &owner) == 1);
	forged = xcalloc(1, sizeof *forged);
	*forged = (struct rec){ .key = key, .value = (char *)"666", .vlen = 3, .rank = UINT64_MAX / 2, .life_ms = 60000,
		.ends_us = UINT64_MAX / 2, .owner = owner, .is_signed = true };
	snprintf(forged->subkey, sizeof forged->subkey, "%s", hex);
	attack(w, &key);
	for (int k = 0; k < 10; k++) {
		sim_run_for(s, SEC);
		read_key(w, "known", &owner);
	}
	for (int i = 0; i < ATTACKERS; i++)
		sim_kill(s, HONEST + i);
	sim_run_for(s, 20 * SEC);
	if (!all_read(w, "known", &owner)) {
		sim_late(s, "the record is not found twenty seconds after the attackers have gone");
		sim_run_for(s, 40 * SEC);
		if (!all_read(w, "known", &owner))
			sim_fail(s, "the record is not found a minute after the attackers have gone");
	}
	free(forged);
	forged = NULL;
	end(w);
}

static const struct scn list[] = { SCN(two_hundred), SCN(third_dies), SCN(eclipse_peer), SCN(eclipse_key),
	SCN(thousand), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
