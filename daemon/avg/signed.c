/* What the averager signs, and reads back (signed.h): bodies, by their author, whoever passes them on; ACKs; and terms,
 * which a member takes in its own name, and which may be ahead of this peer's by what members can have come to since
 * the last commit. Who may say it all is in authority.c. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid_flow.h"
#include "avg/signed.h"
#include "common/hash.h"
#include "common/jrpc.h"

#define ACK_BYTES (2 + SIG_BYTES)               /* u16 member, signature */
#define ACKS_WRONG 8                            /* then no more are looked at; who leads does not verify them */
#define TERMS_A_MEMBER 4
#define TERMS_MORE 16
#define TERMS_A_SECOND 8

struct buf signed_head(const char *label, const struct id *run)
{
	struct buf b = { 0 };
	buf_put(&b, label, strlen(label) + 1);
	buf_put(&b, run->b, 32);
	return b;
}

void signed_make(struct buf *b, const struct net *n, uint8_t ret[SIG_BYTES])
{
	net_sign(n, b->p, b->len, ret);
	buf_free(b);
}

bool signed_by(struct buf *b, const struct id *who, const uint8_t sig[SIG_BYTES])
{
	bool ok = net_verify(who, b->p, b->len, sig);
	buf_free(b);
	return ok;
}

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

void acks_begin(struct acks *x, const struct avg *a, const struct body *c, const uint8_t *bytes, size_t n)
{
	uint64_t *samples = xcalloc(c->n + 1, sizeof *samples);
	*x = (struct acks){ .a = a, .c = c, .bytes = bytes, .n = n, .at = body_size(bytes, n) + SIG_BYTES,
		.w = xcalloc(c->n + 1, sizeof *x->w) };
	for (size_t i = 0; i < c->n; i++)
		samples[i] = c->m[i].flags & MATE_IN ? c->m[i].samples : 0;
	body_weights(c, c->n, samples, x->w);
	free(samples);
}

const struct id *acks_next(struct acks *x)
{
	const struct body *c = x->c;
	while (x->at + 2 < x->n && x->wrong <= ACKS_WRONG) {
		x->i = (size_t)(x->bytes[x->at] | x->bytes[x->at + 1] << 8);
		x->sig = x->bytes + x->at + 2;
		x->at += ACK_BYTES;
		if (x->i >= x->least && x->i < (c->grid.dims ? c->grid.n : c->n) && !id_eq(&c->m[x->i].id, &c->leader))
			return &c->m[x->i].id;
	}
	return NULL;
}

bool acks_signed(struct acks *x)
{
	const struct body *c = x->c;
	struct held h = { .round = c->round, .leader = &c->leader, .term = c->term, .attempt = c->attempt, .w = x->w,
		.n = c->n };
	x->least = x->i + 1;
	if (!x->hash || c->held) {
		free(x->hash);
		x->hash = hashes_of(c, x->i);
	}
	parts_digest(x->hash, c->parts, c->grid.dims ? c->line_hash + TREE256 * grid_last_line(&c->grid, x->i) : NULL,
		h.parts);
	struct buf b = ack_bytes(x->a, &h);
	bool good = signed_by(&b, &c->m[x->i].id, x->sig);
	x->wrong += !good;
	return good;
}

void acks_end(struct acks *x)
{
	free(x->w);
	free(x->hash);
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

/* By t->by, whether that is a member or not. */
static bool term_signed(const struct avg *a, const struct term_claim *t)
{
	struct buf b = term_bytes(a, t->term);
	return signed_by(&b, &t->by, t->sig);
}

bool term_of_stranger(const struct avg *a, const struct mate *m, const struct term_claim *t)
{
	if (m->member || PLANTED(STRANGER_FORGES))
		return false;
	return !t->term || (id_eq(&t->by, &m->id) && term_signed(a, t));
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
		return err_set(e, ERR_STATE, "term %llu: who takes it has led this epoch, and not well",
			(unsigned long long)term);
	if (m && m->member && term_signed(a, ret))
		return 0;
	return err_set(e, ERR_AUTH, "term %llu: it is signed by no member", (unsigned long long)term);
}
