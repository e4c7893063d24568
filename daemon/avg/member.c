/* The member's side of a round. BEGIN: stop, say what we have, send it. ATTEMPT: who counts and who sums. ACK: hashes
 * of all parts. COMMIT: only now anything is applied. A round that is over is a tail until its last transfer and job
 * end. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid_flow.h"
#include "avg/grow.h"
#include "avg/lead.h"
#include "avg/near.h"
#include "avg/sent.h"
#include "avg/units.h"
#include "common/hash.h"

static void late_fire(struct timer *t);
static void silent_fire(struct timer *t);

/* Whose death this peer must hear of at once: the leader's (always), those that it waits for, and those who wait for
 * it; as the leader, everybody's. */
void round_care(struct round *r)
{
	bool all = r->lead || id_eq(&r->b.leader, &r->a->me->id);
	for (size_t i = 0; i < r->b.n; i++) {
		bool next = r->me >= 0 && !r->cared[i] && (int)i != r->me && (all || (r->flow ? grid_flow_touches(r, i) :
			tree_touches(&r->tree, (size_t)r->me, i)));
		struct mate *m = next ? mate_find(r->a, &r->b.m[i].id) : NULL;
		if (!m)
			continue;
		r->cared[i] = true;
		roster_care(r->a, m, 1);
	}
}

static void care_no_more(struct round *r)
{
	for (size_t i = 0; i < r->b.n; i++) {
		struct mate *m = r->cared[i] ? mate_find(r->a, &r->b.m[i].id) : NULL;
		r->cared[i] = false;
		if (m)
			roster_care(r->a, m, -1);
	}
}

/* BEGIN tells of members that came since the last commit. */
static void know_all(struct avg *a, const struct body *b)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct wire_member *w = &b->m[i];
		bool known = mate_find(a, &w->id) != NULL;
		struct mate *m = mate_make(a, &w->id);
		if (m)                          /* who leads next depends on it: all must think the same, each of itself, too */
			m->fresh = w->flags & MATE_NEW;
		if (!m || m == a->me || (w->flags & MATE_GONE))
			continue;
		m->live = m->live || !known || (w->flags & MATE_NEW) || believed(a, m);
		if (!m->member) {
			m->member = true;
			m->flags = w->flags & (MATE_FOLLOWER | MATE_CLIENT | MATE_AUX | MATE_HOLD);
			m->at = w->at;
		}
		net_learn(a->net, &w->id, &w->at);
	}
}

/* What the round's hyperparameters say of the wire, or else the spec. */
static int read_coding(struct round *r, const struct body *b, struct err *e)
{
	const struct avg_conf *c = &r->a->conf;
	const json_t *codec = json_object_get(b->params, "codec"), *robust = json_object_get(b->params, "robust"),
		*feedback = json_object_get(b->params, "error_feedback");
	r->robust = c->robust;
	r->feedback = feedback ? json_is_true(feedback) : c->error_feedback;
	if (robust && robust_parse(json_string_value(robust), &r->robust, e))
		return -1;
	if ((r->tree.rows > 1 || b->grid.dims) && r->robust != ROBUST_NONE)
		return err_set(e, ERR_INVALID, "a mean that is %s needs every contribution at its owner; the round is in %s",
			robust_name(r->robust), b->grid.dims ? "a grid" : "rows");
	if (b->held && r->robust != ROBUST_NONE)
		return err_set(e, ERR_INVALID, "a mean that is %s is not made of units whose members hold parts of the vector",
			robust_name(r->robust));
	if (coding_make(&r->coding, codec ? codec : c->codec, c->tensors, c->ntensors, c->len, e))
		return -1;
	return b->grid.dims ? grid_allowed(r, b, e) : 0;
}

struct round *round_new(struct avg *a, struct body *b, const void *bytes, size_t n, struct err *e)
{
	struct round *r = xcalloc(1, sizeof *r);
	r->a = a;
	r->b = *b;
	r->me = round_member(r, &a->me->id);
	r->mean_is_x = b->n == 1 && r->me == 0;
	r->hi = a->conf.len;
	if (b->held && r->me >= 0) {
		r->lo = b->held[r->me].keep_lo;
		r->hi = b->held[r->me].keep_hi;
	}
	size_t len = (r->hi - r->lo + (r->hi == r->lo)) * sizeof(float);
	r->mean_in = r->mean_is_x || r->me < 0 ? NULL : round_room(a, len);
	r->mean = r->mean_in ? round_base(r->mean_in->p, r->lo) : NULL;
	bool ready = r->me >= 0 && (r->mean_in || r->mean_is_x);
	if (!ready)
		err_set(e, r->me < 0 ? ERR_STATE : ERR_NOMEM, r->me < 0 ? "this peer is not in the round" :
			"no memory for a mean of %zu bytes", len);
	body_tree(b, b->n, &r->tree);
	if (!ready || read_coding(r, b, e)) {
		lease_put(r->mean_in);
		tree_free(&r->tree);
		free(r);
		return NULL;
	}
	buf_put(&r->bytes, bytes, n);
	if (b->what == BODY_BEGIN)
		body_digest(bytes, n, r->id);
	else
		memcpy(r->id, b->round, DIGEST);
	*b = (struct body){ 0 };
	r->term = r->b.term;
	r->w = xcalloc(r->b.n, sizeof *r->w);
	r->bad = xcalloc(r->b.n, sizeof *r->bad);
	r->broken = xcalloc(r->b.n, sizeof *r->broken);
	r->odd = xcalloc(r->b.n, sizeof *r->odd);
	r->part = xcalloc(r->b.parts + 1, sizeof *r->part);
	for (size_t p = 0; p < r->b.parts; p++) {
		r->part[p].off = r->b.part[p].off;
		r->part[p].len = r->b.part[p].len;
		flow_place(r, p);
		r->part[p].plain = coding_plain(&r->coding, r->part[p].off, r->part[p].len);
		r->part[p].bytes = coding_bytes(&r->coding, r->part[p].off, r->part[p].len);
	}
	if (r->b.grid.dims)
		grid_flow_new(r);
	sents_open(r);
	r->begun_us = now_of(a);
	r->late = (struct timer){ .fire = late_fire, .name = "avg.late" };
	r->silent = (struct timer){ .fire = silent_fire, .name = "avg.silent" };
	a->round = r;
	know_all(a, &r->b);
	r->cared = xcalloc(r->b.n, sizeof *r->cared);
	round_care(r);
	round_touch(r);
	return r;
}

/* The leader has been heard: it may be silent for this long again. Those further down the order wait longer. */
void round_touch(struct round *r)
{
	struct avg *a = r->a;
	uint64_t us = 2 * r->b.ready_us + (flow_patience(r) + 3) * r->b.data_us + a->conf.round_floor_us, rank = 0;
	if (!us || r->from_commit)
		us = unmeasured_us(a);
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		rank += m->member && m->live && memcmp(m->order, a->me->order, 32) < 0;
	}
	env_after(a->env, &r->silent, us + (rank > 8 ? 8 : rank) * a->conf.round_floor_us);
}

static void refuse(struct request **req, const char *why)
{
	struct err e;
	if (!*req)
		return;
	err_set(&e, ERR_STATE, "%s", why);
	net_refuse(*req, &e);
	*req = NULL;
}

/* May the reducers of that round hold another contribution of this peer than the one it would bring now? They may when
 * it has left the round once, and when it entered at this point of the history: perhaps it was here in an earlier
 * life. Raw contributions are kept until COMMIT, so the old bytes would be summed under the new claim. */
bool round_spent(const struct avg *a, const uint8_t id[DIGEST])
{
	for (unsigned i = 0; i < SPENT && i < a->nspent; i++)
		if (!memcmp(a->spent[i], id, DIGEST))
			return true;
	return !a->last_commit.len;
}

/* It came to nothing, and this peer was as late as all: should it lead the next one, that leaves more time. */
static void learn(struct round *r)
{
	if (r->own_late && !r->commit && !r->lead)
		times_short(&r->a->data_times, 2, r->b.data_us, unmeasured_us(r->a));
}

/* No more of this round: cancels, unlinks; the memory goes when jobs and results on their way are over (reap). */
void round_close(struct round *r)
{
	struct avg *a = r->a;
	if (r->closed)
		return;
	r->closed = true;
	learn(r);
	if (r->told_x && !r->from_commit)
		memcpy(a->spent[a->nspent++ % SPENT], r->id, DIGEST);
	care_no_more(r);
	env_timer(a->env, &r->late, 0);
	env_timer(a->env, &r->silent, 0);
	refuse(&r->ready_req, "the round is over");
	refuse(&r->ack_req, "the round is over");
	flow_stop(r, false);
	if (!a->x_jobs && !r->mean_is_x)
		sum_settle(r, r->applied);
	if (r->lead) {
		lead_calls_drop(r->lead);
		env_timer(a->env, &r->lead->timer, 0);
	}
	if (r->early)
		list_del(&r->link);
	r->early = false;
	if (a->round == r) {
		a->round = NULL;
		if (!r->applied)                /* nothing stands on it */
			early_drop(a);
	}
	list_push(&a->tails, &r->link);
	kick(a);
}

/* ---- BEGIN ---- */

void tell_begin(struct round *r)
{
	struct avg *a = r->a;
	struct avg_begin b = { .epoch = r->b.epoch, .term = r->term, .members = (uint32_t)r->b.n,
		.deadline_us = now_of(a) + r->b.ready_us };
	r->told_begin = true;
	a->cb.begin(a->arg, &b);
}

void member_begin_local(struct round *r)
{
	flow_open(r);
	tell_begin(r);
}

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

void member_contributed(struct round *r)
{
	struct avg *a = r->a;
	if (r->mean_is_x || !r->lead)
		times_add(&a->ready_times, now_of(a) - r->begun_us);
	r->told_x = true;
	sents_make(r);
	flow_send_x(r);
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
	flow_send_x(r);
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
 * one that comes first in the order counts. */
static bool better(const struct avg *a, const struct round *old, const struct body *b)
{
	struct mate *x = mate_find(a, &b->leader), *y = mate_find(a, &old->b.leader);
	if (b->term != old->b.term)
		return b->term > old->b.term;
	return x && (!y || !y->live || memcmp(x->order, y->order, 32) < 0);
}

/* The owner has contributed to a round that another one replaces: the same contribution goes into that. */
void round_inherit(struct round *r, const struct round *old)
{
	if (r->b.generation != old->b.generation || !r->b.held != !old->b.held)
		return;                         /* other elements: they are asked for */
	r->told_begin = old->told_begin;
	r->contributed = old->contributed;
	r->x = old->x;
	r->samples = old->samples;
	ranges_copy(&r->claimed, &old->claimed);
	grow_inherit(r, old);
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
	if (old && !better(a, old, b))
		return err_set(e, ERR_STATE, "another round of this epoch is under way");
	if (old)
		round_close(old);               /* its memory lives until the next kick */
	struct round *r = round_new(a, b, req->f.blob, req->f.blob_len, e);
	if (!r)
		return -1;
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
		refuse_forged(a, req, &e, false);
	} else if (a->round && !memcmp(a->round->id, id, DIGEST)) {     /* asked again, by a successor */
		struct round *r = a->round;
		refuse(&r->ready_req, "asked again");
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

int member_attempt(struct round *r, const struct attempt *at, struct request *req, struct err *e)
{
	struct avg *a = r->a;
	if (attempt_check(r, at, e)) {
		refuse(&req, e->text);
		return -1;
	}
	refuse(&r->ack_req, "another attempt began");
	r->ack_req = req;
	r->term = at->term;
	r->attempt = at->no;
	r->attempted = true;
	r->acked = false;
	r->missing_told = r->lateness = 0;
	r->attempt_us = now_of(a);
	r->data_us = at->data_us;
	round_weights(r, at->samples);
	env_after(a->env, &r->late, grow_first_us(r, r->data_us));
	round_touch(r);
	if (!r->mean_is_x)
		flow_attempt(r, at->owner, at->sub);
	if (!r->closed) {
		member_check(r);
		flow_missing(r);
	}
	return 0;
}

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

static void late_fire(struct timer *t)
{
	struct round *r = container_of(t, struct round, late);
	if (grow_fired(r))
		env_after(r->a->env, t, r->data_us / 4);
	else if (++r->lateness < flow_patience(r))
		env_after(r->a->env, t, r->data_us);
	flow_missing(r);
}

static void silent_fire(struct timer *t)
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
