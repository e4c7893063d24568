/* For the night (tests/soak/sim): fifty peers for fifty epochs, five hundred for two hundred, one after the other
 * killed and brought back all the while. check.h watches every commit. */
#include <stdio.h>
#include "avg_world.h"
#include "check.h"

/* Looked at now and then: everybody's view of everybody. */
static void settle(struct world *w, uint64_t limit_us)
{
	uint64_t end = sim_now(w->s) + limit_us;
	while (!world_settled(w) && sim_now(w->s) < end + SIM_NEVER_US && !sim_failed(w->s))
		sim_run_for(w->s, 100 * MSEC);
	if (!world_settled(w))
		sim_fail(w->s, "the peers did not find each other");
	else if (sim_now(w->s) > end)
		sim_late(w->s, "the peers found each other %llu ms late", (unsigned long long)((sim_now(w->s) - end) / MSEC));
}

/* One of `gone_most` at most is away at a time; who comes back has the model that it had, or none. */
static void strike(struct world *w, int peers, int gone_most)
{
	struct sim *s = w->s;
	int i = (int)rng_below(sim_rng(s), (uint64_t)peers), gone = 0;
	for (int k = 0; k < peers; k++)
		gone += !sim_alive(s, k);
	if (!sim_alive(s, i))
		sim_restart(s, i);
	else if (gone < gone_most)
		sim_kill(s, i);
	w->keep_state = rng_below(sim_rng(s), 4) > 0;
}

static void churn(struct sim *s, int peers, uint64_t epochs, uint64_t every_us)
{
	struct world *w = world_new(s, 64, (uint64_t)peers * 16, 8, 40 * MSEC);
	uint64_t at = 0, moved_us;
	sim_costs(s)->events_max = 0;           /* days */
	w->conf.part_min = 16;
	w->conf.group_size = 24;                /* five hundred in rows, as few messages as can be */
	w->start_us = (uint64_t)(2 + peers / 50) * SEC;
	w->forks_allowed = true;                /* who comes back may be alone for a moment */
	world_add(w, peers);
	settle(w, 60 * SEC);
	moved_us = sim_now(s);
	while (at < epochs && !sim_failed(s)) {
		sim_run_for(s, 1 + rng_below(sim_rng(s), 2 * every_us));
		strike(w, peers, peers / 5);
		if (world_newest(w) > at) {
			at = world_newest(w);
			moved_us = sim_now(s);
		} else if (sim_now(s) - moved_us > 20 * SEC + SIM_NEVER_US) {
			sim_fail(s, "no epoch after %llu for 80 s", (unsigned long long)at);
		} else if (sim_now(s) - moved_us > 20 * SEC) {
			sim_late(s, "the epoch after %llu takes more than 20 s", (unsigned long long)at);
		}
	}
	for (int i = 0; i < peers; i++)
		if (!sim_alive(s, i))
			sim_restart(s, i);
	world_go_on(w, 2);
	world_free(w);
}

static void scn_fifty(struct sim *s) { churn(s, 50, 50, 60 * MSEC); }
static void scn_five_hundred(struct sim *s) { churn(s, 500, 200, 20 * MSEC); }

static const struct scn list[] = { SCN(fifty), SCN(five_hundred), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
