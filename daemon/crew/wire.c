/* Offers, cards and gos as bytes. Remote bytes never reach an assert, and no memory is taken for what is not there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg/signed.h"
#include "common/hash.h"
#include "common/mem.h"
#include "crew/wire.h"

#define VERSION 2
#define MEMBER_BYTES (32 + 8 + 8 + 8)
#define HEAD_BYTES (1 + 32 + 32 + 8 + 8 + 8 + 4 + 8 + 8 + 2 + 2)
#define CARD_HEAD (8 + 8 + 8 + 2)
#define CARD_LINK (32 + 2)

/* ---- figures ---- */

uint64_t scale_value(uint8_t code)
{
	static const uint64_t step[] = { 1024, 1218, 1448, 1722 };
	unsigned k = code ? code - 1u : 0, e = k / 4;
	if (!code || code > SCALE_CODES)
		return 0;
	return e >= 10 ? step[k % 4] << (e - 10) : step[k % 4] >> (10 - e);
}

uint8_t scale_code(uint64_t v)
{
	uint8_t code = 0;
	while (code < SCALE_CODES && scale_value((uint8_t)(code + 1)) <= v)
		code++;
	return code;
}

/* ---- offers ---- */

static int speed_class(double speed)
{
	int e;
	(void)frexp(speed, &e);
	return e;
}

static int memory_class(uint64_t bytes)
{
	return bytes ? 64 - __builtin_clzll(bytes) : 65;
}

bool crew_before(const struct crew_member *a, const struct crew_member *b)
{
	int sa = speed_class(a->speed), sb = speed_class(b->speed);
	int ma = memory_class(a->memory_bytes), mb = memory_class(b->memory_bytes);
	if (sa != sb)
		return sa > sb;
	return ma != mb ? ma > mb : id_cmp(&a->id, &b->id) < 0;
}

uint64_t crew_number(uint64_t count, const struct id *run, const struct id *leader, uint64_t life)
{
	struct buf b = signed_head("hivemind-crew-number-1", run);
	uint8_t d[CREW_DIGEST];
	buf_put(&b, leader->b, 32);
	buf_u64(&b, life);
	buf_u64(&b, count);
	sha256_of(b.p, b.len, d);
	buf_free(&b);
	uint64_t tag = (uint64_t)d[0] | (uint64_t)d[1] << 8 | (uint64_t)d[2] << 16;
	return count << CREW_TAG_BITS | (tag & ((1u << CREW_TAG_BITS) - 1));
}

void offer_free(struct offer *o)
{
	free(o->m);
	free(o->link);
	*o = (struct offer){ 0 };
}

void offer_copy(struct offer *to, const struct offer *from)
{
	*to = *from;
	to->m = xmemdup(from->m, from->n * sizeof *from->m);
	to->link = xmemdup(from->link, (size_t)from->n * from->n * sizeof *from->link);
}

void offer_some(struct offer *ret, const struct offer *from, const bool *in)
{
	uint32_t n = 0, *of = xcalloc(from->n + 1, sizeof *of);
	for (uint32_t i = 0; i < from->n; i++)
		if (in[i])
			of[n++] = i;
	*ret = *from;
	ret->n = n;
	ret->m = xcalloc(n + 1, sizeof *ret->m);
	ret->link = xcalloc((size_t)n * n + 1, sizeof *ret->link);
	for (uint32_t i = 0; i < n; i++) {
		ret->m[i] = from->m[of[i]];
		for (uint32_t k = 0; k < n; k++)
			ret->link[i * n + k] = from->link[of[i] * from->n + of[k]];
	}
	free(of);
}

int offer_find(const struct offer *o, const struct id *id)
{
	for (uint32_t i = 0; i < o->n; i++)
		if (id_eq(&o->m[i].id, id))
			return (int)i;
	return -1;
}

void offer_encode(const struct offer *o, struct buf *ret)
{
	buf_u8(ret, VERSION);
	buf_put(ret, o->run.b, 32);
	buf_put(ret, o->leader.b, 32);
	buf_u64(ret, o->life);
	buf_u64(ret, o->generation);
	buf_u64(ret, o->epoch);
	buf_u32(ret, o->term);
	buf_u64(ret, o->target);
	buf_u64(ret, o->base);
	buf_u16(ret, (uint16_t)o->redundancy);
	buf_u16(ret, (uint16_t)o->n);
	for (uint32_t i = 0; i < o->n; i++) {
		buf_put(ret, o->m[i].id.b, 32);
		buf_u64(ret, o->m[i].life);
		buf_f64(ret, o->m[i].speed);
		buf_u64(ret, o->m[i].memory_bytes);
	}
	for (size_t i = 0; i < (size_t)o->n * o->n; i++) {
		buf_u8(ret, o->link[i].rate);
		buf_u8(ret, o->link[i].delay);
	}
}

static int get_id(struct rd *r, struct id *ret)
{
	const uint8_t *p = rd_bytes(r, 32);
	if (p)
		memcpy(ret->b, p, 32);
	return p ? 0 : -1;
}

static bool speed_right(double speed)
{
	return isfinite(speed) && speed <= CREW_SPEED_MAX && speed >= 1 / CREW_SPEED_MAX;
}

static int get_members(struct rd *r, struct offer *ret, struct err *e)
{
	ret->m = xcalloc(ret->n, sizeof *ret->m);
	for (uint32_t i = 0; i < ret->n; i++) {
		struct crew_member *m = &ret->m[i];
		(void)get_id(r, &m->id);
		m->life = rd_u64(r);
		m->speed = rd_f64(r);
		m->memory_bytes = rd_u64(r);
		if (!speed_right(m->speed))
			return err_set(e, ERR_INVALID, "member %u of the generation has no speed", i);
		if (i && !crew_before(m - 1, m))
			return err_set(e, ERR_INVALID, "member %u of the generation is not in its place", i);
		for (uint32_t k = 0; k < i; k++)
			if (id_eq(&ret->m[k].id, &m->id))
				return err_set(e, ERR_INVALID, "members %u and %u of the generation are the same peer", k, i);
	}
	return 0;
}

static int get_links(struct rd *r, struct offer *ret, struct err *e)
{
	ret->link = xcalloc((size_t)ret->n * ret->n, sizeof *ret->link);
	for (uint32_t i = 0; i < ret->n; i++)
		for (uint32_t k = 0; k < ret->n; k++) {
			struct crew_link *x = &ret->link[i * ret->n + k];
			x->rate = rd_u8(r);
			x->delay = rd_u8(r);
			if (x->rate > SCALE_CODES || x->delay > SCALE_CODES || (i == k && (x->rate || x->delay)))
				return err_set(e, ERR_INVALID, "the link of member %u to member %u cannot be", i, k);
		}
	return 0;
}

static int get_offer(struct rd *r, struct offer *ret, struct err *e)
{
	if (rd_u8(r) != VERSION)
		return err_set(e, ERR_VERSION, "a generation of another version than %d", VERSION);
	(void)get_id(r, &ret->run);
	(void)get_id(r, &ret->leader);
	ret->life = rd_u64(r);
	ret->generation = rd_u64(r);
	ret->epoch = rd_u64(r);
	ret->term = rd_u32(r);
	ret->target = rd_u64(r);
	ret->base = rd_u64(r);
	ret->redundancy = rd_u16(r);
	ret->n = rd_u16(r);
	if (r->bad || ret->n < 1 || ret->n > CREW_MEMBERS_MAX)
		return err_set(e, ERR_INVALID, "a generation of %u members: 1 to %d can be", ret->n, CREW_MEMBERS_MAX);
	if (rd_left(r) != (size_t)ret->n * MEMBER_BYTES + 2 * (size_t)ret->n * ret->n)
		return err_set(e, ERR_INVALID, "a generation of %u members does not have %zu bytes", ret->n, r->len);
	if (ret->target > CREW_TARGET_MAX)
		return err_set(e, ERR_INVALID, "a target batch of %llu samples cannot be", (unsigned long long)ret->target);
	if (!CREW_COUNT(ret->generation) || ret->generation >> 63 || ret->base >= ret->generation)
		return err_set(e, ERR_INVALID, "a generation cannot have this number");
	if (ret->redundancy < 1 || ret->redundancy > CREW_REDUNDANCY_MAX)
		return err_set(e, ERR_INVALID, "redundancy %u: 1 to %d can be", ret->redundancy, CREW_REDUNDANCY_MAX);
	return get_members(r, ret, e) || get_links(r, ret, e) ? -1 : 0;
}

int offer_decode(struct offer *ret, const void *p, size_t n, struct err *e)
{
	struct rd r = rd_of(p, n);
	*ret = (struct offer){ 0 };
	if (n < HEAD_BYTES)
		return err_set(e, ERR_INVALID, "%zu bytes are no generation", n);
	if (!get_offer(&r, ret, e))
		return 0;
	offer_free(ret);
	return -1;
}

/* ---- cards ---- */

void card_free(struct card *c)
{
	free(c->v);
	*c = (struct card){ 0 };
}

void card_encode(const struct card *c, struct buf *ret)
{
	buf_u64(ret, c->life);
	buf_f64(ret, c->speed);
	buf_u64(ret, c->memory_bytes);
	buf_u16(ret, (uint16_t)c->n);
	for (uint32_t i = 0; i < c->n; i++) {
		buf_put(ret, c->v[i].to.b, 32);
		buf_u8(ret, c->v[i].link.rate);
		buf_u8(ret, c->v[i].link.delay);
	}
}

int card_decode(struct card *ret, const void *p, size_t n, struct err *e)
{
	struct rd r = rd_of(p, n);
	struct card c = { .life = rd_u64(&r) };
	c.speed = rd_f64(&r);
	c.memory_bytes = rd_u64(&r);
	c.n = rd_u16(&r);
	*ret = (struct card){ 0 };
	if (r.bad || c.n > CREW_MEMBERS_MAX || n != CARD_HEAD + (size_t)c.n * CARD_LINK)
		return err_set(e, ERR_INVALID, "%zu bytes are not what a peer says of itself", n);
	if (!speed_right(c.speed))
		return err_set(e, ERR_INVALID, "a peer without a speed");
	c.v = xcalloc(c.n + 1, sizeof *c.v);
	for (uint32_t i = 0; i < c.n; i++) {
		(void)get_id(&r, &c.v[i].to);
		c.v[i].link.rate = rd_u8(&r);
		c.v[i].link.delay = rd_u8(&r);
		if (c.v[i].link.rate <= SCALE_CODES && c.v[i].link.delay <= SCALE_CODES)
			continue;
		free(c.v);
		return err_set(e, ERR_INVALID, "link %u of a peer cannot be", i);
	}
	*ret = c;
	return 0;
}

/* ---- gos ---- */

void go_encode(const void *offer, size_t n, const uint8_t digest[CREW_DIGEST], const uint8_t *sig, uint32_t members,
	struct buf *ret)
{
	buf_u32(ret, (uint32_t)n);
	buf_put(ret, offer, n);
	buf_put(ret, digest, CREW_DIGEST);
	buf_put(ret, sig, (size_t)members * SIG_BYTES);
}

int go_decode(struct go *ret, const void *p, size_t n, struct err *e)
{
	struct rd r = rd_of(p, n);
	uint32_t len = rd_u32(&r);
	*ret = (struct go){ 0 };
	if (r.bad || len <= SIG_BYTES || len > rd_left(&r))
		return err_set(e, ERR_INVALID, "%zu bytes are no go", n);
	ret->offer_len = len;
	ret->offer = rd_bytes(&r, len);
	if (offer_decode(&ret->o, ret->offer, len - SIG_BYTES, e))
		return -1;
	ret->digest = rd_bytes(&r, CREW_DIGEST);
	ret->sig = rd_bytes(&r, (size_t)ret->o.n * SIG_BYTES);
	if (ret->digest && ret->sig && !rd_left(&r))
		return 0;
	err_set(e, ERR_INVALID, "a go of %u members does not have %zu bytes", ret->o.n, n);
	offer_free(&ret->o);
	return -1;
}
