/* The averager in the simulator: joining, lockstep counts, peers that come, and who comes in again. */
#include <string.h>
#include "avg_world.h"
#include "check.h"

static void settle(struct world *w)
{
	world_settle(w, 20 * SEC);
}

/* Alone: an epoch is a round of one, at once, with its own bits. */
static void scn_alone(struct sim *s)
{
	struct world *w = world_new(s, 300, 256, 64, 10 * MSEC);
	world_add(w, 1);
	world_run_to(w, 20, 10 * SEC);
	sim_in_time(s, sim_now(s) < SEC + 20 * 4 * 10 * MSEC + 200 * MSEC);
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
	sim_in_time(s, world_all_at(w, 0) && world_peer(w, 0)->point.epoch == 0 && world_peer(w, 0)->samples == 64 &&
		world_peer(w, 1)->samples == 64);
	world_run_to(w, 1, 15 * MSEC);
	sim_in_time(s, check_weight(w->check, 1) == 256);
	world_run_to(w, 50, 10 * SEC);
	for (uint64_t e = 1; e <= 50; e++)
		sim_in_time(s, check_weight(w->check, e) == 256);
	world_same(w);
	world_free(w);
}

static bool counts(struct sim *s, void *arg)
{
	const struct apeer *p = arg;
	return !p->syncing && p->my_total > 0;
}

/* Peers come while the others train: each follows, fetches the state, and is a full member soon; nobody waits for it.
 * */
static void scn_late_joiner(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	w->start_us = 2 * SEC;
	world_add(w, 3);
	settle(w);
	world_run_to(w, 20, 20 * SEC);
	for (int k = 0; k < 2; k++) {
		world_add(w, 1);
		uint64_t at = world_peer(w, 0)->point.epoch;
		world_run_to(w, at + 1, 5 * SEC);
		sim_run_for(s, 500 * MSEC);
		sim_await(s, counts, world_peer(w, 3 + k), 0);
		world_same(w);
	}
	for (int i = 0; i < 3; i++)
		sim_in_time(s, world_peer(w, i)->fails == 0 && !world_peer(w, i)->resyncs[AVG_MISSED]);
	world_free(w);
}

struct row { int peers; uint32_t batch; uint64_t target, rounds, samples, epochs; };
/* All 24 rows of the thesis's table: peers of equal speed, an epoch every `rounds` steps with `samples` samples, and
 * how many of them a run of the table has. */
static const struct row rows[] = {
	{ 2, 32, 10000, 157, 10048, 31 }, { 2, 32, 5000, 79, 5056, 63 }, { 2, 32, 2500, 40, 2560, 125 },
	{ 2, 32, 1250, 20, 1280, 250 }, { 2, 32, 625, 10, 640, 500 }, { 4, 32, 1250, 10, 1280, 250 },
	{ 8, 32, 1250, 5, 1280, 250 }, { 16, 32, 1250, 3, 1536, 208 },
	{ 2, 64, 10000, 79, 10112, 31 }, { 2, 64, 5000, 40, 5120, 62 }, { 2, 64, 2500, 20, 2560, 125 },
	{ 2, 64, 1250, 10, 1280, 250 }, { 2, 64, 625, 5, 640, 500 }, { 4, 64, 1250, 5, 1280, 500 },
	{ 8, 64, 1250, 3, 1536, 416 }, { 16, 64, 1250, 2, 2048, 312 },
	{ 2, 128, 10000, 40, 10240, 31 }, { 2, 128, 5000, 20, 5120, 62 }, { 2, 128, 2500, 10, 2560, 125 },
	{ 2, 128, 1250, 5, 1280, 250 }, { 2, 128, 625, 3, 768, 416 }, { 4, 128, 1250, 3, 1536, 833 },
	{ 8, 128, 1250, 2, 2048, 625 }, { 16, 128, 1250, 1, 2048, 625 },
};
#define ROWS (sizeof rows / sizeof *rows)
#define ROW_EPOCHS 3

static void lockstep(struct sim *s, const struct row *r, uint64_t epochs)
{
	struct world *w = world_new(s, 64, r->target, r->batch, 50 * MSEC);
	w->start_us = 3 * SEC;
	w->max_epoch = epochs;
	world_add(w, r->peers);
	settle(w);
	world_run_to(w, epochs, 1000 * SEC);
	for (uint64_t e = 1; e <= epochs; e++)
		if (check_weight(w->check, e) != r->samples)
			sim_late(s, "%d x %u, target %llu: epoch %llu has %llu samples, not %llu", r->peers, r->batch,
				(unsigned long long)r->target, (unsigned long long)e, (unsigned long long)check_weight(w->check, e),
				(unsigned long long)r->samples);
	uint64_t least = epochs * r->rounds * 50 * MSEC, took = sim_now(s) - w->start_us;
	if (took < least || took > least + epochs * 20 * MSEC)
		sim_late(s, "%llu us for %llu epochs of %llu steps", (unsigned long long)took, (unsigned long long)epochs,
			(unsigned long long)r->rounds);
	world_free(w);
}

static void one_row(struct sim *s, const struct row *r, uint64_t seed, uint64_t epochs)
{
	struct sim *own = sim_new(seed);
	lockstep(own, r, epochs);
	uint64_t hash = sim_hash(own);
	sim_trace(s, &hash, sizeof hash);
	sim_told(s, own);
	sim_free(own);
}

static void scn_lockstep(struct sim *s)
{
	for (size_t i = sim_seed(s) % 10; i < ROWS; i += 10)    /* ten seeds go through all rows */
		one_row(s, &rows[i], sim_seed(s) * 100 + i, ROW_EPOCHS);
}

/* Row C03: as many epochs as a run of the table has. Twelve seeds go through all rows. */
static void scn_whole(struct sim *s)
{
	for (size_t i = sim_seed(s) % 12; i < ROWS; i += 12)
		one_row(s, &rows[i], sim_seed(s) * 100 + i, rows[i].epochs);
}

static bool somebody_leads(struct sim *s, void *arg) { return world_leader(arg) >= 0; }

/* The leader gives up its place and comes in again, as a member of a pipeline does that holds nothing of the state any
 * more: it says so, and nobody waits for it or its lead. */
static void scn_enters(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	world_add(w, 5);
	world_run_to(w, 5, 20 * SEC);
	for (int k = 0; k < 6 && !sim_failed(s); k++) {
		struct avg_view v;
		sim_run_for(s, rng_below(sim_rng(s), 40 * MSEC));
		sim_await(s, somebody_leads, w, 0);
		int leads = world_leader(w);
		if (sim_failed(s))
			break;
		const struct id *was = net_self(world_peer(w, leads)->net);
		world_resync(world_peer(w, leads), AVG_BEHIND, was, 0);
		sim_run_for(s, 3 * MSEC);
		for (int i = 0; i < 5; i++) {
			avg_view(world_peer(w, i)->avg, &v);
			if (i != leads && id_eq(&v.leader, was))
				sim_late(s, "node %d follows node %d, which has gone to come in again", i, leads);
		}
		world_go_on(w, 3);
	}
	world_free(w);
}

static uint32_t last_members(struct world *w, int node)
{
	struct avg_view v;
	avg_view(world_peer(w, node)->avg, &v);
	return v.last_members;
}

static void comes_back(void *arg)
{
	struct apeer *p = arg;
	world_resync(p, AVG_BEHIND, net_self(p->net), 0);
}

/* One that does not lead leaves and comes in again, time and again at one point: it counts among the last commit's
 * members again, or it makes the majority that a round needs as small as it likes. */
static void scn_again(struct sim *s)
{
	struct world *w = world_new(s, 320, 6400, 16, 10 * MSEC);
	world_add(w, 5);
	world_run_to(w, 2, 60 * SEC);
	sim_await(s, somebody_leads, w, 0);
	int leads = world_leader(w);
	sim_in_time(s, leads >= 0 && last_members(w, leads) == 5);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		uint64_t at = world_peer(w, leads)->point.epoch;
		struct apeer *p = world_peer(w, (leads + 1) % 5);
		avg_leave(p->avg, comes_back, p);
		sim_run_for(s, 100 * MSEC);
		if (world_peer(w, leads)->point.epoch == at && last_members(w, leads) != 5) {
			sim_late(s, "node %d counts %u of the last commit's members, and all five are here", leads,
				last_members(w, leads));
			break;                  /* it may be on its way still: it cannot leave again */
		}
		sim_in_time(s, world_peer(w, leads)->point.epoch == at);
	}
	world_go_on(w, 1);
	world_free(w);
}

static const struct scn list[] = { SCN(alone), SCN(thesis), SCN(late_joiner), SCN_CELLS(lockstep, 10),
	SCN_CELLS(whole, 12), SCN(enters),
	SCN(again), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
