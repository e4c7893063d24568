/* Of a leader's round: who is here, who is late, and whether most of the last commit's members have gone elsewhere. */
#include <stdlib.h>
#include <string.h>
#include "avg/lead.h"

#define UNACKED 4                               /* twice late with its ACK, less in time: waited for now and then */

bool lead_required(const struct round *r, size_t i)
{
	const struct lead_member *m = &r->lead->m[i];
	return m->is_ready && !m->gone && !(r->b.m[i].flags & MATE_FOLLOWER);
}

/* It has been late with its ACK more than once of late: what it sums may be there, and its word is not waited for
 * in every round. */
static bool acks_late(const struct round *r, size_t i)
{
	const struct mate *m = mate_find(r->a, &r->b.m[i].id);
	return m && !PLANTED(ACK_AWAITED) && m->unacked >= UNACKED && r->b.epoch < m->unacked_epoch;
}

void lead_tell_unacked(const struct round *r)
{
	for (size_t i = 0; i < r->b.n; i++) {
		struct mate *m = mate_find(r->a, &r->b.m[i].id);
		if (!m || m == r->a->me || !lead_required(r, i) || r->lead->m[i].acked || acks_late(r, i))
			continue;
		m->unacked += 2;
		m->unacked_epoch = r->b.epoch + (1u << (m->unacked < 6 ? m->unacked : 6));
		hub_event(r->a, LOG_INFO_, "late", &m->id, "epoch %llu goes on without its word that it holds the mean",
			(unsigned long long)r->b.epoch);
	}
}

size_t lead_missing_acks(const struct round *r, size_t *ret_acks)
{
	size_t n = *ret_acks = 0;
	for (size_t i = 0; i < r->b.n; i++) {
		n += lead_required(r, i) && !r->lead->m[i].acked && !acks_late(r, i);
		*ret_acks += r->lead->m[i].acked;
	}
	return n;
}

bool lead_heard(const struct round *r, size_t i, uint64_t since_us)
{
	struct peer_info info;
	return net_peer(r->a->net, &r->b.m[i].id, &info) && info.last_seen_us >= since_us;
}

/* Where nobody waits for anybody ("async") most members bring nothing to most rounds, and on a busy machine are too
 * late to say so. Whoever was heard since BEGIN is not on the other side of a partition. */
static bool about(const struct round *r, size_t i)
{
	const struct lead_member *m = &r->lead->m[i];
	return r->a->conf.any && !m->gone && !m->refused && !(r->b.m[i].flags & MATE_FOLLOWER) &&
		lead_heard(r, i, r->begun_us);
}

/* All others live, and have refused this round: they are in another, or begin one. Of two such halves the one decides
 * in which is who is first of all (roster.c): the order is the same for everybody at this point. */
static bool second_half(const struct round *r)
{
	const struct mate *first = NULL;
	bool in = false;
	size_t elsewhere = 0;
	for (size_t i = 0; i < r->b.n; i++) {
		const struct mate *m = mate_find(r->a, &r->b.m[i].id);
		bool here = lead_required(r, i), there = m && m->live && r->lead->m[i].elsewhere && !here;
		if (!m || (!here && !there) || r->b.m[i].flags & MATE_FOLLOWER)
			continue;
		elsewhere += there;
		if (first && memcmp(first->order, m->order, 32) < 0)
			continue;
		first = m;
		in = here;
	}
	return elsewhere * 2 >= r->a->n_last && !in && !PLANTED(HALVES_DECIDE);
}

size_t lead_here(const struct round *r)
{
	size_t n = 0;
	for (size_t i = 0; i < r->b.n; i++)
		n += lead_required(r, i) || about(r, i);
	return n;
}

/* Fewer than half of the last commit's members: perhaps the others go on without us, so wait for news. */
bool lead_minority(const struct round *r)
{
	size_t n = lead_here(r);
	return n * 2 < r->a->n_last || (n * 2 == r->a->n_last && second_half(r));
}

void lead_tell_late(const struct round *r)
{
	for (size_t i = 0; i < r->b.n; i++) {
		const struct lead_member *m = &r->lead->m[i];
		size_t head = body_head(&r->b, i);
		struct mate *mate = head < r->b.n ? mate_find(r->a, &r->b.m[head].id) : NULL;
		if (!m->awaited || m->is_ready || m->refused || m->gone || !mate)
			continue;
		mate->awaited = false;
		mate->skip_epoch = r->b.epoch + (1u << (mate->misses < 6 ? ++mate->misses : 6));
		hub_event(r->a, LOG_INFO_, "late", &r->b.m[i].id, "epoch %llu goes on without its samples: it did not answer "
			"BEGIN in time", (unsigned long long)r->b.epoch);
	}
}
