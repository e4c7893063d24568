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
			sim_late(s, "node %d: %llu of its samples count, and %llu of a near one's", i, (unsigned long long)more,
				(unsigned long long)near);
	}
	sim_check(s, near > 0);
	for (int i = 4; i < 6; i++)
		world_brings(w, i, had[i]);
	world_free(w);
}

/* Links so thin that a vector takes twice as long as a first round waits: after a few rounds that were too short they
 * are long enough, and nobody is left out. */
static void scn_thin(struct sim *s)
{
	struct world *w = world_new(s, 250000, 3 * 32, 8, 200 * MSEC);
	struct sim_link thin = { .latency_us = 50 * MSEC, .jitter_us = 2 * MSEC, .bytes_per_s = 85000 };
	struct avg_view v;
	sim_costs(s)->call_queue_us = 25 * MSEC;
	sim_costs(s)->bulk_buf = 64 * 1024;     /* what nano_pace.c lets into so thin a link */
	w->forks_allowed = true;                /* rounds of one side while the others are late */
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 3; k++)
			if (i != k)
				sim_link(s, i, k, &thin);
	world_add(w, 3);
	world_run_to(w, 5, 600 * SEC);
	uint64_t had[3], without[3];
	for (int i = 0; i < 3; i++) {
		avg_view(world_peer(w, i)->avg, &v);
		had[i] = world_peer(w, i)->my_total;
		without[i] = v.rounds_without;
	}
	world_run_to(w, world_newest(w) + 4, 600 * SEC);
	for (int i = 0; i < 3; i++) {
		avg_view(world_peer(w, i)->avg, &v);
		if (v.rounds_without != without[i] || world_peer(w, i)->my_total == had[i])
			sim_late(s, "node %d: %llu rounds without somebody, %llu of its samples count", i,
				(unsigned long long)(v.rounds_without - without[i]),
				(unsigned long long)(world_peer(w, i)->my_total - had[i]));
	}
	world_free(w);
}

static bool averages(struct sim *s, void *arg) { return ((struct apeer *)arg)->in_round; }

/* One gets the leader's results too late and says so when the others have everything: what it has brought is in every
 * mean, so it is in what is committed, or in neither (check.c). */
static void scn_late_result(struct sim *s)
{
	struct world *w = world_new(s, 250000, 3 * 32, 8, 200 * MSEC);
	struct sim_link thin = { .latency_us = MSEC, .bytes_per_s = 30000 }, wide = { .latency_us = MSEC };
	sim_costs(s)->call_queue_us = 25 * MSEC;
	sim_costs(s)->bulk_buf = 64 * 1024;
	w->forks_allowed = true;
	world_add(w, 3);
	world_run_to(w, 2, 20 * SEC);
	int leader = world_leader(w), late = (leader + 1) % 3;
	w->slow_contribute_us[(leader + 2) % 3] = 2 * SEC;
	sim_await(s, averages, world_peer(w, late), 20 * SEC);
	sim_run_for(s, SEC);                    /* its pieces are where they belong; the sum waits for the third */
	sim_link(s, leader, late, &thin);
	sim_run_for(s, 12 * SEC);
	sim_link(s, leader, late, &wide);
	world_run_to(w, world_newest(w) + 2, 120 * SEC);
	world_free(w);
}

static const struct scn list[] = { SCN(far), SCN(late_result), SCN(thin), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
