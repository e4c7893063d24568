/* No bad time to die: senders, reducers and leaders killed, stopped or cut off at every step of a round; the survivors
 * finish, agree, and no sample counts twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"

static struct world *settled_world(struct sim *s, int n, uint64_t step_us)
{
	struct world *w = world_new(s, 320, (uint64_t)n * 32, 16, step_us);
	w->start_us = 3 * SEC;
	world_add(w, n);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 20 * SEC);
	return w;
}

/* Every point that a round passes, struck at its first, second, ... passing, at whoever comes there. */
static const char *const points[] = { "avg.progress.before", "avg.progress.after", "avg.begin.before",
	"avg.begin.after", "avg.ready.before",
	"avg.ready.after", "avg.data.before", "avg.data.after", "avg.attempt.before", "avg.attempt.after",
	"avg.result.before", "avg.result.after",
	"avg.ack.before", "avg.ack.after", "avg.commit.before", "avg.commit.after" };
#define POINTS (sizeof points / sizeof *points)

static void struck_at(struct sim *s, const char *point, enum sim_fate fate, int nth)
{
	struct world *w = settled_world(s, 5, 10 * MSEC);
	w->forks_allowed = fate == SIM_PAUSE;
	sim_failpoint(s, -1, point, fate, nth);
	if (fate == SIM_PAUSE) {                /* everybody else goes on without it, then it comes back */
		uint64_t at = world_peer(w, 0)->point.epoch;
		sim_run_for(s, 4 * SEC);
		for (int i = 0; i < sim_nodes(s); i++)
			sim_resume(s, i);
		sim_run_for(s, 2 * SEC);
		if (world_peer(w, 0)->point.epoch <= at + 10)
			world_print(w);
		sim_in_time(s, world_peer(w, 0)->point.epoch > at + 10);
	}
	world_go_on(w, 6);
	if (!sim_failpoint_hit(s, point))
		sim_late(s, "%s was never passed", point);
	world_free(w);
}

static void scn_killed(struct sim *s)
{
	struck_at(s, points[sim_seed(s) % POINTS], SIM_KILL, 1 + (int)rng_below(sim_rng(s), 12));
}

/* SIGSTOP for longer than any deadline, then SIGCONT: the others have gone on; it adopts their history. */
static void scn_stopped(struct sim *s)
{
	struck_at(s, points[sim_seed(s) % POINTS], SIM_PAUSE, 1 + (int)rng_below(sim_rng(s), 12));
}

/* Two peers of seven die within one round. */
static void scn_two_killed(struct sim *s)
{
	struct world *w = settled_world(s, 7, 10 * MSEC);
	sim_failpoint(s, -1, points[rng_below(sim_rng(s), POINTS)], SIM_KILL, 1 + (int)rng_below(sim_rng(s), 20));
	sim_failpoint(s, -1, points[rng_below(sim_rng(s), POINTS)], SIM_KILL, 1 + (int)rng_below(sim_rng(s), 20));
	world_go_on(w, 6);
	world_free(w);
}

/* Who leads the epoch dies between rounds; the next in order takes over, and the epoch's samples are not lost. */
static void scn_dead_leader_between(struct sim *s)
{
	struct world *w = settled_world(s, 5, 10 * MSEC);
	for (int k = 0; k < 3; k++) {
		int leader = world_leader(w);
		if (leader < 0)
			break;
		if (getenv("VERBOSE"))
			fprintf(stderr, "%8llu node %d: killed\n", (unsigned long long)sim_now(s), leader);
		sim_kill(s, leader);
		uint64_t from = sim_now(s), at = 0;
		for (int i = 0; i < sim_nodes(s); i++)
			if (sim_alive(s, i) && world_peer(w, i)->point.epoch > at)
				at = world_peer(w, i)->point.epoch;
		world_run_to(w, at + 2, 60 * SEC);
		if (k == 0)
			sim_in_time(s, sim_now(s) - from < 2 * SEC);
	}
	world_same(w);
	world_free(w);
}

/* Power loss: the links say nothing, only deadlines do. */
static void scn_power(struct sim *s)
{
	struct world *w = settled_world(s, 5, 10 * MSEC);
	sim_run_for(s, rng_below(sim_rng(s), 60 * MSEC));
	sim_power_off(s, (int)rng_below(sim_rng(s), 5));
	world_go_on(w, 6);
	world_free(w);
}

/* Connections that break all the time lose messages, not rounds. */
static void scn_breaking(struct sim *s)
{
	struct world *w = settled_world(s, 5, 10 * MSEC);
	w->forks_allowed = true;                /* a peer may seem dead to some for a moment */
	struct sim_link l = { .latency_us = 2 * MSEC, .jitter_us = MSEC, .break_every = 200 };
	sim_link(s, -1, -1, &l);
	world_go_on(w, 30);
	world_free(w);
}

static const struct scn list[] = { SCN_CELLS(killed, POINTS), SCN_CELLS(stopped, POINTS), SCN(two_killed),
	SCN(dead_leader_between), SCN(power),
	SCN(breaking), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
