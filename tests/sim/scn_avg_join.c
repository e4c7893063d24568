/* The averager in the simulator: fifty peers at once, one that does not fit, one that comes back. */
#include <stdio.h>
#include <string.h>
#include "avg/lead.h"
#include "avg_world.h"
#include "check.h"

static void settle(struct world *w)
{
	world_settle(w, 20 * SEC);
}

/* Fifty peers come in at the same moment and become one group. */
static void scn_join(struct sim *s)
{
	struct world *w = world_new(s, 320, 50 * 64, 16, 40 * MSEC);
	w->conf.part_min = 160;
	w->start_us = 2 * SEC;
	world_add(w, 50);
	settle(w);
	sim_in_time(s, sim_now(s) < 2 * SEC);
	world_run_to(w, 2, 20 * SEC);
	for (uint64_t e = 1; e <= 2; e++)
		sim_in_time(s, check_weight(w->check, e) >= w->conf.target_batch && check_weight(w->check,
		e) < w->conf.target_batch * 5 / 4);
	world_same(w);
	world_free(w);
}

/* Who differs in what all must have in common is not taken in, is told in what, and does not go on alone beside the
 * run either; the others do not notice. When it comes again as one of them it is. */
static char turned_away[300];

static void away_heard(struct world *w, int node, const char *code, const struct id *peer)
{
	(void)peer;
	if (!strcmp(code, "refused"))
		snprintf(turned_away, sizeof turned_away, "%d %s", node, world_peer(w, node)->said);
}

static bool is_away(struct sim *s, void *arg)
{
	(void)s;
	(void)arg;
	return turned_away[0];
}

static void set_len(struct avg_conf *c) { c->len++; }
static void set_target(struct avg_conf *c) { c->target_batch++; }
static void set_data(struct avg_conf *c) { c->data_samples = 1000; }
static void set_part(struct avg_conf *c) { c->part_min *= 2; }
static void set_codec(struct avg_conf *c) { c->codec = json_string("fp16_scaled"); }
static void set_robust(struct avg_conf *c) { c->robust = ROBUST_MEDIAN; }
static void set_feedback(struct avg_conf *c) { c->error_feedback = true; }

static const struct unlike { void (*set)(struct avg_conf *c); const char *says; } unlikes[] = {
	{ set_len, "len: values that are averaged (model, optimizer, running statistics): the run has 400, who asks has "
		"401" },
	{ set_target, "target: samples of an epoch (target_batch): the run has 64, who asks has 65" },
	{ set_data, "data: training samples (data): the run has 0, who asks has 1000" },
	{ set_part, "part: values of the smallest part: the run has 64, who asks has 128" },
	{ set_codec, "codec: encoding of the values (averaging.codec): the run has \"fp16\", who asks has "
		"\"fp16_scaled\"" },
	{ set_robust, "robust: kind of mean (averaging.robust): the run has \"none\", who asks has \"median\"" },
	{ set_feedback, "feedback: what encoding leaves out comes later (averaging.error_feedback): the run has false, who "
		"asks has true" },
};
#define UNLIKES (sizeof unlikes / sizeof *unlikes)

static void scn_door(struct sim *s)
{
	struct world *w = world_new(s, 400, 64, 8, 20 * MSEC);
	const struct unlike *u = &unlikes[sim_seed(s) % UNLIKES];
	json_t *codec = json_string("fp16");
	char want[300];
	w->slack = 1e-2;
	w->conf.codec = codec;
	w->heard = away_heard;
	turned_away[0] = 0;
	world_add(w, 3);
	world_run_to(w, 3, 20 * SEC);
	struct avg_conf same = w->conf;
	u->set(&w->conf);
	world_add(w, 1);
	if (w->conf.codec != codec)
		json_decref(w->conf.codec);
	w->conf = same;
	snprintf(want, sizeof want, "3 the run's members do not take this peer in: %s; is it the same", u->says);
	sim_await(s, is_away, NULL, 5 * SEC);
	if (strncmp(turned_away, want, strlen(want)))
		sim_fail(s, "it is told \"%s\"; expected %s", turned_away, want);
	sim_run_for(s, 5 * SEC);
	struct apeer *p = world_peer(w, 3);
	if (p->commits || p->point.epoch)
		sim_fail(s, "it has committed %llu epochs", (unsigned long long)p->commits);
	sim_restart(s, 3);
	for (int i = 0; i < 2; i++)             /* takes part, then brings something */
		world_run_to(w, world_peer(w, 0)->point.epoch + 10, 20 * SEC);
	world_brings(w, 3, 0);
	world_free(w);
	json_decref(codec);
}

/* The group has as many as it may have, and an epoch that takes seconds: one more waits, is told so, begins no history
 * of its own, and takes the place of the first that goes. */
static unsigned told_full;

static void full_heard(struct world *w, int node, const char *code, const struct id *peer)
{
	(void)w;
	(void)node;
	(void)peer;
	told_full += !strcmp(code, "full");
}

static bool is_told(struct sim *s, void *arg) { return told_full > 0; }

static void scn_full(struct sim *s)
{
	struct world *w = world_new(s, 400, 3200, 8, 20 * MSEC);
	int waits = -1, victim;
	w->conf.group_max = 3;
	w->heard = full_heard;
	told_full = 0;
	world_add(w, 4);
	sim_run_for(s, 30 * SEC);
	for (int i = 0; i < 4; i++)
		if (!world_peer(w, i)->commits) {
			sim_in_time(s, waits < 0);
			waits = i;
		}
	if (waits < 0) {
		sim_fail(s, "all of them commit, with a group of three; told %u times", told_full);
		world_free(w);
		return;
	}
	sim_await(s, is_told, NULL, 0);
	sim_in_time(s, told_full <= 3);
	do
		victim = (int)rng_below(sim_rng(s), 4);
	while (victim == waits);
	sim_kill(s, victim);
	for (int i = 0; i < 30 && !world_peer(w, waits)->my_total; i++)
		sim_run_for(s, SEC);
	world_brings(w, waits, 0);              /* a place is free */
	world_free(w);
}

/* One of four dies and is there again at once, however soon in the round the others meet its new life: it brings
 * samples within a second, and no round goes on without it more than twice. */
static void scn_back(struct sim *s)
{
	struct world *w = world_new(s, 400, 64, 8, 20 * MSEC);
	struct avg_view before, after;
	world_add(w, 4);
	world_run_to(w, 8 + sim_seed(s) % 5, 20 * SEC);      /* deadlines rest on what was measured */
	sim_run_for(s, rng_below(sim_rng(s), 50 * MSEC));
	sim_kill(s, 3);
	sim_run_for(s, rng_below(sim_rng(s), 200 * MSEC));
	sim_restart(s, 3);
	avg_view(world_peer(w, 0)->avg, &before);
	sim_run_for(s, SEC);
	avg_view(world_peer(w, 0)->avg, &after);
	world_brings(w, 3, 0);
	if (after.rounds_without > before.rounds_without + 2)
		sim_late(s, "%llu rounds of a second went on without it", (unsigned long long)(after.rounds_without -
			before.rounds_without));
	world_free(w);
}

static bool first_round(struct sim *s, void *arg)
{
	for (int i = 1; i < 7; i++) {
		const struct apeer *p = world_peer(arg, i);
		struct avg_view v;
		avg_view(p->avg, &v);
		if (!p->in_round || v.following)
			return false;
	}
	return true;
}

/* Six have come to one, and it dies in the first round of all of them: they agree on who leads then. */
static void scn_orphans(struct sim *s)
{
	struct world *w = world_new(s, 400, 512, 8, 20 * MSEC);
	w->forks_allowed = true;                /* newcomers may find each other before they find the run */
	world_add(w, 1);
	world_run_to(w, 2, 20 * SEC);
	world_add(w, 6);
	for (int i = 1; i < 7; i++)
		w->slow_contribute_us[i] = 500 * MSEC;
	sim_await(s, first_round, w, 20 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), 400 * MSEC));
	sim_kill(s, 0);
	world_run_to(w, world_newest(w) + 1, 8 * SEC);
	world_one(w, 20 * SEC);
	world_same(w);
	world_free(w);
}

/* ---- epochs shorter than the way: 30 ms, and 55 ms to anybody else ---- */

static struct world *hurried(struct sim *s, int near)
{
	struct world *w = world_new(s, 400, 64, 8, 3750);
	struct sim_link far = { .latency_us = 55 * MSEC, .jitter_us = 5 * MSEC };
	struct sim_link lan = { .latency_us = 100, .jitter_us = 20 };
	sim_link(s, -1, -1, &far);
	for (int i = 0; i < near; i++)
		for (int k = 0; k < near; k++)
			sim_link(s, i, k, &lan);
	world_add(w, near);
	world_run_to(w, 60, 20 * SEC);
	return w;
}

/* From `from` on all nodes bring samples, and go on doing so. */
static void all_contribute(struct world *w, int from, uint64_t within_us)
{
	uint64_t had[WORLD_MAX];
	for (int turn = 0; turn < 2; turn++) {
		for (int i = from; i < sim_nodes(w->s); i++)
			had[i] = turn && world_peer(w, i) ? world_peer(w, i)->my_total : 0;
		sim_run_for(w->s, within_us);
		for (int i = from; i < sim_nodes(w->s); i++) {
			struct apeer *p = world_peer(w, i);
			if (!sim_alive(w->s, i))
				continue;
			world_brings(w, i, had[i]);
			if (p->resyncs[AVG_BEHIND] > 5)
				sim_late(w->s, "node %d has fetched the state %llu times", i,
					(unsigned long long)p->resyncs[AVG_BEHIND]);
		}
	}
}

/* Who comes to a peer that is alone, or to two that lead in turn, is counted within seconds. */
static void scn_hurried(struct sim *s)
{
	struct world *w = hurried(s, 1 + (int)(sim_seed(s) % 2));
	int near = sim_nodes(s);
	world_add(w, 1);
	all_contribute(w, near, 8 * SEC);
	world_same(w);
	world_free(w);
}

/* Five at once, one of them three times as slow. */
static void scn_hurried_five(struct sim *s)
{
	struct world *w = hurried(s, 1);
	w->forks_allowed = true;                /* they may find each other before they find the run */
	w->step_us[3] *= 3;
	world_add(w, 5);
	all_contribute(w, 1, 8 * SEC);
	world_same(w);
	world_free(w);
}

static bool asks(struct sim *s, void *arg)
{
	const struct apeer *p = world_peer(arg, sim_nodes(s) - 1);
	return p->resyncs[AVG_BEHIND] && !p->syncing && !p->follower;
}

/* A newcomer vanishes without a word while it is waited for, or a moment later: that costs a bounded pause, and then
 * the other is as fast as before. */
static void scn_hurried_dies(struct sim *s)
{
	struct world *w = hurried(s, 1);
	struct apeer *p = world_peer(w, 0);
	uint64_t pause = 0, before;
	world_add(w, 1);
	sim_await(s, asks, w, 4 * SEC);
	sim_run_for(s, rng_below(sim_rng(s), 600 * MSEC));
	sim_power_off(s, 1);
	for (uint64_t end = sim_now(s) + 8 * SEC; sim_now(s) < end && !sim_failed(s); ) {
		sim_run_for(s, 5 * MSEC);
		pause = sim_now(s) - p->applied_us > pause ? sim_now(s) - p->applied_us : pause;
	}
	if (pause > 3 * SEC)
		sim_late(s, "no epoch for %.2f s", (double)pause / 1e6);
	before = p->point.epoch;
	sim_run_for(s, 3 * SEC);
	if (p->point.epoch < before + 90)
		sim_late(s, "%llu epochs in 3 s", (unsigned long long)(p->point.epoch - before));
	world_run_to(w, before + 1, 0);
	world_free(w);
}

/* One far away and one or two near ones do not hear each other for a moment and go on alone; when they meet again all
 * are counted. */
static void scn_hurried_hiccup(struct sim *s)
{
	int near = 1 + (int)(sim_seed(s) % 2);
	struct world *w = hurried(s, near);
	world_add(w, 1);
	all_contribute(w, near, near > 1 ? 8 * SEC : 4 * SEC);
	w->forks_allowed = true;                /* each side is alone for that moment */
	for (int i = 0; i < near; i++)
		sim_cut_both(s, i, near);
	sim_run_for(s, 700 * MSEC + rng_below(sim_rng(s), SEC));
	sim_heal(s);
	sim_run_for(s, 4 * SEC);
	uint64_t had = world_peer(w, near)->my_total;
	all_contribute(w, 0, 4 * SEC);
	world_brings(w, near, had);
	world_free(w);
}

/* ---- peers of an older version ---- */

/* Ten epochs later, in which it takes part: how are parts hashed? */
static enum hashes hashes_after(struct world *w, int it)
{
	const struct avg *a = world_peer(w, 0)->avg;
	uint64_t brought = it < 0 ? 0 : world_peer(w, it)->my_total;
	enum hashes by = 0;
	struct body c;
	for (int i = 0; i < 10; i++) {
		world_run_to(w, world_newest(w) + 1, 20 * SEC);
		if (body_read(&c, a->last_commit.p, a->last_commit.len, NULL))
			continue;
		sim_check(w->s, i < 2 || by == c.hashes);       /* one of before it came, or of before it was heard */
		by = c.hashes;
		body_free(&c);
	}
	if (it >= 0)
		world_brings(w, it, brought);
	return by;
}

/* One that does not know how the others hash what they hold comes in, leads its epochs, and goes: while it is there all
 * hash as it does, and the mean is one. It comes again in the version of the others; then one of them goes back. */
static void scn_versions(struct sim *s)
{
	static const enum hashes before[] = { 0, HASHES_SHA256, HASHES_BLAKE2SP };
	struct world *w = world_new(s, 400, 64, 8, 20 * MSEC);
	enum hashes older = before[sim_seed(s) / 3 % 3], both = hashes_both(older, HASHES_NEWEST);
	w->conf.hashes = HASHES_NEWEST;
	if (sim_seed(s) % 3 == 0) {             /* pieces and sums are looked at, too */
		w->slack = 10;
		w->conf.robust = ROBUST_CLIP;
	}
	world_add(w, 3);
	sim_check(s, hashes_after(w, -1) == HASHES_NEWEST);
	w->conf.hashes = older;
	world_add(w, 1);
	world_run_to(w, world_newest(w) + 10, 20 * SEC);        /* it takes part, then brings something */
	sim_check(s, hashes_after(w, 3) == both);
	sim_kill(s, 1 + (int)(sim_seed(s) % 2));
	sim_check(s, hashes_after(w, 3) == both);
	w->conf.hashes = HASHES_NEWEST;
	sim_kill(s, 3);
	sim_check(s, hashes_after(w, -1) == HASHES_NEWEST);
	sim_restart(s, 3);
	world_run_to(w, world_newest(w) + 10, 20 * SEC);
	sim_restart(s, 1 + (int)(sim_seed(s) % 2));     /* not both at once: they would begin anew */
	world_run_to(w, world_newest(w) + 10, 20 * SEC);
	sim_check(s, hashes_after(w, 3) == HASHES_NEWEST);
	w->conf.hashes = both;
	sim_kill(s, 2);
	sim_restart(s, 2);
	world_run_to(w, world_newest(w) + 10, 20 * SEC);
	sim_check(s, hashes_after(w, 2) == both);
	world_same(w);
	world_free(w);
}

static bool in_round(struct sim *s, void *arg)
{
	const struct avg *a = world_peer(arg, (int)(sim_seed(s) % 3))->avg;
	return a->round && a->round->bytes.len && !a->round->commit && !a->round->from_commit;
}

/* Who leads may not say in the end that parts were hashed in another way than it had said. */
static void scn_says_other(struct sim *s)
{
	struct world *w = world_new(s, 400, 64, 8, 20 * MSEC);
	struct body c;
	struct err e;
	w->conf.hashes = HASHES_NEWEST;
	world_add(w, 3);
	world_run_to(w, 5, 20 * SEC);
	if (!sim_await(s, in_round, w, 10 * SEC)) {
		world_free(w);
		return;
	}
	struct avg *a = world_peer(w, (int)(sim_seed(s) % 3))->avg;
	const struct buf *begin = &a->round->bytes;
	for (enum hashes by = HASHES_SHA256; by <= HASHES_NEWEST; by++) {
		sim_check(s, !body_read(&c, begin->p, begin->len, NULL));
		c.what = BODY_COMMIT;
		c.epoch++;
		memcpy(c.round, a->round->id, DIGEST);
		c.m[a->round->me == 0].id.b[0] ^= c.hashes == by;       /* it fits, and names another member */
		const char *want = c.hashes == by ? "names other members" : "does not fit its BEGIN";
		c.hashes = by;
		if (!commit_take(a, &c, begin->p, begin->len, &e) || !strstr(e.text, want))
			sim_fail(s, "a COMMIT with hashes of version %u: %s", by, e.text);
		body_free(&c);
	}
	world_run_to(w, world_newest(w) + 3, 20 * SEC);
	world_free(w);
}

static bool last_applied(struct sim *s, void *arg)
{
	return world_newest(arg) == 4;
}

/* All follow one leader in one term; the first that does not. */
struct leads { struct world *w; int node; struct avg_view v, first; };

static bool one_leads(struct sim *s, void *arg)
{
	struct leads *l = arg;
	l->first = (struct avg_view){ 0 };
	for (int i = 0; i < sim_nodes(s); i++) {
		if (!world_peer(l->w, i))
			continue;
		l->node = i;
		avg_view(world_peer(l->w, i)->avg, &l->v);
		l->first = l->first.state ? l->first : l->v;
		if (!id_eq(&l->v.leader, &l->first.leader) || l->v.term != l->first.term)
			return false;
	}
	return true;
}

/* The leader of the last epoch dies, and one of the others takes that epoch over only when the next in order has asked
 * for what is held. No round tells it of the term, since nobody trains any more; it hears of it all the same. */
static void scn_untold(struct sim *s)
{
	struct world *w = world_new(s, 400, 64, 8, 20 * MSEC);
	struct leads l = { .w = w };
	char it[9], another[9];
	int late = 1 + (int)(sim_seed(s) % 3), led;
	w->max_epoch = 4;
	w->step_us[late] = 3 * SEC;
	world_add(w, 4);
	sim_await(s, last_applied, w, 60 * SEC);
	if ((led = world_leader(w)) != late && led >= 0)
		sim_kill(s, led);
	sim_run_for(s, 6 * SEC);
	one_leads(s, &l);                       /* what is said of those that differ now */
	id_short(&l.v.leader, it);
	id_short(&l.first.leader, another);
	sim_await_or(s, one_leads, &(struct leads){ .w = w }, 0, "node %d follows %s in term %u, another %s in term %u",
		l.node, it, l.v.term, another,
			l.first.term);
	world_free(w);
}

static const struct scn list[] = { SCN(join), SCN_CELLS(door, UNLIKES), SCN(full), SCN(back), SCN(orphans),
	SCN(hurried),
	SCN(hurried_five),
	SCN(hurried_dies), SCN(hurried_hiccup), SCN(untold), SCN(versions), SCN(says_other), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
