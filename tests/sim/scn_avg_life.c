/* The averager's swarm over time: churn, partitions that heal, slow peers, clients and helpers, changes of
 * hyperparameters,
 * a data set that ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"

static bool settled(struct sim *s, void *arg)
{
	return world_settled(arg);
}

static struct world *begin(struct sim *s, struct world *w, int n, uint64_t epochs)
{
	w->start_us = 2 * SEC;
	world_add(w, n);
	if (!sim_run_until(s, settled, w, 20 * SEC)) {
		world_print(w);
		sim_fail(s, "the peers did not find each other");
	}
	if (epochs)
		world_run_to(w, epochs, 20 * SEC);
	return w;
}

static uint64_t newest(struct world *w)
{
	uint64_t at = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (sim_alive(w->s, i) && world_peer(w, i)->point.epoch > at)
			at = world_peer(w, i)->point.epoch;
	return at;
}

static int alive_one(struct world *w)
{
	int i;
	do
		i = (int)rng_below(sim_rng(w->s), (uint64_t)sim_nodes(w->s));
	while (!sim_alive(w->s, i));
	return i;
}

static int alive_count(struct world *w)
{
	int n = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		n += sim_alive(w->s, i);
	return n;
}

/* Peers die without a word, come back from their last state, and new ones arrive, all the time. */
static void scn_churn(struct sim *s)
{
	struct world *w = world_new(s, 64, 400, 8, 20 * MSEC);
	w->keep_state = w->forks_allowed = true;
	begin(s, w, 14, 3);
	for (int k = 0; k < 16 && !sim_failed(s); k++) {
		sim_run_for(s, rng_below(sim_rng(s), 100 * MSEC));
		int i = (int)rng_below(sim_rng(s), (uint64_t)sim_nodes(s));
		if (!sim_alive(s, i))
			sim_restart(s, i);
		else if (alive_count(w) > 8)
			sim_kill(s, i);
		else if (sim_nodes(s) < 20)
			world_add(w, 1);
	}
	world_run_to(w, newest(w) + 5, 60 * SEC);
	sim_run_for(s, 2 * SEC);
	world_same(w);
	world_free(w);
}

/* A cut divides the swarm for longer than any deadline; both sides go on; after it has healed one history is left, that
 * with more samples, and everybody is on it. */
static void scn_partition_heal(struct sim *s)
{
	struct world *w = world_new(s, 64, 140, 8, 40 * MSEC);
	int side[7];
	w->forks_allowed = true;
	begin(s, w, 7, 3);
	for (int i = 0; i < 7; i++)
		side[i] = i >= 5;
	sim_partition(s, side, 7);
	sim_run_for(s, 6 * SEC);
	uint64_t big = world_peer(w, 0)->point.samples;
	sim_check(s, world_peer(w, 0)->point.epoch > 5);
	sim_heal(s);
	sim_run_for(s, 12 * SEC);
	world_run_to(w, newest(w) + 3, 60 * SEC);
	world_same(w);
	sim_check(s, world_peer(w, 6)->point.samples >= big);
	sim_check(s, alive_count(w) == 7 && sim_run_until(s, settled, w, 20 * SEC));
	world_free(w);
}

/* One peer takes more than twice as long for a step, another a second to hand over what it has: neither holds the
 * others up. */
static void scn_slow(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	w->step_us[1] = 24 * MSEC;
	begin(s, w, 4, 12);
	w->slow_contribute_us[2] = SEC;
	uint64_t from = sim_now(s), at = newest(w);
	sim_run_for(s, 5 * SEC);
	sim_check(s, newest(w) > at + 20);
	sim_check(s, world_peer(w, 1)->my_total > 0);
	w->slow_contribute_us[2] = 0;
	world_run_to(w, newest(w) + 10, 20 * SEC);
	world_same(w);
	sim_check(s, sim_now(s) > from);
	world_free(w);
}

/* A client that nobody can dial contributes; a helper without data reduces; both hold what the others hold. */
static void scn_client_aux(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	w->client[2] = true;
	w->aux[3] = true;
	begin(s, w, 4, 30);
	sim_check(s, world_peer(w, 2)->my_total > 0 && world_peer(w, 3)->my_total == 0);
	world_same(w);
	world_free(w);
}

/* Parameters that differ are found by their digest; the peer fetches the majority's. */
static void scn_diverged(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	begin(s, w, 4, 5);
	int i = (int)rng_below(sim_rng(s), 4);
	w->corrupt[i] = true;
	world_run_to(w, newest(w) + 20, 20 * SEC);
	world_same(w);
	sim_check(s, world_peer(w, i)->resyncs[AVG_DIVERGED] == 1);
	world_free(w);
}

/* The data set ends: every position exactly once, whoever was killed on the way. */
static void scn_ledger(struct sim *s)
{
	struct world *w = world_new(s, 64, 100, 10, 5 * MSEC);
	w->conf.data_limit = 6000;
	begin(s, w, 6, 5);
	for (int k = 0; k < 3; k++) {
		sim_run_for(s, rng_below(sim_rng(s), 150 * MSEC));
		sim_kill(s, alive_one(w));
	}
	world_run_to(w, 30, 60 * SEC);
	sim_run_for(s, 10 * SEC);
	for (int i = 0; i < sim_nodes(s); i++) {
		struct apeer *p = sim_alive(s, i) ? world_peer(w, i) : NULL;
		if (!p)
			continue;
		/* what is left is less than a target batch */
		if (p->point.samples + w->conf.target_batch <= 6000) {
			world_print(w);
			sim_fail(s, "only %llu of 6000 positions are committed", (unsigned long long)p->point.samples);
		}
	}
	world_same(w);
	world_free(w);
}

/* ---- proposals ---- */

struct asked { bool over, ok; uint64_t epoch; char why[400]; };

static void proposed(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	struct asked *q = arg;
	q->over = true;
	q->ok = !e;
	q->epoch = epoch;
	if (e)
		snprintf(q->why, sizeof q->why, "%s", e->text);
}

static double lr_of(const struct apeer *p)
{
	return json_real_value(json_object_get(p->point.params, "lr"));
}

/* A change reaches everybody with one epoch; of two for one epoch the second hears who was first. */
static void scn_propose(struct sim *s)
{
	struct world *w = world_new(s, 64, 128, 16, 10 * MSEC);
	struct asked a = { 0 }, b = { 0 };
	begin(s, w, 4, 5);
	uint64_t at = newest(w) + 20;
	avg_propose(world_peer(w, 1)->avg, json_pack("{s:f}", "lr", 0.25), at, proposed, &a);
	sim_run_for(s, 100 * MSEC);
	avg_propose(world_peer(w, 2)->avg, json_pack("{s:f}", "lr", 0.5), at, proposed, &b);
	world_run_to(w, at - 1, 20 * SEC);
	sim_check(s, newest(w) >= at || lr_of(world_peer(w, 3)) == 0.1);
	world_run_to(w, at + 3, 20 * SEC);
	sim_check(s, a.over && a.ok && a.epoch == at);
	sim_check(s, b.over && !b.ok && strstr(b.why, "superseded by"));
	for (int i = 0; i < 4; i++)
		sim_check(s, lr_of(world_peer(w, i)) == 0.25 && world_peer(w, i)->point.params_version == 1);
	struct asked c = { 0 };
	avg_propose(world_peer(w, 3)->avg, json_pack("{s:f}", "lr", 0.75), 0, proposed, &c);
	sim_run_for(s, 10 * MSEC);
	int leader = world_leader(w);
	if (leader != 3)
		sim_kill(s, leader);            /* whoever has accepted it may die: it is asked again */
	world_run_to(w, newest(w) + 40, 20 * SEC);
	sim_check(s, c.over && c.ok);
	for (int i = 0; i < 4; i++)
		sim_check(s, !sim_alive(s, i) || lr_of(world_peer(w, i)) == 0.75);
	world_free(w);
}

/* ---- leaving ---- */

static void left(void *arg)
{
	*(bool *)arg = true;
}

static void scn_leave(struct sim *s)
{
	struct world *w = world_new(s, 64, 128, 16, 10 * MSEC);
	begin(s, w, 4, 5);
	for (int k = 0; k < 3; k++) {
		bool gone = false;
		int i = k == 0 ? world_leader(w) : alive_one(w);
		avg_leave(world_peer(w, i)->avg, left, &gone);
		uint64_t from = sim_now(s), at = newest(w);
		while (!gone && sim_now(s) < from + 3 * SEC)
			sim_run_for(s, MSEC);
		sim_check(s, gone);
		sim_kill(s, i);
		world_run_to(w, at + 4, 10 * SEC);
		sim_check(s, sim_now(s) - from < 2 * SEC);
	}
	world_free(w);
}

/* The run is over for all with the same epoch: who has its last commit first, the leader, must not go before the others
 * have it, too, or they would commit that epoch once more. */
static void scn_finish(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	int gone = 0;
	w->keep_state = true;
	w->leave_at = w->max_epoch = 8 + sim_seed(s) % 3;
	begin(s, w, 6, 2);
	struct sim_link l = { .latency_us = 3 * MSEC, .jitter_us = 5 * MSEC, .break_every = 80 };
	sim_link(s, -1, -1, &l);
	for (uint64_t until = sim_now(s) + 30 * SEC; gone < 6 && sim_now(s) < until && !sim_failed(s);) {
		sim_run_for(s, MSEC);
		for (int i = 0; i < 6; i++)
			if (w->left[i] && sim_alive(s, i)) {
				sim_kill(s, i);
				gone++;
			}
	}
	int at = 0;
	for (int i = 0; i < 6; i++)
		at = w->left[i] ? i : at;
	for (int i = 0; i < 6; i++) {           /* who must fetch state when nobody is left cannot end */
		sim_check(s, w->left[i] || world_peer(w, i)->syncing);
		if (w->left[i])
			sim_check(s, w->saved[i].epoch == w->leave_at && !memcmp(w->saved[i].prev, w->saved[at].prev, DIGEST));
	}
	sim_check(s, gone >= 4);
	world_free(w);
}

static const struct scn list[] = { SCN(churn), SCN(partition_heal), SCN(slow), SCN(client_aux), SCN(diverged),
	SCN(ledger), SCN(propose),
	SCN(leave), SCN(finish), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
