/* A COMMIT becomes the state: the point of the history, the roster, the promises, who leads next. Then the owner is
 * told, once, with the mean. Nothing else in this room changes the point of a peer that is in the swarm. */
#include <stdlib.h>
#include <string.h>
#include "avg/audit.h"
#include "avg/claims.h"
#include "avg/fork.h"
#include "avg/seen.h"
#include "avg/units.h"

#define IDLE_MAX 3                              /* rounds without a sample that a member is waited for in */

/* Every member holds the leader to the ledger: a position that is committed already, or claimed by two, is a fault of
 * whoever wrote the COMMIT. It is decided all the same (others have applied it), but not in silence. */
static void take_claims(struct avg *a, const struct body *c)
{
	uint64_t twice = 0;
	if (a->conf.unordered)
		return;
	for (size_t i = 0; i < c->n; i++) {
		if (!(c->m[i].flags & MATE_IN))
			continue;
		uint64_t before = ranges_count(&a->point.done);
		ranges_add_all(&a->point.done, &c->m[i].claimed);
		uint64_t added = ranges_count(&a->point.done) - before;
		twice += c->m[i].samples > added ? c->m[i].samples - added : added - c->m[i].samples;
	}
	if (!twice)
		return;
	a->violations += twice;
	hub_event(a, LOG_ERROR_, "ledger", &c->leader, "the commit of epoch %llu counts %llu samples that are committed "
		"already or have no position", (unsigned long long)c->epoch, (unsigned long long)twice);
}

static void take_point(struct avg *a, const struct body *c, const struct buf *bytes, bool *ret_changed)
{
	struct avg_point *p = &a->point;
	kept_put(a);
	witness_leaves(a);
	*ret_changed = p->params_version != c->params_version;
	json_t *recent;
	propose_in_force(a, c, &recent);
	json_decref(p->recent);
	p->recent = recent;
	body_digest(bytes->p, bytes->len, p->prev);
	p->epoch = c->epoch;
	p->samples += c->weight;
	p->params_version = c->params_version;
	json_decref(p->params);
	p->params = json_deep_copy(c->params);
	take_claims(a, c);
	seen_commit(p, c);
	a->gen++;
	a->apart = c->grid.dims > 0;
	past_add(a);
	buf_clear(&a->last_commit);
	buf_put(&a->last_commit, bytes->p, bytes->len);
}

static void take_member(struct avg *a, const struct wire_member *w, uint16_t row)
{
	struct mate *m = mate_make(a, &w->id);
	if (!m)
		return;
	m->member = true;
	m->live = m == a->me || m->live || believed(a, m);
	if (m->live)
		m->absent[0] = 0;
	m->fresh = false;
	m->row = row;
	m->idle = w->flags & MATE_IN ? 0 : m->idle + 1;
	if (w->flags & MATE_IN)
		m->room_us = m->rooms = 0;
	/* The round in which a newcomer is there first may come before its first sample. */
	bool next = w->flags & MATE_READY && m->idle < IDLE_MAX && !a->conf.each && !a->conf.any;
	m->awaited = w->flags & MATE_IN || next;
	if (m != a->me) {
		m->at = w->at;
		m->rate = w->rate;
		m->micro = door_micro(a, w->micro);
		net_learn(a->net, &w->id, &w->at);
	}
	if (w->bandwidth)
		m->bandwidth = w->bandwidth;
	m->flags = w->flags & (MATE_FOLLOWER | MATE_CLIENT | MATE_AUX | MATE_HOLD);
	grant_take(a, m, &w->grant);
}

static void take_roster(struct avg *a, const struct body *c)
{
	a->n_last = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->member = m->counted = m->awaited = false;
		ranges_clear(&m->grant);
	}
	for (size_t i = 0; i < c->n; i++) {
		if (c->m[i].flags & MATE_GONE)
			continue;
		take_member(a, &c->m[i], c->next ? c->next[i] : NO_ROW);
		a->n_last += !(c->m[i].flags & MATE_FOLLOWER);
	}
	if (!PLANTED(ROLES_AS_SAID))
		units_roles(a);                 /* the next generation's may be told already: what is said was before */
}

void apply_leader(struct avg *a)
{
	roster_lead(a, NULL);
	a->term = a->nled = 0;
	a->claim = (struct term_claim){ 0 };
	a->point_us = now_of(a);
	roster_reorder(a);
	a->me->epoch = a->point.epoch;
	memcpy(a->me->prev, a->point.prev, DIGEST);
	a->me->samples = 0;
	if (!a->me->member) {                   /* dropped: ask to be taken in again */
		a->state = AVG_JOINING;
		a->enter_us = now_of(a);
		a->unreachable = 0;
		return;
	}
	roster_elect(a);
	roster_sum(a);
}

static void measure(struct avg *a, struct round *r)
{
	uint64_t now = now_of(a), took = now - r->begun_us;
	times_add(&a->round_times, took);
	a->last_round_us = took;
	if (a->commit_us) {
		uint64_t epoch = now - a->commit_us;
		a->epoch_us = a->epoch_us ? (a->epoch_us * 3 + epoch) / 4 : epoch;
		a->quick_us = a->quick_us && a->quick_us < epoch / 2 ? 2 * a->quick_us : epoch;
	}
	a->commit_us = now;
	a->rounds_done++;
	a->fails = a->untold = 0;
	round_count(r);
}

/* The round that stands on the new point, if it is decided already (early.c). */
void early_next(struct avg *a)
{
	struct round *r = list_empty(&a->early) ? NULL : list_entry(a->early.next, struct round, link);
	struct err e;
	if (!r)
		return;
	if (a->state != AVG_IN || a->round || !same_point(a, r->commit->epoch - 1, r->commit->prev) ||
			propose_check(a, r->commit, &e) || claims_check(a, r->commit, &e)) {
		early_drop(a);
		return;
	}
	list_del(&r->link);
	r->early = false;
	a->round = r;
	recover_free(a);
	round_touch(r);
	kick(a);
}

void apply_commit(struct round *r)
{
	struct avg *a = r->a;
	const struct body *c = r->commit;
	const float *mean = (r->mean_is_x ? r->x : r->mean) + r->lo;
	size_t head = r->me < 0 ? c->n : body_head(c, (size_t)r->me);
	struct avg_commit out = { .epoch = c->epoch, .point = &a->point, .term = c->term, .attempts = c->attempt + 1,
		.minority = c->minority, .leader = c->leader,
		.weight = c->weight, .begin_us = r->begun_us, .end_us = now_of(a), .bytes_out = r->bytes_out,
		.bytes_in = r->bytes_in, .generation = c->generation, .lo = r->lo, .hi = r->hi, .lease = r->mean_in };
	struct id *left = xcalloc(c->n + 1, sizeof *left);
	struct avg_share *share = xcalloc(c->n + 1, sizeof *share);
	for (size_t i = 0; i < c->n; i++) {
		const struct wire_member *m = &c->m[i];
		bool in = m->flags & MATE_IN;
		out.contributors += in;
		out.members += !(m->flags & MATE_GONE) || in;
		if (in)
			share[out.shares++] = (struct avg_share){ .id = m->id, .samples = m->samples };
		struct mate *who = in ? mate_find(a, &m->id) : NULL;
		if (who)
			who->elsewhere = false;
		if (in && i == head)
			out.my_samples = m->samples;
		if (!in && i < r->b.n && !(m->flags & (MATE_FOLLOWER | MATE_AUX | MATE_HOLD)))
			left[out.left_out_n++] = m->id;
	}
	for (size_t i = 0; i < c->props; i++)
		if (c->prop[i].epoch <= c->epoch)
			out.params_author = c->prop[i].author;
	out.left_out = left;
	out.share = share;
	a->rounds_without += out.left_out_n > 0;
	struct mate *led = mate_find(a, &c->leader);
	if (led) {
		led->unfits = 0;
		led->overs = led->over == a->gen ? led->overs : 0;
		recover_led(a, led);
	}
	take_point(a, c, &r->commit_bytes, &out.changed_params);
	take_roster(a, c);
	ranges_clear(&a->claimed);
	a->samples = 0;
	if (a->grant_call)
		net_cancel(a->net, a->grant_call);
	a->grant_call = NULL;
	apply_leader(a);
	measure(a, r);
	propose_applied(a, c);
	sum_odd(r);
	audit_committed(r);
	r->applied = true;
	round_close(r);                         /* results on their way go on from the tail */
	struct ranges grant = { 0 };            /* the callback may enter elsewhere */
	ranges_copy(&grant, &a->me->grant);
	out.grant = &grant;
	forked_tell(a);                         /* before this one takes the place of what was lost */
	a->cb.commit(a->arg, &out, mean);
	ranges_free(&grant);
	free(left);
	free(share);
	a->tell = true;
	early_next(a);
	join_caught_up(a);                      /* no round is under way: the best moment */
	kick(a);
}
