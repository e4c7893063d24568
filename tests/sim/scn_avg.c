/* The averager in the simulator: joining, lockstep counts, and peers that come. */
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

/* Alone: an epoch is a round of one, at once, with its own bits. */
static void scn_alone(struct sim *s)
{
	struct world *w = world_new(s, 300, 256, 64, 10 * MSEC);
	world_add(w, 1);
	world_run_to(w, 20, 10 * SEC);
	sim_check(s, sim_now(s) < SEC + 20 * 4 * 10 * MSEC + 200 * MSEC);
	for (uint64_t e = 1; e <= 20; e++)
		sim_check(s, check_weight(w->check, e) == 256);
	world_free(w);
}

/* The thesis' example: two peers, batch 64, target 256: 64 + 64 = 128, then 256, epoch 0 to 1. */
static void scn_thesis(struct sim *s)
{
	struct world *w = world_new(s, 300, 256, 64, 20 * MSEC);
	w->start_us = 3 * SEC;
	world_add(w, 2);
	settle(w);
	sim_run_for(s, w->start_us - sim_now(s) + 30 * MSEC);
	sim_check(s, world_all_at(w, 0) && world_peer(w, 0)->point.epoch == 0 && world_peer(w, 0)->samples == 64 && world_peer(w, 1)->samples == 64);
	world_run_to(w, 1, 15 * MSEC);
	sim_check(s, check_weight(w->check, 1) == 256);
	world_run_to(w, 50, 10 * SEC);
	for (uint64_t e = 1; e <= 50; e++)
		sim_check(s, check_weight(w->check, e) == 256);
	world_same(w);
	world_free(w);
}

static const struct scn list[] = { SCN(alone), SCN(thesis), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
