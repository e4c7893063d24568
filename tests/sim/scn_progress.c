/* Hivemind's statements on roles, weights and progress (hivemind's tests of averaging and of its progress tracker): who
 * counts, how much, for how long, and what an epoch takes when peers come and go. check.h compares every mean with that
 * of the positions in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"

static void settle(struct world *w)
{
	world_settle(w, 20 * SEC);
}

/* ---- test_averaging: four peers, some of them clients, some helpers without samples ---- */

struct mix { int clients, aux; };
static const struct mix mixes[] = { { 0, 0 }, { 0, 1 }, { 0, 2 }, { 1, 0 }, { 1, 1 }, { 1, 2 }, { 2, 0 }, { 2, 1 },
	{ 2, 2 }, { 0, 3 }, { 1, 3 }, { 0, 4 } };
#define MIXES (sizeof mixes / sizeof *mixes)

static void mixed(struct sim *s, const struct mix *m)
{
	struct world *w = world_new(s, 123 + 3, 128, 16, 10 * MSEC);
	for (int i = 0; i < m->aux; i++)
		w->aux[i] = true;
	for (int i = 0; i < m->clients; i++)
		w->client[3 - i] = true;
	w->start_us = 2 * SEC;
	world_add(w, 4);
	settle(w);
	if (m->aux == 4) {                      /* nobody computes: nothing happens, and nothing breaks */
		sim_run_for(s, 5 * SEC);
		sim_check(s, world_newest(w) == 0);
		for (int i = 0; i < 4; i++)
			sim_check(s, world_peer(w, i)->fails == 0);
		world_free(w);
		return;
	}
	world_run_to(w, 12, 20 * SEC);
	world_same(w);
	for (int i = 0; i < 4; i++) {
		struct avg_view v;
		avg_view(world_peer(w, i)->avg, &v);
		if (w->aux[i] && world_peer(w, i)->my_total)
			sim_fail(s, "%d clients, %d helpers: peer %d, a helper, brought %llu samples", m->clients, m->aux, i,
				(unsigned long long)world_peer(w, i)->my_total);
		if (!w->aux[i] && !world_peer(w, i)->my_total)
			sim_late(s, "%d clients, %d helpers: peer %d brought no samples", m->clients, m->aux, i);
		sim_in_time(s, v.rounds_done == 12 && !world_peer(w, i)->fails);
	}
	world_free(w);
}

static void scn_roles(struct sim *s)
{
	for (size_t i = sim_seed(s) % 10; i < MIXES; i += 10) { /* ten seeds go through all of them */
		struct sim *own = sim_new(sim_seed(s) * 100 + i);
		mixed(own, &mixes[i]);
		sim_told_of(s, own, "%d clients, %d helpers", mixes[i].clients, mixes[i].aux);
		sim_free(own);
	}
}

/* ---- test_allreduce_weighted: a peer weighs as much as it has computed ---- */

static uint64_t unlike(struct world *w, int node)
{
	return 1 + rng_at(sim_seed(w->s) + 77, (uint64_t)node) % 40;
}

static void scn_weights(struct sim *s)
{
	struct world *w = world_new(s, 200, 512, 16, 10 * MSEC);
	uint64_t all = 0, speeds = 0;
	w->micro_of = unlike;
	w->start_us = 2 * SEC;
	world_add(w, 8);
	settle(w);
	world_run_to(w, 40, 60 * SEC);
	world_same(w);
	for (int i = 0; i < 8; i++) {
		all += world_peer(w, i)->my_total;
		speeds += unlike(w, i);
	}
	for (int i = 0; i < 8; i++) {
		double share = (double)world_peer(w, i)->my_total / (double)all, fair = (double)unlike(w, i) / (double)speeds;
		if (share < 0.8 * fair || share > 1.2 * fair)
			sim_late(s, "peer %d: a share of %.3f, and %.3f is its speed", i, share, fair);
	}
	for (uint64_t e = 1; e <= 40; e++)      /* one micro-batch of each beyond the target, at most */
		sim_in_time(s, check_weight(w->check, e) >= 512 && check_weight(w->check, e) < 512 + speeds);
	world_free(w);
}

/* ---- progress: nobody counts twice, and nobody who is dead counts for long ---- */

#define LIVES 6
/* What the swarm believes must not be more than what there is: of each node the larger of its lives. */
struct truth { struct world *w; uint64_t best[LIVES]; };

static uint64_t look(struct truth *t)
{
	uint64_t there = 0;
	for (int i = 0; i < LIVES; i++) {
		struct apeer *p = sim_alive(t->w->s, i) ? world_peer(t->w, i) : NULL;
		if (p && p->samples > t->best[i])
			t->best[i] = p->samples;
		there += t->best[i];
	}
	return there;
}

static uint64_t believed(struct world *w, int i)
{
	struct avg_view v;
	avg_view(world_peer(w, i)->avg, &v);
	return v.total_samples;
}

/* What decides about the next round. */
static uint64_t known(struct world *w)
{
	int leader = world_leader(w);
	return leader < 0 || !sim_alive(w->s, leader) ? 0 : believed(w, leader);
}

static uint64_t of_living(struct world *w)
{
	uint64_t there = 0;
	for (int i = 0; i < LIVES; i++)
		there += sim_alive(w->s, i) ? world_peer(w, i)->samples : 0;
	return there;
}

static bool only_living(struct sim *s, void *arg)
{
	return known(arg) <= of_living(arg);
}

static void watch(struct truth *t, uint64_t us)
{
	struct sim *s = t->w->s;
	for (uint64_t until = sim_now(s) + us; sim_now(s) < until && !sim_failed(s);) {
		sim_run_for(s, MSEC);
		uint64_t there = look(t);
		for (int i = 0; i < LIVES; i++)
			if (sim_alive(s, i) && believed(t->w, i) > there)
				sim_fail(s, "peer %d believes in %llu samples, and there were never more than %llu", i,
					(unsigned long long)believed(t->w, i), (unsigned long long)there);
	}
}

static void scn_counted(struct sim *s)
{
	struct world *w = world_new(s, 100, 1000000, 16, 10 * MSEC);     /* one epoch for all of it */
	struct truth t = { .w = w };
	w->start_us = 2 * SEC;
	world_add(w, LIVES);
	settle(w);
	sim_run_for(s, w->start_us - sim_now(s));
	watch(&t, SEC);
	int victim = (int)rng_below(sim_rng(s), LIVES);
	sim_kill(s, victim);
	if (sim_seed(s) % 2) {                  /* back at once, under the same name, with nothing */
		watch(&t, rng_below(sim_rng(s), 60 * MSEC));
		sim_restart(s, victim);
		watch(&t, 2 * SEC);
		sim_in_time(s, world_peer(w, victim)->samples > 0);
	} else {                                /* it says nothing any more: nobody counts it, nor the time since */
		watch(&t, 2 * SEC);
	}
	uint64_t there;
	sim_await_or(s, only_living, w, 0, "%llu samples are counted, the living have %llu: a dead one is counted",
			(unsigned long long)known(w), (unsigned long long)of_living(w));
	there = of_living(w);
	sim_in_time(s, known(w) + LIVES * 32 >= there);
	sim_check(s, world_newest(w) == 0);
	world_free(w);
}

/* ---- test_progress_tracker: four workers, the fastest comes at epoch 2 and goes; the time of an epoch follows ---- */

static const uint64_t tracked[4] = { 12, 16, 24, 64 };

static uint64_t tracked_micro(struct world *w, int node)
{
	(void)w;
	return tracked[node];
}

/* Seconds until the next epoch is there, and what was foretold half a second after the one before. */
static double epoch_s(struct world *w, double *ret_foretold)
{
	struct sim *s = w->s;
	uint64_t e = world_newest(w) + 1, from = sim_now(s);
	struct avg_view v;
	sim_run_for(s, 500 * MSEC);
	avg_view(world_peer(w, 0)->avg, &v);
	*ret_foretold = 0.5 + (double)v.eta_us / 1e6;
	while (world_newest(w) < e && !sim_failed(s) && sim_now(s) < from + 20 * SEC + SIM_NEVER_US)
		sim_run_for(s, MSEC);
	if (world_newest(w) < e)
		sim_fail(s, "no epoch after %llu for 80 s", (unsigned long long)e - 1);
	else if (sim_now(s) > from + 20 * SEC)
		sim_late(s, "epoch %llu takes more than 20 s", (unsigned long long)e);
	return (double)(sim_now(s) - from) / 1e6;
}

static void scn_tracker(struct sim *s)
{
	struct world *w = world_new(s, 100, 256, 16, 400 * MSEC);
	double took[12], foretold, mean = 0;
	struct avg_member m[8];
	w->micro_of = tracked_micro;
	w->step_us[0] = 600 * MSEC;
	w->step_us[1] = 500 * MSEC;
	w->start_us = 2 * SEC;
	world_add(w, 3);
	settle(w);
	while (!world_newest(w) && !sim_failed(s) && sim_now(s) < 20 * SEC)
		sim_run_for(s, MSEC);
	for (int i = 0; i < 12 && !sim_failed(s); i++) {
		if (i == 3)
			world_add(w, 1);
		if (i == 9)
			sim_kill(s, 3);
		took[i] = epoch_s(w, &foretold);
		mean += took[i] / 12;
		/* the slowest has a micro-batch of 0.6 s, and what BEGIN interrupts is lost */
		if (i != 3 && i != 9 && (foretold < 0.6 * took[i] || foretold > 1.6 * took[i]))
			sim_late(s, "epoch %d: foretold %.2f s, it took %.2f", i, foretold, took[i]);
		if (i == 8) {
			size_t n = avg_members(world_peer(w, 0)->avg, m, 8);
			sim_in_time(s, n == 4);
			for (size_t k = 0; k < n; k++)
				for (int at = 0; at < 4; at++) {
					double rate = (double)tracked[at] * 1e6 / (double)world_peer(w, at)->step_us;
					if (id_eq(&m[k].id, net_self(world_peer(w, at)->net)) &&
					    (m[k].rate < 0.95 * rate || m[k].rate > 1.05 * rate))
						sim_late(s, "peer %d computes %.1f samples/s, %.1f are known", at, rate, m[k].rate);
				}
		}
	}
	for (int i = 0; i < 12 && !sim_failed(s); i++) {
		bool four = i > 3 && i < 9;
		double r = took[i] / mean;
		if (i != 3 && i != 9 && (four ? r < 0.4 || r > 0.95 : r < 1.05 || r > 2))
			sim_late(s, "epoch %d %s the fourth took %.2f of the mean %.2f s", i, four ? "with" : "without", r, mean);
	}
	world_free(w);
}

/* Twice the peers: epochs come twice as often, and nothing else is another (the target batch is the swarm's). */
static void scn_twice(struct sim *s)
{
	struct world *w = world_new(s, 100, 4096, 16, 10 * MSEC);
	uint64_t at, begun;
	double us[2];
	w->start_us = 2 * SEC;
	world_add(w, 4);
	settle(w);
	for (int k = 0; k < 2; k++) {
		if (k)
			world_add(w, 4);
		world_run_to(w, world_newest(w) + 3, 60 * SEC);
		at = world_newest(w);
		begun = sim_now(s);
		world_run_to(w, at + 10, 60 * SEC);
		us[k] = (double)(sim_now(s) - begun) / (double)(world_newest(w) - at);
	}
	if (us[0] < 1.8 * us[1] || us[0] > 2.2 * us[1])
		sim_late(s, "an epoch of 4 peers took %.1f ms, one of 8 %.1f", us[0] / 1e3, us[1] / 1e3);
	for (uint64_t e = 1; e <= world_newest(w); e++)
		if (check_weight(w->check, e) < 4096 || check_weight(w->check, e) > 4096 * 11 / 10)
			sim_late(s, "epoch %llu has %llu samples", (unsigned long long)e,
				(unsigned long long)check_weight(w->check, e));
	world_same(w);
	world_free(w);
}

/* A member that says it has processed more than anybody was given, a few samples or all there are, counts for nothing:
 * not in the mean, whose weight it would be, nor in the samples of the run, which may end it. */
static unsigned told_far;

static void far_heard(struct world *w, int node, const char *code, const struct id *peer)
{
	(void)w;
	(void)node;
	(void)peer;
	told_far += !strcmp(code, "claimed too far");
}

static bool is_told_far(struct sim *s, void *arg)
{
	return told_far > 0;
}

static void scn_brags(struct sim *s)
{
	struct world *w = world_new(s, 400, 64, 8, 20 * MSEC);
	w->brags[2] = rng_below(sim_rng(s), 2) ? 40 : 1ull << 47;
	w->heard = far_heard;
	told_far = 0;
	world_add(w, 4);
	world_run_to(w, 12, 30 * SEC);
	struct apeer *p = world_peer(w, 0);
	if (p->point.samples > 12 * 128 + 64 && !sim_was_late(s))       /* then there may be many more epochs */
		sim_fail(s, "%llu samples after %llu epochs", (unsigned long long)p->point.samples,
			(unsigned long long)p->point.epoch);
	sim_check(s, !world_peer(w, 2)->my_total);
	sim_await(s, is_told_far, NULL, 0);
	w->brags[2] = 0;
	world_run_to(w, world_peer(w, 0)->point.epoch + 10, 30 * SEC);
	world_brings(w, 2, 0);
	world_free(w);
}

/* Epochs shorter than four round trips: whoever leads says so, once a minute, with a target batch that would do; with
 * that one nobody says anything. */
static struct { unsigned told; uint64_t by[8], would; char text[256]; } small;

static void small_heard(struct world *w, int node, const char *code, const struct id *peer)
{
	const char *text = world_peer(w, node)->said, *at = strstr(text, "a target batch of ");
	(void)peer;
	if (strcmp(code, "target batch size too small"))
		return;
	if (small.by[node] && sim_now(w->s) < small.by[node] + 60 * SEC)
		sim_fail(w->s, "node %d says it again after %.1f s", node, (double)(sim_now(w->s) - small.by[node]) / 1e6);
	small.by[node] = sim_now(w->s);
	small.would = at ? strtoull(at + strlen("a target batch of "), NULL, 10) : 0;
	small.told++;
	snprintf(small.text, sizeof small.text, "%s", text);
}

static bool is_told(struct sim *s, void *arg)
{
	(void)s;
	(void)arg;
	return small.told;
}

static struct world *far_apart(struct sim *s, uint64_t target)
{
	struct world *w = world_new(s, 64, target, 8, 3 * MSEC);
	struct sim_link far = { .latency_us = 50 * MSEC, .jitter_us = MSEC };
	memset(&small, 0, sizeof small);
	sim_link(s, -1, -1, &far);
	w->heard = small_heard;
	w->start_us = 4 * SEC;
	world_add(w, 3);
	settle(w);
	return w;
}

static void scn_too_small(struct sim *s)
{
	struct world *w = far_apart(s, 24);     /* 3 ms of work, and two to three round trips of 100 ms to average it */
	sim_await(s, is_told, NULL, 10 * SEC);
	uint64_t would = small.would, fair = 4 * 8 * 3 * 100 / 3;        /* what three do in four round trips */
	if (!would)
		sim_fail(s, "no target batch would do: %s", small.text);
	if (would < fair * 3 / 4 || would > fair * 5 / 4)
		sim_late(s, "%llu would do: %s", (unsigned long long)would, small.text);
	sim_run_for(s, 65 * SEC);
	sim_in_time(s, small.told >= 4);        /* each of them leads in its turn; one of them again */
	world_free(w);
	if (sim_failed(s))
		return;
	struct sim *own = sim_new(sim_seed(s) * 100);
	w = far_apart(own, would);
	sim_run_for(own, 30 * SEC);
	if (small.told)
		sim_late(s, "%llu would do, and now: %s", (unsigned long long)would, small.text);
	if (world_newest(w) < 20)
		sim_late(s, "%llu: %llu epochs in 30 s", (unsigned long long)would, (unsigned long long)world_newest(w));
	world_free(w);
	sim_told(s, own);
	sim_free(own);
}

static const struct scn list[] = { SCN(brags), SCN_CELLS(roles, 10), SCN(weights), SCN(counted), SCN(tracker),
	SCN(twice),
	SCN(too_small), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
