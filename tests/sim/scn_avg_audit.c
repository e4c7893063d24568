/* An owner that sums falsely is found by who sums one of its parts again, and banned by all; one that does not show
 * what it has summed sums no more; a contribution that is not what its sender signed does not count; and nobody is
 * banned because somebody says so. */
#include <stdlib.h>
#include <string.h>
#include "avg/held.h"
#include "avg/lead.h"
#include "avg_world.h"
#include "check.h"

#define PEERS 6
#define LOOKERS 10                              /* more than may look at one part */
#define AT_ONCE 8
#define ASKED 40

struct eye {
	struct world *w; struct sim *s; int evil; struct apeer *e; struct id liar /* e may be dead */; struct rng rng;
	int n; bool banned[LOOKERS + 2]; unsigned named, silent, complained, said;
};

static void heard(struct world *w, int node, const char *code, const struct id *peer)
{
	struct eye *x = w->user;
	bool evil = x->e && peer && id_eq(peer, &x->liar);
	if (node == x->evil)
		return;
	if (!strcmp(code, "wrong sum") && !evil)
		sim_fail(x->s, "node %d says that an honest peer has summed falsely", node);
	if (!strcmp(code, "not audited") && !evil)
		sim_fail(x->s, "node %d says that an honest peer does not show what it has summed", node);
	x->banned[node] = x->banned[node] || !strcmp(code, "wrong sum");
	x->named += !strcmp(code, "forged") && evil;
	x->silent += !strcmp(code, "not audited");
	x->complained += !strcmp(code, "complains alone") || !strcmp(code, "unsigned");
}

static void begin_with(struct sim *s, struct eye *x, int n, bool evil, uint64_t micro_us)
{
	struct world *w = world_new(s, 320 * (size_t)n, (uint64_t)n * 32, 16, micro_us);
	*x = (struct eye){ .w = w, .s = s, .n = n, .evil = evil ? (int)rng_below(sim_rng(s), (uint64_t)n) : -1 };
	rng_seed(&x->rng, sim_seed(s) + 5);
	w->user = x;
	w->heard = heard;
	w->slack = 10;                          /* a robust mean is not the samples' */
	w->conf.robust = ROBUST_CLIP;
	w->conf.slice = 128;
	w->start_us = 2 * SEC;
	world_add(w, n);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 20 * SEC);
	if (!evil)
		return;
	x->e = world_peer(w, x->evil);
	x->liar = *net_self(x->e->net);
}

static void begin(struct sim *s, struct eye *x, bool evil) { begin_with(s, x, PEERS, evil, 10 * MSEC); }

static void nobody_else(struct eye *x)
{
	for (int i = 0; i < x->n; i++)
		for (int k = 0; k < x->n; k++) {
			struct peer_info info;
			struct apeer *p = world_peer(x->w, i), *o = world_peer(x->w, k);
			if (i != x->evil && k != x->evil && p && o && net_peer(p->net, net_self(o->net), &info) &&
					info.banned_until_us)
				sim_fail(x->s, "node %d has banned node %d, which is honest", i, k);
		}
}

static uint64_t audits(struct eye *x, bool right)
{
	uint64_t n = 0;
	for (int i = 0; i < PEERS; i++)
		if (world_peer(x->w, i))
			n += audits_done(world_peer(x->w, i)->avg, right);
	return n;
}

/* Honest peers, of whom two die and come back: every audit says that all is well. */
static void scn_honest(struct sim *s)
{
	struct eye x;
	begin(s, &x, false);
	x.w->keep_state = x.w->forks_allowed = true;
	for (int k = 0; k < 4; k++) {
		int who = (int)rng_below(&x.rng, PEERS);
		sim_run_for(s, 200 * MSEC + rng_below(&x.rng, SEC));
		sim_kill(s, who);
		sim_run_for(s, 200 * MSEC + rng_below(&x.rng, SEC));
		sim_restart(s, who);
	}
	world_go_on(x.w, 10);
	uint64_t right = audits(&x, true);
	if (right < 20)
		sim_late(s, "only %llu audits", (unsigned long long)right);
	if (audits(&x, false))
		sim_fail(s, "%llu audits say that an honest sum is wrong", (unsigned long long)audits(&x, false));
	nobody_else(&x);
	world_free(x.w);
}

static bool all_banned(struct sim *s, void *arg)
{
	const struct eye *x = arg;
	for (int i = 0; i < PEERS; i++)
		if (i != x->evil && !x->banned[i])
			return false;
	return true;
}

/* At the next so many passings of that point. */
static void lies(struct eye *x, const char *point, int times)
{
	for (int k = 1; k <= times; k++)
		sim_failpoint(x->s, x->evil, point, SIM_ERROR, k);
}

/* It adds something to every sum of its own. */
static void scn_false_sum(struct sim *s)
{
	struct eye x;
	begin(s, &x, true);
	x.w->slack = 1e9;
	x.w->alone = x.evil;
	lies(&x, "avg.sum.false", 200);
	sim_await_or(s, all_banned, &x, 60 * SEC, "not everybody has banned node %d, which sums falsely", x.evil);
	nobody_else(&x);
	sim_run_for(s, 2 * SEC);
	sim_kill(s, x.evil);
	world_go_on(x.w, 6);
	nobody_else(&x);
	world_free(x.w);
}

static void refuses(void *arg, struct request *req)
{
	struct err e;
	struct eye *x = arg;
	x->said++;
	err_set(&e, ERR_NOT_FOUND, "no");
	net_refuse(req, &e);
}

static bool sums(const struct eye *x, const struct avg *a)
{
	struct body c;
	bool found = false;
	if (!a->last_commit.len || body_read(&c, a->last_commit.p, a->last_commit.len, NULL))
		return true;
	for (size_t p = 0; p < c.parts; p++)
		found = found || id_eq(&c.m[c.part[p].owner].id, net_self(x->e->net));
	found = found || id_eq(&c.leader, net_self(x->e->net));
	body_free(&c);
	return found;
}

static bool sums_no_more(struct sim *s, void *arg)
{
	struct eye *x = arg;
	int i = x->evil == 0;
	return x->silent && !sums(x, world_peer(x->w, i)->avg);
}

/* It sums falsely and shows nothing: it is given nothing to sum any more by those whom it has refused. */
static void scn_shows_nothing(struct sim *s)
{
	struct eye x;
	begin(s, &x, true);
	x.w->slack = 1e9;
	net_on(x.e->net, KIND_AVG_AUDIT, refuses, &x);
	sim_await_or(s, sums_no_more, &x, 120 * SEC, "node %d has refused %u times and still sums", x.evil, x.said);
	nobody_else(&x);
	world_go_on(x.w, 6);
	world_free(x.w);
}

/* Its list says something else than it sends: what it brings does not count, and epochs go on. */
static bool go_on(struct sim *s, void *arg)
{
	struct eye *x = arg;
	return world_newest(x->w) >= x->said;
}

static void scn_signs_other(struct sim *s)
{
	struct eye x;
	begin(s, &x, true);
	x.w->forks_allowed = true;
	x.w->alone = x.evil;
	x.said = (unsigned)world_newest(x.w) + 6;
	lies(&x, "avg.sent.false", 100);
	sim_await_or(s, go_on, &x, 120 * SEC, "epochs do not go on: %llu of %u", (unsigned long long)world_newest(x.w),
		x.said);
	if (audits(&x, false))
		sim_fail(s, "an honest owner is said to have summed falsely");
	nobody_else(&x);
	sim_kill(s, x.evil);
	world_go_on(x.w, 6);
	world_free(x.w);
}

static void accuse(struct eye *x, struct apeer *v)
{
	const struct avg *a = v->avg;
	struct body c;
	if (!a->last_commit.len || body_read(&c, a->last_commit.p, a->last_commit.len, NULL))
		return;
	json_t *j = hub_json(x->e->avg);
	json_object_set_new(j, "epoch", json_integer((json_int_t)c.epoch));
	json_object_set_new(j, "round", json_hex(c.round, DIGEST));
	json_object_set_new(j, "part", json_integer((json_int_t)rng_below(&x->rng, c.parts)));
	body_free(&c);
	x->said++;
	net_post(x->e->net, net_self(v->net), KIND_AVG_WRONG, j, NO_BLOB, CLASS_control);
}

static bool is_named(struct sim *s, void *arg) { return ((const struct eye *)arg)->named > 0; }

/* It says so of the others, and has nothing to show, or what they have summed rightly. */
static void scn_accuses(struct sim *s)
{
	struct eye x;
	begin(s, &x, true);
	for (unsigned k = 0; k < 60; k++) {
		sim_run_for(s, 1 + rng_below(&x.rng, 200 * MSEC));
		for (int i = 0; i < PEERS; i++)
			if (i != x.evil)
				accuse(&x, world_peer(x.w, i));
	}
	nobody_else(&x);
	sim_in_time(s, x.said > 10);
	sim_await(s, is_named, &x, 0);
	world_go_on(x.w, 6);
	world_free(x.w);
}

/* ---- one who keeps others from looking ---- */

struct asked { unsigned over, given, busy; };

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct asked *q = arg;
	q->over++;
	q->given += f != NULL;
	q->busy += !f && e->code == ERR_BUSY;
}

/* Times so many it asks the owner for what that one holds, and takes nothing. */
static void ask(struct eye *x, int from, int owner, const struct held *h, unsigned times, struct asked *q)
{
	struct apeer *p = world_peer(x->w, from);
	for (uint8_t tag[32]; times; times--) {
		json_t *j = hub_json(p->avg);
		for (size_t b = 0; b < sizeof tag; b++)
			tag[b] = (uint8_t)rng_u64(&x->rng);
		json_object_set_new(j, "round", json_hex(h->round, DIGEST));
		json_object_set_new(j, "part", json_integer((json_int_t)h->part));
		json_object_set_new(j, "tag", json_hex(tag, 32));
		net_call(p->net, net_self(world_peer(x->w, owner)->net), KIND_AVG_AUDIT, j, NO_BLOB, CLASS_control, 5 * SEC,
			answered, q);
	}
}

static const struct held *holds(const struct eye *x, int node)
{
	const struct audits *s = world_peer(x->w, node)->avg->audits;
	return s && !list_empty(&s->held) ? list_entry(s->held.prev, struct held, link) : NULL;
}

static bool one_holds(struct sim *s, void *arg)
{
	struct eye *x = arg;
	return holds(x, x->evil == 0);
}

static bool all_answered(struct sim *s, void *arg) { return ((struct asked *)arg)->over == ASKED; }

/* Whoever looks has room for one look; of the others so many look at one part at a time, the rest is to come again. */
static void scn_occupies(struct sim *s)
{
	static struct asked q;
	struct eye x;
	q = (struct asked){ 0 };
	begin_with(s, &x, LOOKERS + 2, true, 10 * MSEC);
	int owner = x.evil == 0, from = 0;
	if (!sim_await(s, one_holds, &x, 20 * SEC)) {
		world_free(x.w);
		return;
	}
	const struct held *h = holds(&x, owner);
	ask(&x, x.evil, owner, h, ASKED - (LOOKERS), &q);
	sim_run_for(s, 100 * MSEC);
	for (q.given = q.busy = 0; from < x.n; from++)
		if (from != x.evil && from != owner)
			ask(&x, from, owner, h, 1, &q);
	sim_await(s, all_answered, &q, 10 * SEC);
	if (q.given > AT_ONCE - 1)
		sim_fail(s, "%u of %d may look at once while one who takes nothing does: too many", q.given, LOOKERS);
	else if (q.given < AT_ONCE - 1)         /* an answer is lost now and then */
		sim_late(s, "%u of %d may look while one who takes nothing does; %u may not", q.given, LOOKERS, q.busy);
	nobody_else(&x);
	world_go_on(x.w, 6);
	world_free(x.w);
}

/* It sums falsely, shows what it has summed, and accuses the others so that they have no time to look at it: of that it
 * shows nothing. */
static void shows_own(void *arg, struct request *req)
{
	struct eye *x = arg;
	const struct audits *s = x->e->avg->audits;
	uint8_t round[DIGEST];
	if (json_get_hex(req->f.json, "round", round, DIGEST, NULL))
		return;
	bool own = false;
	json_get_bool(req->f.json, "mean", &own, NULL);         /* who accuses is asked for it */
	if (s && !own)
		audit_on(x->e->avg, req);
	else
		net_reply(req, NULL, NO_BLOB);
}

static void scn_distracts(struct sim *s)
{
	struct eye x;
	begin_with(s, &x, PEERS, true, 100 * MSEC);
	x.w->slack = 1e9;
	x.w->alone = x.evil;
	net_on(x.e->net, KIND_AVG_AUDIT, shows_own, &x);
	for (unsigned k = 0; k < 1200 && !all_banned(s, &x); k++) {
		sim_run_for(s, 50 * MSEC);
		if (k == 40)
			lies(&x, "avg.sum.false", 2000);
		for (int i = 0; i < PEERS; i++)
			if (i != x.evil && world_peer(x.w, i))
				accuse(&x, world_peer(x.w, i));
	}
	sim_await_or(s, all_banned, &x, 0, "not everybody has banned node %d, which sums falsely and accuses others",
		x.evil);
	nobody_else(&x);
	world_free(x.w);
}

static const struct scn list[] = { SCN(honest), SCN(false_sum), SCN(shows_nothing), SCN(signs_other), SCN(accuses),
	SCN(occupies), SCN(distracts), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
