/* Whole nodes in the simulator (node_world.h), everything sealed and signed by libcrypto: they train together while
 * peers die, the swarm is divided, links are slow or deaf in one direction. tests/sim/README has the whole library. */
#include <stdio.h>
#include <string.h>
#include "chain_check.h"
#include "node_world.h"
#include "table_check.h"

static bool has_leader(struct sim *s, void *world) { return node_leader(world) >= 0; }

/* Eight nodes find each other, join a run, average: every commit leaves the same bits on all of them. */
static void scn_together(struct sim *s)
{
	struct node_world *w = node_begin(s, 8, 20);
	node_same(w);
	sim_check(s, chain_commits(w->chain) >= 20);
	sim_in_time(s, chain_states(w->chain) >= 18);
	for (int i = 0; i < 8; i++)
		node_finds(w, i, 8, 8);
	sim_await(s, has_leader, w, 0);
	node_end(w);
}

/* A third is killed at once: the others go on without a pause; the dead come back from their checkpoints. */
static void scn_killed(struct sim *s)
{
	struct node_world *w = node_begin(s, 9, 5);
	sim_run_for(s, rng_below(sim_rng(s), 2 * SEC));
	for (int k = 0; k < 3; k++)
		sim_kill(s, node_any(w));
	node_goes_on(w, 5, 20 * SEC);
	sim_run_for(s, 10 * SEC);
	for (int i = 0; i < 9; i++)
		if (!sim_alive(s, i))
			sim_restart(s, i);
	node_goes_on(w, 5, 30 * SEC);
	for (int i = 0; i < 9; i++)
		node_finds(w, i, 9, 9);
	node_end(w);
}

/* Divided for 20 s, both sides go on; healed, there is one history, that with more samples, and everybody is on it
 * and finds everybody's record. */
static void scn_partition(struct sim *s)
{
	struct node_world *w = node_begin(s, 8, 5);
	int side[8];
	w->forks_allowed = true;
	for (int i = 0; i < 8; i++)
		side[i] = (i + (int)(sim_seed(s) % 8)) % 8 >= 5;
	sim_partition(s, side, 8);
	sim_run_for(s, 20 * SEC);
	uint64_t most = 0, after = 0;
	for (int i = 0; i < 8; i++)
		if (node_run(w, i) && node_run(w, i)->point.samples > most)
			most = node_run(w, i)->point.samples;
	sim_heal(s);
	sim_run_for(s, 15 * SEC);
	node_goes_on(w, 3, 60 * SEC);
	for (int i = 0; i < 8; i++) {
		after = node_run(w, i)->point.samples;
		sim_check(s, after >= most);
		node_finds(w, i, 8, 8);
	}
	node_end(w);
}

static bool slow_count(struct sim *s, void *world)
{
	for (int i = 6; i < 9; i++)
		if (!node_run(world, i) || !node_run(world, i)->own_samples)
			return false;
	return true;
}

/* Nodes 6 to 8 of nine are behind something slow. */
static void behind_slow(struct sim *s, struct node_world *w)
{
	struct avg_view v;
	node_run_to(w, 3, 120 * SEC);
	node_goes_on(w, 12, 240 * SEC);
	avg_view(node_run(w, 0)->avg, &v);
	if (v.rounds_without > v.rounds_done / 4)
		sim_late(s, "%llu of %llu rounds left somebody out", (unsigned long long)v.rounds_without,
			(unsigned long long)v.rounds_done);
	sim_await(s, slow_count, w, 0);
	node_end(w);
}

/* A third sits behind slow links: 100 ms there and back, 60 kB/s. Their samples count, and nobody is left out
 * for it. */
static void scn_slow_third(struct sim *s)
{
	static char spec[700];
	struct node_world *w = node_world_new(s, node_naps(spec, 200, 9 * 64));
	struct sim_link slow = { .latency_us = 50 * MSEC, .jitter_us = 10 * MSEC, .bytes_per_s = 60000 };
	node_world_add(w, 9);
	for (int i = 0; i < 6; i++)
		for (int k = 6; k < 9; k++) {
			sim_link(s, i, k, &slow);
			sim_link(s, k, i, &slow);
		}
	behind_slow(s, w);
}

/* A third sits behind one line that it shares: 180 kB/s, 100 ms there and back; among themselves it is near. A round of
 * 200 kB each way fills it for more than a second. */
static void scn_shared_line(struct sim *s)
{
	static char spec[700];
	struct node_world *w = node_world_new(s, node_naps_of(spec, 8000, 200, 9 * 64));
	sim_costs(s)->call_queue_us = 25 * MSEC;
	node_world_add(w, 9);
	sim_line(s, (const int[]){ 6, 7, 8 }, 3, 50 * MSEC, 180000);
	behind_slow(s, w);
}

/* Some directions of some links carry nothing, and connections break everywhere: epochs go on all the same; when all is
 * well again so is everybody. */
static void scn_one_way(struct sim *s)
{
	struct node_world *w = node_begin(s, 8, 5);
	struct sim_link bad = { .latency_us = 5 * MSEC, .jitter_us = 5 * MSEC, .break_every = 150 };
	struct sim_link good = { .latency_us = 100, .jitter_us = 20 };
	w->forks_allowed = true;
	sim_link(s, -1, -1, &bad);
	for (int k = 0; k < 6; k++) {
		int from = (int)rng_below(sim_rng(s), 8), to = (int)rng_below(sim_rng(s), 8);
		if (from != to)
			sim_cut(s, from, to);
	}
	uint64_t at = node_newest(w);
	sim_run_for(s, 20 * SEC);
	if (node_newest(w) < at + 5)
		sim_late(s, "%llu epochs in 20 s", (unsigned long long)(node_newest(w) - at));
	sim_heal(s);
	sim_link(s, -1, -1, &good);
	sim_run_for(s, 10 * SEC);
	node_goes_on(w, 3, 60 * SEC);
	node_end(w);
}

/* Wall clocks jump by up to nine minutes, forward and back, on half of the peers, and never differ by the ten that the
 * protocol allows for: epochs go on, records stay found, leases of the ledger are no matter of clocks; what is killed
 * then comes back. */
static void scn_clocks(struct sim *s)
{
	struct node_world *w = node_begin(s, 8, 5);
	int64_t ahead_ms[8] = { 0 };
	/* a restarted process has nothing but that clock to count lives by */
	table_check_clocks(w->table, 9 * 60 * SEC);
	for (int round = 0; round < 2; round++) {
		for (int k = 0; k < 4; k++) {
			int i = node_any(w);
			int64_t to = (int64_t)rng_below(sim_rng(s), 9 * 60000);
			sim_wall_jump(s, i, to - ahead_ms[i]);
			ahead_ms[i] = to;
		}
		node_goes_on(w, 3, 20 * SEC);
		sim_restart(s, node_any(w));
		sim_run_for(s, 20 * SEC);
		node_goes_on(w, 3, 30 * SEC);
		for (int k = 0; k < 8; k++)
			node_finds(w, k, 8, 8);
	}
	node_end(w);
}

static const struct scn list[] = { SCN(together), SCN(killed), SCN(partition), SCN(slow_third), SCN(shared_line),
	SCN(one_way), SCN(clocks), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
