/* A member is gone: it is dead, has left, or is banned for what it has signed; or it does not lead well, or elsewhere.
 * Whoever it led looks for the next in order (recover.c). */
#include <stdio.h>
#include <string.h>
#include "avg/lead.h"
#include "avg/proof.h"

void lead_dead(struct round *r, const struct id *who)
{
	struct lead *l = r->lead;
	int i = round_member(r, who);
	if (i < 0 || i == r->me)
		return;
	if (!l) {
		flow_missing(r);
		return;
	}
	l->m[i].gone = true;
	l->again |= l->phase == LEAD_DATA && lead_reduces(r, (size_t)i);
	flow_missing(r);
	kick(r->a);
}

void mate_gone(struct avg *a, struct mate *m, const char *why)
{
	if (m == a->me || !m->live)
		return;
	bool led = a->leader == m;
	m->live = false;
	m->gone_us = now_of(a);
	m->awaited = false;
	m->probe_us = m->backoff_us = 0;
	snprintf(m->absent, sizeof m->absent, "%s", why);
	if (m->counted)
		a->sum -= m->samples;
	m->counted = false;
	if (a->round)
		lead_dead(a->round, &m->id);
	if (a->cb.roster)
		kick(a);
	if (a->state != AVG_IN)
		return;
	if (led)
		recover_start(a);
	else
		roster_elect(a);
	if (a->conf.each)
		kick(a);                        /* it may be the one that was waited for */
}

void roster_unfit(struct avg *a, struct mate *m, const char *why)
{
	roster_pass_over(a, m, why);
	if (a->leader == m && a->state == AVG_IN)
		recover_start(a);
}

void roster_elsewhere(struct avg *a, struct mate *m)
{
	m->elsewhere = !PLANTED(ELSEWHERE_LEADS);
	if (m->elsewhere && a->leader == m && a->state == AVG_IN)
		recover_start(a);
}

/* The leader has taken it in since it started anew, and this peer meets its new life only now, in the round. */
static bool joined_anew(const struct avg *a, const struct mate *m)
{
	int i = a->round ? round_member(a->round, &m->id) : -1;
	return i >= 0 && m->live && (a->round->b.m[i].flags & MATE_NEW);
}

void roster_news(void *arg, const struct id *peer, enum net_news what)
{
	struct avg *a = arg;
	struct mate *m = mate_find(a, peer);
	if (!m || m == a->me)
		return;
	if (what == NEWS_ALIVE) {
		m->probe_us = m->gone_us = 0;
		/* A member that was only out of reach comes back as one; the others ask again by JOIN. */
		if (!m->live && m->member) {
			m->live = true;
			m->absent[0] = 0;
			roster_elect(a);
		}
		kick(a);
		return;
	}
	if (what == NEWS_RESTARTED && joined_anew(a, m))
		return;
	mate_gone(a, m, what == NEWS_DEAD ? "does not answer" : what == NEWS_GOODBYE ? "said goodbye" : "started anew");
	if (what != NEWS_DEAD)
		m->member = false;
	if (what == NEWS_RESTARTED) {
		m->epoch = 0;
		memset(m->prev, 0xff, DIGEST);
		m->digest_epoch = 0;
		m->gone_us = 0;                 /* it lives: whoever says that it is in again is believed */
	}
	kick(a);
}

/* Bans whoever has signed two COMMITs of one epoch. */
void proofs_act(struct avg *a)
{
	struct id by;
	struct err e;
	while (proofs_next(a, &by)) {
		struct mate *m = mate_find(a, &by);
		if (m)
			mate_gone(a, m, "has signed two COMMITs");
		if (net_ban(a->net, &by, UINT64_MAX, "it has signed two COMMITs of one epoch", &e))
			hub_event(a, LOG_ERROR_, "equivocation", &by, "it cannot be banned: %s", e.text);
	}
}
