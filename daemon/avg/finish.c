/* What a member does at an ATTEMPT and at the COMMIT, its own leader's or its own. A COMMIT stands in for messages that
 * have not come: it names the parts, their owners and C, so that a late member can still take the mean. */
#include <stdlib.h>
#include <string.h>
#include "avg/claims.h"
#include "avg/grid_flow.h"
#include "avg/grow.h"
#include "avg/lead.h"
#include "avg/proof.h"
#include "common/hash.h"

/* Only as a planted bug: takes what it has for decided. */
void apply_without_commit(struct round *r)
{
	struct body c;
	struct buf bytes = { 0 };
	struct err e;
	if (body_read(&c, r->bytes.p, r->bytes.len, &e))
		return;
	c.what = BODY_COMMIT;
	c.epoch++;
	c.attempt = r->attempt;
	c.term = r->attempt_term;
	memcpy(c.round, r->id, DIGEST);
	for (size_t i = 0; i < c.n; i++) {
		bool counts = r->w[i] && body_head(&c, i) == i;
		c.m[i].samples = counts ? r->w[i] : 0;
		c.m[i].flags |= counts ? MATE_IN : 0;
	}
	c.weight = r->total;
	for (size_t p = 0; p < c.parts; p++) {
		c.part[p].owner = r->part[p].owner;
		memcpy(c.part[p].hash, r->part[p].hash, TREE256);
	}
	body_sign(r->a, &c, &bytes);
	(void)member_commit(r->a, &c, bytes.p, bytes.len, &e);
	body_free(&c);
	buf_free(&bytes);
}

/* ---- COMMIT ---- */

static int commit_round(struct avg *a, struct body *c, const void *bytes, size_t n, struct err *e)
{
	struct round *r = a->round;
	bool in = false;
	for (size_t i = 0; i < c->n && !in; i++)
		in = id_eq(&c->m[i].id, &a->me->id);
	if (!in)                                /* its own round goes on until it is told what to do instead */
		return err_set(e, ERR_STATE, "this peer is not in the round");
	if (r && memcmp(r->id, c->round, DIGEST)) {     /* the epoch was decided by another round than ours */
		round_close(r);
		r = NULL;
	}
	if (r)
		return 0;
	struct body copy;
	if (body_read(&copy, bytes, n, e))
		return -1;
	r = round_new(a, &copy, bytes, n, e);
	if (!r) {
		body_free(&copy);
		return -1;
	}
	r->from_commit = true;
	round_touch(r);
	return 0;
}

/* Does who leads r ask for what can be? Owners that are members and can sum, deadlines as it began with, of this peer
 * what it has said that it brings, and not one attempt after the other. An honest leader asks itself the same, so who
 * says anything else lies. */
int attempt_check(struct round *r, const struct attempt *at, struct err *e)
{
	struct tree t = { .n = r->b.n, .parts = r->b.parts, .rows = r->tree.rows, .row = r->tree.row, .owner = at->owner,
		.sub = at->sub, .hold = r->tree.hold };
	size_t head = body_head(&r->b, (size_t)r->me);
	if (PLANTED(ATTEMPT_UNCHECKED) && !tree_check(&t, e))
		return 0;
	if ((at->stand != NULL) != (r->flow != NULL) || at->n != t.n || at->parts != t.parts || at->rows != t.rows)
		return err_set(e, ERR_INVALID, "attempt %u is of another round", at->no);
	if (tree_check(&t, e))
		return -1;
	if (at->no > ATTEMPTS_MAX(r->b.n))
		return err_set(e, ERR_INVALID, "attempt %u: a round of %zu has at most %zu", at->no, r->b.n,
			ATTEMPTS_MAX(r->b.n));
	if (at->data_us != r->b.data_us)
		return err_set(e, ERR_INVALID, "attempt %u gives %llu us, the round began with %llu", at->no,
			(unsigned long long)at->data_us, (unsigned long long)r->b.data_us);
	uint64_t said = r->told_x ? r->samples : 0;
	uint64_t counted = head < r->b.n ? at->samples[head] : 0;
	if (counted && counted != said)
		return err_set(e, ERR_INVALID, "attempt %u counts %llu samples of this peer, which has said %llu", at->no,
			(unsigned long long)counted, (unsigned long long)said);
	for (size_t i = 0; i < r->b.n; i++)
		if (at->samples[i] && r->b.m[i].flags & (MATE_FOLLOWER | MATE_AUX))
			return err_set(e, ERR_INVALID, "attempt %u counts samples of who brings none", at->no);
	for (size_t p = 0; p < t.parts && !r->flow; p++) {
		size_t o = t.owner[p];
		bool moved = o != r->b.part[p].owner && !id_eq(&r->b.m[o].id, &r->b.leader);
		if (moved && r->b.m[o].flags & (MATE_FOLLOWER | MATE_CLIENT | MATE_HOLD))
			return err_set(e, ERR_INVALID, "attempt %u gives part %zu to one who cannot sum", at->no, p);
	}
	return r->flow ? grid_flow_stand(r, at->stand, at->samples, e) : 0;
}

/* The same parts in the same rows, hashed in the same way; who sums them may be others. */
static bool fits(const struct round *r, const struct body *c)
{
	struct tree t;
	struct err e;
	if (!grid_same(&r->b.grid, &c->grid))
		return false;
	if (r->b.hashes != c->hashes || r->b.parts != c->parts || c->n < r->b.n || r->tree.rows != c->rows ||
			(c->rows > 1 && memcmp(c->row, r->tree.row, r->b.n * sizeof *c->row)))
		return false;
	if (!c->held != !r->b.held || c->generation != r->b.generation ||
			(c->held && memcmp(c->held, r->b.held, r->b.n * sizeof *c->held)))
		return false;
	body_tree(c, r->b.n, &t);
	bool ok = !tree_check(&t, &e);
	tree_free(&t);
	return ok;
}

int member_commit(struct avg *a, struct body *c, const void *bytes, size_t n, struct err *e)
{
	if (c->what != BODY_COMMIT)
		return err_set(e, ERR_PROTOCOL, "not a COMMIT");
	bool on_ours = !memcmp(c->prev, a->point.prev, DIGEST) || PLANTED(PREV_UNCHECKED);
	if (a->state != AVG_IN || c->epoch != a->point.epoch + 1 || !on_ours)
		return err_set(e, ERR_STATE, "a COMMIT of epoch %llu on another history; this peer is at %llu",
		(unsigned long long)c->epoch,
			(unsigned long long)a->point.epoch);
	if (a->round && a->round->commit && !told_waits(a->round))
		return 0;
	if (propose_check(a, c, e) || claims_check(a, c, e))
		return -1;
	if (told_waits(a->round)) {
		uint8_t digest[DIGEST];
		body_digest(bytes, n, digest);
		if (told_holds(a, c, digest))
			return 0;
		told_drop(a->round);            /* another's, which is lawful */
	}
	return commit_take(a, c, bytes, n, e);
}

/* Weights and attempt number are set. */
static void go_on(struct round *r, const uint16_t *owner, const uint16_t *sub)
{
	if (r->flow)
		grid_flow_attempt(r);
	else
		flow_attempt(r, owner, sub);
}

int commit_take(struct avg *a, struct body *c, const void *bytes, size_t n, struct err *e)
{
	if (commit_round(a, c, bytes, n, e))
		return -1;
	struct round *r = a->round;
	if (!fits(r, c))
		return err_set(e, ERR_PROTOCOL, "the COMMIT does not fit its BEGIN");
	for (size_t i = 0; i < r->b.n; i++)
		if (!id_eq(&c->m[i].id, &r->b.m[i].id))
			return err_set(e, ERR_PROTOCOL, "the COMMIT names other members than its BEGIN");
	proof_keep(a, c, bytes, n);
	r->commit = xmemdup(c, sizeof *c);
	*c = (struct body){ 0 };
	buf_put(&r->commit_bytes, bytes, n);
	recover_free(a);
	c = r->commit;
	/* Its last ATTEMPT has not come: the COMMIT says the same. One of that number in another term is another. */
	bool came = r->attempted && r->attempt == c->attempt && (r->attempt_term == c->term || PLANTED(ATTEMPT_BY_NUMBER));
	if (!r->mean_is_x && !came) {
		uint16_t *owner = xcalloc(c->parts + 1, sizeof *owner);
		for (size_t p = 0; p < c->parts; p++)
			owner[p] = c->part[p].owner;
		r->attempted = true;
		r->attempt = c->attempt;
		r->attempt_term = c->term;
		uint64_t *samples = xcalloc(c->n + 1, sizeof *samples);
		for (size_t i = 0; i < r->b.n; i++)
			samples[i] = c->m[i].flags & MATE_IN ? c->m[i].samples : 0;
		round_weights(r, samples);
		free(samples);
		if (r->flow)                    /* weights and stands are in order: the body was decoded */
			grid_flow_stand(r, c->grid.stand, NULL, e);
		go_on(r, owner, c->sub);
		free(owner);
	}
	round_touch(r);
	member_check(r);
	return 0;
}

int member_attempt(struct round *r, const struct attempt *at, struct request *req, struct err *e)
{
	struct avg *a = r->a;
	if (attempt_check(r, at, e)) {
		round_refuse(&req, e->text);
		return -1;
	}
	round_refuse(&r->ack_req, "another attempt began");
	r->ack_req = req;
	r->term = r->attempt_term = at->term;
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
		go_on(r, at->owner, at->sub);
	if (!r->closed) {
		member_check(r);
		flow_missing(r);
	}
	return 0;
}
