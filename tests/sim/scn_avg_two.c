/* Two who think that they lead, commits that only some have heard of, peers with two lives in one round: what terms,
 * the chain of digests and RECOVER are for. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg_world.h"
#include "check.h"

/* A minority waits for so many rounds' time; 0: for as many as usual. The peers take it when they begin. */
static struct world *patient_world(struct sim *s, int n, double rounds)
{
	struct world *w = world_new(s, 320, (uint64_t)n * 32, 16, 10 * MSEC);
	w->conf.minority_wait_rounds = rounds;
	w->start_us = 3 * SEC;
	world_add(w, n);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 20 * SEC);
	return w;
}

static struct world *settled_world(struct sim *s, int n) { return patient_world(s, n, 0); }

static void finish(struct world *w, uint64_t more)
{
	world_go_on(w, more);
	world_free(w);
}

struct until { struct world *w; int node; uint64_t epoch; };

static bool has_epoch(struct sim *s, void *arg)
{
	struct until *u = arg;
	return world_peer(u->w, u->node)->point.epoch >= u->epoch;
}

/* The leader's COMMIT reaches one member, then the leader is gone for good: the others must adopt that very COMMIT. */
static void scn_half_told(struct sim *s)
{
	struct world *w = settled_world(s, 5);
	struct sim_link far = { .latency_us = 60 * MSEC, .jitter_us = MSEC };
	int leader = world_leader(w), heir = (leader + 1 + (int)(sim_seed(s) % 4)) % 5;
	struct until u = { w, heir, world_newest(w) + 1 };
	for (int i = 0; i < 5; i++)
		if (i != leader && i != heir)
			sim_link(s, leader, i, &far);
	sim_await(s, has_epoch, &u, 5 * SEC);
	sim_kill(s, leader);
	for (int i = 0; i < 5; i++)
		if (i != leader && i != heir)
			sim_in_time(s, world_peer(w, i)->point.epoch < u.epoch);
	finish(w, 6);
}

struct promise { struct world *w; int leader; uint64_t epoch; };

static bool promised(struct sim *s, void *arg)
{
	struct promise *q = arg;
	for (int i = 0; i < sim_nodes(s); i++) {
		struct avg_view v;
		if (i == q->leader)
			continue;
		avg_view(world_peer(q->w, i)->avg, &v);
		if (v.epoch == q->epoch && v.term > 0)
			return true;
	}
	return false;
}

/* Runs until the point has struck whoever leads; that node. */
static int struck_leader(struct world *w, const char *point, enum sim_fate fate)
{
	int leader = -1;
	sim_failpoint(w->s, -1, point, fate, 1);
	for (int k = 0; k < 140000 && !sim_failpoint_hit(w->s, point) && !sim_failed(w->s); k++) {
		if (k == 20000)
			sim_late(w->s, "nobody has come to %s for 10 s", point);
		leader = world_leader(w);
		sim_run_for(w->s, 500);
	}
	sim_check(w->s, sim_failpoint_hit(w->s, point) && leader >= 0);
	return leader;
}

/* The leader stops (SIGSTOP) with the COMMIT in its hand, another takes over and has the promise of the others when
 * the first goes on: its COMMIT counts for nobody but itself, and what it does on top of that reaches nobody. */
static void scn_two_leaders(struct sim *s)
{
	struct world *w = settled_world(s, 5);
	struct sim_link far = { .latency_us = 10 * MSEC, .jitter_us = MSEC };
	sim_link(s, -1, -1, &far);
	world_run_to(w, world_newest(w) + 2, 20 * SEC);
	int leader = struck_leader(w, "avg.commit.before", SIM_PAUSE);
	w->alone = leader;
	struct promise q = { w, leader, world_newest(w) };
	sim_await(s, promised, &q, 30 * SEC);
	sim_run_for(s, 40 * MSEC + rng_below(sim_rng(s), 30 * MSEC));   /* the other is about to decide */
	sim_resume(s, leader);
	sim_run_for(s, 3 * SEC);
	w->alone = -1;
	finish(w, 6);
}

/* The same, and nobody may have applied anything but one COMMIT: one that nobody holds is not applied by its author,
 * either. One of three times the others have decided when it wakes. */
static void scn_untold(struct sim *s)
{
	struct world *w = settled_world(s, 5);
	world_run_to(w, world_newest(w) + 2, 20 * SEC);
	int leader = struck_leader(w, "avg.commit.before", SIM_PAUSE);
	struct promise q = { w, leader, world_newest(w) };
	sim_await(s, promised, &q, 30 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), 3) ? rng_below(sim_rng(s), 5 * MSEC) : SEC);
	sim_resume(s, leader);
	sim_run_for(s, 3 * SEC);
	finish(w, 6);
}

/* The first wakes when some have the COMMIT of the second, which takes long to one of them: that one has promised, and
 * waits for it. */
static void scn_late_word(struct sim *s)
{
	struct world *w = settled_world(s, 5);
	struct sim_link far = { .latency_us = 100 * MSEC, .jitter_us = MSEC };
	world_run_to(w, world_newest(w) + 2, 20 * SEC);
	int leader = struck_leader(w, "avg.commit.before", SIM_PAUSE), second = -1;
	struct promise q = { w, leader, world_newest(w) };
	sim_await(s, promised, &q, 30 * SEC);
	for (int i = 0; i < 5; i++)
		if (i != leader && is_leader(world_peer(w, i)->avg))
			second = i;
	if (second < 0) {
		sim_late(s, "who has the promises does not lead");
		world_free(w);
		return;
	}
	for (int i = 0, left = 1; i < 5; i++)
		if (i != leader && i != second && left-- > 0)
			sim_link(s, second, i, &far);
	struct until u = { w, second, q.epoch + 1 };
	sim_await(s, has_epoch, &u, 10 * SEC);
	sim_resume(s, leader);
	sim_run_for(s, SEC);
	finish(w, 6);
}

/* Looks for somebody whose COMMIT is on its way; -1: there was none. */
static int who_tells(struct world *w)
{
	for (int k = 0; k < 200000; k++) {
		sim_run_for(w->s, 20);
		for (int i = 0; i < sim_nodes(w->s); i++)
			if (world_peer(w, i)->avg->round && world_peer(w, i)->avg->round->told)
				return i;
	}
	sim_late(w->s, "nobody was seen who tells a COMMIT");
	return -1;
}

/* All others die with its COMMIT on the way to them: it is decided, and the one that is left goes on from there. */
static void scn_last_left(struct sim *s)
{
	struct world *w = patient_world(s, 5, 1);
	world_run_to(w, world_newest(w) + 2, 20 * SEC);
	int leader = who_tells(w);
	if (leader < 0) {
		world_free(w);
		return;
	}
	uint64_t at = world_peer(w, leader)->point.epoch;
	w->alone = leader;
	for (int i = 0; i < 5; i++)
		if (i != leader)
			sim_kill(s, i);
	struct until u = { w, leader, at + 3 };
	sim_await(s, has_epoch, &u, 30 * SEC);
	world_free(w);
}

/* A member contributes, dies and is back before the round is finished by another leader: the sums hold what it sent in
 * its first life, so that what it claims in its second must not count there. */
static void scn_two_lives(struct sim *s)
{
	struct world *w = settled_world(s, 7);
	w->keep_state = true;
	world_run_to(w, world_newest(w) + 2, 20 * SEC);
	int leader = struck_leader(w, "avg.attempt.before", SIM_KILL);
	int back = (leader + 1 + (int)(sim_seed(s) % 6)) % 7, off = (back + 1) % 7;
	sim_power_off(s, off == leader ? (off + 1) % 7 : off);
	sim_restart(s, back);
	finish(w, 6);
}

/* Every living one that holds a state goes on from where it is. */
struct onward { struct world *w; uint64_t from[8]; };

static bool all_on(struct sim *s, void *arg)
{
	struct onward *o = arg;
	for (int i = 0; i < sim_nodes(s); i++) {
		const struct apeer *p = sim_alive(s, i) ? world_peer(o->w, i) : NULL;
		if (p && !p->syncing && p->point.epoch < o->from[i] + 3)
			return false;
	}
	return true;
}

static void each_goes_on(struct world *w)
{
	struct onward o = { .w = w };
	for (int i = 0; i < sim_nodes(w->s); i++)
		o.from[i] = world_peer(w, i) ? world_peer(w, i)->point.epoch : 0;
	if (!sim_await_or(w->s, all_on, &o, 30 * SEC, "somebody does not go on"))
		world_print(w);
}

/* Two that take each other for members stand on two COMMITs of one epoch: neither takes what the other decides, and
 * neither waits for that. */
static void scn_two_points(struct sim *s)
{
	struct world *w = settled_world(s, 2);
	struct apeer *p = NULL;
	w->forks_allowed = true;
	for (int k = 0; k < 200000 && !p; k++) {
		struct apeer *x = world_peer(w, 0), *y = world_peer(w, 1);
		sim_run_for(s, 20);
		if (!x->avg->round && !y->avg->round && x->point.epoch == y->point.epoch)
			p = is_leader(x->avg) ? x : is_leader(y->avg) ? y : NULL;
	}
	if (!p) {
		sim_late(s, "the two were not seen outside rounds at one epoch");
		world_free(w);
		return;
	}
	p->point.prev[5] ^= 1;
	p->avg->point.prev[5] ^= 1;
	each_goes_on(w);
	world_free(w);
}

/* One lets another in no longer, or does not reach it, and believes what a third says, that it lives; then that one is
 * gone. Nobody waits for the answer of one whom it cannot ask. */
static void scn_unasked(struct sim *s)
{
	struct world *w = patient_world(s, 3, 1);
	struct err e;
	w->forks_allowed = true;
	if (sim_seed(s) % 2)
		sim_check(s, !net_ban(world_peer(w, 0)->net, net_self(world_peer(w, 1)->net), UINT64_MAX, "unwanted", &e));
	else
		sim_cut_both(s, 0, 1);
	sim_run_for(s, 2 * SEC + rng_below(sim_rng(s), 12 * SEC));
	sim_kill(s, 2);
	each_goes_on(w);
	world_free(w);
}

/* Of two one dies, sleeps, or hears or says nothing any more while the COMMIT is on its way: the other goes on. */
static void scn_last_of_two(struct sim *s)
{
	struct sim_link far = { .latency_us = 20 * MSEC, .jitter_us = MSEC };
	struct world *w = settled_world(s, 2);
	int l, how = (int)(sim_seed(s) % 6);
	sim_link(s, -1, -1, &far);
	world_run_to(w, world_newest(w) + 2, 20 * SEC);
	l = who_tells(w);
	if (l < 0) {
		world_free(w);
		return;
	}
	w->alone = l;
	w->forks_allowed = true;
	struct until u = { w, how == 3 ? 1 - l : l, world_peer(w, l)->point.epoch + 4 };
	sim_run_for(s, rng_below(sim_rng(s), 40 * MSEC));
	if (how == 0)
		sim_kill(s, 1 - l);
	else if (how == 1)
		sim_power_off(s, 1 - l);
	else if (how == 2)
		sim_pause(s, 1 - l);
	else
		sim_cut(s, how == 4 ? 1 - l : l, how == 4 ? l : 1 - l);
	if (how == 5)
		sim_cut(s, 1 - l, l);
	sim_await(s, has_epoch, &u, 15 * SEC);
	world_free(w);
}

static bool brought(struct sim *s, void *arg)
{
	const struct until *u = arg;
	const struct round *r = world_peer(u->w, u->node)->avg->round;
	return r && r->contributed && r->told_x && !r->attempted && !r->lead;
}

/* A member has an ATTEMPT of the number that is committed, the second, but of a leader of another term: it refuses the
 * first, and the others go on without it. The COMMIT is of another attempt than it has, and it takes that one's sum. */
static void scn_same_number(struct sim *s)
{
	struct world *w = settled_world(s, 4);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		struct until u = { w, (world_leader(w) + 1) % 4, 0 };
		sim_await(s, brought, &u, 5 * SEC);
		if (sim_failed(s))
			break;
		struct round *r = world_peer(w, u.node)->avg->round;
		struct attempt at = { .term = r->term + 1, .no = 1, .data_us = r->b.data_us, .n = r->b.n, .parts = r->b.parts,
			.rows = 1, .samples = xcalloc(r->b.n, sizeof *at.samples), .owner = xcalloc(r->b.parts, sizeof *at.owner) };
		struct err e = { 0 };
		memcpy(at.round, r->id, DIGEST);
		at.samples[r->me] = r->samples;
		for (size_t i = 0; i < r->b.parts; i++)
			at.owner[i] = (uint16_t)r->me;
		if (member_attempt(r, &at, NULL, &e))
			sim_fail(s, "node %d: %s", u.node, e.text);
		attempt_free(&at);
		world_go_on(w, 2);
		for (int i = 0; i < 4; i++)
			for (int why = 0; why < 4; why++)
				if (world_peer(w, i)->resyncs[why])
					sim_fail(s, "node %d has given up its state", i);
	}
	world_free(w);
}

/* All at one epoch, nobody in a round, and somebody leads. */
static bool between(struct sim *s, void *arg)
{
	struct world *w = arg;
	for (int i = 0; i < sim_nodes(s); i++)
		if (world_peer(w, i)->in_round || world_peer(w, i)->point.epoch != world_newest(w))
			return false;
	return world_leader(w) >= 0;
}

static bool waits(struct sim *s, void *arg)
{
	const struct until *u = arg;
	const struct round *r = world_peer(u->w, u->node)->avg->round;
	return r && r->lead && r->lead->phase == LEAD_WAIT;
}

/* A leader without a majority waits a long time for news of the others. They say goodbye, when they have waited 5 s for
 * the round that they are in: there is nothing to wait for any more. */
static void scn_left_alone(struct sim *s)
{
	struct world *w = patient_world(s, 3, 1000);
	sim_await(s, between, w, 20 * SEC);
	struct until u = { w, world_leader(w), world_newest(w) + 1 };
	for (int i = 0; i < 3; i++)
		w->slow_contribute_us[i] = i == u.node ? 0 : 60 * SEC;
	sim_await(s, waits, &u, 20 * SEC);
	for (int i = 0; i < 3; i++)
		if (i != u.node)
			avg_leave(world_peer(w, i)->avg, world_gone, NULL);
	sim_await_or(s, has_epoch, &u, 8 * SEC, "node %d waits for those who have left", u.node);
	world_free(w);
}

/* Two of five are cut off, with two newcomers who take no part and say goodbye: these never counted among the five, and
 * the leader here waits for the three as before. */
static void scn_newcomers_leave(struct sim *s)
{
	struct world *w = patient_world(s, 5, 1000);
	int side[7] = { 0, 0, 0, 0, 0, 1, 1 };
	w->max_epoch = world_newest(w) + 1;     /* nobody trains while they come in */
	world_run_to(w, w->max_epoch, 20 * SEC);
	w->slow_contribute_us[5] = w->slow_contribute_us[6] = 60 * SEC;
	world_add(w, 2);
	world_settle(w, 20 * SEC);
	sim_await(s, between, w, 20 * SEC);
	struct until u = { w, world_leader(w), world_newest(w) + 1 };
	side[u.node % 5] = side[(u.node + 1) % 5] = 1;
	w->forks_allowed = true;
	sim_partition(s, side, 7);
	w->max_epoch = 0;
	for (int i = 0; i < 7; i++)
		world_train(world_peer(w, i));
	sim_await(s, waits, &u, 20 * SEC);
	for (int i = 5; i < 7; i++)
		avg_leave(world_peer(w, i)->avg, world_gone, NULL);
	sim_run_for(s, 15 * SEC);
	if (world_peer(w, u.node)->point.epoch >= u.epoch)
		sim_fail(s, "node %d has decided with one other of five", u.node);
	sim_heal(s);
	world_free(w);
}

static const struct scn list[] = { SCN(half_told), SCN(two_leaders), SCN(untold), SCN(late_word), SCN(last_left),
	SCN_CELLS(last_of_two, 6), SCN(two_points), SCN(unasked), SCN(two_lives),
	SCN(same_number), SCN(left_alone), SCN(newcomers_leave), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
