/* Who lives, by the owner's word, and by that of who leads. */
#include <stdlib.h>
#include "crew/int.h"

struct mate *mate_of(const struct crew *c, const struct id *id)
{
	return map_get(c->by_id, id->b, sizeof id->b);
}

static void mate_free(struct crew *c, struct mate *m)
{
	map_del(c->by_id, m->id.b, sizeof m->id.b);
	list_del(&m->link);
	c->nmates--;
	if (m->ask)
		net_cancel(c->net, m->ask);
	if (m->show)
		net_cancel(c->net, m->show);
	card_free(&m->card);
	free(m);
}

static struct mate *mate_lives(struct crew *c, const struct id *id)
{
	struct mate *m = mate_of(c, id);
	if (!m) {
		m = xcalloc(1, sizeof *m);
		m->c = c;
		m->id = *id;
		list_push(&c->mates, &m->link);
		map_put(c->by_id, m->id.b, sizeof m->id.b, m);
		c->nmates++;
		c->futile = 0;
	}
	m->live = true;
	return m;
}

static bool known_gone(const struct crew *c, const struct id *id)
{
	for (uint32_t i = 0; i < c->told.ngone; i++)
		if (id_eq(&c->told.gone[i], id))
			return true;
	return false;
}

void roster_hearsay(struct crew *c, const struct deal *d)
{
	for (uint32_t i = 0; i < d->o.n && !c->running; i++) {       /* nobody stops for somebody it does not know */
		const struct id *id = &d->o.m[i].id;
		if (!id_eq(id, &c->me) && !mate_of(c, id) && !known_gone(c, id))
			mate_lives(c, id)->hearsay = true;
	}
}

/* Until the next COMMIT, which names everybody, and as long as it is the same who says so; or since it has signed what
 * runs here, whoever leads. */
static bool still_said(const struct crew *c, const struct mate *m, bool led)
{
	bool signs = c->running && offer_find(&c->running->o, &m->id) >= 0;
	return m->hearsay && c->told.epoch == c->epoch && (led || signs) && !known_gone(c, &m->id);
}

/* Whoever leads next hears of who starts anew; what is known here grows old. */
static void forget_cards(struct crew *c)
{
	list_each(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->known = false;
		m->asked_us = m->bench = 0;
		m->late = 0;
	}
}

void roster_follow(struct crew *c)
{
	bool led = id_eq(&c->leader, &c->told.leader);
	c->epoch = c->told.epoch;
	c->term = c->told.term;
	c->target = c->told.target;
	c->leader = c->told.leader;
	c->in = false;
	list_each(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->live = still_said(c, m, led);
	}
	for (uint32_t i = 0; i < c->told.n; i++) {
		if (id_eq(&c->told.live[i], &c->me))
			c->in = true;
		else
			mate_lives(c, &c->told.live[i])->hearsay = false;
	}
	list_each_safe(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (!m->live)
			mate_free(c, m);
	}
	if (!leads(c))
		forget_cards(c);
}

void roster_free(struct crew *c)
{
	list_each_safe(it, &c->mates)
		mate_free(c, list_entry(it, struct mate, link));
	map_free(c->by_id);
}
