/* A peer of a swarm finds no memory for the n-th big thing (a part, a mean) while epochs go by, n looped upward until
 * nothing is struck any more. The others commit without it or with it; it says what was missing, catches up, and all
 * agree in the end. check.h watches every commit. */
#include <stdio.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"

#define N_MAX 200
#define PEERS 3
#define EPOCHS 3

/* False: nobody was struck. */
static bool starved(struct sim *s, int node, int n, bool *ret_missed)
{
	struct world *w = world_new(s, 4096, 128, 16, 10 * MSEC);
	w->start_us = 3 * SEC;
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	sim_memory_fail(s, node, n);            /* buffers go from round to round: only the first ones ask for them */
	world_run_to(w, EPOCHS, 20 * SEC);
	bool struck = sim_struck(s, node);
	sim_memory_fail(s, node, 0);
	for (int i = 0; i < PEERS && !sim_failed(s); i++) {
		struct apeer *p = world_peer(w, i);
		*ret_missed |= p->fails || p->resyncs[AVG_MISSED];
		if (!struck)
			sim_in_time(s, !p->fails);
	}
	world_run_to(w, 2 + EPOCHS, 20 * SEC);
	world_same(w);
	world_free(w);
	return struck;
}

static void scn_memory(struct sim *s)
{
	int node = (int)(sim_seed(s) % PEERS), n = 0;
	bool struck = true, missed = false;
	while (struck && n++ < N_MAX && !sim_failed(s)) {
		struct sim *own = sim_new(sim_seed(s) * 1000 + (uint64_t)n);
		struck = starved(own, node, n, &missed);
		sim_told_of(s, own, "node %d, allocation %d", node, n);
		uint64_t hash = sim_hash(own);
		sim_trace(s, &hash, sizeof hash);
		sim_free(own);
	}
	sim_in_time(s, n > 2 && n < N_MAX);
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(memory), { 0 } };
	return scn_main(list, argc, argv);
}
