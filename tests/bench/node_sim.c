/* Whole nodes in the simulator with everything on, as a figure: net, table, presence, a run that trains in naps and
 * averages, the checkers after every event. usage: bench_node_sim [PEERS [MEMBERS [SECONDS]]]; JSON out.
 * PEERS join evenly within a minute (64 or less: within 10 s); MEMBERS of them train, micro-batches of a second each,
 * eight an epoch; then SECONDS of virtual time are measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "chain_check.h"
#include "common/text.h"
#include "kinds.h"
#include "node_world.h"
#include "table_check.h"
#include "usage.h"

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
		"\"stop\": {\"epochs\": 1000000}, \"local\": {\"batch\": 8}}", 64 * members, members < 2 ? 2 : members);
}

static bool has_averaged(struct sim *s, void *arg)
{
	return node_newest(arg) >= 1;
}

static void print(const char *what, int peers, double cpu_s, double virtual_s, const struct sim_stats *st,
	const uint64_t kind[256])
{
	printf("\"%s_virtual_s\": %.0f, \"%s_cpu_s\": %.2f, \"%s_times_real_time\": %.1f, \"%s_events\": %llu, "
		"\"%s_messages\": %llu, \"%s_messages_of_one\": %.1f, \"%s_kinds\": {", what, virtual_s, what, cpu_s, what,
		virtual_s / cpu_s, what, (unsigned long long)st->events, what, (unsigned long long)st->sent, what,
		(double)st->sent / peers, what);
	print_kinds(kind);
	printf("}");
}

static int run(int peers, int members, int seconds)
{
	struct sim *s = sim_new(1);
	char spec[900];
	struct sim_stats joining, st;
	uint64_t kinds[2][256] = { { 0 } };
	double begun = now_s(), joined;
	spec_text(spec, members);
	struct node_world *w = node_world_new(s, spec);
	sim_tap(s, count_kind, kinds[0]);
	for (int i = 0; i < peers; i++) {
		w->idle[i] = i >= members;
		node_world_add(w, 1);
		sim_run_for(s, (peers > 64 ? 60 : 10) * SEC / (uint64_t)peers);
	}
	if (!sim_run_until(s, node_all_joined, w, 30 * SEC) || !sim_run_until(s, has_averaged, w, 120 * SEC))
		sim_fail(s, "they do not begin");
	sim_stats(s, &joining);
	uint64_t first = node_newest(w), commits = chain_commits(w->chain), states = chain_states(w->chain);
	uint64_t at = sim_now(s);
	joined = now_s();
	sim_tap(s, count_kind, kinds[1]);
	sim_run_for(s, (uint64_t)seconds * SEC);
	sim_stats(s, &st);
	st.events -= joining.events;
	st.sent -= joining.sent;
	if (node_newest(w) == first)
		sim_fail(s, "no epoch in %d s", seconds);
	printf("{\"bench\": \"node_sim\", \"peers\": %d, \"members\": %d, ", peers, members);
	print("join", peers, joined - begun, (double)(at - 1000000) / 1e6, &joining, kinds[0]);
	printf(", ");
	print("run", peers, now_s() - joined, seconds, &st, kinds[1]);
	printf(", \"epochs\": %llu, \"commits_checked\": %llu, \"states_compared\": %llu, \"records_checked\": %llu}\n",
		(unsigned long long)(node_newest(w) - first), (unsigned long long)(chain_commits(w->chain) - commits),
		(unsigned long long)(chain_states(w->chain) - states), (unsigned long long)table_check_records(w->table));
	int bad = sim_trouble(s) != NULL;
	if (bad)
		fprintf(stderr, "%s\n", sim_trouble(s));
	node_world_free(w);
	sim_free(s);
	return bad;
}

int main(int argc, char **argv)
{
	static const char usage[] = "bench_node_sim [PEERS [MEMBERS [SECONDS]]]";
	bench_words(argc, argv, 0, 3, usage);
	int peers = bench_number(argc, argv, 1, 64, 1, NODES_MAX, usage);
	int members = bench_number(argc, argv, 2, peers < 64 ? peers : 64, 1, peers, usage);
	json_object_seed(1);
	return run(peers, members, bench_number(argc, argv, 3, 60, 1, 100000, usage));
}
