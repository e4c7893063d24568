/* Who may say what (hivemind-protocol(7), "Authority"). Bodies are signed by their author, whoever passes them on. A
 * COMMIT counts when its author led this epoch as this peer saw it and the BEGIN that it ends is held here; or when a
 * majority of those that this peer knows have signed that they hold its parts. A term is taken by a member, in its own
 * name, and may be ahead of this peer's by what members can have come to since the last commit. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid_flow.h"
#include "avg/lead.h"
#include "avg/proof.h"
#include "avg/signed.h"
#include "common/hash.h"

#define ACK_BYTES (2 + SIG_BYTES)               /* u16 member, signature */
#define ACKS_WRONG 8                            /* then no more are looked at; who leads does not verify them */
#define TERMS_A_MEMBER 4
#define TERMS_MORE 16
#define TERMS_A_SECOND 8

/* ---- signed bodies: body, signature of its leader, ACKs (COMMIT only), u16 how many ---- */

size_t body_size(const void *p, size_t n)
{
	const uint8_t *b = p;
	size_t acks = n >= 2 ? (size_t)(b[n - 2] | b[n - 1] << 8) : 0, behind = SIG_BYTES + acks * ACK_BYTES + 2;
	return n > behind ? n - behind : 0;
}

void body_digest(const void *p, size_t n, uint8_t ret[DIGEST])
{
	sha256_of(p, body_size(p, n), ret);
}

int body_read(struct body *ret, const void *p, size_t n, struct err *e)
{
	size_t size = body_size(p, n);
	return size ? body_decode(ret, p, size, e) : err_set(e, ERR_PROTOCOL, "body without signature");
}

/* A signature is of a short head, so that two of them are a proof without their bodies (proof.c). */
static struct buf head_bytes(const struct id *run, const struct body_head *h)
{
	struct buf b = signed_head("hivemind-body-1", run);
	buf_u8(&b, (uint8_t)h->what);
	buf_put(&b, h->leader.b, 32);
	buf_u64(&b, h->epoch);
	buf_u64(&b, h->life);
	buf_u32(&b, h->term);
	buf_put(&b, h->round, DIGEST);
	buf_put(&b, h->digest, DIGEST);
	return b;
}

static void head_of(const struct body *b, const void *p, size_t size, struct body_head *ret)
{
	*ret = (struct body_head){ .what = b->what, .leader = b->leader, .epoch = b->epoch, .life = b->life,
		.term = b->term };
	memcpy(ret->round, b->round, DIGEST);
	sha256_of(p, size, ret->digest);
}

void body_head_of(const struct body *b, const void *p, size_t n, struct body_head *ret)
{
	size_t size = body_size(p, n);
	head_of(b, p, size, ret);
	memcpy(ret->sig, (const uint8_t *)p + size, SIG_BYTES);
}

bool body_head_verify(const struct id *run, const struct body_head *h)
{
	struct buf b = head_bytes(run, h);
	return signed_by(&b, &h->leader, h->sig);
}

void body_sign(struct avg *a, const struct body *b, struct buf *ret)
{
	struct body_head h;
	body_encode(b, ret);
	head_of(b, ret->p, ret->len, &h);
	struct buf head = head_bytes(&a->conf.run, &h);
	signed_make(&head, a->net, h.sig);
	buf_put(ret, h.sig, SIG_BYTES);
	buf_u16(ret, 0);
}

int body_open(struct avg *a, struct body *ret, const void *p, size_t n, struct err *e)
{
	struct body_head h;
	if (body_read(ret, p, n, e))
		return -1;
	body_head_of(ret, p, n, &h);
	if (!id_eq(&ret->run, &a->conf.run) || ret->len != a->conf.len)
		err_set(e, ERR_MISMATCH, "a round of another run or length (%llu, here %zu)", (unsigned long long)ret->len,
			a->conf.len);
	else if (!body_head_verify(&a->conf.run, &h))
		err_set(e, ERR_AUTH, "the signature is not its author's");
	else {
		proof_look(a, &h);
		return 0;
	}
	body_free(ret);
	return -1;
}

/* ---- ACKs ---- */

/* What a member holds when it acknowledges: of that attempt of that round these weights and parts. */
struct held { const uint8_t *round; const struct id *leader; uint32_t term, attempt; const uint64_t *w; size_t n;
	uint8_t parts[DIGEST]; };

static struct buf ack_bytes(const struct avg *a, const struct held *h)
{
	struct buf b = signed_head("hivemind-ack-1", &a->conf.run);
	buf_put(&b, h->round, DIGEST);
	buf_put(&b, h->leader->b, 32);
	buf_u32(&b, h->term);
	buf_u32(&b, h->attempt);
	buf_put(&b, h->parts, DIGEST);
	for (size_t i = 0; i < h->n; i++) {
		if (!h->w[i])
			continue;
		buf_u16(&b, (uint16_t)i);
		buf_u64(&b, h->w[i]);
	}
	return b;
}

/* In a grid: of the member's line, which is all that it holds. */
static void parts_digest(const uint8_t *hashes, size_t parts, const uint8_t *line, uint8_t ret[DIGEST])
{
	if (line)
		memcpy(ret, line, TREE256);
	else
		sha256_of(hashes, parts * TREE256, ret);
}

/* What member i holds of them: of other parts it has said zeros. */
static uint8_t *hashes_of(const struct body *c, size_t i)
{
	uint8_t *hash = xcalloc(c->parts + 1, TREE256);
	for (size_t p = 0; p < c->parts; p++)
		if (body_holds(c, p, i))
			memcpy(hash + TREE256 * p, c->part[p].hash, TREE256);
	return hash;
}

void ack_sign(const struct round *r, const struct id *leader, const uint8_t *hashes, uint8_t ret[SIG_BYTES])
{
	struct held h = { .round = r->id, .leader = leader, .term = r->term, .attempt = r->attempt, .w = r->w,
		.n = r->b.n };
	uint8_t line[TREE256];
	if (r->flow)
		grid_hash(hashes, r->b.parts, line);
	parts_digest(hashes, r->b.parts, r->flow ? line : NULL, h.parts);
	struct buf b = ack_bytes(r->a, &h);
	signed_make(&b, r->a->net, ret);
}

/* Of those who hold what the COMMIT says, as many as a frame has room for. */
void acks_put(const struct round *r, const struct body *c, struct buf *b)
{
	uint8_t *hash = NULL;
	size_t n = 0;
	b->len -= 2;
	for (size_t i = 0; i < r->b.n && b->len + ACK_BYTES + 2 <= NET_BLOB_MAX; i++) {
		const struct lead_member *m = &r->lead->m[i];
		if (!hash || c->held) {
			free(hash);
			hash = hashes_of(c, i);
		}
		if (!m->acked || !m->is_signed || (!r->flow && memcmp(m->hash, hash, c->parts * TREE256)))
			continue;
		buf_u16(b, (uint16_t)i);
		buf_put(b, m->sig, SIG_BYTES);
		n++;
	}
	buf_u16(b, (uint16_t)n);
	free(hash);
}

/* Who may vote on what comes after a point: the members of its COMMIT that have not left since. */
struct voters { const struct id **id; size_t n; };

static void voters_here(const struct avg *a, struct voters *v)
{
	v->id = xcalloc(a->nmates + 1, sizeof *v->id);
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		if (m->member && !m->fresh && !(m->flags & MATE_FOLLOWER))
			v->id[v->n++] = &m->id;
	}
}

static void voters_of(const struct body *c, struct voters *v)
{
	v->id = xcalloc(c->n + 1, sizeof *v->id);
	for (size_t i = 0; i < c->n; i++)
		if (!(c->m[i].flags & (MATE_FOLLOWER | MATE_GONE)))
			v->id[v->n++] = &c->m[i].id;
}

static bool votes(const struct voters *v, const struct id *id)
{
	for (size_t i = 0; i < v->n; i++)
		if (id_eq(v->id[i], id))
			return true;
	return false;
}

/* Of the members whose ACKs stand behind a COMMIT those that x wants, as long as it wants more; x hears who has signed
 * that it holds what the COMMIT names. */
void acks_each(const struct avg *a, const struct body *c, const uint8_t *bytes, size_t n, struct ack_reader *x)
{
	size_t at = body_size(bytes, n) + SIG_BYTES, next = 0, wrong = 0;
	uint64_t *w = xcalloc(c->n + 1, sizeof *w);
	uint64_t *samples = xcalloc(c->n + 1, sizeof *samples);
	uint8_t *hash = NULL;
	struct held h = { .round = c->round, .leader = &c->leader, .term = c->term, .attempt = c->attempt, .w = w,
		.n = c->n };
	for (size_t i = 0; i < c->n; i++)
		samples[i] = c->m[i].flags & MATE_IN ? c->m[i].samples : 0;
	body_weights(c, c->n, samples, w);
	for (; at + 2 < n && !x->enough && wrong <= ACKS_WRONG; at += ACK_BYTES) {
		size_t i = (size_t)(bytes[at] | bytes[at + 1] << 8);
		if (i < next || i >= (c->grid.dims ? c->grid.n : c->n) || id_eq(&c->m[i].id, &c->leader) ||
				!x->wants(x, &c->m[i].id))
			continue;
		next = i + 1;
		if (!hash || c->held) {
			free(hash);
			hash = hashes_of(c, i);
		}
		parts_digest(hash, c->parts, c->grid.dims ? c->line_hash + TREE256 * grid_last_line(&c->grid, i) : NULL,
			h.parts);
		struct buf b = ack_bytes(a, &h);
		if (signed_by(&b, &c->m[i].id, bytes + at + 2))
			x->signed_by(x, &c->m[i].id);
		else
			wrong++;
	}
	free(w);
	free(samples);
	free(hash);
}

struct majority { struct ack_reader x; const struct voters *v; size_t said; };

static bool voter(struct ack_reader *x, const struct id *id)
{
	return votes(container_of(x, struct majority, x)->v, id);
}

static void voted(struct ack_reader *x, const struct id *id)
{
	struct majority *m = container_of(x, struct majority, x);
	x->enough = ++m->said * 2 > m->v->n;
}

/* More than half of the voters say that they hold what c names; its author has said so by signing it. */
static bool majority(const struct avg *a, const struct body *c, const uint8_t *bytes, size_t n, const struct voters *v)
{
	struct majority m = { .x = { .wants = voter, .signed_by = voted }, .v = v, .said = votes(v, &c->leader) };
	m.x.enough = m.said * 2 > v->n;
	acks_each(a, c, bytes, n, &m.x);
	return m.said * 2 > v->n;
}

/* ---- who leads ---- */

void led_note(struct avg *a)
{
	if (!a->leader)
		return;
	for (unsigned i = 0; i < LED && i < a->nled; i++)
		if (id_eq(&a->led[i].id, &a->leader->id) && a->led[i].term == a->term)
			return;
	a->led[a->nled++ % LED] = (struct led){ a->leader->id, a->term };
}

bool led_by(const struct avg *a, const struct id *id, uint32_t term)
{
	for (unsigned i = 0; i < LED && i < a->nled; i++)
		if (id_eq(&a->led[i].id, id) && a->led[i].term == term)
			return true;
	return false;
}

/* The BEGIN with that digest, when it is held. */
struct began { struct id by; uint32_t term; uint64_t life; };

static bool holds(const struct avg *a, const uint8_t *round, struct began *ret)
{
	struct body b;
	const struct round *r = a->round;
	if (r && !r->from_commit && !memcmp(r->id, round, DIGEST)) {
		*ret = (struct began){ r->b.leader, r->b.term, r->b.life };
		return true;
	}
	if (!a->begin_bytes.len)
		return false;
	uint8_t id[DIGEST];
	body_digest(a->begin_bytes.p, a->begin_bytes.len, id);
	if (memcmp(id, round, DIGEST) || body_read(&b, a->begin_bytes.p, a->begin_bytes.len, NULL))
		return false;
	*ret = (struct began){ b.leader, b.term, b.life };
	body_free(&b);
	return true;
}

int commit_lawful(const struct avg *a, const struct body *c, const void *bytes, size_t n, const struct body *on,
	struct err *e)
{
	struct voters v = { 0 };
	struct began b;
	if (PLANTED(COMMIT_FROM_ANYBODY) || id_eq(&c->leader, &a->me->id))
		return 0;
	if (on)
		voters_of(on, &v);
	else
		voters_here(a, &v);
	const struct mate *m = mate_find(a, &c->leader);
	bool known = on ? votes(&v, &c->leader) : (m && m->member) || led_by(a, &c->leader, c->term);
	bool ok = holds(a, c->round, &b) && ((id_eq(&b.by, &c->leader) && b.term == c->term && b.life == c->life) ||
		(!on && led_by(a, &c->leader, c->term)));
	ok = known && (ok || majority(a, c, bytes, n, &v));
	free(v.id);
	return ok ? 0 : err_set(e, ERR_AUTH, "a COMMIT of epoch %llu by one who does not lead it here, and no majority of "
		"the members has signed that it holds it", (unsigned long long)c->epoch);
}

/* ---- terms ---- */

static struct buf term_bytes(const struct avg *a, uint32_t term)
{
	struct buf b = signed_head("hivemind-term-1", &a->conf.run);
	buf_u64(&b, a->point.epoch);
	buf_put(&b, a->point.prev, DIGEST);
	buf_u32(&b, term);
	return b;
}

void term_take(struct avg *a)
{
	a->term++;
	a->claim.by = a->me->id;
	a->claim.term = a->term;
	struct buf b = term_bytes(a, a->term);
	signed_make(&b, a->net, a->claim.sig);
}

json_t *term_json(const struct avg *a, json_t *j)
{
	json_object_set_new(j, "term", json_integer(a->term));
	if (a->term && a->claim.term == a->term) {
		json_object_set_new(j, "by", json_hex(a->claim.by.b, 32));
		json_object_set_new(j, "sig", json_hex(a->claim.sig, SIG_BYTES));
	}
	return j;
}

/* Terms grow by one with everybody who takes over: four times as often as there are members, in a swarm that falls
 * apart and meets again, and a few in every second that nothing is committed. */
static uint64_t most(const struct avg *a)
{
	uint64_t members = 0;
	list_each(it, &a->mates)
		members += list_entry(it, struct mate, link)->member;
	uint64_t us = now_of(a) - a->point_us;
	return a->term + TERMS_A_MEMBER * members + TERMS_MORE + TERMS_A_SECOND * us / SECOND;
}

int term_read(const struct avg *a, const json_t *j, struct term_claim *ret, struct err *e)
{
	uint64_t term;
	*ret = (struct term_claim){ 0 };
	if (json_get_u64(j, "term", &term, e))
		return -1;
	if (PLANTED(TERMS_UNSIGNED)) {
		ret->term = (uint32_t)term;
		id_of_json(j, "by", &ret->by);
		return 0;
	}
	if (!term)
		return 0;
	if (term > UINT32_MAX - 1 || term > most(a))
		return err_set(e, ERR_INVALID, "term %llu: the members cannot have come to it, at most to %llu",
			(unsigned long long)term, (unsigned long long)most(a));
	ret->term = (uint32_t)term;
	if (!id_of_json(j, "by", &ret->by) || json_get_hex(j, "sig", ret->sig, SIG_BYTES, e))
		return err_set(e, ERR_AUTH, "term %llu: nobody has signed that it takes it", (unsigned long long)term);
	if (ret->term == a->claim.term && !memcmp(ret->sig, a->claim.sig, SIG_BYTES) && id_eq(&ret->by, &a->claim.by))
		return 0;
	const struct mate *m = mate_find(a, &ret->by);
	if (m && m->unfit == a->gen)
		return err_set(e, ERR_AUTH, "term %llu: who takes it has led this epoch, and not well",
			(unsigned long long)term);
	if (m && m->member) {
		struct buf b = term_bytes(a, ret->term);
		if (signed_by(&b, &ret->by, ret->sig))
			return 0;
	}
	return err_set(e, ERR_AUTH, "term %llu: it is signed by no member", (unsigned long long)term);
}

/* ---- BEGIN and ATTEMPT ---- */

/* Its sender leads in that term: it is whom this peer follows, it has taken a higher term, or nobody comes before it.
 * The BEGIN is its own, of that term or of one in which it led before, or passed on from a member that led in a lower
 * one. */
int begin_lawful(const struct avg *a, const struct mate *from, const struct body *b, const json_t *j,
	struct term_claim *ret, struct err *e)
{
	const struct mate *author = mate_find(a, &b->leader), *led = a->leader;
	if (term_read(a, j, ret, e))
		return -1;
	if (from->unfit == a->gen)
		return err_set(e, ERR_AUTH, "it has led this epoch, and not well");
	if (ret->term < a->term && !PLANTED(TERM_IGNORED))
		return err_set(e, ERR_STATE, "term %u is over, this is %u", ret->term, a->term);
	if (ret->term && !id_eq(&ret->by, &from->id))
		return err_set(e, ERR_AUTH, "a BEGIN in term %u by one who has not taken it", ret->term);
	if (ret->term > a->term && recover_seizes(a, from))
		return err_set(e, ERR_AUTH, "it takes the lead from one that lives, for the %u. time", from->seized + 1);
	if (ret->term == a->term && led && led != from && !roster_rather(a, from, led))
		return err_set(e, ERR_STATE, "another leads this epoch here");
	bool known = (author && author->member) || led_by(a, &b->leader, b->term);      /* it may have left since */
	if (author == from ? b->term > ret->term : b->term >= ret->term || !known)
		return err_set(e, ERR_AUTH, "a BEGIN of term %u in term %u, by another than leads", b->term, ret->term);
	return 0;
}

/* It names fewer than half of the last epoch's members, and half of them were heard a moment ago: whoever began it has
 * lost sight of the others, or wants to. In its round this peer would wait for nobody, and decide without them. */
int begin_leaves_out(const struct avg *a, const struct body *b, struct err *e)
{
	size_t named = 0, here = 1;
	struct peer_info info;
	for (size_t i = 0; i < b->n; i++) {
		const struct mate *m = mate_find(a, &b->m[i].id);
		named += m && m->member && !(b->m[i].flags & MATE_FOLLOWER);
	}
	if (named * 2 >= a->n_last || PLANTED(LEFT_OUT_FOLLOWED))
		return 0;
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		here += m != a->me && m->member && m->live && !(m->flags & MATE_FOLLOWER) && net_peer(a->net, &m->id, &info) &&
			info.last_seen_us + HEARD_US >= now_of(a);
	}
	if (here * 2 < a->n_last)
		return 0;
	return err_set(e, ERR_AUTH, "a BEGIN with %zu of the last %u members, of whom %zu are here", named, a->n_last,
		here);
}

/* Of whom this peer follows in its term, or of whoever began the round and has not been succeeded. */
bool attempt_lawful(const struct avg *a, const struct round *r, const struct attempt *at, const struct id *from)
{
	const struct mate *m = mate_find(a, from);
	if (m && m->unfit == a->gen)
		return false;
	bool leads = a->leader && id_eq(&a->leader->id, from) && at->term == a->term;
	bool began = id_eq(&r->b.leader, from) && at->term == r->b.term && at->term >= a->term;
	return leads || began || PLANTED(TERMS_UNSIGNED) || PLANTED(TERM_IGNORED);
}
