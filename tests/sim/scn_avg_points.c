/* Row C06: whoever comes to a named point of the averager in a role is killed there, or stopped for twice the round's
 * deadline. The others finish the same round: one BEGIN of that epoch reaches each of them, none gives it up, and
 * what is committed is that epoch, once, with one digest; its weight is the samples that the survivors brought, and
 * the victim's when it had brought them all before. A dead leader's round is its successor's, in a new attempt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"

#define PLAIN 4                                 /* peers that do everything; then a client and an auxiliary */
#define CLIENT 4
#define AUX 5
#define PEERS 6
#define TRIES 6                                 /* of two roles a peer may take the other first */

enum role { LEADER = 1, MEMBER = 2, CLIENTS = 4, HELPER = 8 };
enum drive { BY_ITSELF, LEAVES, PROPOSES, LEADER_DIES, DATA_LOST };
static const char *const role_name[] = { [LEADER] = "leader", [MEMBER] = "member", [CLIENTS] = "client",
	[HELPER] = "auxiliary" };
static const char *const fate_name[] = { [SIM_KILL] = "killed", [SIM_PAUSE] = "stopped" };

/* Who passes it, with what it takes. A client sums nothing and leads nothing, an auxiliary sends nothing; the leader
 * tells itself without a message, and sees first who is dead. */
static const struct point { const char *name; unsigned roles; enum drive drive; bool often; } points[] = {
	{ "avg.progress", MEMBER | CLIENTS | HELPER, BY_ITSELF, true },
	{ "avg.begin", LEADER, BY_ITSELF, true },
	{ "avg.ready", MEMBER | CLIENTS | HELPER, BY_ITSELF, false },
	{ "avg.data", LEADER | MEMBER | CLIENTS, BY_ITSELF, true },
	{ "avg.attempt", LEADER, BY_ITSELF, true },
	{ "avg.result", LEADER | MEMBER | HELPER, BY_ITSELF, true },
	{ "avg.ack", MEMBER | CLIENTS | HELPER, BY_ITSELF, false },
	{ "avg.commit", LEADER, BY_ITSELF, true },
	{ "avg.leave", LEADER | MEMBER | CLIENTS | HELPER, LEAVES, true },
	{ "avg.propose", MEMBER | CLIENTS | HELPER, PROPOSES, false },
	{ "avg.recover", LEADER, LEADER_DIES, true },
	{ "avg.recovered", MEMBER | CLIENTS | HELPER, LEADER_DIES, false },
	{ "avg.missing", MEMBER | HELPER, DATA_LOST, false },
};
#define POINTS (sizeof points / sizeof *points)

/* What a peer has applied of an epoch. */
struct applied { uint64_t epoch, weight, mine; uint8_t digest[DIGEST]; unsigned times; };
struct cell {
	struct world *w; const struct point *point; enum role role; enum sim_fate fate; char name[40];
	struct strike { struct cell *cell; enum role role; int node; uint64_t epoch, samples, deadline_us; } victim, other;
	struct applied seen[PEERS][8];
	uint64_t fails[PEERS], resyncs[PEERS];
};

static uint64_t all_resyncs(const struct apeer *p)
{
	return p->resyncs[AVG_FORK] + p->resyncs[AVG_BEHIND] + p->resyncs[AVG_DIVERGED] + p->resyncs[AVG_MISSED];
}

static enum role role_of(struct world *w, int node)
{
	struct avg_view v;
	avg_view(world_peer(w, node)->avg, &v);
	if (id_eq(&v.leader, net_self(world_peer(w, node)->net)))
		return LEADER;
	return node == CLIENT ? CLIENTS : node == AUX ? HELPER : MEMBER;
}

/* Does it pass in that role? The last one that it was asked of is struck. */
static bool is_it(void *arg, int node)
{
	struct strike *k = arg;
	const struct apeer *p = world_peer(k->cell->w, node);
	if (!p || p->syncing || role_of(k->cell->w, node) != k->role)
		return false;
	if (k == &k->cell->other && node == AUX && k->cell->role == HELPER)     /* there is only this one */
		return false;
	k->node = node;
	k->epoch = p->point.epoch;
	k->samples = p->samples;
	k->deadline_us = p->deadline_us > p->begun_us ? p->deadline_us - p->begun_us : 0;
	return true;
}

static void saw(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct cell *t = w->user;
	struct applied *a = &t->seen[p->node][c->epoch % 8];
	(void)mean;
	if (a->epoch != c->epoch)
		*a = (struct applied){ .epoch = c->epoch };
	a->times++;
	a->weight = c->weight;
	a->mine = c->my_samples;
	memcpy(a->digest, c->point->prev, DIGEST);
}

static void agreed(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	(void)arg;
	(void)epoch;
	(void)version;
	(void)e;
}

static bool is_struck(struct sim *s, void *arg)
{
	return sim_failpoint_hit(s, ((struct cell *)arg)->name);
}

/* A member has said that it is ready, and from then on nothing of it comes to whoever has the role. */
static bool loses(void *arg, int node)
{
	struct cell *t = arg;
	if (role_of(t->w, node) != MEMBER)
		return false;
	for (int i = 0; i < PEERS; i++)
		if (i != node && role_of(t->w, i) == t->role) {
			sim_cut(t->w->s, node, i);
			return true;
		}
	return false;
}

/* Somebody in the role is made to pass it. */
static void drive(struct cell *t)
{
	struct sim *s = t->w->s;
	if (t->point->drive == LEADER_DIES)
		sim_failpoint_of(s, is_it, &t->other, "avg.begin.after", SIM_KILL, 1 + (int)rng_below(sim_rng(s), 4));
	if (t->point->drive == DATA_LOST)
		sim_failpoint_of(s, loses, t, "avg.ready.after", SIM_ERROR, 1);
	if (t->point->drive != LEAVES && t->point->drive != PROPOSES)
		return;
	for (int k = 0, i = (int)rng_below(sim_rng(s), PEERS); k < PEERS; k++, i = (i + 1) % PEERS)
		if (role_of(t->w, i) == t->role) {
			if (t->point->drive == LEAVES)
				avg_leave(world_peer(t->w, i)->avg, world_gone, NULL);
			else
				avg_propose(world_peer(t->w, i)->avg, json_pack("{s:f}", "lr", 0.5), 0, agreed, NULL);
			return;
		}
}

/* The survivors' epoch after the strike. */
static void same_round(struct cell *t)
{
	struct sim *s = t->w->s;
	uint64_t epoch = t->victim.epoch + 1, sum = 0, lost = t->victim.samples, dead = t->other.node >= 0 ?
		t->other.samples : 0;
	const struct applied *first = NULL;
	for (int i = 0; i < PEERS; i++) {
		const struct apeer *p = world_peer(t->w, i);
		const struct applied *a = &t->seen[i][epoch % 8];
		if (i == t->victim.node || i == t->other.node)
			continue;
		if (a->epoch != epoch || a->times != 1)
			sim_fail(s, "node %d has applied epoch %llu %u times", i, (unsigned long long)epoch,
				a->epoch == epoch ? a->times : 0);
		if (p->fails != t->fails[i] || all_resyncs(p) != t->resyncs[i])
			sim_fail(s, "node %d has given up a round, or its state", i);
		first = first ? first : a;
		if (memcmp(a->digest, first->digest, DIGEST) || a->weight != first->weight)
			sim_fail(s, "node %d has another epoch %llu", i, (unsigned long long)epoch);
		sum += a->mine;
	}
	uint64_t more = first->weight - sum;
	if (more && more != lost && more != dead && more != lost + dead)
		sim_fail(s, "epoch %llu has weight %llu; the survivors brought %llu, the victims %llu and %llu",
			(unsigned long long)epoch, (unsigned long long)first->weight, (unsigned long long)sum,
			(unsigned long long)lost, (unsigned long long)dead);
}

static bool survivors_on(struct sim *s, void *arg)
{
	struct cell *t = arg;
	for (int i = 0; i < PEERS; i++)
		if (i != t->victim.node && i != t->other.node && world_peer(t->w, i)->point.epoch <= t->victim.epoch)
			return false;
	return true;
}

/* A BEGIN of that epoch for each, as long as it has not gone on to the next. */
static int one_begin(struct sim *s, void *arg, struct err *e)
{
	struct cell *t = arg;
	for (int i = 0; i < sim_nodes(s) && sim_failpoint_hit(s, t->name); i++) {
		const struct apeer *p = sim_alive(s, i) ? world_peer(t->w, i) : NULL;
		if (p && i != t->victim.node && p->round_epoch == t->victim.epoch && p->begins > 1)
			return err_set(e, ERR_STATE, "node %d: %u BEGINs of epoch %llu", i, p->begins,
				(unsigned long long)p->round_epoch);
	}
	return 0;
}

/* false: nobody in the role has come there. */
static bool strike(struct sim *s, struct cell *t)
{
	struct world *w = t->w = world_new(s, 320, 160, 8, 10 * MSEC);
	w->client[CLIENT] = w->aux[AUX] = true;
	w->start_us = 3 * SEC;
	w->user = t;
	w->saw = saw;
	memset(t->seen, 0, sizeof t->seen);     /* of the try before this one */
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3 + rng_below(sim_rng(s), 4), 20 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), 30 * MSEC));
	for (int i = 0; i < PEERS; i++) {
		t->fails[i] = world_peer(w, i)->fails;
		t->resyncs[i] = all_resyncs(world_peer(w, i));
	}
	t->victim = (struct strike){ .cell = t, .role = t->role, .node = -1 };
	t->other = (struct strike){ .cell = t, .role = t->point->drive == LEADER_DIES ? LEADER : MEMBER, .node = -1 };
	sim_failpoint_of(s, is_it, &t->victim, t->name, t->fate, t->point->often ? 1 + (int)rng_below(sim_rng(s), 3) : 1);
	sim_after_event(s, one_begin, t);
	drive(t);
	if (!sim_run_until(s, is_struck, t, 3 * SEC))
		return false;
	w->alone = t->fate == SIM_PAUSE ? t->victim.node : -1;
	sim_await_or(s, survivors_on, t, 10 * SEC, "the others do not finish epoch %llu",
		(unsigned long long)t->victim.epoch + 1);
	if (!sim_failed(s) && world_newest(w) < t->victim.epoch + 8)   /* seen still has that epoch */
		same_round(t);
	if (t->fate == SIM_PAUSE)
		sim_run_for(s, 2 * t->victim.deadline_us);
	for (int i = 0; i < PEERS; i++)
		sim_resume(s, i);
	sim_heal(s);
	if (t->fate == SIM_PAUSE && t->point->drive == LEAVES)
		world_peer(w, t->victim.node)->dead = true;     /* it goes on leaving */
	w->forks_allowed = true;                /* who was stopped may have made an epoch that nobody else knows */
	return true;
}

static void one(struct sim *s, struct cell *t, uint64_t seed)
{
	bool struck = false;
	for (int k = 0; k < 4 * TRIES && !struck && !sim_failed(s); k++) {
		if (k == TRIES)
			sim_late(s, "%s, %s: it seldom comes there", t->name, role_name[t->role]);
		struct sim *own = sim_new(seed + 100 * (uint64_t)k);
		struck = strike(own, t);
		if (struck && !sim_failed(own)) {
			world_run_to(t->w, world_newest(t->w) + 4, 60 * SEC);
			world_same(t->w);
		}
		uint64_t hash = sim_hash(own);
		sim_trace(s, &hash, sizeof hash);
		sim_told_of(s, own, "%s, %s %s", t->name, role_name[t->role], fate_name[t->fate]);
		world_free(t->w);
		sim_free(own);
	}
	if (!struck)
		sim_fail(s, "%s, %s: it never comes there", t->name, role_name[t->role]);
}

static void cells(struct sim *s, enum sim_fate fate)
{
	unsigned n = 0, mine = (unsigned)(sim_seed(s) % 10);    /* ten seeds go through all of them */
	for (size_t i = 0; i < POINTS * 2; i++)
		for (enum role role = LEADER; role <= HELPER; role *= 2) {
			struct cell t = { .point = &points[i / 2], .role = role, .fate = fate };
			if (!(t.point->roles & role) || n++ % 10 != mine || sim_failed(s))
				continue;
			snprintf(t.name, sizeof t.name, "%s.%s", t.point->name, i % 2 ? "after" : "before");
			one(s, &t, sim_seed(s) * 1000 + n);
		}
}

static void scn_killed(struct sim *s) { cells(s, SIM_KILL); }
static void scn_stopped(struct sim *s) { cells(s, SIM_PAUSE); }

/* A point that is new has a row above. */
static void scn_listed(struct sim *s)
{
	static const char *const all[] = {
#define FP(name) name,
#include "failpoints.h"
#undef FP
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		bool known = strncmp(all[i], "avg.", 4) != 0;
		for (size_t k = 0; k < POINTS; k++)
			known |= !strncmp(all[i], points[k].name, strlen(points[k].name)) && all[i][strlen(points[k].name)] == '.';
		if (!known)
			sim_fail(s, "%s: which roles pass it?", all[i]);
	}
}

static const struct scn list[] = { SCN(listed), SCN_CELLS(killed, 10), SCN_CELLS(stopped, 10), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
