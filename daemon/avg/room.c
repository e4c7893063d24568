/* Room for who is late by what is on its way. Where an epoch is shorter than a round trip, the JOIN of a follower and
 * the report of a member that was left out once arrive when their point is history, and so for ever. So who leads
 * holds its next BEGIN until such a peer has come to the point: for three times as long as it has lagged at most, the
 * time from the commit that it had last to its word of it, as measured here. The commit rule knows nothing of it:
 * nobody is counted who has not said that it is at this point. What the others process meanwhile counts. To whom this
 * peer still sends its part of the last mean it gives room, too, for as long as a round takes. */
#include <string.h>
#include "avg/fork.h"
#include "avg/lead.h"

#define PATIENCE 3
#define FAILS_MAX 6

void room_late(struct avg *a, struct mate *m, uint64_t epoch, const uint8_t *prev)
{
	const struct past *p = m->member && epoch < a->point.epoch ? past_of(a, epoch) : NULL;
	struct peer_info info;
	uint64_t lag = p ? now_of(a) - p->us : 0;
	if (!p || memcmp(p->mark, prev, PAST_MARK) || lag > unmeasured_us(a))   /* that is more than what is on its way */
		return;
	if (net_peer(a->net, &m->id, &info) && info.rtt_us > lag)
		lag = info.rtt_us;
	m->lag_us = lag > m->lag_us ? lag : (3 * m->lag_us + lag) / 4;
	m->late_us = now_of(a);
}

static uint64_t room_of(const struct mate *m) { return m->fetch_us ? m->fetch_us : PATIENCE * m->lag_us; }

/* It can be counted when it comes: who was left out since it complains, and has held no mean after that, fails for
 * another reason. A report that is late says little where epochs do not wait for the target. */
static bool has_room(const struct avg *a, const struct mate *m, uint64_t due_us)
{
	bool counts = m->flags & MATE_FOLLOWER || !(m->flags & MATE_AUX || m->alone || a->conf.each || a->conf.any);
	return m != a->me && m->member && m->live && counts && !(m->flags & MATE_HOLD) && a->point.epoch >= m->skip_epoch &&
		due_us >= m->room_us;
}

/* It is late, and has said so a moment before this BEGIN was due. */
static bool lags(const struct avg *a, const struct mate *m, uint64_t due_us)
{
	return has_room(a, m, due_us) && !m->awaited && m->late_us && m->late_us + room_of(m) >= due_us;
}

/* Whether it comes or not: the next time is later, until it has brought something. Who never does costs the others a
 * third of their time at first, and soon next to nothing. */
static void made(struct avg *a, struct mate *m)
{
	m->room_us = now_of(a) + (2 * room_of(m) << m->rooms);
	m->rooms += m->rooms < FAILS_MAX;
	m->late_us = m->fetch_us = 0;
}

/* The mean of the last round moves on its way to a member, at a thin link's pace, and a round is over sooner without
 * it: it would be late for ever. It has the time that a round takes, or may take, and is not awaited before it says
 * that it is here. */
static void fetching(struct avg *a)
{
	list_each(it, &a->mates)
		list_entry(it, struct mate, link)->fetch_us = 0;
	list_each(it, &a->tails) {
		const struct round *r = list_entry(it, struct round, link);
		uint64_t may = r->b.ready_us + r->b.data_us, us = a->last_round_us < may ? a->last_round_us : may;
		for (size_t i = 0; i < r->b.n && r->applied && r->b.epoch + 1 == a->point.epoch; i++) {
			struct mate *m = flow_owes(r, i) ? mate_find(a, &r->b.m[i].id) : NULL;
			struct peer_info info;
			if (!m || m->counted || m->flags & MATE_FOLLOWER || !has_room(a, m, a->due_us) ||
					!net_peer(a->net, &m->id, &info) || info.last_seen_us < a->commit_us)
				continue;
			m->awaited = false;
			m->fetch_us = lags(a, m, a->due_us) && room_of(m) > us ? room_of(m) : us;
			m->late_us = now_of(a);
		}
	}
}

bool room_wait(struct avg *a)
{
	uint64_t now = now_of(a), until = now;
	if (a->due_gen != a->gen) {
		a->due_gen = a->gen;
		a->due_us = now;
		fetching(a);
	}
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		uint64_t end = a->due_us + room_of(m);
		if (!lags(a, m, a->due_us))
			continue;
		if (a->due_us == now)
			hub_event(a, LOG_INFO_, "room", &m->id, "epoch %llu: BEGIN waits for it, %llu ms at most: it lacks only "
				"what is on its way", (unsigned long long)a->point.epoch,
				(unsigned long long)(room_of(m) / MS));
		if (end <= now)
			made(a, m);
		else if (end > until)
			until = end;
	}
	if (until == now)
		return false;
	env_after(a->env, &a->beat, until - now);
	return true;
}

void room_came(struct avg *a, struct mate *m)
{
	if (m->late_us)
		made(a, m);
}
