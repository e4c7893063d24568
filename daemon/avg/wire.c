/* The pieces that bodies are made of: ranges, JSON, members, READY, ATTEMPT. Everything read is remote: every count is
 * checked before anything is allocated for it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg/wire.h"
#include "common/jrpc.h"
#include "common/mem.h"

void wire_put_ranges(struct buf *b, const struct ranges *r)
{
	buf_u32(b, (uint32_t)r->n);
	for (size_t i = 0; i < r->n; i++) {
		buf_u64(b, r->v[i].lo);
		buf_u64(b, r->v[i].hi);
	}
}

int wire_get_ranges(struct rd *r, struct ranges *ret, struct err *e)
{
	uint32_t n = rd_u32(r);
	ranges_clear(ret);
	if (n > RANGES_MAX || rd_left(r) < (size_t)n * 16)
		return err_set(e, ERR_PROTOCOL, "ranges: %u intervals do not fit (at most %d)", n, RANGES_MAX);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t lo = rd_u64(r), hi = rd_u64(r);
		if (lo >= hi || hi > RANGES_END || (ret->n && lo <= ret->v[ret->n - 1].hi))
			return err_set(e, ERR_PROTOCOL, "ranges: interval %u is empty or out of order", i);
		ranges_add(ret, lo, hi);
	}
	return 0;
}

void wire_put_json(struct buf *b, const json_t *j)
{
	size_t n = 2;
	char *text = j ? json_line(j, &n) : NULL;
	buf_u32(b, (uint32_t)n);
	buf_put(b, text ? text : "{}", n);
	free(text);
}

int wire_get_json(struct rd *r, json_t **ret, struct err *e)
{
	uint32_t n = rd_u32(r);
	if (n > NET_JSON_MAX || rd_left(r) < n)
		return err_set(e, ERR_PROTOCOL, "JSON of %u bytes does not fit", n);
	const uint8_t *p = rd_bytes(r, n);
	json_t *j = p ? json_read((const char *)p, n, JSON_BULK, e) : NULL;
	if (!j)
		return p ? -1 : err_set(e, ERR_PROTOCOL, "JSON: cut short");
	if (!json_is_object(j)) {
		json_decref(j);
		return err_set(e, ERR_PROTOCOL, "JSON: expected an object");
	}
	*ret = j;
	return 0;
}

static int get_id(struct rd *r, struct id *ret)
{
	const uint8_t *p = rd_bytes(r, 32);
	if (p)
		memcpy(ret->b, p, 32);
	return p ? 0 : -1;
}

/* A rate that is not a number would poison every sum. */
static double get_rate(struct rd *r)
{
	double v = rd_f64(r);
	return isfinite(v) && v > 0 ? v : 0;
}

void wire_put_member(struct buf *b, const struct wire_member *m)
{
	buf_put(b, m->id.b, 32);
	buf_put(b, m->at.ip, 16);
	for (int i = 0; i < 3; i++)
		buf_u16(b, m->at.port[i]);
	buf_u8(b, m->flags);
	buf_u64(b, m->samples);
	buf_f64(b, m->rate);
	buf_u64(b, m->bandwidth);
	buf_u32(b, m->micro);
	wire_put_ranges(b, &m->claimed);
	wire_put_ranges(b, &m->grant);
}

int wire_get_member(struct rd *r, struct wire_member *ret, struct err *e)
{
	const uint8_t *ip;
	if (get_id(r, &ret->id) || !(ip = rd_bytes(r, 16)))
		return err_set(e, ERR_PROTOCOL, "member: cut short");
	memcpy(ret->at.ip, ip, 16);
	for (int i = 0; i < 3; i++)
		ret->at.port[i] = rd_u16(r);
	ret->flags = rd_u8(r);
	ret->samples = rd_u64(r);
	ret->rate = get_rate(r);
	ret->bandwidth = rd_u64(r);
	ret->micro = rd_u32(r);
	if (wire_get_ranges(r, &ret->claimed, e) || wire_get_ranges(r, &ret->grant, e))
		return -1;
	return r->bad ? err_set(e, ERR_PROTOCOL, "member: cut short") : 0;
}

/* ---- READY ---- */

void ready_encode(const struct ready *r, struct buf *ret)
{
	buf_u64(ret, r->samples);
	buf_f64(ret, r->rate);
	buf_u64(ret, r->bandwidth);
	wire_put_ranges(ret, &r->claimed);
}

int ready_decode(struct ready *ret, const void *p, size_t n, struct err *e)
{
	struct rd r = rd_of(p, n);
	*ret = (struct ready){ 0 };
	ret->samples = rd_u64(&r);
	ret->rate = get_rate(&r);
	ret->bandwidth = rd_u64(&r);
	if (wire_get_ranges(&r, &ret->claimed, e) || r.bad || rd_left(&r)) {
		ranges_free(&ret->claimed);
		return err_set(e, ERR_PROTOCOL, "READY: malformed");
	}
	return 0;
}

/* ---- ATTEMPT ---- */

void attempt_free(struct attempt *a)
{
	free(a->samples);
	free(a->owner);
	free(a->sub);
	free(a->stand);
	*a = (struct attempt){ 0 };
}

void attempt_encode(const struct attempt *a, struct buf *ret)
{
	buf_put(ret, a->round, DIGEST);
	buf_u32(ret, a->term);
	buf_u32(ret, a->no);
	buf_u8(ret, a->give_up);
	buf_str(ret, a->why);
	buf_u64(ret, a->data_us);
	buf_u32(ret, (uint32_t)a->n);
	for (size_t i = 0; i < a->n; i++)
		buf_u64(ret, a->samples[i]);
	buf_u32(ret, (uint32_t)a->parts);
	for (size_t i = 0; i < a->parts; i++)
		buf_u16(ret, a->owner[i]);
	if (a->stand) {
		buf_u16(ret, 0);
		buf_put(ret, a->stand, a->n);
	}
	if (!a->sub)
		return;
	buf_u16(ret, (uint16_t)a->rows);
	for (size_t i = 0; i < a->parts * a->rows; i++)
		buf_u16(ret, a->sub[i]);
}

/* Held against the round's grid by whoever is in it (grid_check). */
static int attempt_stand(struct rd *r, struct attempt *a)
{
	const uint8_t *p = a->n && rd_left(r) == a->n ? rd_bytes(r, a->n) : NULL;
	a->rows = 1;
	a->stand = p ? xmemdup(p, a->n) : NULL;
	return p ? 0 : -1;
}

/* Held against the round's rows by whoever is in it (tree_check). */
static int attempt_rows(struct rd *r, struct attempt *a)
{
	a->rows = 1;
	if (!rd_left(r))
		return 0;
	a->rows = rd_u16(r);
	if (!a->rows)
		return attempt_stand(r, a);
	if (a->rows < 2 || a->rows > TREE_ROWS_MAX || a->parts * a->rows > WIRE_SUBS_MAX ||
			rd_left(r) != a->parts * a->rows * 2)
		return -1;
	a->sub = xcalloc(a->parts * a->rows + 1, sizeof *a->sub);
	for (size_t i = 0; i < a->parts * a->rows; i++) {
		a->sub[i] = rd_u16(r);
		if (a->sub[i] >= a->n)
			return -1;
	}
	return 0;
}

static int attempt_lists(struct rd *r, struct attempt *a)
{
	uint64_t sum = 0;
	a->n = rd_u32(r);
	if (a->n > WIRE_MEMBERS_MAX || rd_left(r) < a->n * 8)
		return -1;
	a->samples = xcalloc(a->n + 1, sizeof *a->samples);
	for (size_t i = 0; i < a->n; i++) {
		a->samples[i] = rd_u64(r);
		if (a->samples[i] >> 48)
			return -1;
		sum += a->samples[i];
	}
	a->parts = rd_u32(r);
	if (a->parts > WIRE_MEMBERS_MAX || rd_left(r) < a->parts * 2)
		return -1;
	a->owner = xcalloc(a->parts + 1, sizeof *a->owner);
	for (size_t i = 0; i < a->parts; i++) {
		a->owner[i] = rd_u16(r);
		if (a->owner[i] >= a->n)
			return -1;
	}
	return (a->give_up || sum) && !attempt_rows(r, a) ? 0 : -1;
}

int attempt_decode(struct attempt *ret, const void *p, size_t n, struct err *e)
{
	struct rd r = rd_of(p, n);
	*ret = (struct attempt){ 0 };
	const uint8_t *round = rd_bytes(&r, DIGEST);
	if (round)
		memcpy(ret->round, round, DIGEST);
	ret->term = rd_u32(&r);
	ret->no = rd_u32(&r);
	ret->give_up = rd_u8(&r);
	rd_str(&r, ret->why, sizeof ret->why);
	ret->data_us = rd_u64(&r);
	if (r.bad || ret->data_us > WIRE_DEADLINE_US || attempt_lists(&r, ret) || r.bad) {
		attempt_free(ret);
		return err_set(e, ERR_PROTOCOL, "ATTEMPT: malformed");
	}
	return 0;
}
