/* A member each of whose words could be true, and because of whom nothing comes of generations, as long as it is in
 * them: the others agree without it, and say so. And one that forges what the leader has to say. */
#include <stdlib.h>
#include "common/hash.h"
#include "crew/int.h"
#include "crew_world.h"

#define PEERS 5
#define TELL_US (3 * SEC)
#define STOPS_MOST 8                    /* generations that every peer stops for it */

struct staller { struct cworld *w; int node; struct rng rng; unsigned told; };

static struct cpeer *me_of(struct staller *l) { return cworld_peer(l->w, l->node); }

static void ignored(void *arg, const struct frame *f, const struct err *e) { (void)arg; (void)f; (void)e; }

/* ---- what is looked at ---- */

static unsigned names(struct cworld *w, int of)
{
	unsigned n = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		n += i != of && cworld_peer(w, i) ? cworld_peer(w, i)->named[of] : 0;
	return n;
}

static bool is_named(struct sim *s, void *arg)
{
	const struct staller *l = arg;
	return names(l->w, l->node);
}

static uint64_t stops(struct cworld *w)
{
	uint64_t n = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		n += cworld_peer(w, i) ? cworld_peer(w, i)->stops : 0;
	return n;
}

/* All are in one generation, there is work for each, and nothing is committed any more. Who stalls does not lead. */
static struct cworld *all_in(struct sim *s, struct staller *l, uint32_t redundancy)
{
	struct cworld *w = cworld_new(s);
	*l = (struct staller){ .w = w, .node = (int)(sim_seed(s) % PEERS) };
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	rng_seed(&l->rng, sim_seed(s));
	w->redundancy = redundancy;
	w->layers = 40;
	w->layer_bytes = 1 << 16;
	cworld_add(w, PEERS);
	for (int k = 0; k < 700 && !(cworld_safe(s, w) && cworld_gen(w, cworld_running(w))->n == PEERS); k++) {
		if (k == 100)
			sim_late(s, "no generation has had all members for 10 s");
		sim_run_for(s, 100 * MSEC);
	}
	w->commit_us = 0;
	sim_run_for(s, SEC);
	cworld_settle(w, 10 * SEC);
	const struct cgen *g = cworld_gen(w, cworld_running(w));
	sim_check(s, g && g->n == PEERS);
	while (cworld_leader(w, 0) == l->node)
		l->node = (l->node + 1) % PEERS;
	return w;
}

static int neither(const struct cworld *w, const struct staller *l, int nor)
{
	int i = 0;
	while (i == l->node || i == w->sides[0].leader || i == nor)
		i++;
	return i;
}

/* ---- of itself ---- */

static void card_with(struct staller *l, struct cpeer *to, uint64_t life, uint64_t running)
{
	struct crew *c = me_of(l)->crew;
	struct card card;
	struct buf b = { 0 };
	json_t *j = crew_head(c);
	json_object_set_new(j, "decided", json_integer((json_int_t)deal_number(c->decided)));
	json_object_set_new(j, "running", json_integer((json_int_t)running));
	card_of(c, &card);
	card.life = life;
	card_encode(&card, &b);
	card_free(&card);
	l->told++;
	net_call(me_of(l)->net, net_self(to->net), KIND_CREW_ASK, j, blob_steal(&b), CLASS_control, SEC, ignored, NULL);
}

static void goes_on(struct sim *s, bool anew)
{
	struct staller l;
	struct cworld *w = all_in(s, &l, 2);
	uint64_t was = stops(w), end = sim_now(s) + TELL_US;
	while (sim_now(s) < end + (names(w, l.node) ? 0 : SIM_NEVER_US) && !sim_failed(s)) {    /* or until it is named */
		if (sim_now(s) >= end)
			sim_late(s, "node %d goes on, and nobody says so in time", l.node);
		struct crew *c = me_of(&l)->crew;
		struct cpeer *to = cworld_peer(w, cworld_leader(w, 0));
		card_with(&l, to, anew ? rng_u64(&l.rng) | 1 : c->life, anew ? deal_number(c->running) : 0);
		sim_run_for(s, 10 * MSEC + rng_below(&l.rng, 90 * MSEC));
	}
	if (!names(w, l.node))
		sim_fail(s, "node %d goes on, and %llu generations were stopped for it, and nobody says so", l.node,
			(unsigned long long)(stops(w) - was));
	if (stops(w) - was > PEERS * STOPS_MOST)
		sim_late(s, "node %d goes on, and %llu generations were stopped for it", l.node, (unsigned long long)
			(stops(w) - was));
	sim_in_time(s, stops(w) > was);
	w->commit_us = 200 * MSEC;
	sim_await(s, cworld_safe, w, 30 * SEC);
}

/* It runs what it should, and says that it does not. */
static void scn_strays(struct sim *s) { goes_on(s, false); }

/* It has started anew, as it says, again and again. */
static void scn_new_lives(struct sim *s) { goes_on(s, true); }

/* ---- to proposals ---- */

static void says(struct staller *l, struct request *req, const char *what, uint64_t ahead)
{
	struct err e;
	struct deal *d = deal_read(req->f.blob, req->f.blob_len, &e);
	uint64_t seen = d ? d->o.generation + (ahead << CREW_TAG_BITS) : 0;
	l->told++;
	deal_drop(&d);
	net_reply(req, json_pack("{s:s,s:I}", "says", what, "seen", (json_int_t)seen), NO_BLOB);
}

static void says_old(void *arg, struct request *req) { says(arg, req, "old", 1); }
static void says_far(void *arg, struct request *req) { says(arg, req, "old", AHEAD_MAX - 1); }
static void says_later(void *arg, struct request *req) { says(arg, req, "later", 0); }

/* Whatever is proposed, it has seen a later number. */
static void scn_always_old(struct sim *s)
{
	struct staller l;
	struct cworld *w = all_in(s, &l, 3);    /* one dies, one lies */
	net_on(me_of(&l)->net, KIND_CREW_PROPOSE, says_old, &l);
	cworld_kill(w, neither(w, &l, -1));
	sim_run_for(s, 500 * MSEC);
	cworld_settle(w, 10 * SEC);
	sim_check(s, cworld_running(w) && !cworld_has(w, l.node));
	sim_in_time(s, l.told);
	sim_await(s, is_named, &l, 0);
}

/* The numbers that it has seen are as far above as can be. The leader does not follow it to where the others would not:
 * nobody names the leader. */
static void scn_far(struct sim *s)
{
	struct staller l;
	struct cworld *w = all_in(s, &l, 3);    /* one dies, one lies */
	int leader = cworld_leader(w, 0);
	unsigned before = names(w, leader);
	net_on(me_of(&l)->net, KIND_CREW_PROPOSE, says_far, &l);
	cworld_kill(w, neither(w, &l, -1));
	sim_run_for(s, 500 * MSEC);
	cworld_settle(w, 10 * SEC);
	sim_check(s, cworld_running(w) && !cworld_has(w, l.node));
	sim_in_time(s, l.told);
	sim_await(s, is_named, &l, 0);
	if (names(w, leader) > before)
		sim_fail(s, "node %d has seen numbers, and the leader is named for them", l.node);
}

static bool fourth_is_in(struct sim *s, void *arg)
{
	return cworld_has(arg, 3);
}

/* Of a run that has seen more generations than can pass unseen, the last COMMIT vouches to whoever comes anew. */
static void scn_old_run(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	w->layers = 40;
	w->layer_bytes = 1 << 16;
	cworld_add(w, 3);
	for (int i = 0; i < 3; i++)
		cworld_peer(w, i)->crew->seen = (3 * AHEAD_MAX) << CREW_TAG_BITS;
	sim_await(s, cworld_safe, w, 10 * SEC);
	cworld_add(w, 1);
	for (int k = 0; k < 50 && !(cworld_settled(w) && cworld_has(w, 3)); k++)
		sim_run_for(s, 200 * MSEC);
	sim_check(s, !cworld_peer(w, 3)->crew->refused[REFUSED_number]);
	sim_await(s, fourth_is_in, w, 0);
}

static bool safe_with_it(struct sim *s, void *arg)
{
	const struct staller *l = arg;
	return cworld_safe(s, l->w) && cworld_has(l->w, l->node);
}

/* It runs what runs, and never says what it finds when it is asked. Somebody comes who is of use: sooner or later the
 * others go on with that one. */
static void scn_keeps_back(struct sim *s)
{
	struct cworld *w = cworld_new(s);
	struct staller l = { .w = w, .node = 0 };
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	w->layer_us = 20 * MSEC;
	w->layer_bytes = 1 << 16;
	w->prefer = 1;
	cworld_add(w, 3);
	for (int k = 0; k < 50 && !(cworld_safe(s, w) && cworld_gen(w, cworld_running(w))->n == 3); k++)
		sim_run_for(s, 200 * MSEC);
	sim_await(s, safe_with_it, &l, 0);
	w->commit_us = SEC;                     /* time enough to hear everybody */
	net_on(me_of(&l)->net, KIND_CREW_PROPOSE, says_later, &l);
	cworld_add(w, 1);
	for (int k = 0; k < 300 && !(cworld_settled(w) && cworld_has(w, 3)); k++)
		sim_run_for(s, 200 * MSEC);
	sim_in_time(s, l.told);
	sim_await(s, fourth_is_in, w, 0);
	sim_await(s, is_named, &l, 0);
}

/* ---- what the leader has to say ---- */

/* The go of its proposal, with promises that nobody has made, before it has all of them: who sends that is named, the
 * leader is not, and nobody waits. */
static void scn_go_of_leader(struct sim *s)
{
	struct staller l;
	struct cworld *w = all_in(s, &l, 2);
	int leader = cworld_leader(w, 0), dead = neither(w, &l, -1);
	uint64_t was = cworld_running(w);
	unsigned before = names(w, leader);
	sim_lane_slow(s, neither(w, &l, dead), "serve", 20);    /* there is time between promises and go */
	cworld_kill(w, dead);
	for (int k = 0; k < 500; k++) {
		struct crew *c = me_of(&l)->crew;
		const struct deal *d = c->promised;
		uint8_t digest[CREW_DIGEST] = { 1 }, sig[PEERS * SIG_BYTES] = { (uint8_t)k };
		for (int i = 0; d && i < PEERS; i++) {
			struct buf b = { 0 };
			if (i == l.node || !cworld_peer(w, i))
				continue;
			go_encode(d->bytes.p, d->bytes.len, digest, sig, d->o.n, &b);
			net_call(me_of(&l)->net, &w->id[i], KIND_CREW_GO, crew_head(c), blob_steal(&b), CLASS_control, SEC,
				ignored, NULL);
		}
		sim_run_for(s, MSEC);
	}
	cworld_settle(w, 10 * SEC);
	sim_check(s, cworld_running(w) > was);
	if (names(w, leader) > before)
		sim_fail(s, "node %d forges gos, and its leader is named for it", l.node);
	sim_await_or(s, is_named, &l, 0, "node %d forges gos, and nobody says so", l.node);
}

static const struct scn list[] = { SCN(strays), SCN(new_lives), SCN(always_old), SCN(far), SCN(old_run),
	SCN(keeps_back), SCN(go_of_leader), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
