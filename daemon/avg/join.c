/* JOIN: asked of who is believed to lead; answered by welcome (roster, point, ranges), redirect, wait, behind, fork,
 * diverged, or ahead ("you are; I shall catch up"). Leaders ask it of each other, too: that is how halves merge. */
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"
#include "avg/lead.h"
#include "avg/proof.h"
#include "common/jrpc.h"

#define JOIN_US (2 * SECOND)
#define HOPS_MAX 8

/* in, leading: what this peer was when it asked */
struct joining { struct avg *a; struct id to; uint32_t gen; bool follower, in, leading; };

static uint8_t my_flags(const struct avg *a)
{
	return (uint8_t)((a->me->flags & (MATE_CLIENT | MATE_AUX)) | (a->hold ? MATE_HOLD : 0) | (a->follower ?
		MATE_FOLLOWER : 0));
}

/* ---- asking ---- */

/* A welcome that crossed other news: this peer has followed a higher term since, or it has itself welcomed the one that
 * welcomes it. Of those two one must lead: both judge by the same rule (same_history). */
static bool outdated(const struct avg *a, const struct mate *to, uint32_t term)
{
	if (a->state != AVG_IN || to == a->leader)
		return false;
	return term < a->term || (term == a->term && is_leader(a) && to->member && to->live && !roster_before(a, to));
}

static void welcomed(struct avg *a, const struct frame *f, bool follower)
{
	struct avg_point p;
	struct err e;
	struct rd r = rd_of(f->blob, f->blob_len);
	avg_point_init(&p);
	uint32_t term = rd_u32(&r), n_last = rd_u32(&r);
	if (wire_get_point(&r, &p, &e))
		return;
	bool same = same_point(a, p.epoch, p.prev);
	struct mate *to = mate_find(a, &f->from);
	if (!to || (!same && !follower) || (a->round && !(same && (follower || to == a->leader))) ||
			(same && outdated(a, to, term))) {
		avg_point_done(&p);
		return;
	}
	if (!same) {                            /* a follower takes whatever the swarm has */
		a->nled = 0;
		a->point_us = now_of(a);
		avg_point_done(&a->point);
		a->point = p;
		a->gen++;
		a->samples = 0;
		roster_reorder(a);
		buf_clear(&a->last_commit);
		kept_forget(a);
	} else {
		avg_point_done(&p);
	}
	size_t followers;
	struct mate **mine = door_followers(a, &followers);
	roster_clear(a);
	to->member = true;
	for (uint32_t n = rd_u32(&r); n && !r.bad; n--) {
		struct wire_member w = { 0 };
		struct mate *m = wire_get_member(&r, &w, &e) ? NULL : mate_make(a, &w.id);
		if (m) {
			uint8_t flags = m->flags;
			m->member = true;
			m->live = m->live || (w.flags & MATE_NEW) || believed(a, m);     /* it may have left, and come again */
			m->at = w.at;
			m->flags = m == a->me ? flags : w.flags & (uint8_t)~MATE_NEW;
			m->fresh = w.flags & MATE_NEW;
			m->rate = w.rate;
			m->micro = m == a->me ? a->conf.micro_batch : door_micro(a, w.micro);
			grant_take(a, m, &w.grant);
			if (m != a->me)
				net_learn(a->net, &w.id, &w.at);
		}
		ranges_free(&w.claimed);
		ranges_free(&w.grant);
	}
	past_welcomed(a, r.p + r.at, rd_left(&r));
	a->me->member = true;
	a->me->flags = (uint8_t)((a->me->flags & ~MATE_FOLLOWER) | (follower ? MATE_FOLLOWER : 0));
	a->term = term;
	a->n_last = n_last;
	a->claim = (struct term_claim){ .term = term };
	id_of_json(f->json, "by", &a->claim.by);        /* what it signed is for this peer's eyes when it passes it on */
	json_get_hex(f->json, "sig", a->claim.sig, SIG_BYTES, NULL);
	to->member = to->live = true;
	roster_lead(a, to);
	a->state = AVG_IN;
	a->hops = 0;
	a->tell = true;
	door_take_along(a, mine, followers);
	if (!follower)
		grant_tell(a);
	kick(a);
}

static void redirected(struct avg *a, const json_t *j, uint64_t epoch)
{
	struct id id;
	struct endpoint at;
	if (!id_of_json(j, "id", &id) || a->hops++ > HOPS_MAX)
		return;
	if (id_eq(&id, &a->me->id)) {
		if (a->state == AVG_JOINING && !a->follower)
			become_leader_alone(a);
		else if (epoch == a->point.epoch)
			recover_contradicted(a, NULL);
		return;
	}
	if (endpoint_of(j, "at", &at))
		net_learn(a->net, &id, &at);
	struct mate *m = mate_make(a, &id);
	if (m && (a->state == AVG_JOINING || is_leader(a) || !a->round))        /* a ring of leaders ends at itself */
		join_start(a, m);
}

static void answered_by(struct avg *a, const struct frame *f, const struct err *e)
{
	if (f)
		proofs_take(a, f->json, &f->from);
	if (f || e->code == ERR_BUSY)
		a->heard_us = now_of(a);
	kick(a);
}

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct joining *j = arg;
	struct avg *a = j->a;
	struct mate *m = mate_find(a, &j->to);
	struct id donor;
	const char *what;
	uint64_t epoch = 0;
	struct err mine;
	bool moved = j->gen != a->gen, elsewhere = a->state != AVG_JOINING && a->state != AVG_IN;
	bool stale = moved || j->follower != a->follower || elsewhere,
		follower = j->follower, changed = (a->state == AVG_IN) != j->in || (j->in && is_leader(a) != j->leading);
	uint32_t gen = j->gen;
	free(j);
	if (m) {
		m->join = NULL;
		m->join_arg = NULL;
		m->backoff_us = m->backoff_us ? (m->backoff_us < 5 * SECOND ? m->backoff_us * 2 : m->backoff_us) : 50 * MS;
		m->probe_us = now_of(a) + m->backoff_us;
	}
	answered_by(a, f, e);
	if (!f && m && door_refused(a, m, e))
		return;
	if (f && gen != a->gen)
		join_caught_up(a);              /* the point it was asked from is history here, too */
	if (f && moved && !json_get_str(f->json, "answer", &what, &mine) && shown_needed(a) && (!strcmp(what, "fork") ||
			!strcmp(what, "met"))) {
		shown_start(a, m, AVG_FORK, &f->from, 0);       /* epochs have passed here: it is looked at anew anyway */
		return;
	}
	if (!f || stale || json_get_str(f->json, "answer", &what, &mine)) {
		bool silent = !f && m && (e->code == ERR_TIMEOUT || e->code == ERR_UNREACHABLE);
		if (silent && a->state == AVG_JOINING)
			a->unreachable++;
		else if (silent && m == a->leader)
			mate_gone(a, m, "does not answer");
		return;
	}
	json_get_u64(f->json, "epoch", &epoch, &mine);
	if (!id_of_json(f->json, "donor", &donor))
		donor = f->from;
	if (!strcmp(what, "welcome") && changed && m) {
		if (is_leader(a))               /* others count on this one by now: of two leaders, one rule says who */
			join_start(a, m);
	} else if (!strcmp(what, "welcome"))
		welcomed(a, f, follower);
	else if (!strcmp(what, "redirect"))
		redirected(a, f->json, epoch);
	else if (!strcmp(what, "wait") && m)
		m->probe_us = now_of(a) + 10 * MS;
	else if (!strcmp(what, "met") && shown_needed(a))
		shown_start(a, m, AVG_FORK, &donor, epoch);
	else if (!strcmp(what, "fork"))
		shown_start(a, m, AVG_FORK, &donor, epoch);
	else if (!strcmp(what, "diverged"))
		shown_start(a, m, AVG_DIVERGED, &donor, epoch);
	else if (!strcmp(what, "behind") && !door_passing(a, m)) {
		struct body c;
		if (a->round && f->blob_len && !body_open(a, &c, f->blob, f->blob_len, &mine)) {
			int rc = commit_lawful(a, &c, f->blob, f->blob_len, NULL, &mine) ||
				member_commit(a, &c, f->blob, f->blob_len, &mine);
			body_free(&c);          /* what it took is gone from c */
			if (!rc)
				return;
		}
		shown_start(a, m, AVG_BEHIND, &donor, epoch);
	}
}

void join_start(struct avg *a, struct mate *to)
{
	struct buf b = { 0 };
	if (to->join || to == a->me)
		return;
	struct joining *j = xcalloc(1, sizeof *j);
	*j = (struct joining){ .a = a, .to = to->id, .gen = a->gen, .follower = a->follower,
		.in = a->state == AVG_IN, .leading = a->state == AVG_IN && is_leader(a) };
	json_t *q = hub_json(a);
	json_object_set_new(q, "epoch", json_integer((json_int_t)a->point.epoch));
	json_object_set_new(q, "prev", json_hex(a->point.prev, DIGEST));
	json_object_set_new(q, "samples", json_integer((json_int_t)a->point.samples));
	json_object_set_new(q, "flags", json_integer(my_flags(a)));
	json_object_set_new(q, "micro", json_integer(a->conf.micro_batch));
	json_object_set_new(q, "rate", json_real(a->rate));
	term_json(a, q);
	json_object_set_new(q, "in", json_boolean(j->in));
	json_object_set_new(q, "leading", json_boolean(j->leading));
	json_object_set_new(q, "stands", json_boolean(shown_needed(a)));
	json_object_set_new(q, "shows", json_boolean(show_can(a)));
	json_object_set_new(q, "at", json_endpoint(net_endpoint(a->net)));
	door_put(a, q);
	proofs_put(a, q);
	if (a->digest_epoch && a->digest_epoch == a->point.epoch)
		json_object_set_new(q, DIGEST_KEY, json_hex(a->digest, 16));
	past_put(a, &b);
	to->join_arg = j;
	to->asked_us = now_of(a);
	to->join = net_call(a->net, &to->id, KIND_AVG_JOIN, q, blob_steal(&b), CLASS_control,
		net_deadline(a->net, &to->id, JOIN_US), answered, j);
}

/* ---- answering ---- */

static void answer_of(const struct avg *a, bool claim, struct request *req, const char *what, const struct mate *who,
	struct buf *blob)
{
	json_t *j = json_pack("{s:s,s:I}", "answer", what, "epoch", (json_int_t)a->point.epoch);
	proofs_put(a, j);
	if (claim)
		term_json(a, j);
	if (who) {
		json_object_set_new(j, "id", json_hex(who->id.b, 32));
		json_object_set_new(j, "donor", json_hex(who->id.b, 32));
		json_object_set_new(j, "at", json_endpoint(&who->at));
	}
	net_reply(req, j, blob && blob->len ? blob_steal(blob) : NO_BLOB);
}

static void answer(const struct avg *a, struct request *req, const char *what, const struct mate *who, struct buf *blob)
{
	answer_of(a, false, req, what, who, blob);
}

static void welcome(struct avg *a, struct request *req, struct mate *m)
{
	struct buf b = { 0 };
	uint32_t n = 0;
	bool follower = m->flags & MATE_FOLLOWER;
	m->member = m->live = true;
	m->awaited = !follower;
	m->absent[0] = 0;
	if (!follower && !(m->flags & MATE_AUX))
		grant_top_up(a, m, 0);
	list_each(it, &a->mates) {
		struct mate *o = list_entry(it, struct mate, link);
		n += o->member && o->live;
	}
	buf_u32(&b, a->term);
	buf_u32(&b, a->n_last);
	wire_put_point(&b, &a->point);
	buf_u32(&b, n);
	list_each(it, &a->mates) {
		struct mate *o = list_entry(it, struct mate, link);
		if (o->member && o->live) {
			struct wire_member w;
			body_put_member(a, o, &w);
			w.flags |= o->fresh ? MATE_NEW : 0;
			wire_put_member(&b, &w);
		}
	}
	if (follower || past_deeper(a, req->f.blob, req->f.blob_len))
		past_put(a, &b);
	roster_sum(a);
	proofs_tell(a, m);
	answer_of(a, true, req, "welcome", a->me, &b);
	kick(a);
}

struct asked { uint64_t epoch, samples, term; uint8_t prev[DIGEST], params[16]; bool in, leading, has_params, stands,
	shows; };

/* Same history, and this peer leads (or may): who of the two? Who leads others already comes before a newcomer, of two
 * leaders the one with the higher term, of equals the first in the order. */
static void same_history(struct avg *a, struct request *req, struct mate *m, const struct asked *q)
{
	bool theirs_first = roster_before(a, m);
	if (a->state == AVG_JOINING) {
		bool redirects = q->leading || theirs_first;
		if (redirects || meet_asks(a, m)) {
			answer(a, req, redirects ? "redirect" : "wait", redirects ? m : NULL, NULL);
			if (q->leading)
				join_start(a, m);
			return;
		}
		become_leader_alone(a);
	}
	if (q->has_params && a->digest_epoch == a->point.epoch && a->digest_epoch && memcmp(q->params, a->digest, 16)) {
		answer(a, req, "diverged", a->me, NULL);
		return;
	}
	theirs_first = q->leading && (q->term > a->term || (q->term == a->term && theirs_first));
	if ((a->round && !m->member) || (theirs_first && (a->round || a->recover))) {
		answer(a, req, "wait", NULL, NULL);
		return;
	}
	if (theirs_first) {
		answer(a, req, "redirect", m, NULL);
		join_start(a, m);
		return;
	}
	m->fresh = m->fresh || !m->member || (m->flags & MATE_FOLLOWER);        /* counts from now on */
	m->flags &= (uint8_t)~MATE_FOLLOWER;
	m->elsewhere = false;
	room_came(a, m);
	m->epoch = q->epoch;
	memcpy(m->prev, q->prev, DIGEST);
	m->samples = 0;
	welcome(a, req, m);
}

/* Both look at what the other has to show; who has nothing to show itself goes by samples. */
static void fork_met(struct avg *a, struct request *req, struct mate *m, const struct asked *q, bool fewer)
{
	bool needed = shown_needed(a);
	answer(a, req, !fewer ? "fork" : needed ? "met" : "ahead", a->me, NULL);
	if (!fewer)
		roster_elsewhere(a, m);
	if (needed && q->shows) {
		shown_start(a, m, AVG_FORK, &m->id, q->epoch);
	} else if (!needed && fewer) {
		hub_event(a, LOG_WARN_, "fork", &m->id,
			"two histories of this run met; this one has fewer samples (%llu against %llu) and is given up",
			(unsigned long long)a->point.samples, (unsigned long long)q->samples);
		lost(a, AVG_FORK, &m->id, q->epoch);
	}
}

static void judge(struct avg *a, struct request *req, struct mate *m, const struct asked *q)
{
	struct buf b = { 0 };
	struct err e;
	enum relation rel = past_compare(a, q->epoch, q->prev, q->samples, req->f.blob, req->f.blob_len);
	if (q->stands && !show_can(a) && (rel == REL_BEHIND || rel == REL_APART || rel == REL_FORK_WON)) {
		err_set(&e, ERR_BUSY, "this peer cannot show yet what it stands on");
		net_refuse(req, &e);
		return;
	}
	switch (rel) {
	case REL_SAME:
		same_history(a, req, m, q);
		break;
	case REL_BEHIND:
		if (q->epoch + 1 == a->point.epoch && a->last_commit.len)
			buf_put(&b, a->last_commit.p, a->last_commit.len);
		answer(a, req, "behind", a->me, &b);
		if (q->in)
			room_late(a, m, q->epoch, q->prev);
		buf_free(&b);
		break;
	case REL_APART:
		answer(a, req, "behind", a->me, NULL);
		if (shown_needed(a) && q->shows)
			shown_start(a, m, AVG_FORK, &m->id, q->epoch);
		break;
	case REL_AHEAD:
		if (a->round && a->round->commit && q->epoch == a->round->commit->epoch) {
			answer(a, req, "wait", NULL, NULL);        /* decided here as well, and about to be applied */
			break;
		}
		answer(a, req, "ahead", NULL, NULL);
		if (!door_passing(a, m) && (q->shows || !shown_needed(a)))
			shown_start(a, m, AVG_BEHIND, &m->id, q->epoch);
		break;
	case REL_FORK_WON:
	case REL_FORK_LOST:
		fork_met(a, req, m, q, rel == REL_FORK_LOST);
		break;
	}
}

/* May this peer, which does not lead, tell m where it stands? When m is behind; or when m is who it takes for the
 * leader. */
static bool knows_better(const struct avg *a, const struct request *req, const struct mate *m, const struct asked *q)
{
	enum relation rel = past_compare(a, q->epoch, q->prev, q->samples, req->f.blob, req->f.blob_len);
	return rel == REL_BEHIND || rel == REL_APART || (m == a->leader && rel != REL_SAME);
}

static size_t group_size(const struct avg *a) { return roster_others(a, true) + 1; }

void join_drop(struct mate *m)
{
	struct err e;
	if (!m->join_req)
		return;
	err_set(&e, ERR_BUSY, "asked again, or too late");
	net_refuse(m->join_req, &e);
	m->join_req = NULL;
}

void join_kept(struct avg *a)
{
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		struct request *req = m->join_req;
		if (!req)
			continue;
		if (a->state != AVG_IN || a->leaving || !m->live || (is_leader(a) && group_size(a) >= a->conf.group_max)) {
			join_drop(m);
			continue;
		}
		m->join_req = NULL;
		m->fresh = true;
		if (is_leader(a))
			welcome(a, req, m);
		else
			answer(a, req, "redirect", a->leader, NULL);
	}
}

void join_on(struct avg *a, struct request *req)
{
	struct asked q = { 0 };
	struct err e;
	uint64_t flags = 0, micro = 0;
	const json_t *j = req->f.json;
	if (json_get_u64(j, "epoch", &q.epoch, &e) || json_get_hex(j, "prev", q.prev, DIGEST, &e) || json_get_u64(j,
		"samples", &q.samples, &e) ||
			json_get_u64(j, "flags", &flags, &e) || json_get_u64(j, "micro", &micro, &e)) {
		net_refuse(req, &e);
		return;
	}
	json_get_bool(j, "in", &q.in, &e);
	json_get_bool(j, "leading", &q.leading, &e);
	json_get_bool(j, "stands", &q.stands, &e);
	json_get_bool(j, "shows", &q.shows, &e);
	struct term_claim t;
	q.term = term_read(a, j, &t, NULL) || !id_eq(&t.by, &req->f.from) ? 0 : t.term;
	q.has_params = !json_get_hex(j, DIGEST_KEY, q.params, 16, &e);
	struct mate *m = mate_make(a, &req->f.from);
	proofs_take(a, j, &req->f.from);
	if (door_check(a, j, &e)) {
		net_refuse(req, &e);
		return;
	}
	if (a->state == AVG_OUT || a->state == AVG_LOST || !m || a->leaving || (a->state == AVG_JOINING && a->follower)) {
		err_set(&e, m ? ERR_BUSY : ERR_FULL, m ? "this peer is not ready for others yet" :
			"this peer knows too many others");
		net_refuse(req, &e);
		return;
	}
	if (m->member && a->round && !m->live)  /* it started anew: nothing of the old one is waited for */
		lead_dead(a->round, &m->id);
	m->live = true;
	/* Who follows counts when it is welcomed as a member, not when it asks. */
	m->flags = (uint8_t)((flags & (MATE_FOLLOWER | MATE_CLIENT | MATE_AUX | MATE_HOLD)) | (m->member ? m->flags &
		MATE_FOLLOWER : 0));
	m->micro = door_micro(a, micro);
	if (endpoint_of(j, "at", &m->at) && m->at.port[0])
		net_learn(a->net, &m->id, &m->at);
	bool full = !(flags & MATE_FOLLOWER);
	if (a->state == AVG_IN && !is_leader(a) && full && knows_better(a, req, m, &q)) {
		judge(a, req, m, &q);           /* whoever leads would say the same, and may be out of its reach */
	} else if (a->state == AVG_IN && !is_leader(a)) {
		if (a->leader && (a->leader != m || q.in))
			answer(a, req, "redirect", a->leader, NULL);
		else {
			err_set(&e, ERR_BUSY, "this peer waits for a leader itself");
			net_refuse(req, &e);
		}
	} else if (!m->member && group_size(a) >= a->conf.group_max) {
		err_set(&e, ERR_LIMIT, "the group has its %u members", a->conf.group_max);
		net_refuse(req, &e);
	} else if (!full && a->state == AVG_IN && a->round && !m->member) {
		join_drop(m);                   /* the mean of this round would never come to it: when that is over */
		m->join_req = net_keep(req);
	} else if (!full) {
		if (a->state != AVG_IN) {
			err_set(&e, ERR_BUSY, "this peer is not ready for others yet");
			net_refuse(req, &e);
		} else {
			m->fresh = true;
			welcome(a, req, m);
		}
	} else {
		judge(a, req, m, &q);
	}
}
