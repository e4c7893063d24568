/* Does every rule of table_check.h see that it is broken? A few peers store records and are well; then something in one
 * peer's memory becomes what the rule forbids, and the checker of dht_world must say so by itself, in its own words. */
#include <stdio.h>
#include <string.h>
#include "dht/int.h"
#include "dht_world.h"

struct broken { const char *rule, *says; void (*harm)(struct sim *s); void (*mend)(struct sim *s) /* leaks else */; };

static struct dht *table(struct sim *s) { return dht_of(s, 1); }

static struct entry *some_key(struct sim *s, size_t subkeys)
{
	struct entry *en;
	size_t at = 0;
	while ((en = map_next(table(s)->values.keys, &at, NULL, NULL)) && en->n < subkeys)
		;
	return en;
}

static struct rec *some_record(struct sim *s)
{
	return list_entry(some_key(s, 1)->recs.next, struct rec, link);
}

static struct rec *of_dictionary(struct sim *s)
{
	return list_entry(some_key(s, 2)->recs.next, struct rec, link);
}

static struct share *account(struct sim *s)
{
	size_t at = 0;
	return map_next(table(s)->values.quota, &at, NULL, NULL);
}

static void lives_longer(struct sim *s) { some_record(s)->ends_us += 3600 * SEC; }
static void has_ended(struct sim *s) { some_record(s)->ends_us = sim_now(s) - 31 * SEC; }
static void endless(struct sim *s) { heap_set(&table(s)->values.ends, &some_record(s)->end, UINT64_MAX / 2); }
static void older(struct sim *s) { some_record(s)->rank -= 1000; }
static void uncounted(struct sim *s) { table(s)->values.records++; }
static void bytes(struct sim *s) { table(s)->values.bytes--; }
static void too_many(struct sim *s) { table(s)->values.conf.records_max = 1; }
static void too_large(struct sim *s) { table(s)->values.conf.bytes_max = 100; }
static void over_quota(struct sim *s) { table(s)->values.conf.per_peer_max = 0; }
static void over_bytes(struct sim *s) { table(s)->values.conf.per_peer_bytes = 1; }
static void unaccounted(struct sim *s) { account(s)->records++; }
static void accounted(struct sim *s) { account(s)->records--; }
static void unaccounted_bytes(struct sim *s) { account(s)->bytes++; }
static void huge(struct sim *s) { some_record(s)->vlen = VALUE_MAX + 1; }
static void long_life(struct sim *s) { some_record(s)->life_ms = LIFE_MAX_MS + 1; }
static void too_long_left(struct sim *s) { some_record(s)->life_ms = 1; }
static void elsewhere(struct sim *s) { some_record(s)->key.b[0] ^= 1; }

static void twice(struct sim *s)
{
	struct rec *r = of_dictionary(s), *next = list_entry(r->link.next, struct rec, link);
	memcpy(r->subkey, next->subkey, sizeof r->subkey);
	r->rank = next->rank;                   /* neither is older */
}

static void beside_plain(struct sim *s) { of_dictionary(s)->subkey[0] = 0; }
static void subkeys(struct sim *s) { some_key(s, 2)->n = 1; }
static void unindexed(struct sim *s) { map_del(some_key(s, 20)->by_subkey, "a7", 2); }
static void misindexed(struct sim *s) { map_put(some_key(s, 20)->by_subkey, "a7", 2, some_record(s)); }
static void stranger(struct sim *s) { id_hex(net_self(dht_net(s, 4)), some_record(s)->subkey); }
static void cache_full(struct sim *s) { table(s)->fetches = CACHE_REFRESH_MAX + 1; }

static struct cached *nobody_has(struct sim *s)
{
	static const char none[] = "none";
	struct id key;
	struct list recs = LIST_INIT(recs);
	id_of(&key, none, sizeof none - 1);
	found_put(table(s), &key, &recs);
	return map_get(table(s)->cache, key.b, 32);
}

static void negative(struct sim *s) { nobody_has(s)->until_us += 60 * SEC; }
static void stale(struct sim *s)
{
	nobody_has(s)->until_us = sim_now(s) - 31 * SEC;
	table(s)->cache_at_us = UINT64_MAX;     /* and nobody looks */
}

static struct bucket *root(struct sim *s) { return &table(s)->table.root; }
static void node_lost(struct sim *s) { root(s)->n--; }
static void node_twice(struct sim *s) { root(s)->node[0] = root(s)->node[1]; }
static void itself(struct sim *s) { root(s)->node[0].id = table(s)->table.self; }
static void misplaced(struct sim *s) { root(s)->depth = 250; }
static void crowded(struct sim *s) { table(s)->table.bucket = 3; }
static void buckets(struct sim *s) { table(s)->table.buckets++; }
static void failing(struct sim *s) { root(s)->node[0].fails = TABLE_FAILS_MAX; }
static void unreachable(struct sim *s) { root(s)->node[0].at.port[CHAN_CTRL] = 0; }
static void spares(struct sim *s) { root(s)->spares = 1; }

static const struct broken rules[] = {
	{ "life", "longer than it was made for", lives_longer },
	{ "end", "after its end", has_ended },
	{ "endless", "nothing ends a record", endless },
	{ "rank", "was replaced by", older },
	{ "count", "counted as", uncounted },
	{ "bytes", "counted as", bytes },
	{ "room", "counted as", too_many },
	{ "room for bytes", "counted as", too_large },
	{ "quota", "records of one peer, at most 0", over_quota },
	{ "quota of bytes", "bytes, at most 1", over_bytes },
	{ "account", "its account has", unaccounted, accounted },
	{ "account of bytes", "its account has", unaccounted_bytes },
	{ "value", "no record can be like this", huge },
	{ "longest life", "no record can be like this", long_life },
	{ "signed life", "no record can be like this", too_long_left },
	{ "key", "no record can be like this", elsewhere },
	{ "subkey", "two records of one subkey", twice },
	{ "plain", "a plain value among them", beside_plain },
	{ "subkeys", "records under a key, counted as 1", subkeys },
	{ "subkey missing", "by their subkeys as 19", unindexed },
	{ "subkey of another", "19 of 20 records", misindexed },
	{ "owner", "of a peer that is not its owner", stranger },
	{ "fetches", "over a bound", cache_full },
	{ "negative cache", "is believed for", negative },
	{ "cache", "is believed for", stale },
	{ "node lost", "buckets, counted as", node_lost },
	{ "node twice", "or not once more", node_twice },
	{ "itself", "or not once more", itself },
	{ "misplaced", "does not belong into its bucket", misplaced },
	{ "bucket", "spares, at most", crowded },
	{ "spares", "1 spares, at most", spares },
	{ "buckets", "buckets, counted as", buckets },
	{ "failing", "has failed 2 times", failing },
	{ "address", "cannot be called", unreachable },
};

/* Each rule in a world of its own; that world's failure is what is expected, when the table has ticked a few times. */
static void scn_broken(struct sim *s)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		struct sim *t = sim_new(sim_seed(s));
		struct dht_world w = { 0 };
		char name[8];
		dht_add(t, &w, 5);
		dht_joined(t);
		for (int k = 0; k < 5; k++) {
			snprintf(name, sizeof name, "k%d", k);
			dht_put_wait(t, k, name, NULL, json_integer(k), 3600000, false);
			snprintf(name, sizeof name, "s%d", k);
			dht_put_wait(t, k, "dictionary", name, json_integer(k), 3600000, false);
		}
		for (int k = 0; k < 20; k++) {
			snprintf(name, sizeof name, "a%d", k);
			dht_put_wait(t, k % 5, "many", name, json_integer(k), 3600000, false);
		}
		sim_run_for(t, 40 * SEC);
		if (sim_failed(t))
			sim_fail(s, "%s: before anything is broken: %s", rules[i].rule, sim_failed(t));
		else
			rules[i].harm(t);
		sim_run_for(t, 30 * SEC);
		if (!sim_failed(t))
			sim_fail(s, "%s: nobody has seen it", rules[i].rule);
		else if (!strstr(sim_failed(t), rules[i].says))
			sim_fail(s, "%s: another rule has seen it: %s", rules[i].rule, sim_failed(t));
		if (rules[i].mend)
			rules[i].mend(t);
		uint64_t hash = sim_hash(t);
		sim_trace(s, &hash, sizeof hash);
		sim_free(t);
	}
}

static const struct scn list[] = { SCN(broken), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
