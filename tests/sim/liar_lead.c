/* Lies about who leads and what is decided: COMMIT, BEGIN, ATTEMPT, ACK, RECOVER, PROPOSE. */
#include <stdlib.h>
#include <string.h>
#include "liar.h"

/* ---- COMMIT ---- */

/* The members and parts of the round that v is in, as the liar would have them end; or a round that nobody has begun,
 * of the two of them, or of v alone, whose mean would be its own vector. */
static void commit_body(struct liar *l, struct apeer *v, bool held, struct body *c)
{
	const struct avg *e = l->e->avg;
	const struct round *r = held ? v->avg->round : NULL;
	bool same = lie_draw(l, 2), alone = !held && lie_draw(l, 3) == 0, mine = lie_draw(l, 2);
	uint32_t terms[] = { 0, 1, v->avg->term, v->avg->term + 1, 1000, UINT32_MAX };
	*c = (struct body){ .what = BODY_COMMIT, .run = e->conf.run, .leader = e->me->id, .epoch = v->avg->point.epoch + 1,
		.len = e->conf.len, .params_version = v->avg->point.params_version + !same, .rows = 1 };
	c->params = same ? json_deep_copy(v->avg->point.params) : json_pack("{s:f}", "lr", 9.0);
	c->term = terms[lie_draw(l, 6)];
	memcpy(c->prev, v->avg->point.prev, DIGEST);
	lie_bytes(l, c->round, DIGEST);
	if (r)
		memcpy(c->round, r->id, DIGEST);
	c->n = r ? r->b.n : alone ? 1 : 2;
	c->m = xcalloc(c->n, sizeof *c->m);
	for (size_t i = 0; i < c->n; i++)
		c->m[i].id = r ? r->b.m[i].id : i ? *net_self(l->e->net) : *net_self(v->net);
	size_t who = mine ? c->n - 1 : 0;
	c->m[who].flags = MATE_IN;
	c->m[who].samples = c->weight = 16;
	ranges_add(&c->m[who].claimed, 5000000, 5000016);
	c->parts = r ? r->b.parts : 1;
	c->part = xcalloc(c->parts + 1, sizeof *c->part);
	c->part[0] = (struct wire_part){ .owner = (uint16_t)(c->n - 1), .len = c->len };
	for (size_t p = 0; r && p < c->parts; p++)
		c->part[p] = r->b.part[p];
}

static void say_commit(struct liar *l, struct apeer *v, struct body *c)
{
	struct buf b = { 0 };
	uint32_t term = c->term;
	body_sign(l->e->avg, c, &b);
	body_free(c);
	lie_call(l, v, KIND_AVG_COMMIT, lie_head(l, term), &b);
}

static void commit_own(struct liar *l, struct apeer *v)
{
	struct body c;
	commit_body(l, v, false, &c);
	say_commit(l, v, &c);
}

static void commit_held(struct liar *l, struct apeer *v)
{
	struct body c;
	if (!v->avg->round)
		return;
	commit_body(l, v, true, &c);
	say_commit(l, v, &c);
}

/* Behind it ACKs of everybody, which nobody has signed. */
static void commit_acked(struct liar *l, struct apeer *v)
{
	struct body c;
	struct buf b = { 0 };
	uint8_t sig[SIG_BYTES];
	if (!v->avg->round)
		return;
	commit_body(l, v, true, &c);
	body_sign(l->e->avg, &c, &b);
	b.len -= 2;
	for (size_t i = 0; i < c.n; i++) {
		lie_bytes(l, sig, sizeof sig);
		buf_u16(&b, (uint16_t)i);
		buf_put(&b, sig, SIG_BYTES);
	}
	buf_u16(&b, (uint16_t)c.n);
	lie_call(l, v, KIND_AVG_COMMIT, lie_head(l, c.term), &b);
	body_free(&c);
}

/* In the name of whoever leads, signed by nobody. */
static void commit_signed(struct liar *l, struct apeer *v)
{
	struct body c;
	struct buf b = { 0 };
	if (!v->avg->leader)
		return;
	commit_body(l, v, v->avg->round && lie_draw(l, 2), &c);
	c.leader = v->avg->leader->id;
	c.term = v->avg->term;
	body_sign(l->e->avg, &c, &b);
	body_free(&c);
	lie_call(l, v, KIND_AVG_COMMIT, lie_head(l, v->avg->term), &b);
}

/* What was decided, again and again: true, and over. */
static void commit_again(struct liar *l, struct apeer *v)
{
	const struct kept_commits *k = &l->e->avg->kept;
	const struct buf *bytes = &k->v[lie_draw(l, KEPT_COMMITS)].bytes;
	struct buf b = { 0 };
	if (!bytes->len)
		return;
	buf_put(&b, bytes->p, bytes->len);
	lie_call(l, v, KIND_AVG_COMMIT, lie_head(l, 0), &b);
}

/* ---- terms ---- */

static uint64_t much(struct liar *l)
{
	uint64_t v[] = { 1000, UINT32_MAX, (1ull << 32) + 1, INT64_MAX, UINT32_MAX - 1ull };
	return v[lie_draw(l, 5)];
}

static void say_recover(struct liar *l, struct apeer *v, json_t *j)
{
	json_object_set_new(j, "epoch", json_integer((json_int_t)v->avg->point.epoch));
	json_object_set_new(j, "prev", json_hex(v->avg->point.prev, DIGEST));
	lie_call(l, v, KIND_AVG_RECOVER, j, NULL);
}

static void recover_far(struct liar *l, struct apeer *v)
{
	say_recover(l, v, lie_head(l, much(l)));
}

/* The next term of v's point with a signature, its own or none of anybody. */
static json_t *next_term(struct liar *l, struct apeer *v, const struct id *by, bool right)
{
	struct buf b = { 0 };
	uint32_t term = v->avg->term + 1 + (uint32_t)lie_draw(l, 3);
	uint8_t sig[SIG_BYTES];
	json_t *j = lie_head(l, term);
	buf_put(&b, "hivemind-term-1", 16);
	buf_put(&b, v->avg->conf.run.b, 32);
	buf_u64(&b, v->avg->point.epoch);
	buf_put(&b, v->avg->point.prev, DIGEST);
	buf_u32(&b, term);
	lie_bytes(l, sig, sizeof sig);
	if (right)
		net_sign(l->e->net, b.p, b.len, sig);
	buf_free(&b);
	json_object_set_new(j, "by", json_hex(by->b, 32));
	json_object_set_new(j, "sig", json_hex(sig, SIG_BYTES));
	return j;
}

/* In its own name without its signature, or in that of another. */
static void recover_unsigned(struct liar *l, struct apeer *v)
{
	bool own = lie_draw(l, 2);
	int other = (l->node + 1) % LIAR_PEERS;
	say_recover(l, v, next_term(l, v, net_self((own ? l->e : world_peer(l->w, other))->net), !own));
}

/* As it may: and then it does not lead. */
static void recover_idle(struct liar *l, struct apeer *v)
{
	say_recover(l, v, next_term(l, v, net_self(l->e->net), true));
}

static void proposal_sign(struct liar *l, uint64_t nonce, uint64_t asked, const json_t *patch, uint8_t ret[SIG_BYTES])
{
	struct buf b = { 0 };
	buf_put(&b, l->e->avg->conf.run.b, 32);
	buf_u64(&b, nonce);
	buf_u64(&b, asked);
	wire_put_json(&b, patch);
	net_sign(l->e->net, b.p, b.len, ret);
	buf_free(&b);
}

/* ---- BEGIN ---- */

static void begin_body(struct liar *l, struct apeer *v, uint32_t term, size_t n, struct body *b)
{
	*b = (struct body){ .what = BODY_BEGIN, .run = l->e->avg->conf.run, .leader = *net_self(l->e->net),
		.epoch = v->avg->point.epoch, .term = term, .len = l->e->avg->conf.len, .rows = 1, .ready_us = SEC,
		.data_us = SEC, .params = json_pack("{s:f}", "lr", 9.0) };
	memcpy(b->prev, v->avg->point.prev, DIGEST);
	lie_bytes(l, b->round, DIGEST);
	b->n = n;
	b->m = xcalloc(n, sizeof *b->m);
	for (size_t i = 2; i < n; i++)
		lie_bytes(l, b->m[i].id.b, 32);
	b->m[0].id = *net_self(v->net);
	b->m[1].id = *net_self(l->e->net);
	b->part = xcalloc(2, sizeof *b->part);
	b->parts = 1;
	b->part[0] = (struct wire_part){ .owner = (uint16_t)lie_draw(l, 2), .len = b->len };
}

static void say_begin(struct liar *l, struct apeer *v, struct body *b, uint64_t term)
{
	struct buf bytes = { 0 };
	body_sign(l->e->avg, b, &bytes);
	body_free(b);
	lie_call(l, v, KIND_AVG_BEGIN, lie_head(l, term), &bytes);
}

/* By one who does not lead: in its term, and in one that nobody reaches. */
static void begin_far(struct liar *l, struct apeer *v)
{
	struct body b;
	begin_body(l, v, lie_draw(l, 2) ? UINT32_MAX : 1000, 2, &b);
	say_begin(l, v, &b, lie_draw(l, 2) ? b.term : much(l));
}

static void begin_own(struct liar *l, struct apeer *v)
{
	struct body b;
	begin_body(l, v, v->avg->term, 2, &b);
	say_begin(l, v, &b, v->avg->term);
}

/* In the next term, which it has taken as it may, with members and hyperparameters as they should be; and no more. */
static void begin_seize(struct liar *l, struct apeer *v)
{
	struct body b;
	struct buf bytes = { 0 };
	json_t *j = next_term(l, v, net_self(l->e->net), true);
	begin_body(l, v, (uint32_t)json_integer_value(json_object_get(j, "term")), 2, &b);
	json_decref(b.params);
	b.params = json_deep_copy(v->avg->point.params);
	body_sign(l->e->avg, &b, &bytes);
	body_free(&b);
	lie_call(l, v, KIND_AVG_BEGIN, j, &bytes);
}

static void begin_signed(struct liar *l, struct apeer *v)
{
	struct body b;
	if (!v->avg->leader)
		return;
	begin_body(l, v, v->avg->term, 2, &b);
	b.leader = v->avg->leader->id;
	say_begin(l, v, &b, v->avg->term);
}

static void begin_as_leader(struct liar *l, struct apeer *v, struct body *b)
{
	json_decref(b->params);
	b->params = json_deep_copy(v->avg->point.params);
	b->part[0].owner = 0;
	say_begin(l, v, b, v->avg->term);
}

/* The leader's own: to all the same, of them and of a thousand who are nobody, members or new, whose pieces one shall
 * hold. */
static void begin_crowd(struct liar *l, struct apeer *v)
{
	struct rng was = l->rng;
	struct body b;
	rng_seed(&l->rng, v->avg->point.epoch);
	begin_body(l, v, v->avg->term, 1000, &b);
	l->rng = was;
	for (size_t i = LIAR_PEERS; i < b.n && v->avg->point.epoch % 2; i++)
		b.m[i].flags = MATE_NEW;
	for (int i = 0; i < LIAR_PEERS; i++)
		b.m[i].id = *net_self(world_peer(l->w, (i + (int)v->avg->point.epoch) % LIAR_PEERS)->net);
	begin_as_leader(l, v, &b);
}

/* To everybody another, in which it is alone with a crowd of nobodies. */
static void begin_apart(struct liar *l, struct apeer *v)
{
	struct body b;
	begin_body(l, v, v->avg->term, 1000, &b);
	begin_as_leader(l, v, &b);
}

/* What it leads holds what it has asked for itself, signed well: to it that is enough. */
static void begin_changes(struct liar *l, struct apeer *v)
{
	struct avg *a = l->e->avg;
	struct wire_proposal p = { .author = *net_self(l->e->net), .nonce = rng_u64(&l->rng) >> 1,
		.asked = a->point.epoch + 1, .epoch = a->point.epoch + 1, .patch = json_pack("{s:f}", "lr", 9.0) };
	if (a->round || a->props) {
		json_decref(p.patch);
		return;
	}
	proposal_sign(l, p.nonce, p.asked, p.patch, p.sig);
	a->prop = xrealloc(a->prop, sizeof *a->prop);
	a->prop[0] = p;
	a->props = 1;
	l->said++;
}

/* Its rounds end before they are over, one after the other. */
static void begin_gives_up(struct liar *l, struct apeer *v)
{
	struct avg *a = l->e->avg;
	if (!a->round || !a->round->lead || a->round->fail || a->round->commit)
		return;
	lead_give_up(a->round, "I do not like it");
	a->wait_us = 0;
	l->said++;
}

/* It answers, and does not begin. */
static void begin_never(struct liar *l, struct apeer *v)
{
	l->e->avg->wait_us = sim_now(l->s) + SEC;
	l->said++;
}

/* ---- ATTEMPT ---- */

/* Of the round that is under way: its end, another C, a term that nobody has. */
static void attempt(struct liar *l, struct apeer *v, bool lead)
{
	struct round *r = v->avg->round;
	struct buf b = { 0 };
	if (!r || r->lead)
		return;
	struct attempt at = { .term = lead || lie_draw(l, 2) ? r->term : (uint32_t)much(l), .no = r->attempt + 1 +
		(uint32_t)lie_draw(l, 3), .give_up = !lead && lie_draw(l, 2), .n = r->b.n, .parts = r->b.parts, .rows = 1,
		.data_us = SEC };
	memcpy(at.round, r->id, DIGEST);
	at.samples = xcalloc(at.n, sizeof *at.samples);
	at.owner = xcalloc(at.parts + 1, sizeof *at.owner);
	at.samples[lie_draw(l, at.n)] = 5;
	for (size_t p = 0; lead && p < at.parts; p++)
		at.owner[p] = (uint16_t)lie_draw(l, at.n + 2);
	attempt_encode(&at, &b);
	attempt_free(&at);
	lie_call(l, v, KIND_AVG_ATTEMPT, lie_head(l, 0), &b);
}

static void attempt_own(struct liar *l, struct apeer *v)
{
	attempt(l, v, false);
}

/* Of its own round, to each another: who sums is somebody else, or nobody. */
static void attempt_owners(struct liar *l, struct apeer *v)
{
	attempt(l, v, true);
}

/* ---- ACK ---- */

/* Beside the averager's own handler: that one would be answered first. */
static void answer_term(void *arg, struct request *req)
{
	struct liar *l = arg;
	l->said++;
	if (req->wants_reply)
		net_reply(req, json_pack("{s:I}", "term", (json_int_t)much(l)), NO_BLOB);
}

static void answer_hashes(void *arg, struct request *req)
{
	struct liar *l = arg;
	struct buf b = { 0 };
	uint8_t bytes[16 * 64 + SIG_BYTES];
	l->said++;
	if (!req->wants_reply)
		return;
	size_t right = (l->e->avg->round ? l->e->avg->round->b.parts : 1) * 16 + SIG_BYTES;
	lie_bytes(l, bytes, sizeof bytes);
	buf_put(&b, bytes, right > sizeof bytes || l->cut ? lie_draw(l, right) : right);
	net_reply(req, NULL, blob_steal(&b));
}

static void answer_never(void *arg, struct request *req)
{
	struct liar *l = arg;
	struct err e;
	l->said++;
	err_set(&e, ERR_BUSY, "too late");
	if (l->kept)
		net_refuse(l->kept, &e);
	l->kept = req->wants_reply ? net_keep(req) : NULL;
}

static void acks_terms(struct liar *l)
{
	net_on(l->e->net, KIND_AVG_ATTEMPT, answer_term, l);
}

static void acks_hashes(struct liar *l)
{
	net_on(l->e->net, KIND_AVG_ATTEMPT, answer_hashes, l);
}

static void acks_cut(struct liar *l)
{
	l->cut = true;
	acks_hashes(l);
}

static void acks_never(struct liar *l)
{
	net_on(l->e->net, KIND_AVG_ATTEMPT, answer_never, l);
}

/* ---- PROPOSE ---- */

/* To whoever leads: a change in its own name, signed well, or in the author's, signed by nobody. */
static void propose(struct liar *l, struct apeer *v)
{
	struct apeer *author = world_peer(l->w, lie_author(l));
	bool mine = lie_draw(l, 2);
	uint64_t nonce = rng_u64(&l->rng) >> 1, asked = v->avg->point.epoch + 1;
	json_t *j = hub_json(l->e->avg), *patch = json_pack("{s:f}", "lr", 9.0);
	uint8_t sig[SIG_BYTES];
	proposal_sign(l, nonce, asked, patch, sig);
	json_object_set_new(j, "author", json_hex(net_self((mine ? l->e : author)->net)->b, 32));
	json_object_set_new(j, "nonce", json_integer((json_int_t)nonce));
	json_object_set_new(j, "epoch", json_integer((json_int_t)asked));
	json_object_set_new(j, "sig", json_hex(sig, SIG_BYTES));
	json_object_set_new(j, "patch", patch);
	lie_call(l, v, KIND_AVG_PROPOSE, j, NULL);
}

#define OTHERS (STRANGER | MEMBER | CLIENT)
const struct lie lies_lead[] = {
	{ "commit", "own", OTHERS | NEXT, NULL, commit_own, 4 * MSEC, "forges" },
	{ "commit", "held", OTHERS, NULL, commit_held, 4 * MSEC, "forges" },
	{ "commit", "acked", MEMBER, NULL, commit_acked, 4 * MSEC, "forges" },
	{ "commit", "signed", OTHERS, NULL, commit_signed, 0, "forges", .banned = true },
	{ "commit", "again", MEMBER, NULL, commit_again },
	{ "recover", "far", OTHERS | NEXT, NULL, recover_far, 0, "forges" },
	{ "recover", "unsigned", OTHERS | NEXT, NULL, recover_unsigned, 0, "forges" },
	{ "recover", "idle", MEMBER | NEXT, NULL, recover_idle, 0, "forges", .slow = 8, .long_us = 40 * SEC, .lags = true },
	{ "begin", "far", OTHERS | NEXT, NULL, begin_far, 0, "forges" },
	{ "begin", "seize", MEMBER | NEXT, NULL, begin_seize, 0, "forges", .slow = 8, .long_us = 40 * SEC, .lags = true },
	{ "begin", "own", OTHERS | NEXT, NULL, begin_own },
	{ "begin", "signed", OTHERS, NULL, begin_signed, 0, "forges", .banned = true },
	{ "lead", "changes", LEADER, NULL, begin_changes, MSEC, "unfit", .slow = 8 },
	{ "lead", "gives_up", LEADER, NULL, begin_gives_up, MSEC, .lags = true },
	{ "lead", "never", LEADER, NULL, begin_never, MSEC, "unfit", .slow = 200, .still_us = 25 * SEC,
		.long_us = 60 * SEC },
	{ "lead", "owners", LEADER, NULL, attempt_owners, MSEC, "unfit", .slow = 4, .lags = true },
	{ "crowd", "same", LEADER, NULL, begin_crowd, 0, "unfit" },
	{ "crowd", "apart", LEADER, NULL, begin_apart, 0, "forges" },
	{ "attempt", "own", OTHERS | NEXT, NULL, attempt_own, MSEC, "forges" },
	/* Who answers so takes no part in the attempt: what it owns is summed by another, two of the smallest deadlines
	 * (200 ms) later, in every round. A client owns nothing. */
	{ "ack", "terms", MEMBER, acks_terms, NULL, 0, .slow = 40 },
	{ "ack", "hashes", MEMBER, acks_hashes, NULL, 0, .slow = 40 },
	{ "ack", "cut", MEMBER, acks_cut, NULL, 0, "forges", .slow = 40 },
	{ "ack", "never", MEMBER, acks_never, NULL, 0, .slow = 40, .long_us = 20 * SEC },
	{ "ack", "terms", CLIENT, acks_terms, NULL },
	{ "ack", "hashes", CLIENT, acks_hashes, NULL },
	{ "ack", "cut", CLIENT, acks_cut, NULL, 0, "forges", .slow = 4 },
	{ "ack", "never", CLIENT, acks_never, NULL, 0, "late", .slow = 4, .long_us = 40 * SEC },
	{ "propose", "own", OTHERS, NULL, propose, 0, "forges" },
	/* Who has been left behind may not know that it is no member any more. */
	{ "stranger", "begins", STRANGER, NULL, begin_seize, .honest = true },
	{ "stranger", "recovers", STRANGER, NULL, recover_idle, .honest = true },
	{ 0 }
};
