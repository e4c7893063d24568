/* State downloads of whole nodes: from several donors at once, past donors that die, in a crowd of newcomers, and over
 * a link on which the download outlasts epochs. chain_check.h compares every byte of the state at every epoch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chain_check.h"
#include "common/mem.h"
#include "node_world.h"

static uint64_t weight_bytes(struct node_world *w, int node)
{
	static struct peer_info v[256];
	struct node_peer *p = node_peer(w, node);
	size_t n = p ? net_peers(node_net(p->node), v, 256) : 0;
	uint64_t sum = 0;
	for (size_t i = 0; i < n && i < 256; i++)
		sum += v[i].bytes.out[CLASS_weight];
	return sum;
}

/* What each of the first n has given since `before`; nobody more than twice its share. */
static uint64_t shares(struct sim *s, struct node_world *w, int n, const uint64_t *before, uint64_t least)
{
	uint64_t most = 0, sum = 0;
	for (int i = 0; i < n; i++) {
		uint64_t gave = weight_bytes(w, i) - before[i];
		sum += gave;
		most = gave > most ? gave : most;
		if (gave < least)
			sim_late(s, "node %d gave %llu bytes of the state", i, (unsigned long long)gave);
	}
	if (most > sum / (unsigned)n * 2)
		sim_late(s, "one donor gave %llu of %llu bytes", (unsigned long long)most, (unsigned long long)sum);
	return sum;
}

/* Positions that were promised to a peer before it fetched the state are the others' meanwhile: had it brought one, its
 * contribution or another's would be left out. Before there was one history two may have begun it. */
static void nothing_twice(void *arg, const struct log_line *l)
{
	if (strstr(l->text, "were processed by others") && !strstr(l->text, " of epoch 0 "))
		sim_fail(arg, "%s", l->text);
}

static void listen(struct node_world *w, struct node_peer *p)
{
	log_watch(p->env->log, nothing_twice, w->s);
}

/* 50 000 parameters, 600 kB of state; two micro-batches of every peer an epoch. */
static struct node_world *world(struct sim *s, int n, unsigned nap_ms, unsigned epochs)
{
	static char spec[800];
	snprintf(spec, sizeof spec, "{\"name\": \"naps\", \"input\": [100], \"model\": [{\"type\": \"sleep\", "
		"\"fwd_ms\": %u}, {\"type\": \"linear\", \"out\": 500}], \"loss\": \"cross_entropy\", \"target_batch\": %u, "
		"\"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, \"strategy\": \"hivemind\", "
		"\"averaging\": {\"group_max\": 128}, \"validation\": {\"every\": 0}, "
		"\"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, "
		"\"stop\": {\"epochs\": %u}, \"local\": {\"batch\": 8}}", nap_ms, 16 * (unsigned)n, epochs);
	struct node_world *w = node_world_new(s, spec);
	w->born = listen;
	return w;
}

static struct node_world *begin(struct sim *s, int n, unsigned nap_ms, uint64_t epochs)
{
	struct node_world *w = world(s, n, nap_ms, 1000000);
	node_world_add(w, n);
	node_run_to(w, epochs, 60 * SEC);
	return w;
}

struct joined { struct node_world *w; int from; };

static bool all_train(struct sim *s, void *arg)
{
	struct joined *j = arg;
	for (int i = j->from; i < sim_nodes(s); i++) {
		struct run *r = node_run(j->w, i);
		if (sim_alive(s, i) && (!r || r->state != RUN_TRAIN || !r->own_samples))
			return false;
	}
	return true;
}

static void join(struct node_world *w, int n, uint64_t limit_us)
{
	struct joined j = { w, sim_nodes(w->s) };
	node_world_add(w, n);
	if (!sim_await(w->s, all_train, &j, limit_us))
		node_print(w);
}

/* One newcomer, six donors: each gives a part, none more than twice its share, and an epoch later it contributes. */
static void scn_several(struct sim *s)
{
	struct node_world *w = begin(s, 6, 200, 3);
	uint64_t before[6];
	for (int i = 0; i < 6; i++)
		before[i] = weight_bytes(w, i);
	join(w, 1, 5 * SEC);
	shares(s, w, 6, before, 32768);
	node_goes_on(w, 2, 20 * SEC);
	node_end(w);
}

/* Half of the donors die while they give, one after the other; the rest gives what they cannot. */
static void scn_donors_die(struct sim *s)
{
	struct node_world *w = begin(s, 8, 200, 3);
	struct sim_link thin = { .latency_us = 5 * MSEC, .jitter_us = MSEC, .bytes_per_s = 400000 };
	struct joined j = { w, 8 };
	w->forks_allowed = true;
	sim_link(s, 8, -1, &thin);
	sim_link(s, -1, 8, &thin);
	for (int i = 0; i < 4; i++)
		sim_failpoint(s, i + 1, "run.state.give", SIM_KILL, 1 + (int)rng_below(sim_rng(s), 4));
	node_world_add(w, 1);
	sim_await(s, all_train, &j, 60 * SEC);
#ifdef FAILPOINTS
	if (node_alive(w) > 8)
		sim_late(s, "no donor has died");
#endif
	for (int i = 0; i < 9; i++)
		if (!sim_alive(s, i))
			sim_restart(s, i);
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
}

/* One or two sleep while the others go on; they wake and fetch, and every one of the others dies on the way. What these
 * have saved themselves is the newest that there is, and they go on with the newer of it. */
static bool fetches(struct sim *s, void *arg)
{
	struct joined *j = arg;
	for (int i = 0; i < j->from; i++) {
		struct run *r = node_run(j->w, i);
		if (sim_alive(s, i) && (!r || r->state != RUN_SYNC))
			return false;
	}
	return true;
}

static void scn_all_donors_die(struct sim *s)
{
	struct node_world *w = world(s, 5, 200, 1000000);
	struct sim_link thin = { .latency_us = 5 * MSEC, .jitter_us = MSEC, .bytes_per_s = 200000 };
	struct joined late = { w, 1 + (int)rng_below(sim_rng(s), 2) }, all = { w, 0 };
	w->forks_allowed = true;
	w->born = NULL;                         /* two begin apart and may take the same samples */
	node_world_add(w, 5);
	node_run_to(w, 22, 60 * SEC);
	for (int i = 0; i < late.from; i++)
		sim_kill(s, i);
	sim_run_for(s, 5 * SEC);
	for (int i = 0; i < late.from; i++) {
		sim_link(s, i, -1, &thin);
		sim_link(s, -1, i, &thin);
		sim_restart(s, i);
	}
	if (!sim_await(s, fetches, &late, 30 * SEC))
		return;
	sim_run_for(s, rng_below(sim_rng(s), SEC));
	for (int i = late.from; i < 5; i++)
		sim_kill(s, i);
	if (!sim_await(s, all_train, &all, 60 * SEC)) {
		node_print(w);
		return;
	}
	sim_check(s, node_run(w, 0)->point.epoch >= 20);
	for (int i = late.from; i < 5; i++)
		sim_restart(s, i);
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
}

/* A commit that one peer finds no room for, or cannot keep because too many wait, costs it a state, not the run. */
static void scn_no_room(struct sim *s)
{
	struct node_world *w = begin(s, 4, 100, 3);
	struct joined all = { w, 0 };
	sim_failpoint(s, 2, "run.commit.keep", SIM_ERROR, 1 + (int)rng_below(sim_rng(s), 4));
	sim_run_for(s, 5 * SEC);
#ifdef FAILPOINTS
	sim_in_time(s, sim_failpoint_hit(s, "run.commit.keep"));
#endif
	if (!sim_await(s, all_train, &all, 20 * SEC))
		node_print(w);
	if (node_told(w, "run.failed"))         /* an operator would have had to join again, as the one here does */
		sim_fail(s, "the run has failed: %s", node_told(w, "run.failed"));
	node_goes_on(w, 2, 20 * SEC);
	node_end(w);
}

/* 64 newcomers at once: all of them train soon, and no donor has given more than twice its share. */
static void scn_crowd(struct sim *s)
{
	struct node_world *w = begin(s, 8, 200, 3);
	uint64_t before[8];
	w->forks_allowed = true;                /* among so many at once a peer may seem dead to some for a moment, */
	w->born = NULL;                         /* or the first that they find are newcomers, too */
	for (int i = 0; i < 8; i++)
		before[i] = weight_bytes(w, i);
	join(w, 64, 60 * SEC);
	uint64_t sum = shares(s, w, 8, before, 0);
	if (sum < 64 * 500000ull / 2)
		sim_late(s, "only %llu bytes of state were given", (unsigned long long)sum);
	node_goes_on(w, 2, 60 * SEC);
	node_world_free(w);
}

/* The download outlasts epochs: what passes is kept and replayed, and the newcomer ends where the swarm is. */
static void scn_outlasted(struct sim *s)
{
	struct node_world *w = begin(s, 4, 600, 3);
	struct sim_link thin = { .latency_us = 40 * MSEC, .jitter_us = 10 * MSEC, .bytes_per_s = 80000 };
	uint64_t at = node_newest(w);
	sim_link(s, 4, -1, &thin);
	sim_link(s, -1, 4, &thin);
	join(w, 1, 120 * SEC);
	if (node_newest(w) < at + 2)
		sim_late(s, "the download took %llu epochs only", (unsigned long long)(node_newest(w) - at));
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
}

static bool syncs(struct sim *s, void *arg)
{
	struct run *r = node_run(arg, 4);
	return r && r->state == RUN_SYNC;
}

/* The newcomer is cut off in the middle of its download, and later everything takes seconds for a while: it loses every
 * leader it knew. When its link is as it was, it finds the swarm again. */
static void scn_cut_off(struct sim *s)
{
	struct node_world *w = begin(s, 4, 600, 3);
	struct sim_link thin = { .latency_us = 40 * MSEC, .jitter_us = 10 * MSEC, .bytes_per_s = 80000 }, slow = thin;
	struct joined j = { w, 4 };
	w->forks_allowed = true;
	slow.latency_us = 2500 * MSEC;
	sim_link(s, 4, -1, &thin);
	sim_link(s, -1, 4, &thin);
	node_world_add(w, 1);
	sim_await(s, syncs, w, 10 * SEC);
	sim_run_for(s, SEC + rng_below(sim_rng(s), SEC));
	for (int i = 0; i < 4; i++)
		sim_cut_both(s, i, 4);
	sim_run_for(s, 8 * SEC);
	sim_heal(s);
	sim_link(s, 4, -1, &slow);
	sim_link(s, -1, 4, &slow);
	sim_run_for(s, 20 * SEC);
	sim_link(s, 4, -1, &thin);
	sim_link(s, -1, 4, &thin);
	sim_await(s, all_train, &j, 60 * SEC);
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
}

/* ---- the end of a run, and who is not there yet ---- */

static bool newest_at(struct sim *s, void *arg)
{
	struct joined *j = arg;
	return node_newest(j->w) >= (uint64_t)j->from;
}

static bool all_over(struct sim *s, void *arg)
{
	for (int i = 0; i < sim_nodes(s); i++)
		if (!node_run(arg, i) || !run_over(node_run(arg, i)))
			return false;
	return true;
}

/* Four that end at that epoch, a newcomer that begins its download before; nobody joins again. */
static struct node_world *late_one(struct sim *s, unsigned epochs, unsigned at)
{
	struct node_world *w = world(s, 4, 100, epochs);
	struct sim_link thin = { .latency_us = 20 * MSEC, .jitter_us = 10 * MSEC, .bytes_per_s = 20000 };
	struct joined j = { w, (int)at };
	node_world_add(w, 4);
	node_run_to(w, 2, 60 * SEC);
	sim_link(s, 4, -1, &thin);
	sim_link(s, -1, 4, &thin);
	sim_await(s, newest_at, &j, 60 * SEC);
	node_world_add(w, 1);
	sim_await(s, syncs, w, 10 * SEC);
	for (int i = 0; i < 5; i++)
		w->idle[i] = true;
	return w;
}

/* The others reach the goal while it downloads: it gets what they have ended with, and has reached it, too. */
static void scn_finished(struct sim *s)
{
	struct node_world *w = late_one(s, 20, 15 + (unsigned)rng_below(sim_rng(s), 3));
	if (!sim_await(s, all_over, w, 120 * SEC))
		node_print(w);
	for (int i = 0; i < 5 && !sim_failed(s); i++) {
		struct run *r = node_run(w, i);
		if (strcmp(run_state_name(r), "done") || r->point.epoch != 20 || memcmp(r->point.prev,
				node_run(w, 0)->point.prev, DIGEST))
			sim_fail(s, "node %d is %s at epoch %llu", i, run_state_name(r), (unsigned long long)r->point.epoch);
	}
	node_end(w);
}

/* Stopped by its author while one downloads and another is out of reach: both hear it, end where they are, and say
 * that it is behind the others. */
static void scn_stopped(struct sim *s)
{
	struct node_world *w = late_one(s, 1000000, 15);
	struct err e = { 0 };
	w->forks_allowed = true;
	sim_run_for(s, rng_below(sim_rng(s), 4 * SEC));
	for (int i = 0; i < 5; i++)
		if (i != 2)
			sim_cut_both(s, i, 2);
	sim_run_for(s, rng_below(sim_rng(s), 4 * SEC));
	json_t *r = node_ask(w, 0, node_run_stop, json_pack("{s:s}", "run", "naps"), &e);
	if (!r)
		sim_fail(s, "stop: %s", e.text);
	json_decref(r);
	sim_run_for(s, 8 * SEC);
	sim_heal(s);
	if (!sim_await(s, all_over, w, 60 * SEC))
		node_print(w);
	const char *told = node_told(w, "run.behind");
	if (!told || !strstr(told, "older"))
		sim_fail(s, "nobody says that it is behind");
	for (int i = 0; i < 5 && !sim_failed(s); i++)
		if (strcmp(run_state_name(node_run(w, i)), "stopped"))
			sim_fail(s, "node %d is %s", i, run_state_name(node_run(w, i)));
	node_end(w);
}

/* A checkpoint comes with the commits that led to it, as a state that is given does: bytes of so many marks. */
static void remembers(struct node_world *w, int node, size_t epochs)
{
	struct run *r = node_run(w, node);
	struct avg_point at;
	avg_point_init(&at);
	avg_point_copy(&at, &r->point);
	avg_past_of(r->avg, &at);
	if (at.npast < epochs * 12)
		sim_fail(w->s, "node %d is back at epoch %llu, and knows %zu bytes of what led to it", node,
			(unsigned long long)at.epoch, at.npast);
	avg_point_done(&at);
}

static bool is_back(struct sim *s, void *arg)
{
	const struct run *r = node_run(arg, 0);
	return r && r->avg && r->state == RUN_TRAIN;
}

/* The whole swarm is killed; each has another checkpoint: of epoch 60, 40 and 20. Whoever comes first waits for the
 * others, and it goes on from the newest: no epoch up to that is committed twice. */
static void whole(struct sim *s, const int *order)
{
	struct node_world *w = begin(s, 3, 200, 21);
	uint8_t newest[DIGEST];
	sim_disk_full(s, 2, 0);
	node_run_to(w, 41, 60 * SEC);
	sim_disk_full(s, 1, 0);
	node_run_to(w, 60, 60 * SEC);
	memcpy(newest, run_point_at(node_run(w, 0), 60)->prev, DIGEST);
	node_run_to(w, 62, 60 * SEC);
	w->forks_allowed = true;                /* epochs 61 and 62 are made anew */
	for (int i = 0; i < 3; i++)
		sim_kill(s, i);
	for (int i = 0; i < 3; i++) {
		sim_disk_full(s, order[i], -1);
		sim_restart(s, order[i]);
		sim_run_for(s, 2 * SEC);
	}
	if (sim_await(s, is_back, w, 60 * SEC))
		remembers(w, 0, 50);
	node_run_to(w, 64, 60 * SEC);
	for (int i = 0; i < 3 && !sim_failed(s); i++) {
		const struct avg_point *p = run_point_at(node_run(w, i), 60);
		if (p && memcmp(p->prev, newest, DIGEST))
			sim_fail(s, "node %d goes on from another epoch 60", i);
	}
	node_end(w);
}

static void scn_whole_old_first(struct sim *s) { whole(s, (int[]){ 2, 1, 0 }); }
static void scn_whole_new_first(struct sim *s) { whole(s, (int[]){ 0, 1, 2 }); }

/* ---- who has nothing to give ---- */

struct asked { bool over, past; struct err e; };

static void given(void *arg, const struct frame *f, const struct err *e)
{
	struct asked *q = arg;
	q->over = true;
	q->past = f && memmem(f->blob, f->blob_len, "\"past\":\"", 8);
	q->e = f ? (struct err){ 0 } : *e;
}

static bool is_answered(struct sim *s, void *arg) { return ((struct asked *)arg)->over; }

/* What `of` says to `by`, who wants its state: 0, or why not. */
static struct err state_asked(struct node_world *w, int by, int of)
{
	struct asked *q = xcalloc(1, sizeof *q);
	struct net *net = node_net(node_peer(w, by)->node);
	struct err e = { .code = ERR_TIMEOUT };
	net_learn(net, node_id(node_peer(w, of)->node), sim_endpoint(w->s, of));
	net_call(net, node_id(node_peer(w, of)->node), KIND_RUN_STATE, json_pack("{s:s,s:i}", "run", node_run(w, of)->hex,
		"from", 0), NO_BLOB, CLASS_weight, 5 * SEC, given, q);
	if (!sim_await(w->s, is_answered, q, 10 * SEC)) /* q lives on: the answer may still come */
		return e;
	e = q->e;
	if (!e.code && !q->past)
		sim_fail(w->s, "node %d gives a state without what led to it", of);
	free(q);
	return e;
}

static bool has_learned(struct sim *s, void *arg)
{
	struct run *r = node_run(arg, 4);
	return r && r->state == RUN_TRAIN && r->point.epoch >= 2;
}

/* One is cut off before the first epoch, and slow: its parameters are fresh while the others' have learned. Whoever
 * asks for the state gets it from them and nothing from that one, until it has the swarm's itself. */
static void scn_fresh(struct sim *s)
{
	char spec[700];
	struct node_world *w = node_world_new(s, node_naps_of(spec, 100, 200, 240));
	struct joined all = { w, 0 };
	struct err e;
	w->forks_allowed = true;                /* it may come to think that it is alone */
	w->batch_of[3] = 1;                     /* 48 s for an epoch of its own */
	w->idle[4] = true;
	node_world_add(w, 4);
	if (!sim_await(s, all_train, &all, 20 * SEC) || node_run(w, 3)->point.epoch) {
		node_print(w);
		sim_late(s, "four do not begin together");
		node_world_free(w);
		return;
	}
	w->idle[3] = true;
	for (int i = 0; i < 3; i++)
		sim_cut_both(s, i, 3);
	node_run_to(w, 2, 60 * SEC);
	node_world_add(w, 1);
	for (int i = 0; i < 4; i++) {
		if (i == 3 && node_run(w, 3)->point.epoch) {    /* its state is not fresh any more */
			sim_late(s, "it has made an epoch before anybody asked");
			break;
		}
		e = state_asked(w, 4, i);
		if (i < 3 ? e.code : e.code != ERR_BUSY || !strstr(e.text, "fresh"))
			sim_fail(s, "node %d at epoch %llu says: %s", i, (unsigned long long)node_run(w, i)->point.epoch,
				e.code ? e.text : "here it is");
	}
	sim_in_time(s, node_run(w, 3)->state == RUN_TRAIN && !node_run(w, 3)->point.epoch);
	w->idle[4] = false;
	sim_cut_both(s, 3, 4);                  /* else it may be with that one first */
	sim_await(s, has_learned, w, 20 * SEC);
	if (weight_bytes(w, 3))
		sim_fail(s, "%llu bytes came from who has learned nothing", (unsigned long long)weight_bytes(w, 3));
	sim_heal(s);
	w->idle[3] = false;
	node_goes_on(w, 2, 120 * SEC);
	e = state_asked(w, 4, 3);
	if (e.code)
		sim_fail(s, "it has the swarm's state, and says: %s", e.text);
	node_end(w);
}

static const struct scn list[] = { SCN(several), SCN(donors_die), SCN(all_donors_die), SCN(no_room), SCN(crowd),
	SCN(outlasted), SCN(cut_off),
	SCN(finished), SCN(stopped), SCN(fresh),
	SCN(whole_old_first), SCN(whole_new_first), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
