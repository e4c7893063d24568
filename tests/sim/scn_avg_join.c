/* The averager in the simulator: fifty peers at once, one that does not fit, one that comes back. */
#include <string.h>
#include "avg_world.h"
#include "check.h"

static bool settled(struct sim *s, void *arg)
{
	return world_settled(arg);
}

static void settle(struct world *w)
{
	if (!sim_run_until(w->s, settled, w, 20 * SEC))
		sim_fail(w->s, "the peers did not find each other");
}

/* Fifty peers come in at the same moment and become one group. */
static void scn_join(struct sim *s)
{
	struct world *w = world_new(s, 320, 50 * 64, 16, 40 * MSEC);
	w->conf.part_min = 160;
	w->start_us = 2 * SEC;
	world_add(w, 50);
	settle(w);
	sim_check(s, sim_now(s) < 2 * SEC);
	world_run_to(w, 2, 20 * SEC);
	for (uint64_t e = 1; e <= 2; e++)
		sim_check(s, check_weight(w->check, e) >= w->conf.target_batch && check_weight(w->check,
		e) < w->conf.target_batch * 5 / 4);
	world_same(w);
	world_free(w);
}

/* Who would make epochs of another size is not taken in, and does not go on alone beside the run either; the others do
 * not notice. When it comes again as one of them it is. */
static void scn_door(struct sim *s)
{
	struct world *w = world_new(s, 400, 64, 8, 20 * MSEC);
	world_add(w, 3);
	world_run_to(w, 3, 20 * SEC);
	w->conf.target_batch = 65;
	world_add(w, 1);
	w->conf.target_batch = 64;
	sim_run_for(s, 5 * SEC);
	struct apeer *p = world_peer(w, 3);
	if (p->commits || p->point.epoch)
		sim_fail(s, "it has committed %llu epochs", (unsigned long long)p->commits);
	sim_restart(s, 3);
	for (int i = 0; i < 2; i++)             /* takes part, then brings something */
		world_run_to(w, world_peer(w, 0)->point.epoch + 10, 20 * SEC);
	sim_check(s, world_peer(w, 3)->my_total > 0);
	world_free(w);
}

/* One of four dies and is there again at once, however soon in the round the others meet its new life: it brings
 * samples within a second, and no round goes on without it more than twice. */
static void scn_back(struct sim *s)
{
	struct world *w = world_new(s, 400, 64, 8, 20 * MSEC);
	struct avg_view before, after;
	world_add(w, 4);
	world_run_to(w, 8 + sim_seed(s) % 5, 20 * SEC);      /* deadlines rest on what was measured */
	sim_run_for(s, rng_below(sim_rng(s), 50 * MSEC));
	sim_kill(s, 3);
	sim_run_for(s, rng_below(sim_rng(s), 200 * MSEC));
	sim_restart(s, 3);
	avg_view(world_peer(w, 0)->avg, &before);
	sim_run_for(s, SEC);
	avg_view(world_peer(w, 0)->avg, &after);
	sim_check(s, world_peer(w, 3)->my_total > 0);
	if (after.rounds_without > before.rounds_without + 2)
		sim_fail(s, "%llu rounds of a second went on without it", (unsigned long long)(after.rounds_without -
			before.rounds_without));
	world_free(w);
}

static const struct scn list[] = { SCN(join), SCN(door), SCN(back), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
