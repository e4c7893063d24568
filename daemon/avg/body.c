/* BEGIN and COMMIT as canonical bytes. The SHA-256 of a COMMIT's bytes is the digest of its epoch, so there is one
 * encoding and nothing optional; decoding checks that parts cover the vector and that every index names a member. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "avg/holding.h"
#include "avg/topo.h"
#include "avg/wire.h"
#include "common/mem.h"

#define BODY_VERSION 4                          /* 1 to 3 had hashes of 16 bytes */
#define BODY_ROWS 5                             /* with rows behind it */
#define BODY_GRID 6                             /* with a grid behind it */
#define BODY_UNITS 7                            /* with what each member holds behind it */

/* Hashes that are not the first are a bit of the deadline for the data. In BEGIN, which goes to nobody who does not
 * know them, peers of before find a deadline that cannot be; a COMMIT has none, and they read it as it is. */
static uint64_t hashes_bit(const struct body *b, enum hashes by)
{
	return by <= HASHES_SHA256 ? 0 : 1ull << ((b->what == BODY_BEGIN ? 63 : 35) - (by - HASHES_BLAKE2SP));
}

/* Taken out of the deadline; both bits are no hashes. */
static int hashes_take(struct body *b, struct err *e)
{
	uint64_t second = hashes_bit(b, HASHES_BLAKE2SP), third = hashes_bit(b, HASHES_BLAKE3);
	uint64_t said = b->data_us & (second | third);
	b->data_us &= ~said;
	b->hashes = said == third ? HASHES_BLAKE3 : said == second ? HASHES_BLAKE2SP : HASHES_SHA256;
	return said == (second | third) ? err_set(e, ERR_PROTOCOL, "body: hashed in two ways") : 0;
}

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
	free(b->row);
	free(b->next);
	free(b->sub);
	free(b->line_hash);
	free(b->held);
	grid_free(&b->grid);
	json_decref(b->params);
	*b = (struct body){ 0 };
}

static void put_proposal(struct buf *b, const struct wire_proposal *p)
{
	buf_put(b, p->author.b, 32);
	buf_u64(b, p->nonce);
	buf_u64(b, p->asked);
	buf_u64(b, p->epoch);
	buf_u64(b, p->counter);
	buf_put(b, p->sig, SIG_BYTES);
	wire_put_json(b, p->patch);
}

static void put_u16s(struct buf *b, const uint16_t *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_u16(b, v[i]);
}

static void put_rows(struct buf *b, const struct body *o)
{
	buf_u16(b, (uint16_t)o->rows);
	put_u16s(b, o->row, o->n);
	for (size_t i = 0; i < o->n; i++)
		buf_u16(b, o->next ? o->next[i] : NO_ROW);
	put_u16s(b, o->sub, o->parts * o->rows);
}

static void put_grid(struct buf *b, const struct body *o)
{
	const struct grid *g = &o->grid;
	buf_u8(b, (uint8_t)g->dims);
	put_u16s(b, g->size, g->dims);
	buf_u16(b, (uint16_t)g->n);
	put_u16s(b, g->cell, g->n);
	buf_put(b, g->stand, g->n);
	buf_u32(b, (uint32_t)o->lines);
	buf_put(b, o->line_hash, o->lines * TREE256);
}

static void put_units(struct buf *b, const struct body *o)
{
	buf_u64(b, o->generation);
	buf_u16(b, (uint16_t)o->units);
	for (size_t i = 0; i < o->n; i++) {
		buf_u16(b, o->held[i].unit);
		buf_u64(b, o->held[i].lo);
		buf_u64(b, o->held[i].hi);
		buf_u64(b, o->held[i].keep_lo);
		buf_u64(b, o->held[i].keep_hi);
	}
}

void body_tree(const struct body *b, size_t n, struct tree *ret)
{
	*ret = (struct tree){ .n = n, .parts = b->parts, .rows = b->rows > 1 ? b->rows : 1,
		.owner = xcalloc(b->parts + 1, sizeof *ret->owner) };
	for (size_t p = 0; p < b->parts; p++)
		ret->owner[p] = b->part[p].owner;
	ret->hold = b->held ? xcalloc(b->parts * n + 1, 1) : NULL;
	for (size_t p = 0; ret->hold && p < b->parts; p++)
		for (size_t i = 0; i < n; i++)
			ret->hold[p * n + i] = (uint8_t)((body_holds(b, p, i) ? HOLDS : 0) | (body_brings(b, p, i) ? BRINGS : 0));
	if (ret->rows == 1)
		return;
	ret->row = xmemdup(b->row, n * sizeof *b->row);
	ret->sub = xmemdup(b->sub, b->parts * b->rows * sizeof *b->sub);
}

void body_encode(const struct body *b, struct buf *ret)
{
	buf_u8(ret, b->held ? BODY_UNITS : b->grid.dims ? BODY_GRID : b->rows > 1 ? BODY_ROWS : BODY_VERSION);
	buf_u8(ret, b->what);
	buf_put(ret, b->run.b, 32);
	buf_put(ret, b->leader.b, 32);
	buf_u64(ret, b->epoch);
	buf_put(ret, b->prev, DIGEST);
	buf_u32(ret, b->term);
	buf_u32(ret, b->attempt);
	buf_u8(ret, b->minority);
	buf_u64(ret, b->life);
	buf_put(ret, b->round, DIGEST);
	buf_u64(ret, b->len);
	buf_u64(ret, b->weight);
	buf_u64(ret, b->params_version);
	wire_put_json(ret, b->params);
	buf_u64(ret, b->ready_us);
	buf_u64(ret, b->data_us | hashes_bit(b, b->hashes));
	assert(b->n <= WIRE_MEMBERS_MAX && b->parts <= WIRE_MEMBERS_MAX);
	buf_u32(ret, (uint32_t)b->n);
	for (size_t i = 0; i < b->n; i++)
		wire_put_member(ret, &b->m[i]);
	buf_u32(ret, (uint32_t)b->parts);
	for (size_t i = 0; i < b->parts; i++) {
		buf_u16(ret, b->part[i].owner);
		buf_u64(ret, b->part[i].off);
		buf_u64(ret, b->part[i].len);
		buf_put(ret, b->part[i].hash, TREE256);
	}
	buf_u32(ret, (uint32_t)b->props);
	for (size_t i = 0; i < b->props; i++)
		put_proposal(ret, &b->prop[i]);
	if (b->held)
		put_units(ret, b);
	else if (b->grid.dims)
		put_grid(ret, b);
	else if (b->rows > 1)
		put_rows(ret, b);
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
	b->rows = version == BODY_ROWS ? 2 : 1;
	b->grid.dims = version == BODY_GRID;
	b->units = version == BODY_UNITS;
	if (version < BODY_VERSION || version > BODY_UNITS || (b->what != BODY_BEGIN && b->what != BODY_COMMIT))
		return err_set(e, ERR_PROTOCOL, "body of version %u, kind %u; expected version %d or %d", version, b->what,
		BODY_VERSION, BODY_UNITS);
	get_bytes(r, b->run.b, 32);
	get_bytes(r, b->leader.b, 32);
	b->epoch = rd_u64(r);
	get_bytes(r, b->prev, DIGEST);
	b->term = rd_u32(r);
	b->attempt = rd_u32(r);
	b->minority = rd_u8(r) != 0;
	b->life = rd_u64(r);
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
	if (hashes_take(b, e))
		return -1;
	if (b->ready_us > WIRE_DEADLINE_US || b->data_us > WIRE_DEADLINE_US)
		return err_set(e, ERR_PROTOCOL, "body: a deadline of more than a day");
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
	if (n > WIRE_MEMBERS_MAX || rd_left(r) < (size_t)n * (18 + TREE256))
		return err_set(e, ERR_PROTOCOL, "body: %u parts do not fit", n);
	b->part = xcalloc(n + 1, sizeof *b->part);
	for (; b->parts < n; b->parts++) {
		struct wire_part *p = &b->part[b->parts];
		p->owner = rd_u16(r);
		p->off = rd_u64(r);
		p->len = rd_u64(r);
		get_bytes(r, p->hash, TREE256);
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
		p->asked = rd_u64(r);
		p->epoch = rd_u64(r);
		p->counter = rd_u64(r);
		get_bytes(r, p->sig, SIG_BYTES);
		if (wire_get_json(r, &p->patch, e))
			return -1;
	}
	return 0;
}

static uint16_t *get_u16s(struct rd *r, size_t n)
{
	uint16_t *v = xcalloc(n + 1, sizeof *v);
	for (size_t i = 0; i < n; i++)
		v[i] = rd_u16(r);
	return v;
}

static int get_rows(struct rd *r, struct body *b, struct err *e)
{
	struct tree t;
	if (b->rows < 2)
		return 0;
	b->rows = rd_u16(r);
	if (b->rows < 2 || b->rows > TREE_ROWS_MAX || b->parts * b->rows > WIRE_SUBS_MAX ||
			rd_left(r) < (2 * b->n + b->parts * b->rows) * 2)
		return err_set(e, ERR_PROTOCOL, "body: %zu parts in %zu rows do not fit", b->parts, b->rows);
	b->row = get_u16s(r, b->n);
	b->next = get_u16s(r, b->n);
	b->sub = get_u16s(r, b->parts * b->rows);
	body_tree(b, b->n, &t);
	int rc = tree_check(&t, e);
	tree_free(&t);
	return rc;
}

/* w: of a COMMIT, whose weights count. */
static int check_grid(const struct body *b, struct err *e)
{
	uint64_t *w = xcalloc(b->n + 1, sizeof *w);
	for (size_t i = 0; i < b->n; i++)
		w[i] = b->what == BODY_COMMIT && b->m[i].flags & MATE_IN ? b->m[i].samples : 0;
	int rc = grid_check(&b->grid, w, e);
	for (size_t i = b->grid.n; i < b->n && !rc; i++)
		if (w[i])
			rc = err_set(e, ERR_PROTOCOL, "body: member %zu counts, but has no place in the grid", i);
	free(w);
	if (!rc && b->lines != (b->what == BODY_COMMIT ? grid_lines(&b->grid, (unsigned)b->grid.dims - 1) : 0))
		rc = err_set(e, ERR_PROTOCOL, "body: hashes of %zu lines of the grid", b->lines);
	return rc;
}

static int get_grid(struct rd *r, struct body *b, struct err *e)
{
	struct grid *g = &b->grid;
	if (!g->dims)
		return 0;
	g->dims = rd_u8(r);
	for (size_t k = 0; k < g->dims && k < GRID_DIMS_MAX; k++)
		g->size[k] = rd_u16(r);
	g->n = g->dims > 0 && g->dims <= GRID_DIMS_MAX ? rd_u16(r) : 0;
	if (!g->n || g->n > b->n || rd_left(r) < g->n * 3)
		return err_set(e, ERR_PROTOCOL, "body: a grid of %zu dimensions and %zu members does not fit", g->dims, g->n);
	g->cell = get_u16s(r, g->n);
	g->stand = xcalloc(g->n + 1, sizeof *g->stand);
	get_bytes(r, g->stand, g->n);
	b->lines = rd_u32(r);
	if (b->lines > GRID_CELLS_MAX || rd_left(r) < b->lines * TREE256)
		return err_set(e, ERR_PROTOCOL, "body: hashes of %zu lines do not fit", b->lines);
	b->line_hash = xcalloc(b->lines * TREE256 + 1, 1);
	get_bytes(r, b->line_hash, b->lines * TREE256);
	return check_grid(b, e);
}

static int get_units(struct rd *r, struct body *b, struct err *e)
{
	if (!b->units)
		return 0;
	b->generation = rd_u64(r);
	b->units = rd_u16(r);
	if (!b->units || b->units > b->n || rd_left(r) < b->n * 34)
		return err_set(e, ERR_PROTOCOL, "body: %zu units do not fit", b->units);
	b->held = xcalloc(b->n, sizeof *b->held);
	for (size_t i = 0; i < b->n; i++) {
		struct holding *h = &b->held[i];
		h->unit = rd_u16(r);
		h->lo = rd_u64(r);
		h->hi = rd_u64(r);
		h->keep_lo = rd_u64(r);
		h->keep_hi = rd_u64(r);
		if (b->m[i].samples && (h->unit == NO_UNIT || h->lo))
			return err_set(e, ERR_PROTOCOL, "body: member %zu counts samples that its unit's head counts", i);
	}
	if (holdings_check(b->held, b->n, b->units, b->len, e) || body_holders_check(b, e))
		return err_wrap(e, "body");
	return 0;
}

int body_decode(struct body *ret, const void *p, size_t n, struct err *e)
{
	struct rd r = rd_of(p, n);
	*ret = (struct body){ 0 };
	if (get_head(&r, ret, e) || get_members(&r, ret, e) || get_parts(&r, ret, e) || get_proposals(&r, ret, e) ||
			get_rows(&r, ret, e) || get_grid(&r, ret, e) || get_units(&r, ret, e)) {
		body_free(ret);
		return -1;
	}
	if (r.bad || rd_left(&r)) {
		body_free(ret);
		return err_set(e, ERR_PROTOCOL, "body: cut short or followed by %zu bytes", rd_left(&r));
	}
	return 0;
}
