/* Succession. Who is next in the order asks everybody reachable for what they hold, in a higher term;
 * who has answered ignores lower terms. A COMMIT that anybody holds is repeated verbatim; a round that anybody is in
 * is finished without the old leader, in the next attempt; otherwise the epoch just goes on. */
#include <stdlib.h>
#include <string.h>
#include "avg/claims.h"
#include "avg/lead.h"
#include "avg/recover.h"
#include "avg/units.h"

#define CONTRADICTION_US (250 * MS)

static void finish(struct recover *v);

/* ---- what is held ---- */

static void hold(struct recover *v, enum holds what, const void *p, size_t n, uint32_t attempt, uint32_t term)
{
	bool better = what > v->best || (what == HOLDS_ROUND && v->best == HOLDS_ROUND && term > v->begin_term);
	if (what == HOLDS_ROUND && attempt > v->attempt)
		v->attempt = attempt;
	if (!better)
		return;
	v->best = what;
	v->begin_term = term;
	buf_clear(&v->bytes);
	buf_put(&v->bytes, p, n);
}

/* u8 what, u32 attempt + 1 (0: none), then the bytes of the COMMIT or BEGIN with signature. */
static void put_held(struct avg *a, const uint8_t *prev, uint64_t epoch, struct buf *b)
{
	struct round *r = a->round;
	const struct buf *early = early_commit(a, epoch + 1, prev);
	bool tell = !PLANTED(COMMIT_NOT_REPEATED);
	if (epoch + 1 == a->point.epoch && a->last_commit.len && tell) {
		buf_u8(b, HOLDS_COMMIT);
		buf_u32(b, 0);
		buf_put(b, a->last_commit.p, a->last_commit.len);
	} else if (early && tell) {
		buf_u8(b, HOLDS_COMMIT);
		buf_u32(b, 0);
		buf_put(b, early->p, early->len);
	} else if (r && r->commit && tell) {
		buf_u8(b, HOLDS_COMMIT);
		buf_u32(b, 0);
		buf_put(b, r->commit_bytes.p, r->commit_bytes.len);
	} else if (r && !r->fail && !r->from_commit) {
		buf_u8(b, HOLDS_ROUND);
		buf_u32(b, r->attempted ? r->attempt + 1 : 0);
		buf_put(b, r->bytes.p, r->bytes.len);
	} else {
		buf_u8(b, HOLDS_NOTHING);
		buf_u32(b, 0);
	}
}

/* A round of this epoch that somebody is in: its author is one who may lead, and it began before this term. What this
 * peer is in counts more than what others say that they are in. */
static bool resumable(const struct avg *a, const struct body *b)
{
	const struct mate *m = mate_find(a, &b->leader);
	const struct round *r = a->round;
	bool other = r && !r->fail && !r->from_commit && !id_eq(&r->b.leader, &b->leader);
	return ((m && m->member) || led_by(a, &b->leader, b->term)) && b->term < a->term &&
		(!other || led_by(a, &b->leader, b->term));
}

static void take_held(struct recover *v, const void *p, size_t n)
{
	struct avg *a = v->a;
	struct rd r = rd_of(p, n);
	struct body b;
	struct err e;
	uint8_t what = rd_u8(&r);
	uint32_t attempt = rd_u32(&r);
	if (r.bad || (what != HOLDS_ROUND && what != HOLDS_COMMIT))
		return;
	size_t left = rd_left(&r);
	const uint8_t *bytes = rd_bytes(&r, left);
	if (body_open(a, &b, bytes, left, &e))
		return;
	bool fits = what == HOLDS_COMMIT ? b.what == BODY_COMMIT && b.epoch == a->point.epoch + 1 : b.what == BODY_BEGIN &&
		b.epoch == a->point.epoch;
	fits = fits && !memcmp(b.prev, a->point.prev, DIGEST) && !propose_check(a, &b, &e);
	if (fits && (what == HOLDS_COMMIT ? !commit_lawful(a, &b, bytes, left, NULL, &e) : resumable(a, &b)))
		hold(v, what, bytes, left, attempt, b.term);
	body_free(&b);
}

/* ---- asking ---- */

/* Somebody has promised another: follow that one when it comes before us in the order, else ask again in a higher
 * term. */
static void refused(struct avg *a, const struct term_claim *t)
{
	struct mate *m = mate_find(a, &t->by);
	if (m && m != a->me && m->live && memcmp(m->order, a->me->order, 32) < 0) {
		recover_follow(a, m, t);
		return;
	}
	if (t->term > a->term) {
		a->term = t->term;
		a->claim = *t;
	}
	recover_start(a);
}

static void told(void *arg, const struct frame *f, const struct err *e)
{
	struct recover_call *c = arg;
	struct recover *v = c->v;
	struct avg *a = v->a;
	struct term_claim t;
	bool other = f && json_object_get(f->json, "term");
	list_del(&c->link);
	if (other && !v->looks && !term_read(a, f->json, &t, NULL) && t.term >= a->term && !id_eq(&t.by, &a->me->id)) {
		refused(a, &t);
		free(c);
		return;
	}
	v->answers += f != NULL;
	v->strangers += !f && e->code == ERR_AUTH;
	struct mate *m = f && !other ? mate_find(a, &f->from) : NULL;
	if (m && m->member)
		grant_told(a, m, json_object_get(f->json, "held"));
	if (f && !other)
		take_held(v, f->blob, f->blob_len);
	free(c);
	if (list_empty(&v->calls))
		env_after(a->env, &v->timer, 1);
}

static void time_is_up(struct timer *t)
{
	finish(container_of(t, struct recover, timer));
}

static bool has_acked(const struct round *r, const struct mate *m)
{
	int i = round_member(r, &m->id);
	return i >= 0 && r->lead->m[i].acked;
}

/* looks: only those are asked who have no part in what this peer is about to commit. */
static void ask_all(struct avg *a, bool looks)
{
	struct recover *v = xcalloc(1, sizeof *v);
	struct buf mine = { 0 };
	v->a = a;
	v->looks = looks;
	list_init(&v->calls);
	v->timer = (struct timer){ .fire = time_is_up, .name = "avg.recover" };
	a->recover = v;
	put_held(a, a->point.prev, a->point.epoch, &mine);
	take_held(v, mine.p, mine.len);
	buf_free(&mine);
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m == a->me || !m->member || !m->live || (looks && has_acked(a->round, m)))
			continue;
		struct recover_call *c = xcalloc(1, sizeof *c);
		*c = (struct recover_call){ .v = v, .who = m->id };
		list_push(&v->calls, &c->link);
		json_t *j = hub_json(a);
		json_object_set_new(j, "epoch", json_integer((json_int_t)a->point.epoch));
		json_object_set_new(j, "prev", json_hex(a->point.prev, DIGEST));
		term_json(a, j);
		MARK(a, "avg.recover.before");
		c->call = net_call(a->net, &m->id, KIND_AVG_RECOVER, j, NO_BLOB, CLASS_control, 2 * a->conf.round_floor_us,
			told, c);
		MARK(a, "avg.recover.after");
	}
	env_after(a->env, &v->timer, list_empty(&v->calls) ? 1 : 2 * a->conf.round_floor_us);
}

static void take_over(struct avg *a);

void recover_start(struct avg *a)
{
	struct mate *first;
	roster_lead(a, NULL);
	recover_free(a);
	first = roster_first(a);
	if (!first) {                           /* all who are left follow, or have not been taken in */
		struct err e;
		err_set(&e, ERR_STATE, "who led the round is gone, and nobody is left who may lead");
		if (a->round && !PLANTED(ROUND_LEFT_OPEN))
			member_fail(a->round, &e);
		a->state = AVG_JOINING;
		a->enter_us = now_of(a);
		return;
	}
	if (first == a->me) {
		take_over(a);
		return;
	}
	roster_lead(a, first);
	if (a->round)
		round_touch(a->round);
	a->tell = true;                         /* it hears from us that we count on it, should it not know yet */
	kick(a);
}

/* Somebody whom this peer takes for the leader, or who stands between, takes this peer for it: nobody leads. */
void recover_contradicted(struct avg *a, const struct mate *m)
{
	uint64_t settled = a->lead_us + CONTRADICTION_US + (m && roster_before(a, m) ? SECOND : 0);
	if (a->state != AVG_IN || is_leader(a) || a->round || a->recover || a->follower || now_of(a) < settled)
		return;                         /* just changed hands: what was on its way then says nothing */
	take_over(a);
}

static void take_over(struct avg *a)
{
	term_take(a);
	if (!a->follower)                       /* it has caught up, and has not been taken in: the others know no better */
		a->me->flags &= (uint8_t)~MATE_FOLLOWER;
	roster_lead(a, a->me);
	if (a->round)
		recover_promised(a->round);
	hub_event(a, LOG_INFO_, "succession", &a->me->id, "this peer leads epoch %llu in term %u",
		(unsigned long long)a->point.epoch, a->term);
	ask_all(a, false);
}

/* The leader's timer goes on all the same: a look may be given up for something else. */
bool recover_look(struct round *r)
{
	struct avg *a = r->a;
	if (a->recover || PLANTED(HALF_UNHEARD))
		return false;
	ask_all(a, true);
	env_after(a->env, &r->lead->timer, 3 * a->conf.round_floor_us);
	return true;
}

/* ---- answering ---- */

/* A member of the last commit, in a term that it has signed itself. */
static int may_succeed(const struct avg *a, const struct mate *m, const json_t *j, struct term_claim *ret,
	struct err *e)
{
	if (term_read(a, j, ret, e) || PLANTED(TERMS_UNSIGNED))
		return PLANTED(TERMS_UNSIGNED) ? 0 : -1;
	if (!ret->term || !id_eq(&ret->by, &m->id))
		return err_set(e, ERR_AUTH, "who takes over says so in a term that it has signed itself");
	if (ret->term > a->term && recover_seizes(a, m))
		return err_set(e, ERR_AUTH, "it takes the lead from one that lives, for the %u. time", m->seized + 1);
	return 0;
}

/* It is ERR_AUTH that says that it is no member here. */
static void refuse_heir(struct avg *a, struct request *req, const struct mate *m, const struct term_claim *t,
	struct err *e)
{
	bool honest = t->term && term_of_stranger(a, m, t);
	if (!honest && (e->code == ERR_AUTH || e->code == ERR_INVALID))
		note_forged(a, &m->id, e);
	if (m->member)
		e->code = ERR_STATE;
	net_refuse(req, e);
}

void recover_on(struct avg *a, struct request *req)
{
	uint64_t epoch;
	uint8_t prev[DIGEST];
	struct term_claim t;
	struct err e;
	struct buf b = { 0 };
	struct mate *m = mate_find(a, &req->f.from);
	const json_t *j = req->f.json;
	if (json_get_u64(j, "epoch", &epoch, &e) || json_get_hex(j, "prev", prev, DIGEST, &e)) {
		net_refuse(req, &e);
		return;
	}
	told_seen(a, prev);
	bool same = same_point(a, epoch, prev), one_on = epoch + 1 == a->point.epoch && a->last_commit.len;
	if (a->state != AVG_IN || !m || (!same && !one_on)) {
		err_set(&e, ERR_STATE, "this peer is not at that point of the history");
		net_refuse(req, &e);
		/* Who takes over holds a COMMIT that has not come here, and may be the last one who does. */
		if (a->state == AVG_IN && m && m->member && epoch == a->point.epoch + 1 && !PLANTED(HEIR_UNASKED)) {
			a->heir = m->id;
			a->heir_epoch = epoch;
			kick(a);
		}
		return;
	}
	if (same && may_succeed(a, m, j, &t, &e)) {
		refuse_heir(a, req, m, &t, &e);
		return;
	}
	json_t *answer = json_object();
	if (same && (t.term < a->term || (t.term == a->term && a->leader != m))) {
		term_json(a, answer);
	} else if (same) {
		m->live = m->member = true;
		recover_taken(a, m, &t);
		recover_follow(a, m, &t);
		json_t *held = grant_held(a);
		if (held)
			json_object_set_new(answer, "held", held);
	}
	put_held(a, prev, epoch, &b);
	MARK(a, "avg.recovered.before");
	net_reply(req, answer, blob_steal(&b));
	MARK(a, "avg.recovered.after");
}

/* ---- deciding ---- */

static void repeat_commit(struct avg *a, const struct buf *bytes)
{
	struct body c;
	struct err e;
	struct buf copy = { 0 };
	if (body_open(a, &c, bytes->p, bytes->len, &e))
		return;
	buf_put(&copy, bytes->p, bytes->len);
	for (size_t i = 0; i < c.n; i++) {      /* who is dead now must not be waited for */
		struct mate *m = mate_find(a, &c.m[i].id);
		if (!m || !m->live)
			c.m[i].flags |= MATE_GONE;
	}
	commit_send(a, &c, &copy);
	body_free(&c);
	if (!body_open(a, &c, copy.p, copy.len, &e)) {
		member_commit(a, &c, copy.p, copy.len, &e);
		body_free(&c);                  /* what it took is gone from c */
	}
	buf_free(&copy);
}

static void finish_round(struct avg *a, const struct buf *bytes, uint32_t attempt)
{
	struct body b;
	struct err e;
	uint8_t id[DIGEST];
	struct round *r = a->round, *old = r;
	if (body_open(a, &b, bytes->p, bytes->len, &e))
		return;
	body_digest(bytes->p, bytes->len, id);
	if (!r || memcmp(r->id, id, DIGEST)) {
		if (round_spent(a, id)) {       /* a new BEGIN, in this term, takes its place */
			body_free(&b);
			return;
		}
		if (r)
			round_close(r);
		r = round_new(a, &b, bytes->p, bytes->len, &e);
		if (!r) {
			body_free(&b);
			return;
		}
		flow_open(r);
		if (old)
			round_inherit(r, old);
	}
	body_free(&b);
	r->term = a->term;
	if (units_same(a, &r->b, &e)) {         /* who is still in it hears that it is over */
		lead_free(r);
		lead_new(r)->attempts = attempt + 1;
		lead_give_up(r, "another generation of the plan");
		return;
	}
	lead_resume(a, r, attempt);
	if (!r->told_begin)
		tell_begin(r);
	kick(a);
}

/* Those who are left do not know this peer for a member: it was away when they took others in. It asks to be taken in
 * like anybody else; alone it would only make a second history. */
static void ask_anew(struct avg *a)
{
	struct err e;
	err_set(&e, ERR_STATE, "this peer is no member any more, and asks to be taken in again");
	hub_event(a, LOG_INFO_, "succession", &a->me->id, "epoch %llu: the others do not know this peer for a member: it "
		"asks to be taken in again", (unsigned long long)a->point.epoch);
	if (a->round)
		member_fail(a->round, &e);
	roster_lead(a, NULL);
	a->term = 0;
	a->claim = (struct term_claim){ 0 };
	a->state = AVG_JOINING;
	a->enter_us = now_of(a);
	a->unreachable = 0;
	meet_now(a);
}

/* Nobody holds anything: who has looked goes on. */
static void decide(const struct round *r)
{
	if (r && r->lead && r->lead->phase == LEAD_WAIT)
		env_after(r->a->env, &r->lead->timer, 1);
}

static void finish(struct recover *v)
{
	struct avg *a = v->a;
	bool stranger = v->strangers > v->answers, looks = v->looks;
	struct buf bytes = v->bytes;
	enum holds best = v->best;
	uint32_t attempt = v->attempt;
	v->bytes = (struct buf){ 0 };
	recover_free(a);
	if (best == HOLDS_COMMIT)
		repeat_commit(a, &bytes);
	else if (looks)
		decide(a->round);
	else if (best == HOLDS_NOTHING && stranger)
		ask_anew(a);
	else if (best == HOLDS_ROUND)
		finish_round(a, &bytes, attempt);
	buf_free(&bytes);
	roster_sum(a);
	a->tell = true;
	kick(a);
}

/* Everybody is asked for READY again: who has contributed answers at once; the data that arrived is kept. */
void lead_resume(struct avg *a, struct round *r, uint32_t attempt)
{
	lead_free(r);
	struct lead *l = lead_new(r);
	round_care(r);
	l->attempts = attempt + 1;
	env_after(a->env, &l->timer, r->b.ready_us);
	for (size_t i = 0; i < r->b.n; i++)
		if ((int)i != r->me && !l->m[i].gone) {
			l->m[i].awaited = !(r->b.m[i].flags & MATE_FOLLOWER);
			lead_send_begin(r, i);
		}
	if (r->contributed) {
		r->told_x = false;
		kick(a);
	}
}
