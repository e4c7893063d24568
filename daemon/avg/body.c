/* BEGIN and COMMIT as canonical bytes. The SHA-256 of a COMMIT's bytes is the digest of its epoch, so there is one
 * encoding and nothing optional; decoding checks that parts cover the vector and that every index names a member. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "avg/wire.h"
#include "common/mem.h"

#define BODY_VERSION 1

void body_free(struct body *b)
{
	for (size_t i = 0; b->m && i < b->n; i++) {
		ranges_free(&b->m[i].claimed);
		ranges_free(&b->m[i].grant);
	}
	for (size_t i = 0; b->prop && i < b->props; i++)
		json_decref(b->prop[i].patch);
	free(b->m);
	free(b->part);
	free(b->prop);
	json_decref(b->params);
	*b = (struct body){ 0 };
}

static void put_proposal(struct buf *b, const struct wire_proposal *p)
{
	buf_put(b, p->author.b, 32);
	buf_u64(b, p->nonce);
	buf_u64(b, p->epoch);
	buf_u64(b, p->counter);
	buf_put(b, p->sig, SIG_BYTES);
	wire_put_json(b, p->patch);
}

void body_encode(const struct body *b, struct buf *ret)
{
	buf_u8(ret, BODY_VERSION);
	buf_u8(ret, b->what);
	buf_put(ret, b->run.b, 32);
	buf_put(ret, b->leader.b, 32);
	buf_u64(ret, b->epoch);
	buf_put(ret, b->prev, DIGEST);
	buf_u32(ret, b->term);
	buf_u32(ret, b->attempt);
	buf_u8(ret, b->minority);
	buf_put(ret, b->round, DIGEST);
	buf_u64(ret, b->len);
	buf_u64(ret, b->weight);
	buf_u64(ret, b->params_version);
	wire_put_json(ret, b->params);
	buf_u64(ret, b->ready_us);
	buf_u64(ret, b->data_us);
	assert(b->n <= WIRE_MEMBERS_MAX && b->parts <= WIRE_MEMBERS_MAX);
	buf_u32(ret, (uint32_t)b->n);
	for (size_t i = 0; i < b->n; i++)
		wire_put_member(ret, &b->m[i]);
	buf_u32(ret, (uint32_t)b->parts);
	for (size_t i = 0; i < b->parts; i++) {
		buf_u16(ret, b->part[i].owner);
		buf_u64(ret, b->part[i].off);
		buf_u64(ret, b->part[i].len);
		buf_put(ret, b->part[i].hash, 16);
	}
	buf_u32(ret, (uint32_t)b->props);
	for (size_t i = 0; i < b->props; i++)
		put_proposal(ret, &b->prop[i]);
}

static bool get_bytes(struct rd *r, void *out, size_t n)
{
	const uint8_t *p = rd_bytes(r, n);
	if (p)
		memcpy(out, p, n);
	return p != NULL;
}

static int get_head(struct rd *r, struct body *b, struct err *e)
{
	uint8_t version = rd_u8(r);
	b->what = rd_u8(r);
	if (version != BODY_VERSION || (b->what != BODY_BEGIN && b->what != BODY_COMMIT))
		return err_set(e, ERR_PROTOCOL, "body of version %u, kind %u; expected version %d", version, b->what,
		BODY_VERSION);
	get_bytes(r, b->run.b, 32);
	get_bytes(r, b->leader.b, 32);
	b->epoch = rd_u64(r);
	get_bytes(r, b->prev, DIGEST);
	b->term = rd_u32(r);
	b->attempt = rd_u32(r);
	b->minority = rd_u8(r) != 0;
	get_bytes(r, b->round, DIGEST);
	b->len = rd_u64(r);
	b->weight = rd_u64(r);
	b->params_version = rd_u64(r);
	if (r->bad)
		return err_set(e, ERR_PROTOCOL, "body: cut short");
	if (wire_get_json(r, &b->params, e))
		return -1;
	b->ready_us = rd_u64(r);
	b->data_us = rd_u64(r);
	return 0;
}

static int get_members(struct rd *r, struct body *b, struct err *e)
{
	uint32_t n = rd_u32(r);
	if (n > WIRE_MEMBERS_MAX || rd_left(r) < (size_t)n * 64 || !n)
		return err_set(e, ERR_PROTOCOL, "body: %u members do not fit", n);
	b->m = xcalloc(n, sizeof *b->m);
	uint64_t in = 0;
	while (b->n < n) {
		struct wire_member *m = &b->m[b->n++];
		if (wire_get_member(r, m, e))
			return -1;
		if (b->what == BODY_COMMIT && (m->flags & MATE_IN))
			in += m->samples;
		if (m->samples >> 48)
			return err_set(e, ERR_PROTOCOL, "body: member %zu: %llu samples cannot be", b->n - 1,
			(unsigned long long)m->samples);
	}
	if (b->what == BODY_COMMIT && in != b->weight)
		return err_set(e, ERR_PROTOCOL, "COMMIT: weight %llu, but its members contributed %llu",
			(unsigned long long)b->weight, (unsigned long long)in);
	return 0;
}

static int get_parts(struct rd *r, struct body *b, struct err *e)
{
	uint32_t n = rd_u32(r);
	uint64_t at = 0;
	if (n > WIRE_MEMBERS_MAX || rd_left(r) < (size_t)n * 34)
		return err_set(e, ERR_PROTOCOL, "body: %u parts do not fit", n);
	b->part = xcalloc(n + 1, sizeof *b->part);
	for (; b->parts < n; b->parts++) {
		struct wire_part *p = &b->part[b->parts];
		p->owner = rd_u16(r);
		p->off = rd_u64(r);
		p->len = rd_u64(r);
		get_bytes(r, p->hash, 16);
		if (p->owner >= b->n || p->off != at || !p->len || p->len > b->len - at)
			return err_set(e, ERR_PROTOCOL, "body: part %zu does not continue the one before or has no owner",
			b->parts);
		at += p->len;
	}
	return at == b->len ? 0 : err_set(e, ERR_PROTOCOL, "body: the parts end at %llu of %llu", (unsigned long long)at,
		(unsigned long long)b->len);
}

static int get_proposals(struct rd *r, struct body *b, struct err *e)
{
	uint32_t n = rd_u32(r);
	if (n > WIRE_PROPOSALS_MAX)
		return err_set(e, ERR_PROTOCOL, "body: %u proposals, at most %d are allowed", n, WIRE_PROPOSALS_MAX);
	b->prop = xcalloc(n + 1, sizeof *b->prop);
	for (; b->props < n; b->props++) {
		struct wire_proposal *p = &b->prop[b->props];
		get_bytes(r, p->author.b, 32);
		p->nonce = rd_u64(r);
		p->epoch = rd_u64(r);
		p->counter = rd_u64(r);
		get_bytes(r, p->sig, SIG_BYTES);
		if (wire_get_json(r, &p->patch, e))
			return -1;
	}
	return 0;
}

int body_decode(struct body *ret, const void *p, size_t n, struct err *e)
{
	struct rd r = rd_of(p, n);
	*ret = (struct body){ 0 };
	if (get_head(&r, ret, e) || get_members(&r, ret, e) || get_parts(&r, ret, e) || get_proposals(&r, ret, e)) {
		body_free(ret);
		return -1;
	}
	if (r.bad || rd_left(&r)) {
		body_free(ret);
		return err_set(e, ERR_PROTOCOL, "body: cut short or followed by %zu bytes", rd_left(&r));
	}
	return 0;
}
