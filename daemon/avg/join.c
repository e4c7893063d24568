/* JOIN, as it is answered: by welcome (roster, point, ranges), redirect, wait, behind, fork,
 * diverged, or ahead ("you are; I shall catch up"). Leaders ask it of each other, too: that is how halves merge. */
#include <string.h>
#include "avg/fork.h"
#include "avg/proof.h"
#include "common/jrpc.h"

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
	if (m->left == a->gen && !PLANTED(LEFT_FOR_GOOD)) {
		m->left = 0;
		a->n_last++;
	}
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

static void behind(struct avg *a, struct request *req, struct mate *m, const struct asked *q)
{
	struct buf b = { 0 };
	if (q->epoch + 1 == a->point.epoch && a->last_commit.len)
		buf_put(&b, a->last_commit.p, a->last_commit.len);
	answer(a, req, "behind", a->me, &b);
	if (q->in)
		room_late(a, m, q->epoch, q->prev);
	buf_free(&b);
}

static void apart(struct avg *a, struct request *req, struct mate *m, const struct asked *q)
{
	answer(a, req, "behind", a->me, NULL);
	if (shown_needed(a) && q->shows)
		shown_start(a, m, AVG_FORK, &m->id, q->epoch);
}

static void ahead(struct avg *a, struct request *req, struct mate *m, const struct asked *q)
{
	if (a->round && a->round->commit && q->epoch == a->round->commit->epoch) {
		answer(a, req, "wait", NULL, NULL);     /* decided here as well, and about to be applied */
		return;
	}
	answer(a, req, "ahead", NULL, NULL);
	if (!door_passing(a, m) && (q->shows || !shown_needed(a)))
		shown_start(a, m, AVG_BEHIND, &m->id, q->epoch);
}

static void fork_won(struct avg *a, struct request *req, struct mate *m, const struct asked *q)
{
	fork_met(a, req, m, q, false);
}

static void fork_lost(struct avg *a, struct request *req, struct mate *m, const struct asked *q)
{
	fork_met(a, req, m, q, true);
}

/* How who asks stands to this peer's history, and what it is answered. shows: it goes by what it is shown. */
static const struct judgement {
	void (*answer)(struct avg *a, struct request *req, struct mate *m, const struct asked *q); bool shows;
} judgements[] = {
	[REL_SAME] = { same_history, false },
	[REL_BEHIND] = { behind, true },
	[REL_APART] = { apart, true },
	[REL_AHEAD] = { ahead, false },
	[REL_FORK_WON] = { fork_won, true },
	[REL_FORK_LOST] = { fork_lost, false },
};

static void judge(struct avg *a, struct request *req, struct mate *m, const struct asked *q)
{
	struct err e;
	const struct judgement *j = &judgements[past_compare(a, q->epoch, q->prev, q->samples, req->f.blob,
		req->f.blob_len)];
	if (q->stands && !show_can(a) && j->shows) {
		err_set(&e, ERR_BUSY, "this peer cannot show yet what it stands on");
		net_refuse(req, &e);
		return;
	}
	j->answer(a, req, m, q);
}

/* May this peer, which does not lead, tell m where it stands? When m is behind; or when m is who it takes for the
 * leader. */
static bool knows_better(const struct avg *a, const struct request *req, const struct mate *m, const struct asked *q)
{
	enum relation rel = past_compare(a, q->epoch, q->prev, q->samples, req->f.blob, req->f.blob_len);
	return rel == REL_BEHIND || rel == REL_APART || (m == a->leader && rel != REL_SAME);
}

static size_t group_size(const struct avg *a) { return roster_others(a, true) + 1; }

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
	m->hashes = json_get_hashes(j, a->conf.hashes);
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
