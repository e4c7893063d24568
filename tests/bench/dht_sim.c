/* The table in the simulator, as a figure. usage: bench_dht_sim hour [PEERS [MINUTES]] | keys [PEERS KEYS] | exact
 * [PEERS]; JSON out.
 * hour: so many peers for one virtual hour, each with a signed presence record of 3 minutes and one get a minute.
 * keys: keys stored by and found from random peers, hops, then 30 % killed at once, then everything has ended.
 * exact: the k nearest that searches find against the k nearest that exist (S14), and the routing table's buckets and
 * k nearest against brute force (S18, S19), with Hivemind's bounds beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/mem.h"
#include "common/text.h"
#include "dht/table.h"
#include "dht_world.h"
#include "kinds.h"
#include "usage.h"

/* Processor time: the program has one thread, and others may use the machine. */
static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void join(struct sim *s, struct dht_world *w, int n)
{
	for (int i = 0; i < n; i++) {
		dht_add(s, w, 1);
		sim_run_for(s, 60 * SEC / (uint64_t)n);
	}
	dht_joined(s);
}

/* ---- one hour ---- */

struct asked { uint64_t gets, found; };
static void on_get(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct asked *a = arg;
	a->gets++;
	a->found += n > 0;
}

static void keep(struct sim *s, int i)
{
	char key[32];
	snprintf(key, sizeof key, "presence%d", i);
	dht_keep(dht_of(s, i), key, NULL, json_pack("{s:s,s:i}", "address", "10.0.0.1:4237", "runs", i), 180000, true);
}

static int hour(int n, int minutes)
{
	struct sim *s = sim_new(1);
	struct dht_world w = { .unchecked = true };
	struct asked a = { 0 };
	struct sim_stats st;
	static uint64_t kind[256];
	double begun = now_s(), joined;
	join(s, &w, n);
	joined = now_s();
	sim_tap(s, count_kind, kind);
	for (int i = 0; i < n; i++)
		keep(s, i);
	for (int minute = 0; minute < minutes && !sim_failed(s); minute++)
		for (int i = 0; i < n; i++) {
			char key[32];
			snprintf(key, sizeof key, "presence%d", (int)rng_below(sim_rng(s), (uint64_t)n));
			dht_get(dht_of(s, i), key, true, on_get, &a);
			sim_run_for(s, 60 * SEC / (uint64_t)n);
		}
	double took = now_s() - joined;
	sim_stats(s, &st);
	printf("{\"bench\": \"dht_sim_hour\", \"peers\": %d, \"virtual_s\": %d, \"join_cpu_s\": %.2f, "
		"\"cpu_s\": %.2f,"
		" \"times_real_time\": %.0f, \"events\": %llu, \"messages\": %llu, \"gets\": %llu, \"found\": %llu", n,
		60 * minutes, joined - begun, took, 60 * minutes / took, (unsigned long long)st.events,
		(unsigned long long)st.sent,
		(unsigned long long)a.gets, (unsigned long long)a.found);
	printf(", \"kinds\": {");
	print_kinds(kind);
	printf("}}\n");
	int bad = sim_trouble(s) != NULL;
	sim_free(s);
	return bad;
}

/* ---- keys ---- */

static int keys(int n, int nkeys)
{
	struct sim *s = sim_new(1);
	struct dht_world w = { .unchecked = true };
	double begun = now_s();
	join(s, &w, n);
	struct dht_looked put = dht_look(s, nkeys, 1800000);
	struct dht_looked all = dht_look(s, nkeys, 0);
	uint64_t ended = sim_now(s);
	for (int i = 0; i < n * 3 / 10; i++)
		sim_kill(s, dht_any(s));
	struct dht_looked left = dht_look(s, nkeys, 0);
	sim_run_for(s, 1900 * SEC - (sim_now(s) - ended));
	struct dht_looked none = dht_look(s, nkeys < 1000 ? nkeys : 1000, 0);
	printf("{\"bench\": \"dht_sim_keys\", \"peers\": %d, \"keys\": %d, \"stored_on_all\": %d, \"found\": %d,"
		" \"hops_mean\": %.3f, \"hops_max\": %u, \"killed\": %d, \"found_after\": %d, \"share_after\": %.5f,"
		" \"hops_mean_after\": %.3f, \"hops_max_after\": %u, \"found_when_ended\": %d, \"cpu_s\": %.1f}\n", n, nkeys,
		put.found, all.found,
		(double)all.hops / (double)(all.found + !all.found),
		all.hops_max, n * 3 / 10, left.found, (double)left.found / nkeys,
		(double)left.hops / (double)(left.found + !left.found), left.hops_max, none.found,
		now_s() - begun);
	int bad = sim_trouble(s) != NULL;
	sim_free(s);
	return bad;
}

/* ---- exact ---- */

/* The n nearest to target of all, nearest first. */
static void brute(const struct id *target, struct id *all, size_t nall, size_t n)
{
	for (size_t i = 0; i < n && i < nall; i++)
		for (size_t k = i + 1; k < nall; k++)
			if (id_closer(target, &all[k], &all[i]) < 0) {
				struct id x = all[i];
				all[i] = all[k];
				all[k] = x;
			}
}

static void random_id(struct rng *r, struct id *ret)
{
	for (int i = 0; i < 32; i++)
		ret->b[i] = (uint8_t)rng_u64(r);
}

struct score { unsigned queries, first; double jaccard; };

/* Random targets from random peers; k of the search as configured. */
static struct score searches(struct sim *s, unsigned k, unsigned queries)
{
	struct score sc = { .queries = queries };
	struct id *all = xcalloc((size_t)sim_nodes(s), sizeof *all);
	for (unsigned q = 0; q < queries && !sim_failed(s); q++) {
		struct id target;
		int from = dht_any(s);
		size_t n = 0, both = 0;
		random_id(sim_rng(s), &target);
		for (int i = 0; i < sim_nodes(s); i++)
			if (i != from)
				all[n++] = *net_self(dht_net(s, i));
		brute(&target, all, n, k);
		struct dht_find_end f = dht_find_wait(s, from, &target);
		for (size_t i = 0; i < f.n; i++)
			for (size_t j = 0; j < k; j++)
				both += id_eq(&f.id[i], &all[j]);
		sc.first += f.n && id_eq(&f.id[0], &all[0]);
		sc.jaccard += (double)both / (double)(f.n + k - both) / queries;
	}
	free(all);
	return sc;
}

struct collected { struct id *v; size_t n; };

static void collect(void *arg, struct dnode *n)
{
	struct collected *c = arg;
	c->v[c->n++] = n->id;
}

/* k nearest of the table that are not brute force's, over so many queries of 1 to 100. */
static unsigned wrong_nearest(struct table *t, struct rng *r, unsigned queries)
{
	struct collected c = { .v = xcalloc(t->n, sizeof(struct id)) };
	struct dnode got[100];
	unsigned wrong = 0;
	table_each(t, collect, &c);
	for (unsigned q = 0; q < queries; q++) {
		struct id target;
		size_t k = 1 + rng_below(r, 100);
		random_id(r, &target);
		if (q % 3 == 0)
			target = c.v[rng_below(r, c.n)];
		brute(&target, c.v, c.n, k);
		bool same = table_nearest(t, &target, got, k) == k;
		for (size_t i = 0; i < k && same; i++)
			same = id_eq(&got[i].id, &c.v[i]);
		wrong += !same;
	}
	free(c.v);
	return wrong;
}

static int tables(void)
{
	static const struct { unsigned bucket, split, ids, least, most; } row[] = { { 20, 5, 10000, 45, 65 },
		{ 50, 5, 10000, 35, 45 }, { 20, 10, 10000, 650, 800 }, { 20, 1, 10000, 7, 15 }, { 20, 5, 100, 3, 10 } };
	int bad = 0;
	size_t active = 0;
	unsigned wrong = 0;
	printf("\"S18\": [");
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct table t;
		struct rng r;
		struct id id;
		struct endpoint at = { .port = { 1, 2, 3 } };
		rng_seed(&r, 100 + i);
		random_id(&r, &id);
		table_init(&t, &id);
		t.split = row[i].split;
		t.bucket = row[i].bucket;
		for (unsigned k = 0; k < row[i].ids; k++) {
			random_id(&r, &id);
			table_seen(&t, &id, &at, k + 1);
		}
		size_t n = table_buckets(&t);
		bad |= n < row[i].least || n > row[i].most;
		printf("%s{\"bucket\": %u, \"depth_modulo\": %u, \"ids\": %u, \"buckets\": %zu, \"hivemind\": [%u, %u]}",
			i ? ", " : "", row[i].bucket, row[i].split, row[i].ids, n, row[i].least, row[i].most);
		if (i == 0) {
			active = t.n;
			wrong = wrong_nearest(&t, &r, 1000);
			bad |= wrong || active < 800 || active > 1100;
		}
		table_done(&t);
	}
	printf("], \"S19\": {\"ids\": 10000, \"active\": %zu, \"hivemind\": [800, 1100], \"nearest_queries\": 1000, "
		"\"wrong\": %u}", active, wrong);
	return bad;
}

static int exact(int n)
{
	struct sim *s = sim_new(1);
	struct dht_world w = { .conf = { .k = 5 }, .unchecked = true };
	double begun = now_s();
	join(s, &w, n);
	struct score sc = searches(s, 5, 1000);
	bool bad = sim_trouble(s) || sc.first < sc.queries;
	printf("{\"bench\": \"dht_sim_exact\", \"peers\": %d, \"S14\": {\"k\": 5, \"queries\": %u, \"top1\": %.4f, "
		"\"jaccard\": %.4f, \"hivemind_top1_min\": 0.8, \"hivemind_jaccard_min\": 0.9}, ", n, sc.queries,
		(double)sc.first / sc.queries, sc.jaccard);
	bad |= tables();
	printf(", \"cpu_s\": %.1f}\n", now_s() - begun);
	sim_free(s);
	return bad;
}

int main(int argc, char **argv)
{
	static const char usage[] = "bench_dht_sim hour [PEERS [MINUTES]] | keys [PEERS [KEYS]] | exact [PEERS]";
	bench_words(argc, argv, 1, 3, usage);
	json_object_seed(1);
	bool of_hour = !strcmp(argv[1], "hour"), of_keys = !strcmp(argv[1], "keys");
	int peers = bench_number(argc, argv, 2, of_hour ? 500 : of_keys ? 1000 : 21, 1, 100000, usage);
	int much = bench_number(argc, argv, 3, of_hour ? 60 : 10000, 1, 100000, usage);
	if (of_hour)
		return hour(peers, much);
	if (of_keys)
		return keys(peers, much);
	if (!strcmp(argv[1], "exact") && argc < 4)
		return exact(peers);
	bench_wrong(usage);
}
