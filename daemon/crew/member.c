/* What a member promises and begins. A proposal counts from who leads by the roster, in its term, on the same COMMIT;
 * its plans are computed here, and what they come to is signed. A go counts when all its members have signed the same:
 * then nobody's word is needed for it, and whoever has promised it begins. */
#include <stdlib.h>
#include "crew/int.h"

/* ---- answers to PROPOSE ---- */

static json_t *says(const struct crew *c, const char *what)
{
	return json_pack("{s:s,s:I,s:I,s:I,s:I,s:o}", "says", what, "seen", (json_int_t)c->seen, "base",
		(json_int_t)c->base_number, "epoch", (json_int_t)c->epoch, "term", (json_int_t)c->term, "leader",
		json_hex(c->leader.b, 32));
}

static void reply(struct request *req, json_t *j)
{
	net_reply(req, j, NO_BLOB);
}

static void reply_text(struct crew *c, struct request *req, const char *what, const struct err *e)
{
	json_t *j = says(c, what);
	json_object_set_new(j, "text", json_text(e->text));
	reply(req, j);
}

static void reply_yes(struct crew *c, struct request *req, const struct deal *d, bool trial)
{
	json_t *j = says(c, "yes");
	struct buf sig = { 0 };
	json_object_set_new(j, "digest", json_hex(d->found.digest, CREW_DIGEST));
	MARK(c, "crew.answer.before");
	if (!trial)
		deal_promise(c, d, buf_grow(&sig, SIG_BYTES));
	net_reply(req, j, blob_steal(&sig));
	MARK(c, "crew.answer.after");
}

/* ---- is it lawful? ---- */

enum law { LAWFUL, LATER, OLD, FORGED };

static int cannot_be(struct crew *c, const struct id *from, enum refusal_why why, bool strong, const struct err *e)
{
	guard_refused(c, from, why, e, strong);
	return FORGED;
}

/* Nothing of this depends on the roster: no honest peer says it. */
static int in_itself(struct crew *c, const struct deal *d, const struct id *from, struct err *e)
{
	const struct offer *o = &d->o;
	if (!id_eq(&o->run, &c->conf.run) || !id_eq(&o->leader, from)) {
		err_set(e, ERR_AUTH, "a generation that is another's, or another run's");
		return cannot_be(c, from, REFUSED_leader, true, e);
	}
	if (o->generation != crew_number(CREW_COUNT(o->generation), &o->run, &o->leader, o->life) ||
			o->redundancy > c->redundancy) {
		err_set(e, ERR_INVALID, "its number is not one that it can give, or redundancy %u is above the run's",
			o->redundancy);
		return cannot_be(c, from, REFUSED_number, true, e);
	}
	if (o->generation > c->seen + (AHEAD_MAX << CREW_TAG_BITS)) {
		err_set(e, ERR_INVALID, "generation %llu: it cannot have come to that, this peer has seen %llu",
			(unsigned long long)CREW_COUNT(o->generation), (unsigned long long)CREW_COUNT(c->seen));
		return cannot_be(c, from, REFUSED_number, true, e);
	}
	return LAWFUL;
}

static int by_roster(struct crew *c, const struct deal *d, const struct id *from, struct err *e)
{
	const struct offer *o = &d->o;
	if (o->epoch > c->epoch || (o->epoch == c->epoch && o->term > c->term))
		return LATER;                   /* what it knows comes here, too, or it is alone in saying so */
	if (o->epoch < c->epoch || (o->term < c->term && !PLANTED(CREW_TERM_IGNORED))) {
		err_set(e, ERR_STATE, "epoch %llu, term %u is over: this is epoch %llu, term %u",
			(unsigned long long)o->epoch, o->term, (unsigned long long)c->epoch, c->term);
		guard_refused(c, from, REFUSED_term, e, false);
		return OLD;
	}
	if (!id_eq(&c->leader, from) && !PLANTED(CREW_ANY_LEADER)) {
		err_set(e, ERR_AUTH, "it does not lead epoch %llu in term %u", (unsigned long long)c->epoch, c->term);
		return cannot_be(c, from, REFUSED_leader, false, e);
	}
	return LAWFUL;
}

static int by_members(struct crew *c, const struct deal *d, const struct id *from, struct err *e)
{
	uint64_t missing;
	if (deal_rank(c, d) < 0) {
		err_set(e, ERR_INVALID, "this peer is not in it");
		return cannot_be(c, from, REFUSED_members, false, e);
	}
	roster_hearsay(c, d);
	if (!deal_whole(c, d)) {
		c->unsure = true;               /* has it left what runs here, and wants newcomers? */
		err_set(e, ERR_STATE, "a member of it does not live, as far as is known here");
		guard_refused(c, from, REFUSED_members, e, false);
		return LATER;
	}
	if (d->o.target != c->target) {         /* it has not heard of a change yet, or this peer has not */
		err_set(e, ERR_STATE, "its target batch is %llu samples, and %llu is in force here",
			(unsigned long long)d->o.target, (unsigned long long)c->target);
		guard_refused(c, from, REFUSED_base, e, false);
		return LATER;
	}
	if (d->o.base < c->base_number) {
		err_set(e, ERR_STATE, "its base is generation %llu: the last COMMIT was of %llu",
			(unsigned long long)CREW_COUNT(d->o.base), (unsigned long long)CREW_COUNT(c->base_number));
		guard_refused(c, from, REFUSED_base, e, false);
		return LATER;
	}
	if (d->o.base == c->base_number && deal_base_there(c, &missing) && missing) {
		c->doubts = true;               /* perhaps those who hold it are known by hearsay alone */
		crew_kick(c);
		err_set(e, ERR_STATE, "%llu bytes of the state have no holder here", (unsigned long long)missing);
		guard_refused(c, from, REFUSED_base, e, false);
		return LATER;
	}
	return LAWFUL;
}

static int lawful(struct crew *c, const struct deal *d, const struct id *from, struct err *e)
{
	int law = in_itself(c, d, from, e);
	if (law == LAWFUL)
		law = by_roster(c, d, from, e);
	if (law == LAWFUL && d->o.generation <= c->seen && (!c->promised || c->promised->o.generation != d->o.generation)) {
		err_set(e, ERR_STATE, "generation %llu is over: %llu has been seen",
			(unsigned long long)CREW_COUNT(d->o.generation), (unsigned long long)CREW_COUNT(c->seen));
		guard_refused(c, from, REFUSED_number, e, false);
		return PLANTED(CREW_NUMBER_IGNORED) ? LAWFUL : OLD;
	}
	if (law == LAWFUL)
		law = by_members(c, d, from, e);
	return law;
}

/* ---- promises ---- */

void member_drop(struct crew *c)
{
	deal_drop(&c->answer.d);
	if (c->answer.req)
		reply(c->answer.req, says(c, "old"));
	c->answer.req = NULL;
}

void member_promise(struct crew *c, struct deal *d)
{
	if (!PLANTED(CREW_RUNS_ON))
		crew_stop_running(c, "this peer has promised the next one");
	c->seen = d->o.generation;
	deal_set(&c->promised, d);
	crew_since(c);
}

/* The plans are there: says what they come to, and promises when it is asked to. */
static void answer(struct crew *c, struct request *req, struct deal *d, bool trial)
{
	if (!trial)
		member_promise(c, d);
	reply_yes(c, req, d, trial);
	if (PLANTED(CREW_EARLY) && !trial)
		crew_begin_deal(c, d);
	crew_kick(c);
}

void member_computed(struct crew *c, struct work *w)
{
	struct deal *d = w->d;
	bool asked = c->answer.d == d && c->answer.req;
	if (!w->rc && !d->computed) {
		d->computed = true;
		d->found = w->found;
		w->found = (struct found){ 0 };
	}
	d->cannot = w->rc != 0;
	if (w->kind != WORK_ANSWER)
		return;
	if (!w->rc)
		deal_set(&c->computed, d);
	if (!asked)
		return;
	struct request *req = c->answer.req;
	struct err e;
	c->answer.req = NULL;
	deal_drop(&c->answer.d);
	int law = lawful(c, d, &req->f.from, &e);       /* much may have happened meanwhile */
	if (law == LAWFUL && !w->rc)
		answer(c, req, d, c->answer.trial);
	else if (law == LAWFUL)
		reply_text(c, req, "cannot", &w->why);
	else
		reply(req, says(c, law == OLD ? "old" : "later"));
}

static void propose(struct crew *c, struct request *req, struct deal *d, bool trial)
{
	struct id from = req->f.from;
	struct err e;
	int law = lawful(c, d, &from, &e);
	if (law == LAWFUL && c->promised && c->promised->o.generation == d->o.generation && memcmp(c->promised->id, d->id,
			CREW_DIGEST)) {
		err_set(&e, ERR_AUTH, "a second generation of one number");
		law = cannot_be(c, &from, REFUSED_number, true, &e);
	}
	if (law == FORGED) {
		net_refuse(req, &e);
		return;
	}
	if (law != LAWFUL) {
		reply(req, says(c, law == OLD ? "old" : "later"));
		return;
	}
	if (!deal_signed(d)) {
		err_set(&e, ERR_AUTH, "the signature is not its leader's");
		guard_refused(c, &from, REFUSED_signature, &e, true);
		net_refuse(req, &e);
		return;
	}
	if (c->computed && !memcmp(c->computed->id, d->id, CREW_DIGEST)) {
		answer(c, req, c->computed, trial);
		return;
	}
	member_drop(c);
	deal_set(&c->answer.d, d);
	c->answer.req = net_keep(req);
	c->answer.trial = trial;
	crew_work_start(c, crew_work_new(c, WORK_ANSWER, d));
}

/* Whoever is not in the roster, or speaks too often, makes this peer read no more than its name. */
static bool may_speak(struct crew *c, struct request *req)
{
	struct id from = req->f.from;
	struct mate *m = mate_of(c, &from);
	struct err e;
	if (m && guard_pays(c, m))
		return true;
	err_set(&e, ERR_BUSY, m ? "too many" : "it is not in the roster here");
	if (m)
		c->refused[REFUSED_rate]++;
	else
		guard_refused(c, &from, REFUSED_members, &e, false);
	net_refuse(req, &e);
	return false;
}

static void not_read(struct crew *c, struct request *req, const struct err *e)
{
	struct id from = req->f.from;
	guard_refused(c, &from, REFUSED_shape, e, true);
	net_refuse(req, e);
}

void crew_propose_on(struct crew *c, struct request *req)
{
	struct err e;
	if (!may_speak(c, req))
		return;
	struct deal *d = deal_read(req->f.blob, req->f.blob_len, &e);
	if (!d)
		not_read(c, req, &e);
	else
		propose(c, req, d, json_is_true(json_object_get(req->f.json, "trial")));
	deal_drop(&d);
}

/* ---- gos ---- */

static bool promised(const struct crew *c, const struct deal *d)
{
	return c->promised && !memcmp(c->promised->id, d->id, CREW_DIGEST);
}

/* Is it worth its signatures? Of what this peer has promised, from anybody; else from who leads, or when this peer
 * leads, and has come since. */
static int go_counts(struct crew *c, const struct deal *d, const struct id *from, struct err *e)
{
	if (!id_eq(&d->o.run, &c->conf.run))
		return err_set(e, ERR_AUTH, "a go of another run");
	if (promised(c, d) || (d->o.generation == c->base_number && deal_number(c->base) != c->base_number))
		return 0;
	if (d->o.generation <= deal_number(c->decided) || d->o.generation > c->seen + (AHEAD_MAX << CREW_TAG_BITS))
		return err_set(e, ERR_STATE, "generation %llu is over, or has never been",
			(unsigned long long)CREW_COUNT(d->o.generation));
	if (deal_rank(c, d) >= 0 && !PLANTED(CREW_UNPROMISED))
		return err_set(e, ERR_STATE, "this peer has not promised it, or has promised another since");
	if (id_eq(from, &c->leader) || leads(c))
		return 0;
	return err_set(e, ERR_BUSY, "it does not lead, as far as is known here");
}

void member_verified(struct crew *c, struct work *w)
{
	struct deal *d = w->d;
	if (w->rc) {
		/* Whoever honestly passes one on has looked at it; its leader may have nothing to do with it. */
		guard_refused(c, PLANTED(CREW_BLAMES_LEADER) ? &d->o.leader : &w->from, REFUSED_signature, &w->why, true);
		return;
	}
	if (d->o.generation == c->base_number && deal_number(c->base) != c->base_number)
		deal_set(&c->base, d);
	if (d->o.generation <= deal_number(c->decided) && !PLANTED(CREW_NUMBER_IGNORED))
		return;
	if (PLANTED(CREW_UNPROMISED) && deal_rank(c, d) >= 0)
		deal_set(&c->promised, d);
	if (promised(c, d) && (PLANTED(CREW_ANY_DIGEST) || PLANTED(CREW_UNPROMISED) ||
			!memcmp(d->said, c->promised->found.digest, CREW_DIGEST))) {
		struct deal *mine = deal_hold(c->promised);
		memcpy(mine->said, d->said, CREW_DIGEST);
		mine->sig = mine->sig ? mine->sig : xmemdup(d->sig, (size_t)d->o.n * SIG_BYTES);
		crew_begin_deal(c, mine);
		deal_drop(&mine);
	} else if (deal_rank(c, d) < 0) {
		crew_adopt(c, d);
	}
}

static bool looked_at(const struct work *w, const struct deal *d)
{
	return w && w->kind <= WORK_VERIFY_OTHERS && deal_same_go(w->d, d);
}

static void verify(struct crew *c, struct deal *d, const struct id *from)
{
	struct work *w;
	if (looked_at(c->busy, d) || looked_at(c->waiting[WORK_VERIFY], d) || looked_at(c->waiting[WORK_VERIFY_OTHERS], d))
		return;
	w = crew_work_new(c, id_eq(from, &c->leader) ? WORK_VERIFY : WORK_VERIFY_OTHERS, d);
	w->from = *from;
	crew_work_start(c, w);
}

void member_take_go(struct crew *c, const void *p, size_t n, const struct id *from)
{
	struct err e;
	struct deal *d = deal_read_go(p, n, &e);
	if (!d)
		guard_refused(c, from, REFUSED_shape, &e, true);
	else if (!go_counts(c, d, from, &e))
		verify(c, d, from);
	deal_drop(&d);
}

static void go(struct crew *c, struct request *req, struct deal *d)
{
	struct id from = req->f.from;
	struct err e;
	if (c->decided && !memcmp(c->decided->id, d->id, CREW_DIGEST)) {
		reply(req, says(c, "yes"));
		return;
	}
	if (go_counts(c, d, &from, &e)) {
		if (e.code == ERR_AUTH)
			guard_refused(c, &from, REFUSED_leader, &e, true);
		net_refuse(req, &e);
		return;
	}
	if (promised(c, d) && !deal_whole(c, d)) {
		err_set(&e, ERR_STATE, "a member of it does not live, as far as is known here");
		net_refuse(req, &e);
		return;
	}
	verify(c, d, &from);
	reply(req, says(c, "yes"));
}

void crew_go_on(struct crew *c, struct request *req)
{
	struct err e;
	if (!may_speak(c, req))
		return;
	struct deal *d = deal_read_go(req->f.blob, req->f.blob_len, &e);
	if (!d)
		not_read(c, req, &e);
	else
		go(c, req, d);
	deal_drop(&d);
}
