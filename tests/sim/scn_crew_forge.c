/* A member that forges: it holds the swarm's key, its crew is honest, and beside that it says of generations what is
 * not its to say. What must always hold is in crew_world.h; who does not lead disturbs nobody, and is named. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include "avg/signed.h"
#include "common/hash.h"
#include "crew/int.h"
#include "crew_world.h"

#define PEERS 5
#define LIE_US (3 * SEC)
#define HEAP_MORE (24u << 20)

struct liar;
struct lie {
	const char *name;
	bool leads;                             /* it tells this while it leads */
	bool named;                             /* somebody must say so */
	bool counted;                           /* somebody must have refused it */
	bool stops;                             /* generations may end for it: who leads can have that */
	void (*tell)(struct liar *l, struct cpeer *to);
	uint64_t every_us;
};
struct liar {
	struct cworld *w; int node; const struct lie *lie; struct rng rng; unsigned told;
	struct deal *deal[2]; uint8_t sig[2][PEERS][SIG_BYTES]; bool got[2][PEERS];
};
struct reply { struct liar *l; int which, node; };

/* ---- what it can make ---- */

static struct cpeer *me_of(struct liar *l) { return cworld_peer(l->w, l->node); }

/* An offer as this peer could make it if it led: of all that live, with the numbers that they expect. */
static void offer_of(struct liar *l, const struct cpeer *to, struct offer *o)
{
	const struct crew *c = to->crew, *mine = me_of(l)->crew;
	bool in[CREW_MEMBERS_MAX];
	memset(in, 1, sizeof in);
	offer_some(o, &c->decided->o, in);
	o->leader = mine->me;
	o->life = mine->life;
	o->epoch = c->epoch;
	o->term = c->term;
	o->base = c->base_number;
	o->generation = crew_number(CREW_COUNT(c->seen) + 1 + l->told, &o->run, &o->leader, o->life);
}

static void ignored(void *arg, const struct frame *f, const struct err *e) { (void)arg; (void)f; (void)e; }

static void say(struct liar *l, const struct cpeer *to, enum kind k, struct buf *b)
{
	struct cpeer *p = me_of(l);
	l->told++;
	net_call(p->net, net_self(to->net), k, crew_head(p->crew), blob_steal(b), CLASS_control, SEC, ignored, NULL);
}

static void propose(struct liar *l, const struct cpeer *to, const struct offer *o)
{
	struct deal *d = deal_make(me_of(l)->crew, o);
	struct buf b = { 0 };
	buf_put(&b, d->bytes.p, d->bytes.len);
	say(l, to, KIND_CREW_PROPOSE, &b);
	deal_drop(&d);
}

/* ---- the lies ---- */

static void not_leader(struct liar *l, struct cpeer *to)
{
	struct offer o;
	offer_of(l, to, &o);
	propose(l, to, &o);
	offer_free(&o);
}

/* It leads, and leads on in an epoch that is over, with the term of one to come. */
static void old_term(struct liar *l, struct cpeer *to)
{
	struct offer o;
	offer_of(l, to, &o);
	o.epoch = o.epoch ? o.epoch - 1 : 0;
	o.term = o.epoch < to->crew->epoch ? o.term + 1 : o.term;
	if (o.epoch < to->crew->epoch)
		propose(l, to, &o);
	offer_free(&o);
}

/* Of a term before the one that it leads in itself. */
static void lower_term(struct liar *l, struct cpeer *to)
{
	struct offer o;
	offer_of(l, to, &o);
	if (o.term) {
		o.term--;
		propose(l, to, &o);
	}
	offer_free(&o);
}

static void ahead(struct liar *l, struct cpeer *to)
{
	struct offer o;
	offer_of(l, to, &o);
	o.epoch += 1000;
	propose(l, to, &o);
	offer_free(&o);
}

static void far_number(struct liar *l, struct cpeer *to)
{
	struct offer o;
	offer_of(l, to, &o);
	o.generation = crew_number(CREW_COUNT(to->crew->seen) + (3ull << 20), &o.run, &o.leader, o.life);
	propose(l, to, &o);
	offer_free(&o);
}

static void other_tag(struct liar *l, struct cpeer *to)
{
	struct offer o;
	offer_of(l, to, &o);
	o.generation ^= 1;
	propose(l, to, &o);
	offer_free(&o);
}

static void strangers(struct liar *l, struct cpeer *to)
{
	struct offer o;
	offer_of(l, to, &o);
	for (uint32_t i = 0; i < o.n; i++)
		if (!id_eq(&o.m[i].id, net_self(to->net)))
			o.m[i].id.b[31] ^= 1;
	propose(l, to, &o);
	offer_free(&o);
}

static void unsigned_(struct liar *l, struct cpeer *to)
{
	struct offer o;
	struct buf b = { 0 };
	offer_of(l, to, &o);
	struct deal *d = deal_make(me_of(l)->crew, &o);
	buf_put(&b, d->bytes.p, d->bytes.len);
	b.p[b.len - 1 - rng_below(&l->rng, SIG_BYTES)] ^= 1;
	say(l, to, KIND_CREW_PROPOSE, &b);
	deal_drop(&d);
	offer_free(&o);
}

static void huge(struct liar *l, struct cpeer *to)
{
	struct offer o;
	struct buf b = { 0 };
	offer_of(l, to, &o);
	offer_encode(&o, &b);
	b.p[103] = b.p[104] = 0xff;                /* how many members it says that it has */
	buf_grow(&b, rng_below(&l->rng, 200000));
	say(l, to, rng_below(&l->rng, 2) ? KIND_CREW_PROPOSE : KIND_CREW_GO, &b);
	offer_free(&o);
}

static void garbage(struct liar *l, struct cpeer *to)
{
	static const enum kind kinds[] = { KIND_CREW_PROPOSE, KIND_CREW_GO, KIND_CREW_ASK };
	struct buf b = { 0 };
	size_t n = rng_below(&l->rng, 400);
	uint8_t *p = buf_grow(&b, n);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_u64(&l->rng);
	say(l, to, kinds[rng_below(&l->rng, 3)], &b);
}

/* What the leader has truly signed, again. */
static void replayed(struct liar *l, struct cpeer *to)
{
	const struct deal *d = me_of(l)->crew->decided;
	struct buf b = { 0 };
	buf_put(&b, d->bytes.p, d->bytes.len);
	say(l, to, KIND_CREW_PROPOSE, &b);
}

static bool proposed_last(struct liar *l)
{
	const struct deal *d = me_of(l)->crew->decided;
	return !d || id_eq(&d->o.leader, net_self(me_of(l)->net));
}

static void numbers(struct liar *l, struct cpeer *to)
{
	struct cpeer *p = me_of(l);
	struct card card;
	struct buf b = { 0 };
	json_t *j = crew_head(p->crew);
	json_object_set_new(j, "seen", json_integer(INT64_MAX));
	json_object_set_new(j, "decided", json_integer(INT64_MAX));
	json_object_set_new(j, "running", json_integer((json_int_t)deal_number(p->crew->running)));
	json_object_set_new(j, "promised", json_string("much"));
	card_of(p->crew, &card);
	card_encode(&card, &b);
	card_free(&card);
	l->told++;
	net_call(p->net, net_self(to->net), KIND_CREW_ASK, j, blob_steal(&b), CLASS_control, SEC, ignored, NULL);
}

/* A go of an offer that nobody has been asked for. */
static void go_forged(struct liar *l, struct cpeer *to)
{
	struct offer o;
	struct buf b = { 0 };
	uint8_t digest[CREW_DIGEST] = { 1 }, sig[PEERS * SIG_BYTES] = { 2 };
	offer_of(l, to, &o);
	struct deal *d = deal_make(me_of(l)->crew, &o);
	go_encode(d->bytes.p, d->bytes.len, digest, sig, o.n, &b);
	say(l, to, KIND_CREW_GO, &b);
	deal_drop(&d);
	offer_free(&o);
}

static void flood(struct liar *l, struct cpeer *to)
{
	for (int i = 0; i < 20; i++)
		not_leader(l, to);
}

/* ---- schemes: offers that it truly asks for, and gos with what was promised ---- */

static void promised(void *arg, const struct frame *f, const struct err *e)
{
	struct reply *r = arg;
	struct liar *l = r->l;
	(void)e;
	if (f && f->blob_len == SIG_BYTES && l->deal[r->which] && !l->got[r->which][r->node]) {
		memcpy(l->sig[r->which][r->node], f->blob, SIG_BYTES);
		json_get_hex(f->json, "digest", l->deal[r->which]->said, CREW_DIGEST, NULL);
		l->got[r->which][r->node] = true;
	}
	free(r);
}

static void ask_promise(struct liar *l, struct cpeer *to, int which)
{
	struct reply *r = xcalloc(1, sizeof *r);
	struct buf b = { 0 };
	*r = (struct reply){ l, which, to->node };
	buf_put(&b, l->deal[which]->bytes.p, l->deal[which]->bytes.len);
	l->told++;
	net_call(me_of(l)->net, net_self(to->net), KIND_CREW_PROPOSE, crew_head(to->crew), blob_steal(&b), CLASS_control,
		SEC, promised, r);
}

/* The go with whatever was promised, and its own promise; what is missing is made up. */
static void say_go(struct liar *l, struct cpeer *to, int which)
{
	struct deal *d = l->deal[which];
	struct buf b = { 0 };
	uint8_t *sig = xcalloc(d->o.n, SIG_BYTES);
	for (uint32_t i = 0; i < d->o.n; i++)
		for (int k = 0; k < PEERS; k++)
			if (id_eq(&d->o.m[i].id, &l->w->id[k]))
				memcpy(sig + i * SIG_BYTES, l->sig[which][k], SIG_BYTES);
	int rank = offer_find(&d->o, &me_of(l)->crew->me);
	memcpy(d->found.digest, d->said, CREW_DIGEST);
	if (rank >= 0)
		deal_promise(me_of(l)->crew, d, sig + (size_t)rank * SIG_BYTES);
	go_encode(d->bytes.p, d->bytes.len, d->said, sig, d->o.n, &b);
	free(sig);
	say(l, to, KIND_CREW_GO, &b);
}

static void deals_drop(struct liar *l)
{
	for (int i = 0; i < 2; i++) {
		deal_drop(&l->deal[i]);
		memset(l->got[i], 0, sizeof l->got[i]);
	}
}

/* Two generations of one number: one for the even, one for the odd. */
static void two_faced(struct liar *l, struct cpeer *to)
{
	unsigned turn = l->told / (PEERS - 1) % 4;
	if (!l->deal[0]) {
		struct offer o;
		offer_of(l, to, &o);
		l->deal[0] = deal_make(me_of(l)->crew, &o);
		o.m[o.n - 1].memory_bytes++;
		if (o.n > 1 && crew_before(&o.m[o.n - 2], &o.m[o.n - 1]))
			l->deal[1] = deal_make(me_of(l)->crew, &o);
		else
			deal_set(&l->deal[1], l->deal[0]);
		offer_free(&o);
	}
	if (!turn)
		ask_promise(l, to, to->node % 2);
	else
		say_go(l, to, to->node % 2);
	if (turn == 3)
		deals_drop(l);
}

/* All of it, honestly, with a number that is over. */
static void older(struct liar *l, struct cpeer *to)
{
	unsigned turn = l->told / (PEERS - 1) % 4;
	if (!l->deal[0]) {
		struct offer o;
		offer_of(l, to, &o);
		if (CREW_COUNT(to->crew->seen) < 3) {
			offer_free(&o);
			return;
		}
		o.generation = crew_number(CREW_COUNT(to->crew->seen) - 1, &o.run, &o.leader, o.life);
		o.base = 0;
		l->deal[0] = deal_make(me_of(l)->crew, &o);
		offer_free(&o);
	}
	if (!turn)
		ask_promise(l, to, 0);
	else
		say_go(l, to, 0);
	if (turn == 3)
		deals_drop(l);
}

static const struct lie lies[] = {
	{ "not_leader", false, true, true, false, not_leader, 0 },
	{ "old_term", false, true, true, false, old_term, 0 },
	{ "lower_term", true, true, true, false, lower_term, 0 },
	{ "ahead", false, false, false, false, ahead, 0 },
	{ "far_number", false, true, true, false, far_number, 0 },
	{ "far_number_leading", true, true, true, false, far_number, 0 },
	{ "other_tag", true, true, true, false, other_tag, 0 },
	{ "strangers", true, false, true, false, strangers, 0 },
	{ "unsigned", true, true, true, false, unsigned_, 0 },
	{ "huge", false, true, true, false, huge, 0 },
	{ "garbage", false, true, true, false, garbage, 0 },
	{ "replayed", false, true, true, false, replayed, 0 },
	{ "numbers", false, true, true, false, numbers, 0 },
	{ "go_forged", true, false, false, false, go_forged, 0 },
	{ "flood", true, false, true, true, flood, 20 * MSEC },
	{ "two_faced", true, false, false, true, two_faced, 4 * MSEC },
	{ "older", true, false, true, false, older, 4 * MSEC },
};

/* ---- a cell ---- */

static uint64_t refusals(struct cworld *w, int liar)
{
	uint64_t n = 0;
	for (int i = 0; i < PEERS; i++) {
		struct cpeer *p = cworld_peer(w, i);
		for (int k = 0; p && i != liar && k < REFUSALS; k++)
			n += p->crew->refused[k];
	}
	return n;
}

static uint64_t rate_refused(struct cworld *w, int liar)
{
	uint64_t n = 0;
	for (int i = 0; i < PEERS; i++)
		n += i != liar && cworld_peer(w, i) ? cworld_peer(w, i)->crew->refused[REFUSED_rate] : 0;
	return n;
}

static uint64_t stops(struct cworld *w)
{
	uint64_t n = 0;
	for (int i = 0; i < PEERS; i++)
		n += cworld_peer(w, i)->stops;
	return n;
}

static bool named(struct cworld *w, int liar)
{
	for (int i = 0; i < PEERS; i++)
		if (i != liar && cworld_peer(w, i)->named[liar])
			return true;
	return false;
}

static void honest_are_not(struct sim *s, struct cworld *w, int liar)
{
	for (int i = 0; i < PEERS; i++)
		for (int k = 0; k < PEERS; k++) {
			struct peer_info info;
			if (i != liar && k != liar && net_peer(cworld_peer(w, i)->net, &w->id[k], &info))
				sim_check(s, !info.banned_until_us);
		}
}

/* For a minute more when nobody says so who should. */
static void lie_for_a_while(struct liar *l)
{
	struct sim *s = l->w->s;
	uint64_t end = sim_now(s) + LIE_US, pause = l->lie->every_us;
	size_t heap = mallinfo2().uordblks;
	while (sim_now(s) < end + (l->lie->named && !named(l->w, l->node) ? SIM_NEVER_US : 0) && !sim_failed(s)) {
		if (sim_now(s) >= end)
			sim_late(s, "%s: node %d lies, and nobody says so in time", l->lie->name, l->node);
		for (int i = 0; i < PEERS; i++)
			if (i != l->node && cworld_peer(l->w, i) && cworld_peer(l->w, i)->crew->decided)
				l->lie->tell(l, cworld_peer(l->w, i));
		sim_run_for(s, pause ? pause : 10 * MSEC + rng_below(&l->rng, 90 * MSEC));
		if (mallinfo2().uordblks > heap + HEAP_MORE)
			sim_late(s, "%s: %zu bytes more are held than before", l->lie->name, mallinfo2().uordblks - heap);
	}
}

static void cell(struct sim *s, const struct lie *lie)
{
	struct cworld *w = cworld_new(s);
	struct liar l = { .w = w, .node = (int)(sim_seed(s) % PEERS), .lie = lie };
	sim_at_end(s, (void (*)(void *))cworld_free, w);
	rng_seed(&l.rng, sim_seed(s));
	cworld_add(w, PEERS);
	cworld_settle(w, 10 * SEC);
	for (int k = 0; k < 3; k++) {           /* some generations, so that there are older ones */
		int i = (l.node + 1 + k) % PEERS;
		sim_await(s, cworld_safe, w, 10 * SEC);
		cworld_kill(w, i);
		sim_run_for(s, 500 * MSEC);
		cworld_settle(w, 10 * SEC);
		cworld_restart(w, i);
		sim_run_for(s, 2 * SEC);
	}
	sim_await(s, cworld_safe, w, 10 * SEC);
	if (lie->leads) {
		w->prefer = l.node;
		sim_run_for(s, 2 * SEC);
	}
	w->commit_us = lie->leads ? w->commit_us : 0;
	sim_run_for(s, SEC);
	cworld_settle(w, 10 * SEC);
	while (!lie->leads && (cworld_leader(w, 0) == l.node || (lie->tell == replayed && proposed_last(&l))))
		l.node = (l.node + 1) % PEERS;
	if (lie->tell == lower_term) {
		w->commit_us = 0;
		cworld_new_term(w);
		sim_run_for(s, SEC);
	}
	w->liar = l.node;
	uint64_t stopped = stops(w), refused = refusals(w, l.node);
	lie_for_a_while(&l);
	uint64_t refused_now = refusals(w, l.node);
	if (lie->tell == flood && !rate_refused(w, l.node))
		sim_fail(s, "flood: all that node %d has proposed, %u times, was looked at", l.node, l.told);
	if (lie->counted && refused_now == refused)
		sim_fail(s, "%s: node %d lies, and nobody refuses it", lie->name, l.node);
	if (lie->named && !named(w, l.node))
		sim_fail(s, "%s: node %d lies, and nobody says so", lie->name, l.node);
	if (!lie->stops && stops(w) != stopped)
		sim_fail(s, "%s: %llu generations were stopped for what node %d says", lie->name,
			(unsigned long long)(stops(w) - stopped), l.node);
	honest_are_not(s, w, l.node);
	sim_run_for(s, 3 * SEC);
	w->prefer = -1;
	if (lie->stops)                         /* it may have come to hold everything alone */
		sim_await(s, cworld_safe, w, 30 * SEC);
	cworld_kill(w, l.node);
	sim_run_for(s, SEC);
	cworld_settle(w, 15 * SEC);
	sim_check(s, cworld_running(w));
	deals_drop(&l);
}

#define LIE(n, i) static void scn_##n(struct sim *s) { cell(s, &lies[i]); }
LIE(not_leader, 0) LIE(old_term, 1) LIE(lower_term, 2) LIE(ahead, 3) LIE(far_number, 4) LIE(far_number_leading, 5)
LIE(other_tag, 6) LIE(strangers, 7) LIE(unsigned_, 8) LIE(huge, 9) LIE(garbage, 10) LIE(replayed, 11) LIE(numbers, 12)
LIE(go_forged, 13) LIE(flood, 14) LIE(two_faced, 15) LIE(older, 16)

static const struct scn list[] = { SCN(not_leader), SCN(old_term), SCN(lower_term), SCN(ahead), SCN(far_number),
	SCN(far_number_leading), SCN(other_tag), SCN(strangers), { "unsigned", scn_unsigned_ }, SCN(huge), SCN(garbage),
	SCN(replayed), SCN(numbers), SCN(go_forged), SCN(flood), SCN(two_faced), SCN(older), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
