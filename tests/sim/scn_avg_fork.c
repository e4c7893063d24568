/* Two histories of one run that meet become one, however they came to be two: by what weighs more at the point where
 * they parted, and both sides must say the same (daemon/avg/shown.c). */
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"

#define MOST 6

/* So many are here, who came one after the other, and in the end have been here for some epochs. */
static struct world *grown(struct sim *s, int n, uint64_t samples)
{
	struct world *w = world_new(s, 64, (uint64_t)n * samples, 8, 10 * MSEC);
	w->forks_allowed = true;
	for (int i = 0; i < n; i++) {
		world_add(w, 1);
		world_run_to(w, world_newest(w) + 1 + rng_below(sim_rng(s), 12), 20 * SEC);
	}
	world_settle(w, 20 * SEC);
	return w;
}

static void become_one(struct world *w)
{
	world_one(w, 20 * SEC);
	world_run_to(w, world_newest(w) + 3, 60 * SEC);
	world_one(w, 20 * SEC);         /* who was alone for a while may have gone on alone for another moment */
	world_same(w);
	world_free(w);
}

/* Some part from the others one by one, epochs apart, and find each other on the other side; some of either side are
 * faster for a while. */
static void scn_one_by_one(struct sim *s)
{
	int n = 3 + (int)rng_below(sim_rng(s), MOST - 2), stay = 1 + (int)rng_below(sim_rng(s), (uint64_t)n - 1);
	struct world *w = grown(s, n, sim_seed(s) % 2 ? 20 : 200);
	int side[MOST] = { 0 };
	for (int i = stay; i < n; i++) {
		side[i] = 1;
		sim_heal(s);
		sim_partition(s, side, n);
		sim_run_for(s, rng_below(sim_rng(s), rng_below(sim_rng(s), 2) ? 300 * MSEC : 3 * SEC));
	}
	for (int i = 0; i < n; i++)
		w->step_us[i] = (5 + rng_below(sim_rng(s), 30)) * MSEC;
	sim_run_for(s, SEC + rng_below(sim_rng(s), 20 * SEC));
	sim_heal(s);
	become_one(w);
}

/* One who has been here for longest stays; of the two others one is gone a little earlier, and waits for the other. */
static void scn_missed(struct sim *s)
{
	struct world *w = grown(s, 3, 200);
	int side[3] = { 0, 1, 0 };
	world_go_on(w, 4);
	sim_partition(s, side, 3);
	w->step_us[1] = SEC;
	sim_run_for(s, 2 * SEC + rng_below(sim_rng(s), 8 * SEC));
	side[2] = 1;
	sim_heal(s);
	sim_partition(s, side, 3);
	w->step_us[1] = 10 * MSEC;
	sim_run_for(s, (5 + rng_below(sim_rng(s), 5)) * SEC);
	sim_heal(s);
	become_one(w);
}

/* Of the two that are fewer, and have done more, who goes over first is given its state by the other, which has not. */
static struct apeer *not_over(struct world *w, int node)
{
	struct apeer *o = node == 3 ? world_peer(w, 4) : node == 4 ? world_peer(w, 3) : NULL;
	return o && !o->syncing && !o->resyncs[AVG_FORK] ? o : NULL;
}

static void scn_given_back(struct sim *s)
{
	struct world *w = grown(s, 5, 20);
	int side[5] = { 0, 0, 0, 1, 1 };
	world_go_on(w, 4);
	sim_partition(s, side, 5);
	for (int i = 0; i < 5; i++)
		world_peer(w, i)->step_us = (side[i] ? 5 : 40) * MSEC;
	sim_run_for(s, (6 + rng_below(sim_rng(s), 6)) * SEC);
	for (int i = 0; i < 5; i++)             /* it takes long until the others have done as much */
		world_peer(w, i)->step_us = 80 * MSEC;
	w->donor = not_over;
	sim_heal(s);
	become_one(w);
}

static const struct scn list[] = { SCN(one_by_one), SCN(missed), SCN(given_back), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
