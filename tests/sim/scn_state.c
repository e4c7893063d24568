/* State downloads of whole nodes: from several donors at once, past donors that die, in a crowd of newcomers, and over
 * a link on which the download outlasts epochs. chain_check.h compares every byte of the state at every epoch. */
#include <stdio.h>
#include <string.h>
#include "chain_check.h"
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
			sim_fail(s, "node %d gave %llu bytes of the state", i, (unsigned long long)gave);
	}
	if (most > sum / (unsigned)n * 2)
		sim_fail(s, "one donor gave %llu of %llu bytes", (unsigned long long)most, (unsigned long long)sum);
	return sum;
}

/* 50 000 parameters, 600 kB of state; two micro-batches of every peer an epoch. */
static struct node_world *world(struct sim *s, int n, unsigned nap_ms)
{
	static char spec[800];
	snprintf(spec, sizeof spec, "{\"name\": \"naps\", \"input\": [100], \"model\": [{\"type\": \"sleep\", "
		"\"fwd_ms\": %u}, {\"type\": \"linear\", \"out\": 500}], \"loss\": \"cross_entropy\", \"target_batch\": %u, "
		"\"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, \"strategy\": \"hivemind\", "
		"\"averaging\": {\"group_max\": 128}, \"validation\": {\"every\": 0}, "
		"\"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, "
		"\"stop\": {\"epochs\": 1000000}, \"local\": {\"batch\": 8}}", nap_ms, 16 * (unsigned)n);
	return node_world_new(s, spec);
}

static struct node_world *begin(struct sim *s, int n, unsigned nap_ms, uint64_t epochs)
{
	struct node_world *w = world(s, n, nap_ms);
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
	if (sim_run_until(w->s, all_train, &j, limit_us))
		return;
	node_print(w);
	sim_fail(w->s, "%d newcomers do not train after %llu s", n, (unsigned long long)(limit_us / SEC));
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
	if (!sim_run_until(s, all_train, &j, 60 * SEC))
		sim_fail(s, "the newcomer does not train");
#ifdef FAILPOINTS
	if (node_alive(w) > 8)
		sim_fail(s, "no donor has died");
#endif
	for (int i = 0; i < 9; i++)
		if (!sim_alive(s, i))
			sim_restart(s, i);
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
}

/* 64 newcomers at once: all of them train soon, and no donor has given more than twice its share. */
static void scn_crowd(struct sim *s)
{
	struct node_world *w = begin(s, 8, 200, 3);
	uint64_t before[8];
	w->forks_allowed = true;                /* among so many at once a peer may seem dead to some for a moment (C3) */
	for (int i = 0; i < 8; i++)
		before[i] = weight_bytes(w, i);
	join(w, 64, 60 * SEC);
	uint64_t sum = shares(s, w, 8, before, 0);
	if (sum < 64 * 500000ull / 2)
		sim_fail(s, "only %llu bytes of state were given", (unsigned long long)sum);
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
		sim_fail(s, "the download took %llu epochs only", (unsigned long long)(node_newest(w) - at));
	node_goes_on(w, 2, 60 * SEC);
	node_end(w);
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

static const struct scn list[] = { SCN(several), SCN(donors_die), SCN(crowd), SCN(outlasted),
	SCN(whole_old_first), SCN(whole_new_first), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
