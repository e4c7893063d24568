/* JOIN, asked of who is believed to lead, and what is answered (join.c): it takes this peer in, or sends it elsewhere,
 * or says that it stands in another history. With nobody there, it leads alone. */
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"
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

/* ---- what is answered: one of these words ---- */

struct answer { struct avg *a; struct mate *m /* or NULL */; const struct frame *f; struct id donor; uint64_t epoch;
	bool follower, changed; };

static void take_welcome(const struct answer *x)
{
	if (!x->changed || !x->m)
		welcomed(x->a, x->f, x->follower);
	else if (is_leader(x->a))               /* others count on this one by now: of two leaders, one rule says who */
		join_start(x->a, x->m);
}

static void take_redirect(const struct answer *x)
{
	redirected(x->a, x->f->json, x->epoch);
}

static void take_wait(const struct answer *x)
{
	if (x->m)
		x->m->probe_us = now_of(x->a) + 10 * MS;
}

static void take_fork(const struct answer *x)
{
	shown_start(x->a, x->m, AVG_FORK, &x->donor, x->epoch);
}

/* It has been given what it had given up before, by one that had not gone over yet, and follows one that has. */
static bool given_back(const struct answer *x)
{
	const struct avg *a = x->a;
	const struct past *p = a->gave.epoch ? past_of(a, a->gave.epoch) : NULL;
	bool same = p && !memcmp(p->mark, a->gave.mark, PAST_MARK);
	return same && a->state == AVG_IN && x->m && x->m == a->leader && !PLANTED(MET_IN_VAIN);
}

static void take_met(const struct answer *x)
{
	if (shown_needed(x->a) || given_back(x))
		take_fork(x);
}

static void take_diverged(const struct answer *x)
{
	shown_start(x->a, x->m, AVG_DIVERGED, &x->donor, x->epoch);
}

static void take_behind(const struct answer *x)
{
	struct avg *a = x->a;
	const struct frame *f = x->f;
	struct body c;
	struct err e;
	if (door_passing(a, x->m))
		return;
	if (a->round && f->blob_len && !body_open(a, &c, f->blob, f->blob_len, &e)) {
		int rc = commit_lawful(a, &c, f->blob, f->blob_len, NULL, &e) ||
			member_commit(a, &c, f->blob, f->blob_len, &e);
		body_free(&c);                  /* what it took is gone from c */
		if (!rc)
			return;
	}
	shown_start(a, x->m, AVG_BEHIND, &x->donor, x->epoch);
}

static const struct answer_rule { const char *what; void (*take)(const struct answer *x); } answers[] = {
	{ "welcome", take_welcome },
	{ "redirect", take_redirect },
	{ "wait", take_wait },
	{ "behind", take_behind },
	{ "met", take_met },
	{ "fork", take_fork },
	{ "diverged", take_diverged },
};                                              /* "ahead" asks for nothing: who says so catches up */

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct joining *j = arg;
	struct avg *a = j->a;
	struct mate *m = mate_find(a, &j->to);
	const char *what;
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
	struct answer x = { .a = a, .m = m, .f = f, .follower = follower, .changed = changed };
	json_get_u64(f->json, "epoch", &x.epoch, &mine);
	if (!id_of_json(f->json, "donor", &x.donor))
		x.donor = f->from;
	for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
		if (!strcmp(what, answers[i].what)) {
			answers[i].take(&x);
			return;
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
	json_put_hashes(q, a->conf.hashes);
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

void join_caught_up(struct avg *a)
{
	if (a->state == AVG_IN && a->leader && !is_leader(a) && !a->follower && !a->leaving && !a->round &&
			(a->me->flags & MATE_FOLLOWER))
		join_start(a, a->leader);
}

void redirect_on(struct avg *a, struct request *req)
{
	struct id id;
	struct endpoint at;
	const char *why = "";
	uint64_t epoch = 0, term = a->term;
	struct mate *m;
	if (a->state != AVG_IN || !id_of_json(req->f.json, "id", &id) || json_get_str(req->f.json, "why", &why, NULL))
		return;
	json_get_u64(req->f.json, "epoch", &epoch, NULL);
	struct mate *from = mate_find(a, &req->f.from);
	if (!strcmp(why, "diverged")) {
		if (from && from == a->leader && epoch == a->point.epoch)
			shown_start(a, from, AVG_DIVERGED, &req->f.from, epoch);
		return;
	}
	if (!from || !from->member)             /* strangers send nobody anywhere */
		return;
	if (!strcmp(why, "term")) {             /* whom this peer follows has taken one of which it has not heard */
		struct term_claim t;
		if (from == a->leader && epoch == a->point.epoch && !term_read(a, req->f.json, &t, NULL) && t.term > a->term &&
				id_eq(&t.by, &from->id))
			recover_follow(a, from, &t);
		return;
	}
	if (id_eq(&id, &a->me->id)) {
		if (epoch == a->point.epoch && from == a->leader)
			recover_contradicted(a, from);
		return;
	}
	if (endpoint_of(req->f.json, "at", &at) && at.port[0])
		net_learn(a->net, &id, &at);
	/* It has come in anew, and forgotten that it led: no fault, but the next in order must take over, since who leads
	 * it now has a term that nobody here goes back to. */
	json_get_u64(req->f.json, "term", &term, NULL);
	if (from == a->leader && term < a->term) {
		from->unfit = a->gen;
		recover_start(a);
		return;
	}
	a->hops = 0;
	m = mate_make(a, &id);
	if (m && (!a->round || epoch > a->point.epoch))
		join_start(a, m);
}

void become_leader_alone(struct avg *a)
{
	roster_clear(a);
	a->me->member = a->me->live = a->me->awaited = true;
	a->me->flags &= (uint8_t)~MATE_FOLLOWER;        /* it has caught up; who led when it asked is gone */
	a->me->epoch = a->point.epoch;
	memcpy(a->me->prev, a->point.prev, DIGEST);
	a->me->samples = a->samples;
	a->term = 0;
	a->state = AVG_IN;
	a->hops = 0;
	roster_elect(a);
	grant_top_up(a, a->me, 0);
	grant_tell(a);
	kick(a);
}
