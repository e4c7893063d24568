/* What a swarm of whole nodes goes through in a day: an hour of churn, a member that floods, an upgrade while it
 * trains. Light cryptography; scn_node.c has the same peers with libcrypto. */
#include <stdio.h>
#include <string.h>
#include "chain_check.h"
#include "common/mem.h"
#include "net/frame.h"
#include "net/inner.h"
#include "node_world.h"

static char spec[700];

static struct node_world *begin(struct sim *s, int n, unsigned nap_ms, unsigned batches, uint64_t epochs)
{
	struct node_world *w = node_world_new(s, node_naps(spec, nap_ms, 8 * batches * (unsigned)n));
	node_world_add(w, n);
	node_run_to(w, epochs, 300 * SEC);
	return w;
}

static void end(struct node_world *w)
{
	node_in_time(w);
	node_world_free(w);
}

/* Every minute a tenth of the peers is killed and comes back some time later from its checkpoint: epochs never stop for
 * long, and at the end everybody holds the same. */
static void churn(struct sim *s, int minutes)
{
	enum { PEERS = 10 };
	struct node_world *w = begin(s, PEERS, 2000, 5, 2);
	uint64_t at = node_newest(w), first = at;
	w->forks_allowed = true;                /* who comes back may be alone for a moment */
	for (int minute = 1; minute <= minutes && !sim_failed(s); minute++) {
		sim_run_for(s, rng_below(sim_rng(s), 60 * SEC));
		sim_kill(s, node_any(w));
		for (int tries = 0; node_alive(w) < PEERS - 2 && tries < 1000; tries++) {
			int i = (int)rng_below(sim_rng(s), PEERS);
			if (!sim_alive(s, i))
				sim_restart(s, i);
		}
		sim_run_for(s, 60 * SEC - sim_now(s) % (60 * SEC));
		if (minute % 3)
			continue;
		if (node_newest(w) == at)
			sim_fail(s, "minute %d: epoch %llu, as three minutes ago", minute, (unsigned long long)at);
		if (node_newest(w) < at + 3)
			sim_late(s, "minute %d: epoch %llu, it was %llu three minutes ago", minute,
				(unsigned long long)node_newest(w), (unsigned long long)at);
		at = node_newest(w);
	}
	sim_in_time(s, node_newest(w) > first + (uint64_t)minutes);
	for (int i = 0; i < PEERS; i++)
		if (!sim_alive(s, i))
			sim_restart(s, i);
	sim_run_for(s, 30 * SEC);
	node_goes_on(w, 3, 180 * SEC);
	for (int i = 0; i < PEERS; i++)
		node_finds(w, i, PEERS, PEERS);
	end(w);
}

static void scn_churn_hour(struct sim *s) { churn(s, 60); }
static void scn_churn_minutes(struct sim *s) { churn(s, 6); }

/* ---- upgrade ---- */

static bool mismatch_told(struct sim *s, void *world) { return node_told(world, "version_mismatch"); }

/* Each peer in turn is restarted with a version that speaks the old and a newer protocol, while all train: half old and
 * half new average together. One that speaks only the newer is refused, readably, as long as somebody is old;
 * afterwards it comes in. */
static void scn_rolling(struct sim *s)
{
	enum { PEERS = 6 };
	struct node_world *w = begin(s, PEERS, 100, 2, 5);
	const char *text;
	w->version_min[PEERS] = w->version_max[PEERS] = PROTOCOL_VERSION + 1;
	for (int i = 0; i < PEERS; i++) {
		w->version_min[i] = PROTOCOL_OLDEST;
		w->version_max[i] = PROTOCOL_VERSION + 1;
		sim_restart(s, i);
		node_goes_on(w, 4, 30 * SEC);
		node_finds(w, i, PEERS, SIZE_MAX);   /* who was refused may be known to some */
		if (i != 2)
			continue;
		w->idle[PEERS] = true;          /* it cannot know the run: nobody of the old ones talks to it */
		node_world_add(w, 1);
		sim_run_for(s, 20 * SEC);
		sim_await(s, mismatch_told, w, 0);
		text = node_told(w, "version_mismatch");
		if (!text || !strstr(text, "upgrade the older of the two"))
			sim_fail(s, "who speaks only the newer protocol reads: %s", text ? text : "nothing");
		sim_kill(s, PEERS);
	}
	w->idle[PEERS] = false;
	sim_restart(s, PEERS);
	node_goes_on(w, 4, 60 * SEC);
	node_finds(w, PEERS, PEERS + 1, PEERS + 1);
	end(w);
}

/* ---- flood ---- */

static void junk(struct node_world *w, int from, int to, unsigned n, bool garbage)
{
	struct net *net = node_net(node_peer(w, from)->node);
	struct peer *p = peer_find(net, node_id(node_peer(w, to)->node));
	for (unsigned i = 0; p && i < n; i++) {
		struct msg *m = msg_new(KIND_RUN_STATE, CLASS_control, json_pack("{s:i}", "n", (int)i), NO_BLOB);
		if (garbage) {
			free(m->json);
			m->json = xstrdup("{\"n\":");
			m->json_len = strlen(m->json);
		}
		out_send(p, m, 0, 0, 0, NULL, NULL);
		msg_unref(m);
	}
}

static bool banned(struct node_world *w, int of, int node)
{
	struct peer_info p;
	return net_peer(node_net(node_peer(w, of)->node), node_id(node_peer(w, node)->node), &p) && p.banned_until_us;
}

enum { BAD = 5 };                               /* who floods the others */

/* Whom of them it goes on to flood, since it is not barred there; -1: nobody. */
static int listening(struct node_world *w)
{
	for (int i = 0; i < BAD; i++)
		if (!banned(w, i, BAD))
			return i;
	return -1;
}

static void flood(struct node_world *w, bool garbage)
{
	for (int i = 0; i < BAD; i++)
		junk(w, BAD, i, garbage ? 10 : 400, garbage);
	sim_run_for(w->s, 100 * MSEC);
}

static bool may_return(struct sim *s, void *world) { return !banned(world, 0, BAD); }

/* A member says ten times its share to everybody, garbage among it: it is slowed, then barred; the epochs of the others
 * go on and no loop is late. When it has calmed down and the ban is over it takes part again. */
static void scn_flood(struct sim *s)
{
	enum { PEERS = 6 };
	struct node_world *w = node_world_new(s, node_naps(spec, 100, 8 * 2 * PEERS));
	w->peer_frames = 400;
	node_world_add(w, PEERS);
	node_run_to(w, 5, 60 * SEC);
	w->idle[BAD] = true;
	w->alone = BAD;                         /* barred by all it may go on by itself */
	bool garbage = sim_seed(s) % 2;
	for (int k = 0; k < 200; k++) {         /* 20 s */
		uint64_t at = node_newest(w);
		flood(w, garbage && k % 4);
		if (k % 50 == 49)
			node_run_to(w, at + 1, 10 * SEC);
	}
	if (listening(w) >= 0)
		sim_late(s, "node %d goes on listening to who floods it", listening(w));
	for (int k = 0; k < 600 && listening(w) >= 0 && !sim_failed(s); k++)
		flood(w, garbage && k % 4);
	if (listening(w) >= 0)
		sim_fail(s, "node %d never bars who floods it", listening(w));
	sim_check(s, node_told(w, "peer_banned") && (garbage || node_told(w, "peer_slowed")));
	node_goes_on(w, 20, 60 * SEC);
	sim_run_for(s, 120 * SEC);
	w->idle[BAD] = false;
	node_goes_on(w, 5, 120 * SEC);
	sim_await(s, may_return, w, 0);
	end(w);
}

static const struct scn list[] = { SCN(churn_minutes), SCN(rolling), SCN(flood), SCN(churn_hour), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
