/* Whole nodes in the simulator with everything on, as a figure: net, table, presence, a run that trains in naps and
 * averages, the checkers after every event. usage: bench_node_sim [PEERS [MEMBERS [SECONDS]]]; JSON out.
 * PEERS join evenly within a minute (64 or less: within 10 s); MEMBERS of them train, two micro-batches of a second each
 * an epoch; then SECONDS of virtual time are measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "chain_check.h"
#include "common/text.h"
#include "node_world.h"
#include "table_check.h"

/* Processor time: the program has one thread, and others may use the machine. */
static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void spec_text(char out[900], int members)
{
	snprintf(out, 900, "{\"name\": \"naps\", \"input\": [4], \"model\": [{\"type\": \"sleep\", \"fwd_ms\": 1000}, "
		"{\"type\": \"linear\", \"out\": 3}], \"loss\": \"cross_entropy\", \"target_batch\": %d, "
		"\"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, \"strategy\": \"hivemind\", "
		"\"averaging\": {\"group_max\": %d}, \"validation\": {\"every\": 0}, "
		"\"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 100000}, "
		"\"stop\": {\"epochs\": 1000000}, \"local\": {\"batch\": 8}}", 16 * members, members < 2 ? 2 : members);
}

static bool has_averaged(struct sim *s, void *arg)
{
	return node_newest(arg) >= 1;
}

static int run(int peers, int members, int seconds)
{
	struct sim *s = sim_new(1);
	char spec[900];
	struct sim_stats at, st;
	double begun = now_s(), joined, took;
	spec_text(spec, members);
	struct node_world *w = node_world_new(s, spec);
	for (int i = 0; i < peers; i++) {
		w->idle[i] = i >= members;
		node_world_add(w, 1);
		sim_run_for(s, (peers > 64 ? 60 : 10) * SEC / (uint64_t)peers);
	}
	if (!sim_run_until(s, node_all_joined, w, 30 * SEC) || !sim_run_until(s, has_averaged, w, 120 * SEC))
		sim_fail(s, "they do not begin");
	sim_stats(s, &at);
	uint64_t first = node_newest(w), commits = chain_commits(w->chain), states = chain_states(w->chain);
	joined = now_s();
	sim_run_for(s, (uint64_t)seconds * SEC);
	took = now_s() - joined;
	sim_stats(s, &st);
	if (node_newest(w) == first)
		sim_fail(s, "no epoch in %d s", seconds);
	printf("{\"bench\": \"node_sim\", \"peers\": %d, \"members\": %d, \"virtual_s\": %d, \"join_cpu_s\": %.2f, "
		"\"cpu_s\": %.2f, \"times_real_time\": %.1f, \"events\": %llu, \"messages\": %llu, \"epochs\": %llu, "
		"\"commits_checked\": %llu, \"states_compared\": %llu, \"records_checked\": %llu}\n", peers, members, seconds,
		joined - begun, took, seconds / took, (unsigned long long)(st.events - at.events),
		(unsigned long long)(st.sent - at.sent), (unsigned long long)(node_newest(w) - first),
		(unsigned long long)(chain_commits(w->chain) - commits),
		(unsigned long long)(chain_states(w->chain) - states), (unsigned long long)table_check_records(w->table));
	int bad = sim_failed(s) != NULL;
	if (bad)
		fprintf(stderr, "%s\n", sim_failed(s));
	node_world_free(w);
	sim_free(s);
	return bad;
}

static int number(int argc, char **argv, int at, int def)
{
	uint64_t v = 0;
	return argc > at && !text_u64(argv[at], &v, NULL) && v && v <= 100000 ? (int)v : def;
}

int main(int argc, char **argv)
{
	int peers = number(argc, argv, 1, 64), members = number(argc, argv, 2, peers < 64 ? peers : 64);
	json_object_seed(1);
	if (peers > NODES_MAX || members > peers) {
		fprintf(stderr, "usage: bench_node_sim [PEERS [MEMBERS [SECONDS]]], at most %d peers\n", NODES_MAX);
		return 3;
	}
	return run(peers, members, number(argc, argv, 3, 60));
}
