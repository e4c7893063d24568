/* It is not this peer's word that counts: another leads the epoch in a higher term (recover.c), or another history is
 * the swarm's (shown.c). */
#include <stdlib.h>
#include "avg/lead.h"
#include "avg/recover.h"
#include "avg/shown.h"

#define SEIZED 2                                /* times that a member may take the lead from one that is heard; then */
#define SEIZED_US (600 * SECOND)                /* not for 4 s, 8, up to 64, until it has not for so long */

void recover_free(struct avg *a)
{
	struct recover *v = a->recover;
	if (!v)
		return;
	a->recover = NULL;
	env_timer(a->env, &v->timer, 0);
	list_each_safe(it, &v->calls) {
		struct recover_call *c = list_entry(it, struct recover_call, link);
		net_cancel(a->net, c->call);
		list_del(&c->link);
		free(c);
	}
	buf_free(&v->bytes);
	free(v);
}

void recover_promised(struct round *r)
{
	if (r->ack_req && !PLANTED(ACK_AFTER_PROMISE)) {
		net_reply(r->ack_req, term_json(r->a, json_object()), NO_BLOB);
		r->ack_req = NULL;
	}
	round_touch(r);
}

void recover_follow(struct avg *a, struct mate *m, const struct term_claim *t)
{
	a->term = t->term;
	a->claim = *t;
	recover_free(a);
	if (a->round && a->round->lead) {
		lead_calls_drop(a->round->lead);
		lead_free(a->round);
	}
	roster_lead(a, m);
	if (a->round) {
		a->round->term = a->term;
		recover_promised(a->round);
	}
	roster_sum(a);
	a->tell = true;
	kick(a);
}

/* Some other leads here and is heard, and m has taken the lead from such a one before. Now and then it may be right;
 * who does it all the time only keeps the others from their epoch. */
bool recover_seizes(const struct avg *a, const struct mate *m)
{
	const struct mate *led = a->leader;
	struct peer_info info;
	if (PLANTED(LEAD_SEIZED) || m->seized < SEIZED || now_of(a) >= m->seized_us || !led || led == m || !led->live ||
			progress_idle(a))
		return false;
	return led == a->me || (net_peer(a->net, &led->id, &info) && !info.maybe_dead &&
		now_of(a) - info.last_seen_us < 2 * HEARTBEAT_US);
}

/* What one has seen of the leader another may not have: the heir may be right, and has been when it ends the epoch. */
void recover_taken(struct avg *a, struct mate *m, const struct term_claim *t)
{
	bool over = t->term > a->term && a->leader && a->leader != m;
	if (t->term < a->term)
		return;
	if (over && progress_idle(a)) {
		roster_pass_over(a, a->leader, "it has not begun a round for a while, and another leads now");
	} else if (over && a->leader->live) {
		m->seized = now_of(a) - m->seized_us < SEIZED_US || now_of(a) < m->seized_us ? m->seized + 1 : 1;
		m->seized_us = now_of(a) + (SECOND << (m->seized < 6 ? m->seized : 6));
		m->heir = roster_heir(a) == m ? a->gen : 0;
	}
	a->term = t->term;
	a->claim = *t;
}

void recover_led(const struct avg *a, struct mate *m)
{
	if (m->seized && m->heir == a->gen)
		m->seized--;
	m->heir = 0;
}

/* Without a goodbye: nobody should wait for this peer, nor for its lead. It comes in again. */
void leave_post(struct avg *a)
{
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m != a->me && m->member && m->live)
			net_post(a->net, &m->id, KIND_AVG_LEAVE, hub_json(a), NO_BLOB, CLASS_control);
	}
}

void lost(struct avg *a, enum avg_why why, const struct id *donor, uint64_t epoch)
{
	if (a->state == AVG_LOST || a->state == AVG_OUT)
		return;
	recover_free(a);
	shown_drop(a);
	a->state = AVG_LOST;
	a->lost_why = why;
	a->lost_donor = *donor;
	a->lost_epoch = epoch;
	if (why == AVG_FORK) {
		a->gave.epoch = a->point.epoch;
		memcpy(a->gave.mark, a->point.prev, PAST_MARK);
	}
	a->lost_pending = true;
	a->untold = 0;
	if (a->round)
		round_close(a->round);
	leave_post(a);
	roster_clear(a);
	kick(a);
}

void shown_drop(struct avg *a)
{
	struct shown *s = a->shown;
	if (!s)
		return;
	a->shown = NULL;
	a->shown_us = now_of(a) + PAUSE_US;
	if (s->call)
		net_cancel(a->net, s->call);
	list_each_safe(it, &s->polls) {
		struct poll *p = list_entry(it, struct poll, link);
		net_cancel(a->net, p->call);
		list_del(&p->link);
		free(p);
	}
	free(s);
}
