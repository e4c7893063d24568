/* The averager's swarm with members far away: deadlines know how far. */
#include "avg_world.h"
#include "check.h"

/* Four have averaged among themselves for a while when two come in from 300 ms away: what they bring counts as much
 * as a near one's, although every round so far was over in less time than a word needs to reach them. */
static void scn_far(struct sim *s)
{
	struct world *w = world_new(s, 64, 6 * 32, 8, 400 * MSEC);
	struct sim_link far = { .latency_us = 150 * MSEC, .jitter_us = 5 * MSEC };
	w->forks_allowed = true;                /* the far ones may believe for a moment that they are alone */
	world_add(w, 4);
	world_run_to(w, 8, 60 * SEC);
	for (int i = 0; i < 4; i++)
		for (int k = 4; k < 6; k++) {
			sim_link(s, i, k, &far);
			sim_link(s, k, i, &far);
		}
	world_add(w, 2);
	sim_run_for(s, 30 * SEC);
	uint64_t had[6], near = 0;
	for (int i = 0; i < 6; i++)
		had[i] = world_peer(w, i)->my_total;
	sim_run_for(s, 60 * SEC);
	for (int i = 0; i < 6; i++) {
		uint64_t more = world_peer(w, i)->my_total - had[i];
		if (i < 4)
			near = more > near ? more : near;
		else if (more * 10 < near * 9)
			sim_fail(s, "node %d: %llu of its samples count, and %llu of a near one's", i, (unsigned long long)more,
				(unsigned long long)near);
	}
	sim_check(s, near > 0);
	world_free(w);
}

static const struct scn list[] = { SCN(far), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
