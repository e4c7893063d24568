/* The liar itself, and what must hold whatever it says: nobody gives up its state, no hyperparameter changes, epochs go
 * on at their pace and everybody's samples are in them, no honest peer is accused, left out, struck or banned, memory
 * stays where it was, and the liar is named. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "liar.h"

#define QUIET_US (4 * SEC)                      /* watched before the first lie */
#define LIE_US (4 * SEC)
#define STILL_US (5 * SEC)                      /* from one epoch to the next, when it has its say in every round */
#define HEAP_MORE (16u << 20)                   /* of each: answers in case they are asked for again, for 30 s */

/* Events that hold something against the peer that they name. */
static const char *const accusing[] = { "forges", "doubt", "unfit", "complains alone", "claimed too far",
	"claimed others'", "claimed in pieces", "nonfinite", "out of line", "silent leader" };

static void ignored(void *arg, const struct frame *f, const struct err *e)
{
}

void lie_call(struct liar *l, struct apeer *to, enum kind k, json_t *j, struct buf *b)
{
	l->said++;
	net_call(l->e->net, net_self(to->net), k, j, b ? blob_steal(b) : NO_BLOB, CLASS_control, SEC, ignored, NULL);
}

json_t *lie_head(struct liar *l, uint64_t term)
{
	json_t *j = hub_json(l->e->avg);
	json_object_set_new(j, "term", json_integer((json_int_t)term));
	return j;
}

void lie_bytes(struct liar *l, void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = (uint8_t)rng_u64(&l->rng);
}

bool lie_leads(const struct liar *l, const struct apeer *v)
{
	return led_by(v->avg, net_self(l->e->net), v->avg->term) ||
		(v->avg->round && id_eq(&v->avg->round->b.leader, net_self(l->e->net)));
}

int lie_author(const struct liar *l)
{
	return l->node ? 0 : 1;
}

/* ---- roles ---- */

/* Whoever would lead if the leader were gone. */
static bool next_in_order(const struct liar *l, const struct apeer *v)
{
	const struct avg *a = v->avg;
	const struct mate *me = mate_find(a, net_self(l->e->net));
	if (!me || !a->leader || a->leader == me || !me->member || me->fresh)
		return false;
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		if (m != a->leader && m != me && m->live && m->member && memcmp(m->order, me->order, 32) < 0)
			return false;
	}
	return true;
}

static bool may_speak(const struct liar *l, const struct apeer *v)
{
	if (l->role == LEADER)
		return is_leader(l->e->avg) && v->avg->leader && id_eq(&v->avg->leader->id, net_self(l->e->net));
	if (l->role == NEXT)
		return !lie_leads(l, v) && next_in_order(l, v);
	return l->role == STRANGER || !lie_leads(l, v);
}

static void has_left(void *arg)
{
	((struct apeer *)arg)->dead = true;     /* of the swarm: nobody waits for it, it only talks */
}

static bool gone(struct sim *s, void *arg)
{
	return ((struct apeer *)arg)->dead;
}

/* ---- watching ---- */

static void heard(struct world *w, int node, const char *code, const struct id *peer)
{
	struct liar *l = w->user;
	bool it = peer && id_eq(peer, net_self(l->e->net));
	if (!l->lies || node == l->node || !peer)
		return;
	/* Whom it has led astray for a moment speaks of an epoch that others do not know, or of none. */
	bool astray = l->lie->lags && (!strcmp(code, "doubt") || !strcmp(code, "silent leader"));
	for (size_t i = 0; i < sizeof accusing / sizeof *accusing; i++)
		if ((!it || l->lie->honest) && !astray && !strcmp(code, accusing[i]))
			sim_fail(w->s, "node %d: %s: of an honest peer, while node %d lies", node, code, l->node);
	l->named += it && l->lie->named && !strcmp(code, l->lie->named);
}

static void still(struct liar *l)
{
	uint64_t us = sim_now(l->s) - l->moved_us;
	l->still_us = us > l->still_us ? us : l->still_us;
}

static void saw(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct liar *l = w->user;
	if (l->lies && p->node != l->node && c->epoch > l->newest) {
		still(l);
		l->newest = c->epoch;
		l->moved_us = sim_now(l->s);
	}
	if (c->members > LIAR_PEERS)
		sim_fail(w->s, "epoch %llu has %u members, and %d are here", (unsigned long long)c->epoch, c->members,
			LIAR_PEERS);
	for (size_t i = 0; i < c->left_out_n && l->lies && p->node == lie_author(l); i++)
		for (int k = 0; k < LIAR_PEERS; k++)    /* who is nobody is not missed */
			l->left_out += k != l->node && id_eq(&c->left_out[i], net_self(world_peer(l->w, k)->net));
}

static int only_author(struct world *w, const struct id *author, const json_t *patch, struct err *e)
{
	const struct liar *l = w->user;
	const struct apeer *p = world_peer(w, lie_author(l));
	if (!p || !id_eq(author, net_self(p->net)))
		return err_set(e, ERR_AUTH, "only the author");
	return json_is_number(json_object_get(patch, "lr")) ? 0 : err_set(e, ERR_INVALID, "lr: a number");
}

static size_t heap_now(void)
{
	struct mallinfo2 m = mallinfo2();       /* zeros under the sanitizers */
	return m.uordblks + m.hblkhd;
}

struct pace { uint64_t epochs, samples[LIAR_PEERS]; };

static void pace_from(const struct liar *l, struct pace *p)
{
	p->epochs = 0;
	for (int i = 0; i < LIAR_PEERS; i++) {
		const struct apeer *o = world_peer(l->w, i);
		p->samples[i] = o->my_total;
		p->epochs = i != l->node && o->point.epoch > p->epochs ? o->point.epoch : p->epochs;
	}
}

/* Since `from`. */
static void pace_take(const struct liar *l, struct pace *from)
{
	struct pace now;
	pace_from(l, &now);
	from->epochs = now.epochs - from->epochs;
	for (int i = 0; i < LIAR_PEERS; i++)
		from->samples[i] = now.samples[i] - from->samples[i];
}

/* ---- the lie ---- */

static bool bans(const struct liar *l, int node)
{
	struct peer_info info;
	return node != l->node && net_peer(world_peer(l->w, node)->net, net_self(l->e->net), &info) && info.ban_why[0];
}

static bool is_banned(const struct liar *l)
{
	bool ret = false;
	for (int i = 0; i < LIAR_PEERS; i++)
		ret = ret || bans(l, i);
	return ret;
}

/* What should have come of it; NULL: all has. */
static const char *owed(const struct liar *l)
{
	if (!l->said)
		return "it is not told";
	if (l->lie->named && !l->named)
		return "nobody says so";
	return l->lie->banned && !is_banned(l) ? "nobody has banned it" : NULL;
}

/* Or, where something is owed, until that has come. */
static void lie_until(struct liar *l, uint64_t end, bool owes)
{
	uint64_t pause = l->lie->pause_us ? l->lie->pause_us : 20 * MSEC;
	while (sim_now(l->s) < end && !sim_failed(l->s) && (!owes || owed(l))) {
		sim_run_for(l->s, 1 + lie_draw(l, pause));
		for (int i = 0; i < LIAR_PEERS && l->lie->tell; i++)
			if (i != l->node && may_speak(l, world_peer(l->w, i)))
				l->lie->tell(l, world_peer(l->w, i));
		size_t heap = heap_now();
		l->heap = heap > l->heap ? heap : l->heap;
	}
}

/* ---- what must hold ---- */

/* Who bans it first while it leads has no part in the round in which the others follow it a last time: it alone fetches
 * what they have, once, and discards nothing (check.c). */
static bool banned_first(const struct liar *l, int node)
{
	uint64_t all = 0;
	for (int i = 0; i < LIAR_PEERS; i++)
		all += i != l->node ? world_peer(l->w, i)->resyncs[AVG_BEHIND] : 0;
	return bans(l, node) && world_peer(l->w, node)->resyncs[AVG_BEHIND] == 1 && all == 1;
}

static void judge_states(struct liar *l)
{
	for (int i = 0; i < LIAR_PEERS; i++) {
		struct apeer *p = world_peer(l->w, i);
		if (i == l->node)
			continue;
		for (int why = 0; why < 4; why++)
			if (p->resyncs[why] && !(l->lie->lags && (why == AVG_BEHIND || why == AVG_MISSED)) &&
					!(why == AVG_BEHIND && banned_first(l, i)))
				sim_fail(l->s, "node %d has given up its state (%d): node %d said so", i, why, l->node);
		double lr = json_number_value(json_object_get(p->point.params, "lr"));
		if (lr != 0.1 || p->point.params_version)
			sim_fail(l->s, "node %d has hyperparameters that nobody may set: lr %g", i, lr);
	}
}

static void judge_bans(struct liar *l)
{
	for (int i = 0; i < LIAR_PEERS; i++)
		for (int k = 0; k < LIAR_PEERS && i != l->node; k++) {
			struct peer_info info;
			if (!net_peer(world_peer(l->w, i)->net, net_self(world_peer(l->w, k)->net), &info) || !info.ban_why[0])
				continue;
			if (k != l->node || !l->lie->banned)
				sim_fail(l->s, "node %d has banned node %d (the liar is %d): %s", i, k, l->node, info.ban_why);
		}
}

/* As many epochs as before, and everybody's samples in them, to a half; when it leads or takes the lead, which costs
 * the time until it is passed over, more than a few, and none takes too long. */
static void judge_pace(struct liar *l, const struct pace *quiet, const struct pace *lying)
{
	uint64_t slow = l->lie->slow ? l->lie->slow : 2, still = l->lie->still_us ? l->lie->still_us : STILL_US;
	if (lying->epochs * slow < quiet->epochs * l->lied_us / QUIET_US)
		sim_fail(l->s, "%llu epochs while node %d lied, %llu before", (unsigned long long)lying->epochs, l->node,
			(unsigned long long)quiet->epochs);
	for (int i = 0; i < LIAR_PEERS; i++)
		if (i != l->node && lying->samples[i] * slow * 2 < quiet->samples[i] * l->lied_us / QUIET_US)
			sim_fail(l->s, "%llu samples of node %d count while node %d lied, %llu before",
				(unsigned long long)lying->samples[i], i, l->node, (unsigned long long)quiet->samples[i]);
	if (l->still_us > still)
		sim_fail(l->s, "no epoch for %llu ms while node %d lied", (unsigned long long)l->still_us / MSEC, l->node);
	if (l->left_out * 4 > lying->epochs)
		sim_fail(l->s, "%u of %llu rounds were without somebody because of node %d", l->left_out,
			(unsigned long long)lying->epochs, l->node);
}

/* It lies on for a minute when something is owed. */
static void judge_owed(struct liar *l)
{
	const char *what = owed(l), *named = l->lie->named ? l->lie->named : "-";
	if (!what)
		return;
	lie_until(l, sim_now(l->s) + SIM_NEVER_US, true);
	if (owed(l))
		sim_fail(l->s, "node %d lies, and %s (%s)", l->node, owed(l), named);
	else
		sim_late(l->s, "node %d lies, and %s (%s) in time", l->node, what, named);
}

static void judge(struct liar *l, const struct pace *quiet, const struct pace *lying, size_t heap)
{
	judge_pace(l, quiet, lying);
	judge_states(l);
	judge_bans(l);
	if (l->heap > heap + HEAP_MORE * LIAR_PEERS)
		sim_fail(l->s, "%zu KiB more memory in everybody while node %d lied", (l->heap - heap) / 1024, l->node);
	judge_owed(l);
}

/* ---- one cell ---- */

static void lie_for_a_while(struct liar *l)
{
	l->lied_us = l->lie->long_us ? l->lie->long_us : LIE_US;
	l->moved_us = sim_now(l->s);
	l->lies = true;
	if (l->lie->begin)
		l->lie->begin(l);
	lie_until(l, l->moved_us + l->lied_us, false);
	still(l);
}

void liar_cell(struct sim *s, const struct lie *lie, enum role role)
{
	struct world *w = world_new(s, 768, LIAR_PEERS * 32, 16, 10 * MSEC);
	struct liar l = { .w = w, .s = s, .node = (int)rng_below(sim_rng(s), LIAR_PEERS), .lie = lie, .role = role };
	struct pace quiet, lying;
	if (role == CLIENT)                     /* not one by which the others find each other */
		l.node = LIAR_PEERS / 2 + l.node / 2;
	rng_seed(&l.rng, sim_seed(s) + 77);
	w->user = &l;
	w->start_us = 2 * SEC;
	w->may = only_author;
	w->slack = lie->apart;
	w->conf.robust = lie->apart > 0 ? (enum robust)(1 + rng_below(sim_rng(s), 3)) : ROBUST_NONE;
	w->client[l.node] = w->forks_allowed = role == CLIENT;         /* before it knows others it may think it is alone */
	world_add(w, LIAR_PEERS);
	l.e = world_peer(w, l.node);
	w->heard = heard;
	w->saw = saw;
	world_settle(w, 20 * SEC);
	world_run_to(w, 6, 20 * SEC);
	if (role == STRANGER) {
		avg_leave(l.e->avg, has_left, l.e);
		sim_await(s, gone, l.e, 10 * SEC);
	}
	pace_from(&l, &quiet);
	sim_run_for(s, QUIET_US);
	pace_take(&l, &quiet);
	size_t heap = l.heap = heap_now();
	w->forks_allowed = false;
	w->lawless = l.node;
	w->alone = l.node;                      /* whom it may have made stop to hear it */
	pace_from(&l, &lying);
	lie_for_a_while(&l);
	pace_take(&l, &lying);
	if (getenv("VERBOSE"))
		fprintf(stderr, "%s %s as %d: %llu epochs, %llu before; said %u, named %u, left out %u, still %llu ms, "
			"%zd KiB more\n", lie->message, lie->name, role, (unsigned long long)lying.epochs,
			(unsigned long long)quiet.epochs, l.said, l.named, l.left_out, (unsigned long long)l.still_us / MSEC,
			((ssize_t)l.heap - (ssize_t)heap) / 1024);
	judge(&l, &quiet, &lying, heap);
	l.lies = false;
	l.e->dead = true;                       /* what it holds itself is its own */
	world_go_on(w, 6);
	judge_states(&l);
	if (sim_trouble(s))
		fprintf(stderr, "the lie: %s %s, told in role %d\n", lie->message, lie->name, role);
	world_free(w);
	buf_free(&l.commit);
}

void liar_message(struct sim *s, const char *message)
{
	static const struct lie *const tables[] = { lies_lead, lies_past, lies_round };
	struct { const struct lie *lie; enum role role; } cell[64];
	size_t n = 0;
	for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
		for (const struct lie *x = tables[t]; x->message; x++)
			for (unsigned role = STRANGER; role <= NEXT && !strcmp(x->message, message); role *= 2)
				if (x->roles & role) {
					cell[n].lie = x;
					cell[n++].role = (enum role)role;
				}
	size_t i = sim_seed(s) % n;
	liar_cell(s, cell[i].lie, cell[i].role);
}
