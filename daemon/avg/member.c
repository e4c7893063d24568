/* The member's side of a round: what comes, and whether it is lawful. BEGIN: stop, say what we have, send it. ATTEMPT:
 * who counts and who sums (finish.c). ACK: hashes of all parts (ack.c). COMMIT: only now anything is applied. */
#include <string.h>
#include "avg/grid_flow.h"
#include "avg/lead.h"
#include "avg/near.h"
#include "avg/sent.h"
#include "avg/units.h"

#define EARLY_MAX 32
#define EARLY_BYTES (64u << 20)                 /* of their means */

/* ---- BEGIN ---- */

static void ready_answer(struct round *r)
{
	struct buf b = { 0 };
	struct ready ready = { .samples = r->samples, .rate = r->a->rate, .claimed = r->claimed };
	struct peer_info info;
	if (r->a->leader && net_peer(r->a->net, &r->a->leader->id, &info))
		ready.bandwidth = info.bandwidth_bps;
	if (r->lead) {
		near_take(r, (size_t)r->me, NULL);
		lead_ready(r, (size_t)r->me, &ready);
		return;
	}
	if (!r->ready_req)
		return;
	ready_encode(&ready, &b);
	MARK(r->a, "avg.ready.before");
	net_reply(r->ready_req, near_json(r), blob_steal(&b));
	r->ready_req = NULL;
	MARK(r->a, "avg.ready.after");
}

static void send_x(struct round *r)
{
	if (r->flow)
		grid_flow_send(r);
	else
		flow_send_x(r);
}

void member_contributed(struct round *r)
{
	struct avg *a = r->a;
	uint64_t took = now_of(a) - r->begun_us;
	if ((r->mean_is_x || !r->lead) && !(r->behind && times_longer(took, a->conf.round_floor_us)))
		times_add(&a->ready_times, took);
	r->told_x = true;
	sents_make(r);
	send_x(r);
	ready_answer(r);
}

void member_grown(struct round *r)
{
	if (!r->grew || !r->told_x || r->commit || r->fail)
		return;
	r->grew = false;
	sents_make(r);
	if (r->mean_is_x) {
		member_check(r);
		return;
	}
	send_x(r);
	for (size_t p = 0; p < r->b.parts && !r->closed; p++)
		flow_try(r, p);
}

/* ret: the term that its sender has taken. */
static int begin_check(struct avg *a, const struct body *b, const struct request *req, struct term_claim *ret,
	struct err *e)
{
	struct mate *from = mate_find(a, &req->f.from);
	if (b->what != BODY_BEGIN)
		return err_set(e, ERR_PROTOCOL, "not a BEGIN");
	if (a->state != AVG_IN || a->leaving)
		return err_set(e, ERR_BUSY, "this peer is not in the swarm now");
	if (PLANTED(PREV_UNCHECKED) ? b->epoch != a->point.epoch : !same_point(a, b->epoch, b->prev)) {
		if (from && b->epoch < a->point.epoch)
			redirect_to(a, from, "redirect");
		else if (from && !(a->round && a->round->commit))
			join_start(a, from);            /* we are behind, or on another branch */
		return err_set(e, ERR_STATE, "a BEGIN for epoch %llu; this peer is at %llu or has another history",
			(unsigned long long)b->epoch, (unsigned long long)a->point.epoch);
	}
	if (!from || !from->member)
		return err_set(e, ERR_AUTH, "the sender is no member here");
	if (b->hashes > a->conf.hashes)
		return err_set(e, ERR_PROTOCOL, "this peer does not know hashes of version %u", b->hashes);
	if (begin_lawful(a, from, b, req->f.json, ret, e) && !PLANTED(TERMS_UNSIGNED))
		return -1;
	if (propose_check(a, b, e)) {
		roster_unfit(a, from, e->text);
		return -1;
	}
	if (units_same(a, b, e) || begin_leaves_out(a, b, e))
		return -1;
	from->elsewhere = false;
	return 0;
}

/* Two leaders of one term began the same epoch (one of them elected by a peer that has lost sight of the other): the
 * one that comes first in the order counts. The same one begins again when the round before came to nothing: whom it
 * had left out has not heard so. */
static bool better(const struct avg *a, const struct round *old, const struct body *b, const uint8_t *id)
{
	struct mate *x = mate_find(a, &b->leader), *y = mate_find(a, &old->b.leader);
	if (b->term != old->b.term)
		return b->term > old->b.term;
	if (id_eq(&b->leader, &old->b.leader))  /* or its successor passes on another than this one, which all will have */
		return !round_spent(a, id);
	return x && (!y || !y->live || memcmp(x->order, y->order, 32) < 0);
}

/* All members know how its parts are hashed: it is this peer's to say when it leads. */
static void learn_hashes(struct avg *a, const struct body *b)
{
	for (size_t i = 0; i < b->n && b->hashes > HASHES_SHA256; i++) {
		struct mate *m = mate_find(a, &b->m[i].id);
		if (m && m->hashes < b->hashes)
			m->hashes = b->hashes;
	}
}

/* Once it may have left this peer out of the round before, and have ended that without a word to it; not in one epoch
 * after the other. */
static int begins_over(struct avg *a, struct mate *m, struct err *e)
{
	bool again = m->over == a->gen;
	roster_led_over(a, m);
	if ((!again && m->overs < OVERS) || PLANTED(ROUNDS_OVER))
		return 0;
	err_set(e, ERR_AUTH, "it begins one round over the other, and ends none");
	roster_unfit(a, m, e->text);
	return -1;
}

static int begin_new(struct avg *a, struct request *req, struct body *b, const uint8_t *id,
	const struct term_claim *t, struct err *e)
{
	struct mate *from = mate_find(a, &req->f.from);
	struct round *old = a->round;
	if (t->term != b->term && round_spent(a, id))
		return err_set(e, ERR_STATE, "this peer came after that round began");
	if (old && (old->commit || old->fail))
		return err_set(e, ERR_BUSY, "the round before is not over here");
	if (old && !better(a, old, b, id))
		return err_set(e, ERR_STATE, "another round of this epoch is under way");
	if (old && id_eq(&old->b.leader, &b->leader) && id_eq(&b->leader, &from->id) && begins_over(a, from, e))
		return -1;
	if (old)
		round_close(old);               /* its memory lives until the next kick */
	struct round *r = round_new(a, b, req->f.blob, req->f.blob_len, e);
	if (!r)
		return -1;
	learn_hashes(a, &r->b);
	recover_free(a);
	recover_taken(a, from, t);
	roster_lead(a, from);
	r->ready_req = net_keep(req);
	flow_open(r);
	if (old)
		round_inherit(r, old);
	if (!r->told_begin)
		tell_begin(r);
	else
		kick(a);
	return 0;
}

/* Whoever leads another part of the swarm begins before it commits: its COMMIT is refused here, and not forged. */
static void not_taken(struct avg *a, const struct body *b, const struct id *from, const uint8_t *id)
{
	struct mate *m = id_eq(&b->leader, from) ? mate_find(a, from) : NULL;
	if (m)
		memcpy(m->began, id, DIGEST);
}

/* Its own BEGIN, by who is no member here: whose word the term is, is all that is known of it. */
static bool begins_as_stranger(const struct avg *a, const struct body *b, const struct request *req)
{
	const struct mate *m = mate_find(a, &req->f.from);
	struct term_claim t;
	struct err e;
	if (!m || !id_eq(&b->leader, &m->id) || (term_read(a, req->f.json, &t, &e) && !t.term))
		return false;
	return b->term <= t.term && term_of_stranger(a, m, &t);
}

static bool is_elsewhere(const struct avg *a, const struct body *c)
{
	const struct mate *m = mate_find(a, &c->leader);
	return m && !memcmp(m->began, c->round, DIGEST);
}

void member_begin_on(struct avg *a, struct request *req)
{
	struct body b;
	struct err e;
	uint8_t id[DIGEST];
	struct term_claim t;
	if (body_open(a, &b, req->f.blob, req->f.blob_len, &e)) {
		refuse_forged(a, req, &e, true);
		return;
	}
	body_digest(req->f.blob, req->f.blob_len, id);
	told_seen(a, b.prev);
	if (early_begin(a, &b, req)) {
		body_free(&b);
		return;
	}
	if (begin_check(a, &b, req, &t, &e)) {
		not_taken(a, &b, &req->f.from, id);
		if (!req->wants_reply || !begins_as_stranger(a, &b, req))
			refuse_forged(a, req, &e, false);
		else
			net_refuse(req, &e);
	} else if (a->round && !memcmp(a->round->id, id, DIGEST)) {     /* asked again, by a successor */
		struct round *r = a->round;
		round_refuse(&r->ready_req, "asked again");
		r->ready_req = net_keep(req);
		round_touch(r);
		if (r->told_x)
			ready_answer(r);
	} else if (begin_new(a, req, &b, id, &t, &e)) {
		net_refuse(req, &e);
	}
	body_free(&b);
}

/* ---- ATTEMPT ---- */

void member_attempt_on(struct avg *a, struct request *req)
{
	struct attempt at;
	struct err e;
	struct round *r = a->round;
	struct mate *from = mate_find(a, &req->f.from);
	if (attempt_decode(&at, req->f.blob, req->f.blob_len, &e)) {
		if (req->wants_reply)
			net_refuse(req, &e);
		return;
	}
	bool mine = r && !r->closed && !memcmp(at.round, r->id, DIGEST) && !r->from_commit;
	bool lawful = mine && attempt_lawful(a, r, &at, &req->f.from);
	if (lawful && json_is_true(json_object_get(req->f.json, "nonfinite")))
		hub_event(a, LOG_ERROR_, "nonfinite", &a->me->id, "epoch %llu: this peer's contribution holds numbers that are "
			"not finite: left out, its samples go back to the pool", (unsigned long long)r->b.epoch);
	if (a->term > at.term && req->wants_reply && !PLANTED(TERM_IGNORED)) {
		net_reply(req, term_json(a, json_object()), NO_BLOB);
	} else if (!lawful || r->commit || r->lead || (r->attempted && at.no <= r->attempt && !at.give_up)) {
		bool forged = mine && !lawful;
		err_set(&e, forged ? ERR_AUTH : ERR_STATE, forged ? "an ATTEMPT by one who does not lead this round" :
			"no such round here, or a later attempt of it");
		if (!r && from && a->state == AVG_IN)
			redirect_to(a, from, "redirect");       /* perhaps it has slept, and the swarm has gone on */
		refuse_forged(a, req, &e, false);
	} else if (at.give_up) {
		err_set(&e, ERR_STATE, "%s", at.why);
		member_fail(r, &e);
		if (req->wants_reply)
			net_reply(req, NULL, NO_BLOB);
	} else if (member_attempt(r, &at, req->wants_reply ? net_keep(req) : NULL, &e) && from) {
		roster_unfit(a, from, e.text);
	}
	attempt_free(&at);
}

void member_silent(struct timer *t)
{
	struct round *r = container_of(t, struct round, silent);
	struct avg *a = r->a;
	if (told_waits(r)) {
		round_touch(r);
	} else if (r->commit) {                 /* decided, and the mean does not come */
		struct id donor = r->commit->leader;
		uint64_t epoch = r->commit->epoch;
		if (id_eq(&donor, &a->me->id) && a->leader)
			donor = a->leader->id;
		lost(a, AVG_MISSED, &donor, epoch);
	} else if (r->lead || is_leader(a)) {
		round_touch(r);
	} else if (a->leader) {
		struct mate *m = a->leader;
		hub_event(a, LOG_WARN_, "silent leader", &m->id,
			"nothing heard in a round of epoch %llu: the next in order takes over", (unsigned long long)a->point.epoch);
		round_touch(r);
		mate_gone(a, m, "silent in a round");
	}
}

void early_begun(struct avg *a)
{
	struct request *req = a->begin_req;
	if (!req || a->round || !list_empty(&a->early))
		return;
	if (PLANTED(EARLY_BEGIN_LOST)) {
		early_begin_drop(a);
		return;
	}
	struct buf bytes = a->begin_bytes;      /* a kept request has neither blob nor JSON of its own */
	json_t *j = a->begin_json;
	a->begin_bytes = (struct buf){ 0 };
	a->begin_json = NULL;
	a->begin_req = NULL;
	req->f.blob = bytes.p;
	req->f.blob_len = bytes.len;
	req->f.json = j;
	member_begin_on(a, req);
	buf_free(&bytes);
	json_decref(j);
}

/* c stands on one that is decided here (early_on): moved when true. */
static bool early_take(struct avg *a, struct body *c, const void *bytes, size_t n)
{
	size_t kept = list_len(&a->early);
	struct err e;
	if (c->grid.dims || kept >= EARLY_MAX || (kept + 1) * a->conf.len * sizeof(float) > EARLY_BYTES)
		return false;
	struct round *now = a->round;
	a->round = NULL;
	bool bad = commit_take(a, c, bytes, n, &e) != 0;
	struct round *r = a->round;
	a->round = now;
	if (!r)
		return false;
	list_push(&a->early, &r->link);
	r->early = true;
	if (bad)
		round_close(r);
	return !bad;
}

/* It stands on what is decided here and not applied yet, or on this peer's state. */
static int take(struct avg *a, struct body *c, const struct request *req, struct err *e)
{
	const struct body *on = early_on(a, c);
	if (commit_lawful(a, c, req->f.blob, req->f.blob_len, on, e))
		return -1;
	if (on && early_take(a, c, req->f.blob, req->f.blob_len))
		return 0;
	return member_commit(a, c, req->f.blob, req->f.blob_len, e);
}

static void answer_held(const struct avg *a, struct request *req, bool holds)
{
	net_reply(req, holds ? NULL : json_pack("{s:b}", "other", 1), NO_BLOB);
}

void member_commit_on(struct avg *a, struct request *req)
{
	struct body c, head;
	struct err e;
	struct term_claim t;
	if (body_open(a, &c, req->f.blob, req->f.blob_len, &e)) {
		refuse_forged(a, req, &e, true);
		return;
	}
	head = c;                               /* c may be moved */
	bool old = c.epoch <= a->point.epoch, next = c.epoch == a->point.epoch + 1;
	bool here = next && !memcmp(c.prev, a->point.prev, DIGEST);
	uint8_t digest[DIGEST];
	body_digest(req->f.blob, req->f.blob_len, digest);
	told_seen(a, c.prev);
	told_seen(a, digest);
	if (old || (here && told_holds(a, &c, digest))) {
		answer_held(a, req, told_holds(a, &c, digest));
	} else if (here && a->term && !PLANTED(TERM_IGNORED) && (term_read(a, req->f.json, &t, &e) || t.term < a->term)) {
		net_reply(req, term_json(a, json_object()), NO_BLOB);
	} else if (take(a, &c, req, &e)) {
		struct mate *from = mate_find(a, &req->f.from);
		if (e.code != ERR_AUTH && from && a->state == AVG_IN && c.epoch > a->point.epoch)
			join_start(a, from);
		if (!here)                      /* who is behind hears what others who are not say to each other */
			e.code = ERR_STATE;     /* and decides nothing there */
		if (is_elsewhere(a, &head))
			net_refuse(req, &e);
		else
			refuse_forged(a, req, &e, false);
	} else {
		answer_held(a, req, told_holds(a, &head, digest));
	}
	body_free(&c);
}
