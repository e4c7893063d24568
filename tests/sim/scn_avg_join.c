/* The averager in the simulator: fifty peers at once. */
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

static const struct scn list[] = { SCN(join), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
