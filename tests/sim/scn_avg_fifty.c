/* Fifty peers: churn, a partition that heals, a dead reducer, a dead leader, late joiners. No mathematics: the vectors
 * are small, so that what is seen is the protocol. (Fifty that come in at once: scn_avg_join.c.) */
#include <string.h>
#include "avg_world.h"
#include "check.h"

#define PEERS 50

static struct world *fifty(struct sim *s, uint64_t epochs, uint64_t step_us)
{
	struct world *w = world_new(s, 64, PEERS * 16, 8, step_us);
	w->conf.part_min = 16;
	w->start_us = 2 * SEC;
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, epochs, 20 * SEC);
	return w;
}

static void finish(struct world *w, uint64_t more)
{
	world_go_on(w, more);
	world_free(w);
}

/* They die without a word and come back, one after the other, and new ones arrive. */
static void scn_churn(struct sim *s)
{
	struct world *w = fifty(s, 1, 40 * MSEC);
	w->keep_state = w->forks_allowed = true;
	for (int k = 0; k < 12 && !sim_failed(s); k++) {
		sim_run_for(s, rng_below(sim_rng(s), 20 * MSEC));
		int i = (int)rng_below(sim_rng(s), (uint64_t)sim_nodes(s));
		if (!sim_alive(s, i))
			sim_restart(s, i);
		else if (k % 6 == 5)
			world_add(w, 1);
		else
			sim_kill(s, i);
	}
	finish(w, 2);
}

/* Ten are cut off and go on by themselves; after the cut has healed one history is left and everybody is on it. */
static void scn_partition_heal(struct sim *s)
{
	struct world *w = fifty(s, 1, 300 * MSEC);
	int side[PEERS];
	w->forks_allowed = true;
	for (int i = 0; i < PEERS; i++)
		side[i] = i >= PEERS - 10;
	sim_partition(s, side, PEERS);
	sim_run_for(s, 3 * SEC);
	uint64_t big = world_peer(w, 0)->point.samples;
	sim_heal(s);
	w->max_epoch = world_newest(w) + 3;          /* the rest is about finding each other */
	world_settle(w, 60 * SEC);
	world_run_to(w, world_newest(w), 20 * SEC);
	world_same(w);
	sim_check(s, world_peer(w, PEERS - 1)->point.samples >= big);
	world_free(w);
}

/* Whoever owns a part dies when it has its first result to send. */
static void scn_dead_reducer(struct sim *s)
{
	struct world *w = fifty(s, 1, 40 * MSEC);
	sim_failpoint(s, -1, "avg.result.before", SIM_KILL, 1 + (int)rng_below(sim_rng(s), 40));
	finish(w, 2);
}

static void scn_dead_leader(struct sim *s)
{
	static const char *const points[] = { "avg.begin.before", "avg.begin.after", "avg.attempt.after",
		"avg.commit.before",
		"avg.commit.after" };
	struct world *w = fifty(s, 1, 40 * MSEC);
	sim_failpoint(s, -1, points[sim_seed(s) % 5], SIM_KILL, 1 + (int)rng_below(sim_rng(s), 40));
	finish(w, 2);
}

static bool counts(struct sim *s, void *arg)
{
	const struct apeer *p = arg;
	return !p->syncing && p->my_total > 0;
}

/* Six come while the others train: each follows, fetches the state, counts. */
static void scn_late_joiner(struct sim *s)
{
	struct world *w = fifty(s, 1, 40 * MSEC);
	world_add(w, 6);
	sim_run_for(s, 700 * MSEC);
	world_run_to(w, world_newest(w) + 1, 10 * SEC);
	for (int i = 0; i < 6; i++)
		sim_await(s, counts, world_peer(w, PEERS + i), 0);
	world_same(w);
	world_free(w);
}

static const struct scn list[] = { SCN(churn), SCN(partition_heal), SCN(dead_reducer), SCN_CELLS(dead_leader, 5),
	SCN(late_joiner), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
