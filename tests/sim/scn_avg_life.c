/* The averager's swarm over time: churn, partitions that heal, slow peers, clients and helpers, changes of
 * hyperparameters,
 * a data set that ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"
#include "common/jrpc.h"

static struct world *begin(struct sim *s, struct world *w, int n, uint64_t epochs)
{
	w->start_us = 2 * SEC;
	world_add(w, n);
	world_settle(w, 20 * SEC);
	if (epochs)
		world_run_to(w, epochs, 20 * SEC);
	return w;
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
	world_run_to(w, world_newest(w) + 5, 60 * SEC);
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
	sim_in_time(s, world_peer(w, 0)->point.epoch > 5);
	sim_heal(s);
	sim_run_for(s, 12 * SEC);
	world_go_on(w, 3);
	sim_check(s, world_peer(w, 6)->point.samples >= big);
	sim_check(s, alive_count(w) == 7);
	world_settle(w, 20 * SEC);
	world_free(w);
}

/* ---- S36: fewer than half of the last epoch's members ---- */

struct sides { uint64_t cut_us, waited_us; unsigned small, marked, others_marked; };

/* Peers 5 and 6 are the small side. */
static void saw_sides(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct sides *k = w->user;
	if (!k->cut_us || c->contributors > 5)  /* decided before the cut */
		return;
	if (p->node < 5) {
		k->others_marked += c->minority;
		return;
	}
	k->small++;
	if (!c->minority)
		return;
	k->marked++;
	if (!k->waited_us)
		k->waited_us = sim_now(w->s) - c->begin_us;
}

static bool small_went_on(struct sim *s, void *arg) { return ((struct sides *)arg)->small >= 6; }

/* Its first commit alone waits for news, three rounds of the least time that there is, and says what it is; those after
 * it are everybody's that it knows. The others are most of all, and wait for nothing. */
static void scn_minority(struct sim *s)
{
	struct sides k = { 0 };
	struct world *w = world_new(s, 64, 140, 8, 40 * MSEC);
	w->forks_allowed = true;
	w->saw = saw_sides;
	w->user = &k;
	begin(s, w, 7, 3);
	sim_run_for(s, rng_below(sim_rng(s), 200 * MSEC));
	k.cut_us = sim_now(s);
	sim_partition(s, (const int[]){ 0, 0, 0, 0, 0, 1, 1 }, 7);
	sim_await(s, small_went_on, &k, 60 * SEC);
	if (!k.marked || k.marked > 2 || k.others_marked)
		sim_fail(s, "the small side has applied %u commits, %u of them marked; %u of the others'", k.small, k.marked,
			k.others_marked);
	if (k.marked && k.waited_us < 3 * 200 * MSEC)
		sim_fail(s, "a minority has waited %llu us", (unsigned long long)k.waited_us);
	w->saw = NULL;
	sim_heal(s);
	sim_run_for(s, 12 * SEC);
	world_go_on(w, 3);
	world_free(w);
}

static bool somebody_leads(struct sim *s, void *arg) { return world_leader(arg) >= 0; }

/* Who leads is on the small side, which goes on; they meet again before the others have taken the lead, and who led
 * lives for them, and tells them that it is elsewhere: they do not wait for it. */
static void scn_led_elsewhere(struct sim *s)
{
	struct world *w = world_new(s, 64, 140, 8, 40 * MSEC);
	int side[7] = { 0 }, led, here = 0;
	w->forks_allowed = true;
	begin(s, w, 7, 3);
	sim_run_for(s, rng_below(sim_rng(s), 200 * MSEC));
	if (!sim_await(s, somebody_leads, w, 0)) {
		world_free(w);
		return;
	}
	led = world_leader(w);
	side[led] = side[(led + 1 + (int)rng_below(sim_rng(s), 6)) % 7] = 1;
	while (side[here])
		here++;
	sim_partition(s, side, 7);
	for (int k = 0; k < 500 && world_peer(w, led)->point.epoch < world_peer(w, here)->point.epoch + 2; k++)
		sim_run_for(s, 10 * MSEC);
	sim_heal(s);
	world_run_to(w, world_newest(w) + 1, 12 * SEC);
	world_free(w);
}

struct at { int node; uint64_t epoch; };

static bool is_at(struct sim *s, void *arg)
{
	const struct at *at = arg;
	return ((const struct apeer *)sim_app(s, at->node))->point.epoch >= at->epoch;
}

static bool third_gave_up(struct sim *s, void *arg)
{
	return ((const struct apeer *)sim_app(s, 2))->resyncs[AVG_FORK];
}

static bool is_judged(struct sim *s, void *arg) { return ((const struct apeer *)arg)->judged; }

/* A fork is told by one who came to the run later: it has not seen the epochs where the two parted, and yet the loser
 * discards what only it has, also when it has started anew since then. */
static void scn_fork_told(struct sim *s)
{
	struct world *w = world_new(s, 64, 140, 8, 10 * MSEC);
	w->forks_allowed = w->keep_state = true;
	begin(s, w, 4, 3);
	sim_kill(s, 3);
	world_go_on(w, 2);
	uint64_t parted = world_peer(w, 2)->point.epoch, own = 1 + rng_below(sim_rng(s), 5);
	uint64_t more = rng_below(sim_rng(s), 200);
	sim_partition(s, (const int[]){ 0, 0, 1, 0 }, 4);
	sim_await(s, is_at, (&(struct at){ 2, parted + own }), 20 * SEC);
	world_peer(w, 2)->held = true;
	if (sim_seed(s) % 2)
		sim_restart(s, 2);
	sim_await(s, is_at, (&(struct at){ 0, parted + own + 6 }), 20 * SEC);
	avg_point_done(&w->saved[3]);           /* it comes anew */
	sim_restart(s, 3);
	sim_await(s, is_at, (&(struct at){ 3, parted + own + 9 + more }), 60 * SEC);
	sim_kill(s, 0);
	sim_kill(s, 1);
	sim_heal(s);
	sim_await(s, third_gave_up, NULL, 20 * SEC);
	struct apeer *loser = world_peer(w, 2);
	loser->held = false;
	world_go_on(w, 3);
	sim_run_for(s, 2 * SEC);
	sim_await(s, is_judged, loser, 0);
	sim_check(s, loser->forked == parted);
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
	uint64_t from = sim_now(s), at = world_newest(w);
	sim_run_for(s, 5 * SEC);
	sim_in_time(s, world_newest(w) > at + 20);
	world_brings(w, 1, 0);
	w->slow_contribute_us[2] = 0;
	world_run_to(w, world_newest(w) + 10, 20 * SEC);
	world_same(w);
	sim_in_time(s, sim_now(s) - from < 6 * SEC);    /* ten epochs of some 30 ms, when nobody is late */
	world_free(w);
}

/* All are late for their rounds, the leader, too: nothing is committed meanwhile, and as soon as they are not any more
 * everybody takes part again. */
static void scn_all_slow(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	begin(s, w, 3, 12);
	for (int i = 0; i < 3; i++)
		w->slow_contribute_us[i] = 20 * SEC;
	sim_run_for(s, 8 * SEC);
	for (int i = 0; i < 3; i++)
		w->slow_contribute_us[i] = 0;
	sim_run_for(s, 15 * SEC);               /* what is under way ends */
	uint64_t at = world_newest(w), mine[3];
	for (int i = 0; i < 3; i++)
		mine[i] = world_peer(w, i)->my_total;
	world_run_to(w, at + 20, 10 * SEC);
	for (int i = 0; i < 3; i++)
		world_brings(w, i, mine[i]);
	world_same(w);
	world_free(w);
}

/* Where nobody waits for anybody, most of them being late (their machines are busy with other things) is no partition:
 * rounds of the others do not wait for news of one. */
static void scn_any_late(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	w->conf.any = true;
	begin(s, w, 5, 12);
	for (int i = 0; i < 3; i++)
		w->slow_contribute_us[i] = SEC;
	sim_run_for(s, 2 * SEC);
	uint64_t at = world_newest(w);
	sim_run_for(s, 5 * SEC);
	if (world_newest(w) < at + 12)
		sim_late(s, "%llu epochs in 5 s", (unsigned long long)(world_newest(w) - at));
	for (int i = 0; i < 3; i++)
		w->slow_contribute_us[i] = 0;
	world_run_to(w, world_newest(w) + 50, 20 * SEC);
	world_same(w);
	world_free(w);
}

/* A client that nobody can dial contributes; a helper without data reduces; both hold what the others hold. */
static void scn_client_aux(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	w->client[2] = true;
	w->aux[3] = true;
	begin(s, w, 4, 30);
	world_brings(w, 2, 0);
	sim_check(s, world_peer(w, 3)->my_total == 0);
	struct avg_view v;
	avg_view(world_peer(w, 3)->avg, &v);
	sim_in_time(s, v.bytes_out > 0);        /* C07: it reduces */
	avg_view(world_peer(w, 2)->avg, &v);
	sim_in_time(s, v.bytes_out > 0);
	world_same(w);
	world_free(w);
}

static bool is_found(struct sim *s, void *arg)
{
	const struct apeer *p = arg;
	return p->resyncs[AVG_DIVERGED] && !p->syncing;
}

/* Parameters that differ are found by their digest; the peer fetches the majority's. */
static void scn_diverged(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	begin(s, w, 4, 5);
	int i = (int)rng_below(sim_rng(s), 4);
	w->corrupt[i] = true;
	world_run_to(w, world_newest(w) + 20, 20 * SEC);
	sim_await(s, is_found, world_peer(w, i), 0);
	world_same(w);
	sim_in_time(s, world_peer(w, i)->resyncs[AVG_DIVERGED] <= 1);
	world_free(w);
}

/* What is left is less than a target batch. */
static bool all_used(struct sim *s, void *arg)
{
	struct world *w = arg;
	for (int i = 0; i < sim_nodes(s); i++)
		if (sim_alive(s, i) && world_peer(w, i)->point.samples + w->conf.target_batch <= w->conf.data_limit)
			return false;
	return true;
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
	if (!sim_await(s, all_used, w, 0))
		world_print(w);
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

static bool is_over(struct sim *s, void *arg) { return ((const struct asked *)arg)->over; }

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
	uint64_t at = world_newest(w) + 20;
	avg_propose(world_peer(w, 1)->avg, json_pack("{s:f}", "lr", 0.25), at, proposed, &a);
	sim_run_for(s, 100 * MSEC);
	avg_propose(world_peer(w, 2)->avg, json_pack("{s:f}", "lr", 0.5), at, proposed, &b);
	world_run_to(w, at - 1, 20 * SEC);
	sim_check(s, world_newest(w) >= at || lr_of(world_peer(w, 3)) == 0.1);
	world_run_to(w, at + 3, 20 * SEC);
	sim_await(s, is_over, &a, 0);
	sim_await(s, is_over, &b, 0);
	sim_check(s, a.ok && a.epoch == at);
	sim_check(s, !b.ok && strstr(b.why, "superseded by"));
	for (int i = 0; i < 4; i++)
		sim_check(s, lr_of(world_peer(w, i)) == 0.25 && world_peer(w, i)->point.params_version == 1);
	struct asked c = { 0 };
	avg_propose(world_peer(w, 3)->avg, json_pack("{s:f}", "lr", 0.75), 0, proposed, &c);
	sim_run_for(s, 10 * MSEC);
	int leader = world_leader(w);
	if (leader != 3)
		sim_kill(s, leader);            /* whoever has accepted it may die: it is asked again */
	world_run_to(w, world_newest(w) + 40, 20 * SEC);
	sim_await(s, is_over, &c, 0);
	sim_check(s, c.ok);
	world_run_to(w, c.epoch, 0);
	for (int i = 0; i < 4; i++)
		sim_check(s, !sim_alive(s, i) || lr_of(world_peer(w, i)) == 0.75);
	world_free(w);
}

/* ---- leaving ---- */

static void left(void *arg)
{
	*(bool *)arg = true;
}

static bool has_left(struct sim *s, void *arg) { return *(const bool *)arg; }

static void scn_leave(struct sim *s)
{
	struct world *w = world_new(s, 64, 128, 16, 10 * MSEC);
	begin(s, w, 4, 5);
	for (int k = 0; k < 3; k++) {
		bool gone = false;
		int i = k == 0 ? world_leader(w) : alive_one(w);
		avg_leave(world_peer(w, i)->avg, left, &gone);
		uint64_t from = sim_now(s), at = world_newest(w);
		while (!gone && sim_now(s) < from + 3 * SEC)
			sim_run_for(s, MSEC);
		sim_await(s, has_left, &gone, 0);
		sim_kill(s, i);
		world_run_to(w, at + 4, 10 * SEC);
		sim_in_time(s, sim_now(s) - from < 2 * SEC);
	}
	world_free(w);
}

/* Who must fetch state when nobody is left cannot end. */
static bool all_over(struct sim *s, void *arg)
{
	struct world *w = arg;
	for (int i = 0; i < sim_nodes(s); i++)
		if (!w->left[i] && !world_peer(w, i)->syncing)
			return false;
	return true;
}

/* The run is over for all with the same epoch: who has its last commit first, the leader, must not go before the others
 * have it, too, or they would commit that epoch once more; but for whom their leader takes for dead (check.c). */
static void scn_finish(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	int gone = 0, over = 0;
	w->keep_state = true;
	w->leave_at = w->max_epoch = 8 + sim_seed(s) % 3;
	begin(s, w, 6, 2);
	struct sim_link l = { .latency_us = 3 * MSEC, .jitter_us = 5 * MSEC, .break_every = 80 };
	sim_link(s, -1, -1, &l);
	for (uint64_t until = sim_now(s) + 30 * SEC; over < 6 && sim_now(s) < until && !sim_failed(s);) {
		sim_run_for(s, MSEC);
		for (int i = 0; i < 6; i++)
			if (w->left[i] && sim_alive(s, i)) {
				sim_kill(s, i);
				gone += !w->left_behind[i];
				over++;
			}
	}
	sim_await(s, all_over, w, 0);
	int at = 0;
	for (int i = 0; i < 6; i++)
		at = w->left[i] && !w->left_behind[i] ? i : at;
	for (int i = 0; i < 6; i++)
		if (w->left[i])
			sim_check(s, w->saved[i].epoch == w->leave_at &&
				(w->left_behind[i] || !memcmp(w->saved[i].prev, w->saved[at].prev, DIGEST)));
	sim_in_time(s, gone >= 4);
	world_free(w);
}

/* A peer of before, whose digest of the parameters is made in another way: nobody takes it for one whose parameters
 * are others, and its own are looked at by nobody. */
static void no_divergence(struct world *w, int node, const char *code, const struct id *peer)
{
	if (!strcmp(code, "diverged"))
		sim_fail(w->s, "node %d takes a peer of before for one with other parameters", node);
}

static void scn_of_before(struct sim *s)
{
	struct world *w = world_new(s, 320, 128, 16, 10 * MSEC);
	w->heard = no_divergence;
	begin(s, w, 4, 5);
	for (int k = 0; k < 400; k++) {
		struct apeer *p = world_peer(w, 3);
		int leader = world_leader(w);
		sim_run_for(s, 5 * MSEC);
		if (leader < 0 || leader == 3)
			continue;
		net_post(p->net, net_self(world_peer(w, leader)->net), KIND_AVG_PROGRESS, json_pack("{s:o,s:I,s:o,s:I,s:f,s:o}",
			"run", json_hex(w->conf.run.b, 32), "epoch", (json_int_t)p->point.epoch, "prev",
			json_hex(p->point.prev, DIGEST), "samples", (json_int_t)p->samples, "rate", 1600.0, "params",
			json_hex(w->conf.run.b, 16)), NO_BLOB, CLASS_control);
	}
	world_go_on(w, 3);
	world_free(w);
}

static const struct scn list[] = { SCN(churn), SCN(partition_heal), SCN(minority), SCN(led_elsewhere),
	SCN(fork_told), SCN(slow), SCN(all_slow), SCN(any_late), SCN(client_aux),
	SCN(diverged), SCN(of_before), SCN(ledger),
	SCN(propose), SCN(leave), SCN(finish), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
