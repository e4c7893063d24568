/* Who is in the run, who lives, and who leads: the live member of the last commit with the smallest
 * SHA-256(prev || id). Newcomers do not lead before the next commit names them, so everybody who holds the same commit
 * agrees. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg/sent.h"
#include "common/hash.h"

static void order_of(const struct avg *a, struct mate *m)
{
	uint8_t v[DIGEST + 32];
	memcpy(v, a->point.prev, DIGEST);
	memcpy(v + DIGEST, m->id.b, 32);
	sha256_of(v, sizeof v, m->order);
}

/* Forgets somebody who is no member: who has gone, else who was met first and has not come in since. Strangers may be
 * as many as somebody likes, and take no member's place. */
static bool make_room(struct avg *a)
{
	struct mate *out = NULL;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		bool kept = m->member || m == a->me || m->join || m->join_req || m->leave || m == a->leader;
		if (!kept && (!out || (out->live && !m->live)))
			out = m;
	}
	if (out)
		mate_free(a, out);
	return out != NULL;
}

struct mate *mate_make(struct avg *a, const struct id *id)
{
	struct mate *m = mate_find(a, id);
	if (m)
		return m;
	if (a->nmates >= MATES_MAX && !make_room(a))
		return NULL;
	m = xcalloc(1, sizeof *m);
	m->owner = a;
	m->id = *id;
	m->live = true;
	m->row = NO_ROW;
	order_of(a, m);
	list_push(&a->mates, &m->link);
	a->nmates++;
	return m;
}

void roster_care(struct avg *a, struct mate *m, int delta)
{
	if (m == a->me || m->cares + delta < 0)
		return;
	m->cares += delta;
	net_care(a->net, &m->id, delta);
}

void roster_silent(struct avg *a, struct mate *m, bool silent)
{
	if (m->silent == silent)
		return;
	m->silent = silent;
	roster_care(a, m, silent ? 1 : -1);
}

void join_drop(struct mate *m)
{
	struct err e;
	if (!m->join_req)
		return;
	err_set(&e, ERR_BUSY, "asked again, or too late");
	net_refuse(m->join_req, &e);
	m->join_req = NULL;
}

void stash_free(struct mate *m)
{
	if (m->stash)
		free(m->stash->bytes);
	free(m->stash);
	m->stash = NULL;
}

void mate_free(struct avg *a, struct mate *m)
{
	join_drop(m);
	stash_free(m);
	if (m->join)
		net_cancel(a->net, m->join);
	free(m->join_arg);
	if (m->leave)
		net_cancel(a->net, m->leave);
	if (m->cares && !a->freeing)
		net_care(a->net, &m->id, -m->cares);
	ranges_free(&m->grant);
	list_del(&m->link);
	a->nmates--;
	free(m);
}

void body_put_member(const struct avg *a, const struct mate *m, struct wire_member *ret)
{
	*ret = (struct wire_member){ .id = m->id, .at = m->at, .flags = m->flags, .rate = m->rate,
		.bandwidth = m->bandwidth,
		/* grant is lent: for encoding only */
		.micro = m == a->me ? a->conf.micro_batch : m->micro, .grant = m->grant };
}

void roster_reorder(struct avg *a)
{
	list_each(it, &a->mates)
		order_of(a, list_entry(it, struct mate, link));
}

/* What one peer may be, from best to worst, for leading: client peers cannot be dialled, newcomers are not known to
 * all. */
static int rank(const struct mate *m)
{
	return !m->member ? 0 : (m->flags & MATE_CLIENT ? 1 : 3) + (m->fresh ? 0 : 1);
}

void roster_led_over(struct avg *a, struct mate *m)
{
	m->overs += m->over != a->gen;
	m->over = a->gen;
	m->over_us = now_of(a);
}

static bool is_unfit(const struct avg *a, const struct mate *m)
{
	return m->unfit == a->gen || (m->overs >= OVERS && now_of(a) < m->over_us + OVERS_US);
}

static int fitness(const struct avg *a, const struct mate *m)
{
	return m->live && !is_unfit(a, m) && !m->elsewhere && !(m->flags & MATE_FOLLOWER) ? rank(m) : 0;
}

/* m says that it leads: since when it follows no more may not have come to this peer. */
bool roster_rather(const struct avg *a, const struct mate *m, const struct mate *than)
{
	int x = is_unfit(a, m) ? 0 : rank(m), y = fitness(a, than);
	return x > y || (x && x == y && memcmp(m->order, than->order, 32) < 0);
}

static struct mate *first_but(const struct avg *a, const struct mate *but)
{
	struct mate *best = NULL;
	int top = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		int f = m == but ? 0 : fitness(a, m);
		if (f && (f > top || (f == top && memcmp(m->order, best->order, 32) < 0))) {
			best = m;
			top = f;
		}
	}
	return best;
}

struct mate *roster_first(const struct avg *a)
{
	return first_but(a, NULL);
}

struct mate *roster_heir(const struct avg *a)
{
	return first_but(a, a->leader);
}

size_t roster_others(const struct avg *a, bool followers)
{
	size_t n = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		n += m != a->me && m->member && m->live && (followers || !(m->flags & MATE_FOLLOWER));
	}
	return n;
}

void roster_sum(struct avg *a)
{
	a->sum = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->counted = m->member && m->live && !(m->flags & MATE_FOLLOWER) && same_point(a, m->epoch, m->prev);
		if (m->counted)
			a->sum += m->samples;
	}
}

void led_note(struct avg *a)
{
	if (!a->leader)
		return;
	for (unsigned i = 0; i < LED && i < a->nled; i++)
		if (id_eq(&a->led[i].id, &a->leader->id) && a->led[i].term == a->term)
			return;
	a->led[a->nled++ % LED] = (struct led){ a->leader->id, a->term };
}

bool led_by(const struct avg *a, const struct id *id, uint32_t term)
{
	for (unsigned i = 0; i < LED && i < a->nled; i++)
		if (id_eq(&a->led[i].id, id) && a->led[i].term == term)
			return true;
	return false;
}

void roster_lead(struct avg *a, struct mate *to)
{
	if (a->leader == to) {
		led_note(a);
		return;
	}
	if (a->leader)
		roster_care(a, a->leader, -1);
	a->leader = to;
	if (a->cb.roster)
		kick(a);
	a->lead_us = now_of(a);
	if (to)
		roster_care(a, to, 1);
	led_note(a);
}

/* Of two peers at one point of the history, does m come before this one? */
bool roster_before(const struct avg *a, const struct mate *m)
{
	if ((m->flags ^ a->me->flags) & MATE_CLIENT)
		return a->me->flags & MATE_CLIENT;
	return memcmp(m->order, a->me->order, 32) < 0;
}

void roster_elect(struct avg *a)
{
	struct mate *to = roster_first(a), *was = a->leader;
	/* Who welcomed us stays the leader as long as it lives; so does whoever leads by a higher term. */
	if (was && was->live && was->member && (a->me->fresh || a->term))
		to = was;
	if (to == was)
		return;
	roster_lead(a, to);
	roster_sum(a);
	a->tell = true;
	kick(a);
}

static bool same_roster(const struct avg_roster *x, const struct avg_roster *y)
{
	return x->in == y->in && x->epoch == y->epoch && x->term == y->term && id_eq(&x->leader, &y->leader) &&
		x->n == y->n && x->ngone == y->ngone && !memcmp(x->live, y->live, (x->n + x->ngone) * sizeof *x->live);
}

void roster_tell(struct avg *a)
{
	if (!a->cb.roster)
		return;
	bool in = a->state == AVG_IN;
	struct id *ids = xcalloc(2 * a->nmates + 1, sizeof *ids), *gone = ids + a->nmates;
	struct avg_roster r = { .epoch = a->point.epoch, .term = a->term, .live = ids,
		.in = in && a->me->member && !(a->me->flags & MATE_FOLLOWER) };
	if (in && a->leader && !a->recover)
		r.leader = a->leader->id;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		bool led = m == a->leader && !PLANTED(HOLD_UNTOLD);     /* it tells nobody whether it pauses */
		bool held = m == a->me ? a->hold : !led && m->flags & MATE_HOLD, follows = m->flags & MATE_FOLLOWER;
		/* Only the leader hears who pauses, and who follows; what others know of it is the last COMMIT's, or older. */
		bool stale = m != a->me && (follows || (held && m->live && !is_leader(a)));
		if (in && m->member && m->live && !held && !follows)
			ids[r.n++] = m->id;
		/* Else only the leader knows of a newcomer. One that has been heard of since it was gone may be one again. */
		else if (in && ((!m->live && m->gone_us) || (m->member && !stale)))
			gone[r.ngone++] = m->id;
	}
	memmove(ids + r.n, gone, r.ngone * sizeof *ids);
	r.gone = ids + r.n;
	if (a->roster_ids && same_roster(&r, &a->roster)) {
		free(ids);
		return;
	}
	free(a->roster_ids);
	a->roster_ids = ids;
	a->roster = r;
	a->cb.roster(a->arg, &r);
}

void roster_clear(struct avg *a)
{
	roster_lead(a, NULL);
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->member = m->fresh = m->awaited = m->counted = m->elsewhere = false;
		m->row = NO_ROW;
		ranges_clear(&m->grant);
	}
	a->sum = 0;
}

void roster_pass_over(struct avg *a, struct mate *m, const char *why)
{
	hub_event(a, LOG_WARN_, "unfit", &m->id, "epoch %llu: %s: the next in order takes over",
		(unsigned long long)a->point.epoch, why);
	m->unfit = a->gen;
	m->unfits++;
}

/* The leader says that it lives; we have heard that it died. News of the last moment count more than the leader's. */
bool believed(const struct avg *a, const struct mate *m)
{
	return !m->absent[0] || now_of(a) - m->gone_us > BELIEF_US;
}
