/* The leader: is another generation needed, and can there be one? One is when none runs as it was decided; and perhaps
 * at a COMMIT, when somebody is there who is not in it. There can be none while bytes of the committed state have no
 * holder, or those who live cannot hold the model: then the run waits, and says so. */
#include <stdlib.h>
#include "common/hash.h"
#include "crew/int.h"

#define UNKNOWN_US (1 * SECOND)                 /* who has said nothing of itself is asked again */
#define UNHEARD_US (2 * SECOND)
#define AGAIN_US (200 * MS)                     /* who was late is tried again when nothing can be without it */
#define AGAIN_MOST 6
#define FUTILE_MOST 6

/* Is it known what the committed state needs, or will it never be? */
static bool base_known(struct crew *c)
{
	if (!c->base_number)
		return true;
	if (deal_number(c->base) == c->base_number) {
		if (!c->base->computed && !c->base->cannot && !crew_work_under_way(c, WORK_KNOW))
			crew_work_start(c, crew_work_new(c, WORK_KNOW, c->base));
		return c->base->computed || c->base->cannot;
	}
	list_each(it, &c->mates)
		crew_ask_show(c, list_entry(it, struct mate, link), c->base_number);
	crew_tick_at(c, UNKNOWN_US);
	return false;
}

/* ---- who could be in it ---- */

/* What is known of a peer: by its own word, else as the generation now has it. */
static bool figures(const struct crew *c, const struct id *id, struct crew_member *ret)
{
	const struct mate *m = mate_of(c, id);
	int rank = c->decided ? offer_find(&c->decided->o, id) : -1;
	if (id_eq(id, &c->me))
		*ret = (struct crew_member){ c->me, c->life, c->conf.speed, c->conf.memory_bytes };
	else if (m && m->known)
		*ret = (struct crew_member){ *id, m->card.life, m->card.speed, m->card.memory_bytes };
	else if (rank >= 0)
		*ret = c->decided->o.m[rank];
	else
		return false;
	return true;
}

static bool was_in(const struct crew *c, const struct crew_member *x)
{
	int rank = c->decided ? offer_find(&c->decided->o, &x->id) : -1;
	return rank >= 0 && c->decided->o.m[rank].life == x->life;
}

static int by_order(const void *a, const void *b)
{
	return crew_before(a, b) ? -1 : crew_before(b, a);
}

static void link_put(const struct card *card, struct offer *o, const struct map *ranks, uint32_t from)
{
	for (uint32_t k = 0; k < card->n; k++) {
		const struct crew_member *to = map_get(ranks, card->v[k].to.b, sizeof card->v[k].to.b);
		if (to && to != &o->m[from])
			o->link[from * o->n + (uint32_t)(to - o->m)] = card->v[k].link;
	}
}

/* As they were in the generation now. */
static void link_keep(const struct offer *was, const int *rank, struct offer *o, uint32_t from)
{
	for (uint32_t k = 0; k < o->n && rank[from] >= 0; k++)
		if (rank[k] >= 0 && k != from)
			o->link[from * o->n + k] = was->link[(uint32_t)rank[from] * was->n + (uint32_t)rank[k]];
}

static void links(const struct crew *c, struct offer *o)
{
	int was[CREW_MEMBERS_MAX];
	o->link = xcalloc((size_t)o->n * o->n + 1, sizeof *o->link);
	if (c->conf.stays)
		return;
	struct map *ranks = map_new(env_rand(c->env));
	for (uint32_t i = 0; i < o->n; i++) {
		map_put(ranks, o->m[i].id.b, sizeof o->m[i].id.b, &o->m[i]);
		was[i] = c->decided ? offer_find(&c->decided->o, &o->m[i].id) : -1;
	}
	for (uint32_t i = 0; i < o->n; i++) {
		const struct mate *m = mate_of(c, &o->m[i].id);
		if (id_eq(&o->m[i].id, &c->me)) {
			struct card mine;
			card_of(c, &mine);
			link_put(&mine, o, ranks, i);
			card_free(&mine);
		} else if (m && m->known) {
			link_put(&m->card, o, ranks, i);
		} else if (c->decided) {
			link_keep(&c->decided->o, was, o, i);
		}
	}
	map_free(ranks);
}

static bool is_wrong(const struct crew *c, const struct mate *m)
{
	struct crew_member x;
	return m->wrong && figures(c, &m->id, &x) && m->wrong == x.life;
}

/* Who finds other plans than this peer are at least as many as those who find the same: perhaps it is this peer. Once,
 * for these peers, all are asked again together, and what most of them find is right. */
static void doubt(struct crew *c)
{
	struct sha256 h;
	uint8_t set[CREW_DIGEST];
	uint32_t wrong = 0;
	sha256_init(&h);
	list_each(it, &c->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		wrong += is_wrong(c, m);
		sha256_add(&h, m->id.b, sizeof m->id.b);
	}
	sha256_end(&h, set);
	if (c->odd || 2 * wrong < c->nmates + 1 || !memcmp(set, c->doubted, CREW_DIGEST))
		return;
	memcpy(c->doubted, set, CREW_DIGEST);
	list_each(it, &c->mates)
		list_entry(it, struct mate, link)->wrong = 0;
}

static void add(const struct crew *c, struct offer *o, const struct id *id, bool members)
{
	struct crew_member x;
	if (o->n < CREW_MEMBERS_MAX && figures(c, id, &x) && was_in(c, &x) == members)
		o->m[o->n++] = x;
}

/* Everybody who lives, of whom enough is known, and whom nothing speaks against; members of the generation now first,
 * in case they are too many. Of a generation that runs well nobody is left out for being late. */
static void gather(struct crew *c, struct offer *o, bool broken)
{
	doubt(c);
	*o = (struct offer){ .run = c->conf.run, .leader = c->me, .life = c->life, .epoch = c->epoch, .term = c->term,
		.target = c->target, .base = c->base_number, .redundancy = c->redundancy,
		.generation = crew_number(CREW_COUNT(c->seen) + 1, &c->conf.run, &c->me, c->life),
		.m = xcalloc(CREW_MEMBERS_MAX, sizeof *o->m) };
	for (int members = 1; members >= 0; members--) {
		if (!c->odd && c->in)
			add(c, o, &c->me, members);
		list_each(it, &c->mates) {
			const struct mate *m = list_entry(it, struct mate, link);
			bool late = benched(c, m) && !(members && !broken && m->shut <= c->commits);
			if (!late && !is_wrong(c, m) && !m->hearsay)     /* who led before this peer has said so */
				add(c, o, &m->id, members);
		}
	}
	qsort(o->m, o->n, sizeof *o->m, by_order);
	links(c, o);
}

/* ---- how it goes ---- */

/* How it goes with what is decided: some units go on in it; somebody does not. */
struct going { bool some, all; };

static bool runs_on(const struct crew *c, const struct deal *d, uint32_t rank)
{
	const struct mate *m = mate_of(c, &d->o.m[rank].id);
	return id_eq(&d->o.m[rank].id, &c->me) ? c->running == d : m && m->adrift != d->o.generation;
}

/* A unit goes on when all its members live and run it. Of a generation that is known by its go alone they all must. */
static struct going look(const struct crew *c)
{
	const struct deal *d = c->decided;
	uint32_t unit[CREW_MEMBERS_MAX] = { 0 };
	bool stands[CREW_MEMBERS_MAX];
	struct going g = { .all = d && deal_whole(c, d) };
	if (c->unsure)                          /* others may have begun what it does not begin any more */
		return (struct going){ 0 };
	if (!d || (!d->computed && !g.all))
		return g;
	if (d->computed)
		deal_units(c, d, unit);
	for (uint32_t i = 0; i < d->o.n; i++)
		stands[i] = deal_unit_whole(c, d, unit, unit[i]);
	for (uint32_t i = 0; i < d->o.n; i++)
		for (uint32_t k = 0; k < d->o.n && !runs_on(c, d, i); k++)
			stands[k] = stands[k] && unit[k] != unit[i];
	for (uint32_t i = 0; i < d->o.n; i++) {
		g.some = g.some || stands[i];
		g.all = g.all && stands[i];
	}
	g.some = PLANTED(CREW_ALL_STAND) ? g.all : g.some;
	return g;
}

/* ---- choosing ---- */

static void set_of(const struct crew *c, const struct offer *o, bool broken, uint8_t ret[CREW_DIGEST])
{
	struct sha256 h;
	sha256_init(&h);
	for (uint32_t i = 0; i < o->n; i++) {
		struct buf b = { 0 };
		buf_put(&b, o->m[i].id.b, 32);
		buf_u64(&b, o->m[i].life);
		buf_u8(&b, was_in(c, &o->m[i]));
		sha256_add(&h, b.p, b.len);
		buf_free(&b);
	}
	uint64_t now[] = { deal_number(c->decided), c->base_number, c->target, broken, look(c).all };
	sha256_add(&h, now, sizeof now);
	sha256_end(&h, ret);
}

/* This peer's planner is of no use: those of `in` are asked what theirs find. */
static bool blind(struct crew *c, const struct offer *all, const bool *in, uint32_t redundancy)
{
	struct offer o;
	offer_some(&o, all, in);
	o.redundancy = redundancy;
	int me = offer_find(&o, &c->me);
	bool some = o.n > 0 && me < 0;
	if (some) {
		struct deal *d = deal_make(c, &o);
		crew_lead_propose(c, d, true, true);
		deal_drop(&d);
	}
	offer_free(&o);
	return some;
}

/* First those who were in it, then all; the same with fewer copies. */
static void go_blind(struct crew *c, const struct offer *all)
{
	bool in[CREW_MEMBERS_MAX], asked = false;
	while (c->judged.blind < 2 * c->redundancy && !asked) {
		for (uint32_t i = 0; i < all->n; i++)
			in[i] = !id_eq(&all->m[i].id, &c->me) && (c->judged.blind % 2 || was_in(c, &all->m[i]));
		asked = blind(c, all, in, c->redundancy - c->judged.blind / 2);
		c->judged.blind++;
	}
}

static void choose(struct crew *c, struct offer *all, bool broken)
{
	uint8_t set[CREW_DIGEST];
	set_of(c, all, broken, set);
	bool same = !memcmp(set, c->judged.set, CREW_DIGEST);
	if (!same)
		c->judged.blind = 0;
	memcpy(c->judged.set, set, CREW_DIGEST);
	if (c->odd || same) {
		if (broken)
			go_blind(c, all);
		return;
	}
	uint32_t unit[CREW_MEMBERS_MAX];
	struct work *w = crew_work_new(c, WORK_CHOOSE, NULL);
	struct choice *x = &w->choice;
	x->redundancy = c->redundancy;
	x->running = broken ? 0 : c->decided->o.redundancy;
	x->all = *all;
	x->kept = xcalloc(all->n + 1, sizeof *x->kept);
	x->whole = xcalloc(all->n + 1, sizeof *x->whole);
	deal_units(c, c->decided, unit);
	for (uint32_t i = 0; i < all->n; i++) {
		x->kept[i] = was_in(c, &all->m[i]);
		x->whole[i] = x->kept[i] && deal_unit_whole(c, c->decided, unit,
			unit[offer_find(&c->decided->o, &all->m[i].id)]);
	}
	*all = (struct offer){ 0 };
	crew_work_start(c, w);
}

/* Nothing can be: perhaps with those who were late. */
static void without(struct crew *c)
{
	bool some = false;
	list_each(it, &c->mates)
		some = some || benched(c, list_entry(it, struct mate, link));
	if (!some || c->again_us)
		return;
	c->again_us = now_of(c) + (AGAIN_US << (c->tries < AGAIN_MOST ? c->tries : AGAIN_MOST));
	c->tries++;
	crew_tick_at(c, c->again_us - now_of(c));
}

static void try_again(struct crew *c)
{
	if (!c->again_us || now_of(c) < c->again_us)
		return;
	c->again_us = 0;
	list_each(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->bench = m->shut = 0;
	}
}

void need_chosen(struct crew *c, struct work *w)
{
	struct choice *x = &w->choice;
	struct offer *all = &x->all;
	bool old = !leads(c) || c->lead || all->epoch != c->epoch || all->term != c->term || all->generation <= c->seen;
	c->plan_us = now_of(c) - w->begun_us;
	for (uint32_t i = 0; i < all->n && !old; i++)
		old = !deal_lives_on(c, &all->m[i]);
	if (c->holds_us)
		crew_kick(c);
	if (old) {
		c->overtaken += all->epoch != c->epoch;
		memset(c->judged.set, 0, CREW_DIGEST);
		return;
	}
	if (x->rc || x->stays) {
		c->futile += c->holds_us && c->futile < FUTILE_MOST;
		c->overtaken = 0;
	}
	if (x->rc) {
		crew_waits(c, &x->why);
		without(c);
		return;
	}
	if (x->stays && look(c).all)
		return;
	if (x->fewer.code)
		crew_say(c, LOG_WARN_, "crew_fewer", NULL, "generation %llu is to have %u of %u copies of the state: %s",
			(unsigned long long)CREW_COUNT(x->best.generation), x->best.redundancy, c->redundancy, x->fewer.text);
	struct deal *d = deal_make(c, &x->best);
	d->computed = true;
	d->found = x->found;
	x->found = (struct found){ 0 };
	deal_set(&c->computed, d);
	memset(c->judged.set, 0, CREW_DIGEST);
	if (x->running)
		c->since_us = c->commit_us;
	crew_lead_propose(c, d, x->running > 0, false);
	deal_drop(&d);
}

/* ---- is it needed? ---- */

/* Asks who they are; false: some may yet say so. */
static bool all_known(struct crew *c)
{
	uint64_t now = now_of(c);
	bool all = true, some = false;
	list_each(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m->known || (c->decided && offer_find(&c->decided->o, &m->id) >= 0))
			continue;               /* a member that has started anew says so by itself */
		if (!m->asked_us || now - m->asked_us > UNKNOWN_US)
			crew_ask_mate(c, m);
		all = all && now - m->asked_us >= c->conf.floor_us;
		some = true;
	}
	if (!all)
		crew_tick_at(c, c->conf.floor_us);
	else if (some && !PLANTED(CREW_ASKS_ONCE))
		crew_tick_at(c, UNKNOWN_US);    /* this peer may not have been in its roster yet */
	return all;
}

static void say_unheard(struct crew *c)
{
	struct err e;
	err_set(&e, ERR_STATE, "generation %llu, whose members hold the state, is known to nobody here yet",
		(unsigned long long)CREW_COUNT(c->base_number));
	crew_waits(c, &e);
}

/* What runs well may end for others only with all who are in it, or when most of those who live are of one mind. */
static bool may_replace(const struct crew *c, const struct offer *all)
{
	for (uint32_t i = 0; i < c->decided->o.n; i++)
		if (offer_find(all, &c->decided->o.m[i].id) < 0)
			return 2 * all->n > c->nmates + 1;
	return true;
}

void need_step(struct crew *c)
{
	uint64_t missing;
	crew_lead_step(c);
	if (!leads(c))
		c->committed = false;           /* who takes over while something goes on does not end its round */
	if (!leads(c) || c->lead || crew_work_under_way(c, WORK_CHOOSE))
		return;
	bool known = all_known(c), bad = !look(c).some;
	if (bad)
		crew_since(c);
	if (!bad && !c->committed)
		return;
	try_again(c);
	if (!known || !base_known(c)) {
		if (bad && now_of(c) - c->since_us > UNHEARD_US)
			say_unheard(c);
		return;
	}
	c->committed = false;
	if (deal_base_there(c, &missing) && missing) {
		struct err e;
		err_set(&e, ERR_STATE, "%llu bytes of the state have no holder among the %u peers here", (unsigned long long)
			missing, c->nmates + 1);
		if (bad) {
			crew_waits(c, &e);
			without(c);
		}
		return;
	}
	struct offer all;
	gather(c, &all, bad);
	if (all.n && (bad || may_replace(c, &all)))
		choose(c, &all, bad);
	offer_free(&all);
}
