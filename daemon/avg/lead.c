/* The leader's side of a round after BEGIN: who is in C is decided here and nowhere else. READY -> ATTEMPT(0, C) ->
 * ACK of everybody -> COMMIT; what goes wrong on the way makes ATTEMPT(n+1) with a smaller C or other owners. What
 * comes is noted, and the rule of the phase that the round is in says what follows (rules). */
#include <stdlib.h>
#include <string.h>
#include "avg/claims.h"
#include "avg/grid_flow.h"
#include "avg/lead.h"
#include "avg/units.h"

static void attempt_send(struct round *r);

void lead_ready(struct round *r, size_t i, const struct ready *ready)
{
	struct lead_member *m = &r->lead->m[i];
	if (m->is_ready)
		return;
	m->is_ready = true;
	m->ready.samples = ready->samples;
	m->ready.rate = ready->rate;
	ranges_copy(&m->ready.claimed, &ready->claimed);
	struct mate *mate = mate_find(r->a, &r->b.m[i].id);
	if (mate && r->lead->phase == LEAD_READY)
		mate->misses = 0;
	if (mate && ready->bandwidth)
		mate->bandwidth = ready->bandwidth;
	lead_step(r);
}

/* C at attempt 0: who is ready with samples that may count. */
static bool choose(struct round *r)
{
	struct lead *l = r->lead;
	struct claims c;
	uint64_t sum = 0;
	claims_begin(&c, r);
	for (size_t i = 0; i < r->b.n; i++) {
		struct lead_member *m = &l->m[i];
		bool brings = m->is_ready && !m->gone && m->ready.samples && unit_ready(r, i) &&
			!(r->b.m[i].flags & (MATE_FOLLOWER | MATE_AUX));
		l->samples[i] = brings && claims_take(&c, i, &m->ready) ? m->ready.samples : 0;
		sum += l->samples[i];
	}
	claims_end(&c);
	return sum > 0;
}

/* What those who are gone summed goes to others; their own pieces of it exist nowhere else. */
static bool reassign(struct round *r)
{
	struct lead *l = r->lead;
	size_t n = r->b.n;
	if (r->flow)
		return grid_lead_reassign(r);
	bool *gone = xcalloc(3 * n, sizeof *gone), *able = gone + n, *lost = able + n;
	uint64_t *len = xcalloc(r->b.parts + 1, sizeof *len), sum = 0;
	for (size_t p = 0; p < r->b.parts; p++)
		len[p] = r->b.part[p].len;
	for (size_t i = 0; i < n; i++) {
		gone[i] = l->m[i].gone || !l->m[i].is_ready || complaints_heeded(l, i);
		able[i] = !complaints_heeded(l, i) && lead_required(r, i) && !(r->b.m[i].flags & (MATE_CLIENT | MATE_HOLD));
	}
	tree_mend(&l->tree, len, gone, able, (size_t)r->me, lost);
	for (size_t i = 0; i < n; i++) {
		bool stays = !l->m[i].gone && l->m[i].is_ready;         /* and brings to others what it would have summed */
		l->samples[i] = lost[i] && !stays ? 0 : l->samples[i];
	}
	units_settle(r);
	for (size_t i = 0; i < n; i++)
		sum += l->samples[i];
	free(gone);
	free(len);
	return sum > 0;
}

void lead_next_attempt(struct round *r)
{
	struct lead *l = r->lead;
	l->again = false;
	if (l->attempts > ATTEMPTS_MAX(r->b.n)) {
		lead_give_up(r, "too many attempts");
		return;
	}
	if (!reassign(r)) {
		lead_give_up(r, "nobody is left who contributed");
		return;
	}
	l->phase = LEAD_DATA;
	l->phase_us = now_of(r->a);
	size_t in = 0;
	for (size_t i = 0; i < r->b.n; i++) {
		l->m[i].acked = l->m[i].answered = false;
		in += l->samples[i] > 0;
	}
	if (l->attempts)
		hub_event(r->a, LOG_INFO_, "attempt", NULL, "epoch %llu: attempt %u with %zu of %zu members",
			(unsigned long long)r->b.epoch, l->attempts, in, r->b.n);
	attempt_send(r);
}

void lead_missing(struct round *r, size_t i, const uint8_t *list, size_t n, size_t nonfinite, uint64_t slow)
{
	if (complaint_heard(r, i, list, n, nonfinite, slow))
		lead_step(r);
}

static void lead_ack(struct round *r, size_t i, const uint8_t *ack, size_t n)
{
	lead_acked(r, i, ack, n);
	lead_step(r);
}

static void attempt_answered(void *arg, const struct frame *f, const struct err *e)
{
	struct lead_call *c = arg;
	struct round *r = c->r;
	bool current = c->attempt + 1 == r->lead->attempts, other = f && json_object_get(f->json, "term");
	size_t i = c->member;
	struct term_claim t = { 0 };
	struct err why;
	list_del(&c->link);
	free(c);
	if (!current)
		return;
	bool succeeded = other && !term_read(r->a, f->json, &t, &why) && t.term > r->term;
	if (!f || (other && !succeeded)) {      /* does not know the round (back from the dead?), is silent, or lies */
		struct lead *l = r->lead;
		l->m[i].answered = l->m[i].gone = true;
		l->m[i].elsewhere = other || lead_refused(e);
		l->again |= l->phase == LEAD_DATA && lead_reduces(r, i);
		lead_step(r);
	} else if (succeeded) {                 /* while we were silent: what we began is theirs now */
		err_set(&why, ERR_STATE, "another leads this epoch now");
		member_fail(r, &why);
		recover_follow(r->a, mate_find(r->a, &t.by), &t);
	} else if (json_object_get(f->json, "missing")) {
		uint64_t nonfinite = 0, slow = 0;
		json_get_u64(f->json, "nonfinite", &nonfinite, NULL);
		json_get_u64(f->json, "slow", &slow, NULL);
		lead_missing(r, i, f->blob, f->blob_len, nonfinite, slow);
	} else {
		lead_ack(r, i, f->blob, f->blob_len);
	}
}

static void attempt_send(struct round *r)
{
	struct lead *l = r->lead;
	struct avg *a = r->a;
	struct attempt at = { .term = r->term, .no = l->attempts++, .data_us = r->b.data_us, .samples = l->samples,
		.owner = l->tree.owner, .sub = l->tree.sub, .rows = l->tree.rows, .stand = l->stand,
		.n = r->b.n, .parts = r->b.parts };
	uint64_t patience = (flow_patience(r) + 1) * r->b.data_us;
	struct buf b = { 0 };
	struct err e;
	memcpy(at.round, r->id, DIGEST);
	attempt_encode(&at, &b);
	env_after(a->env, &l->timer, patience);
	for (size_t i = 0; i < r->b.n; i++) {
		if ((int)i == r->me || l->m[i].gone)
			continue;
		struct lead_call *c = xcalloc(1, sizeof *c);
		*c = (struct lead_call){ .r = r, .member = i, .attempt = at.no };
		list_push(&l->calls, &c->link);
		MARK(a, "avg.attempt.before");
		json_t *j = hub_json(a);
		if (l->m[i].nonfinite)
			json_object_set_new(j, "nonfinite", json_true());
		c->call = net_call(a->net, &r->b.m[i].id, KIND_AVG_ATTEMPT, j, blob_copy(b.p, b.len), CLASS_control,
			patience + SECOND, attempt_answered, c);
		MARK(a, "avg.attempt.after");
	}
	buf_free(&b);
	member_attempt(r, &at, NULL, &e);
}

/* ---- ACK ---- */

/* Is there a part of the mean that nobody who lives has said to hold? With a COMMIT it would be lost. */
static bool unheld(const struct round *r)
{
	const struct lead_member *m = r->lead->m;
	bool blind = r->flow || PLANTED(HALF_UNIT);     /* nobody else has what half a unit lacks */
	size_t i = 0;
	for (size_t p = 0; p < r->b.parts && i < r->b.n && !blind; p++)
		for (i = 0; i < r->b.n && !(m[i].acked && !m[i].gone && tree_holds(&r->tree, p, i)); i++)
			;
	return i == r->b.n;
}

/* ---- steps ---- */

static bool all_ready(const struct round *r)
{
	for (size_t i = 0; i < r->b.n; i++) {
		const struct lead_member *m = &r->lead->m[i];
		if (m->awaited && !m->is_ready && !m->refused && !m->gone)
			return false;
	}
	return r->lead->m[r->me].is_ready;
}

/* Are the samples that the attempt sums those that would be committed? */
static bool sums_count(const struct round *r)
{
	uint64_t *w = xcalloc(r->b.n + 1, sizeof *w);
	body_weights(&r->b, r->b.n, r->lead->samples, w);
	bool same = !memcmp(w, r->w, r->b.n * sizeof *w);
	free(w);
	return same;
}

/* It was stopped, or its machine: others may have gone on without it, and what they said before is old. The tick that
 * says so comes every 100 ms. Once a round: a machine that is always late must come to an end, too. */
static bool slept(const struct round *r)
{
	const struct avg *a = r->a;
	bool was = a->woke_us >= r->lead->phase_us || now_of(a) - a->awake_us > SLEPT_US;
	return was && !r->lead->slept && r->b.n > 1 && !PLANTED(SLEPT_AND_DECIDED);
}

static void to_commit(struct round *r)
{
	struct lead *l = r->lead;
	struct avg *a = r->a;
	if (slept(r)) {
		hub_event(a, LOG_WARN_, "slept", &a->me->id, "epoch %llu: this daemon has not run for a while: it asks the "
			"others again before it commits", (unsigned long long)r->b.epoch);
		l->slept = true;
		lead_next_attempt(r);
		return;
	}
	if (l->phase == LEAD_WAIT && unheld(r)) {       /* who held it has died meanwhile */
		lead_next_attempt(r);
		return;
	}
	size_t acks;
	(void)lead_missing_acks(r, &acks);
	if (l->attempts == 1 && l->phase == LEAD_DATA && acks > 1)      /* alone there is nothing to wait for */
		times_add(&a->data_times, l->acked_us - l->phase_us);   /* who keeps its ACK makes no deadline longer */
	if (lead_minority(r) && l->phase != LEAD_WAIT) {
		uint64_t us = times_deadline(&a->round_times, a->conf.round_floor_us, a->conf.round_floor_us * 3) / 3;
		l->phase = LEAD_WAIT;
		l->minority = true;
		us = us < a->conf.round_floor_us ? a->conf.round_floor_us : us;
		env_after(a->env, &l->timer, (uint64_t)((double)us * a->conf.minority_wait_rounds));
		hub_event(a, LOG_WARN_, "minority", NULL,
			"no majority of the last epoch's %u members is here: this round waits before it commits", a->n_last);
		return;
	}
	l->phase = LEAD_OVER;
	lead_commit(r);
}

/* Most of the last commit's members are here, and have not followed into this round: they may not have known who leads
 * now. Once at a point they are asked anew, before it is decided without them; and whenever whoever began the round,
 * which this peer has taken over, has not named them. */
static bool ask_anew(const struct round *r)
{
	struct avg *a = r->a;
	size_t here = 1 + roster_others(a, false), named = 1;
	if (a->conf.any || !lead_minority(r))
		return false;
	for (size_t i = 0; i < r->b.n; i++) {
		const struct mate *m = mate_find(a, &r->b.m[i].id);
		named += m && m != a->me && m->live && !(r->b.m[i].flags & MATE_FOLLOWER);
	}
	return named * 2 >= a->n_last ? a->anew != a->gen : here * 2 >= a->n_last;
}

/* ---- the phases: what something that has come moves on, and what the deadline does ---- */

/* READY of all who are awaited, or who cannot say it any more: C is chosen. */
static void ready_step(struct round *r)
{
	lead_measure(r);
	if (!all_ready(r))
		return;
	if (choose(r))
		lead_next_attempt(r);
	else
		lead_give_up(r, "nobody contributed");
}

static void ready_due(struct round *r)
{
	struct lead *l = r->lead;
	lead_tell_late(r);
	for (size_t i = 0; i < r->b.n; i++)
		if ((int)i != r->me)
			l->m[i].awaited = false;
	l->m[r->me].is_ready = true;            /* our own owner may be the slow one: then this peer only sums and leads */
	r->told_x = true;
	lead_step(r);
}

/* ACKs of all who are required: it is committed. Or somebody is lost to the attempt: the next one. */
static void data_step(struct round *r)
{
	size_t acks;
	if (!lead_missing_acks(r, &acks) && acks && sums_count(r) && !unheld(r))
		to_commit(r);
	else if (r->lead->again)
		lead_next_attempt(r);
}

static void data_due(struct round *r)
{
	struct lead *l = r->lead;
	size_t acks, late = lead_missing_acks(r, &acks);
	bool most = l->m[r->me].acked && acks >= late;
	if (most && !unheld(r)) {
		lead_tell_unacked(r);
		to_commit(r);
		return;
	}
	bool slow = false;                      /* alive, and not there yet: the next round gives it time */
	for (size_t i = 0; i < r->b.n && !most; i++)
		if ((int)i != r->me && lead_required(r, i) && !l->m[i].acked) {
			l->m[i].gone = true;
			slow = slow || lead_heard(r, i, l->phase_us);
		}
	if (slow)
		times_short(&r->a->data_times, 2, r->b.data_us, unmeasured_us(r->a));
	lead_next_attempt(r);
}

/* Of a minority: enough are here after all, or of the others so many have left that they cannot go on without us. */
static void wait_step(struct round *r)
{
	if (r->a->conf.any ? lead_minority(r) : lead_here(r) * 2 <= r->a->n_last)
		return;
	r->lead->minority = false;
	to_commit(r);
}

static void wait_due(struct round *r)
{
	if (!ask_anew(r)) {
		if (r->lead->looked || !recover_look(r))
			to_commit(r);
		r->lead->looked = true;
		return;
	}
	r->a->anew = r->a->gen;
	lead_give_up(r, "most of the members are here and have not taken part: they are asked again");
}

/* It is committed, or given up. */
static void nothing(struct round *r)
{
}

static const struct lead_rule { void (*step)(struct round *r), (*due)(struct round *r); } rules[] = {
	[LEAD_READY] = { ready_step, ready_due },
	[LEAD_DATA] = { data_step, data_due },
	[LEAD_WAIT] = { wait_step, wait_due },
	[LEAD_OVER] = { nothing, nothing },
};

void lead_step(struct round *r)
{
	if (r->lead && !r->closed && !r->fail && !r->commit)
		rules[r->lead->phase].step(r);
}

void lead_fire(struct timer *t)
{
	struct lead *l = container_of(t, struct lead, timer);
	struct round *r = l->r;
	if (!r->closed && !r->fail && !r->commit)
		rules[l->phase].due(r);
}

/* The leader's own report, from the kick so that it does not run inside a callback of what it changes. */
void flow_missing_self(struct round *r)
{
	struct buf b = { 0 };
	size_t nonfinite;
	unsigned slow;
	if (r->closed || !r->lead || !r->lead->missing_self)
		return;
	r->lead->missing_self = false;
	missing_list(r, &b, &nonfinite, &slow);
	if (b.len && !r->acked)
		lead_missing(r, (size_t)r->me, b.p, b.len, nonfinite, slow);
	buf_free(&b);
}

void member_missing_on(struct avg *a, struct request *req)
{
	uint8_t round[DIGEST];
	uint64_t attempt;
	struct round *r = a->round;
	int i = r ? round_member(r, &req->f.from) : -1;
	if (i < 0 || !r->lead || json_get_hex(req->f.json, "round", round, DIGEST, NULL) || memcmp(round, r->id, DIGEST) ||
			json_get_u64(req->f.json, "attempt", &attempt, NULL) || attempt != r->attempt ||
			r->lead->phase != LEAD_DATA)
		return;
	uint64_t nonfinite = 0, slow = 0;
	json_get_u64(req->f.json, "slow", &slow, NULL);
	json_get_u64(req->f.json, "nonfinite", &nonfinite, NULL);
	lead_missing(r, (size_t)i, req->f.blob, req->f.blob_len, nonfinite, slow);
}
