/* Does every rule of table_check.h see that it is broken? A few peers store records and are well; then something in one
 * peer's memory becomes what the rule forbids, and the checker must say so, in its own words. */
#include <stdio.h>
#include <string.h>
#include "dht/int.h"
#include "dht_world.h"
#include "table_check.h"

struct broken { const char *rule, *says; void (*harm)(struct sim *s); };

static struct dht *table(struct sim *s) { return dht_of(s, 1); }

static struct rec *some_record(struct sim *s)
{
	size_t at = 0;
	struct entry *en = map_next(table(s)->values.keys, &at, NULL, NULL);
	return list_entry(en->recs.next, struct rec, link);
}

static void lives_longer(struct sim *s) { some_record(s)->ends_us += 3600 * SEC; }
static void has_ended(struct sim *s) { some_record(s)->ends_us = sim_now(s) - 31 * SEC; }
static void older(struct sim *s) { some_record(s)->rank -= 1000; }
static void uncounted(struct sim *s) { table(s)->values.records++; }
static void too_many(struct sim *s) { table(s)->values.conf.records_max = 1; }
static void over_quota(struct sim *s) { table(s)->values.conf.per_peer_max = 0; }

static const struct broken rules[] = {
	{ "life", "longer than it was made for", lives_longer },
	{ "end", "after its end", has_ended },
	{ "rank", "was replaced by", older },
	{ "count", "counted as", uncounted },
	{ "room", "counted as", too_many },
	{ "quota", "records of one peer, at most 0", over_quota },
};

static struct dht *of(void *sim, int node)
{
	return dht_of(sim, node);
}

/* Each rule in a world of its own; that world's failure is what is expected. */
static void scn_broken(struct sim *s)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		struct sim *t = sim_new(sim_seed(s));
		struct dht_world w = { 0 };
		struct table_check *c = table_check_new(t, of, t);
		char key[8];
		dht_add(t, &w, 5);
		dht_joined(t);
		for (int k = 0; k < 5; k++) {
			snprintf(key, sizeof key, "k%d", k);
			dht_put_wait(t, k, key, NULL, json_integer(k), 3600000, false);
		}
		sim_run_for(t, 40 * SEC);
		table_check_all(c);
		if (sim_failed(t))
			sim_fail(s, "%s: before anything is broken: %s", rules[i].rule, sim_failed(t));
		rules[i].harm(t);
		table_check_all(c);
		if (!sim_failed(t))
			sim_fail(s, "%s: nobody has seen it", rules[i].rule);
		else if (!strstr(sim_failed(t), rules[i].says))
			sim_fail(s, "%s: another rule has seen it: %s", rules[i].rule, sim_failed(t));
		uint64_t hash = sim_hash(t);
		sim_trace(s, &hash, sizeof hash);
		sim_free(t);
		table_check_free(c);
	}
}

static const struct scn list[] = { SCN(broken), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
