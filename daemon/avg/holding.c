/* Extents of members: whether they are those of whole units, and how the parts of a body lie in them. Bodies come from
 * anybody, so all of this is linear, or a sort. */
#include "avg/holding.h"
#include <stdlib.h>
#include "common/mem.h"

struct place { const struct holding *h; size_t member; };

static int by_place(const void *x, const void *y)
{
	const struct holding *a = ((const struct place *)x)->h, *b = ((const struct place *)y)->h;
	if (a->unit != b->unit)
		return a->unit < b->unit ? -1 : 1;
	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	return ((const struct place *)x)->member < ((const struct place *)y)->member ? -1 : 1;
}

static int one_check(const struct holding *h, size_t i, size_t units, uint64_t len, struct err *e)
{
	if (h->unit == NO_UNIT ? h->lo || h->hi : h->unit >= units)
		return err_set(e, ERR_PROTOCOL, "member %zu is in unit %u of %zu", i, h->unit, units);
	bool within = h->unit == NO_UNIT || (h->keep_lo <= h->lo && h->keep_hi >= h->hi);
	if (!within || h->keep_lo > h->keep_hi || h->keep_hi > len)
		return err_set(e, ERR_PROTOCOL, "member %zu keeps %llu to %llu", i, (unsigned long long)h->keep_lo,
			(unsigned long long)h->keep_hi);
	return 0;
}

/* p: of the members of units, by unit and first element. */
static int ends_meet(const struct place *p, size_t n, size_t units, uint64_t len, struct err *e)
{
	size_t k = 0;
	for (size_t u = 0; u < units; u++) {
		uint64_t at = 0;
		for (; k < n && p[k].h->unit == u && p[k].h->lo == at && p[k].h->hi > at; k++)
			at = p[k].h->hi;
		if (at != len || (k < n && p[k].h->unit == u))
			return err_set(e, ERR_PROTOCOL, "unit %zu: nobody, or more than one, goes on at %llu of %llu", u,
				(unsigned long long)at, (unsigned long long)len);
	}
	return 0;
}

int holdings_check(const struct holding *h, size_t n, size_t units, uint64_t len, struct err *e)
{
	struct place *p = xcalloc(n + 1, sizeof *p);
	size_t in = 0;
	int rc = 0;
	for (size_t i = 0; i < n && !rc; i++) {
		rc = one_check(&h[i], i, units, len, e);
		if (h[i].unit != NO_UNIT)
			p[in++] = (struct place){ &h[i], i };
	}
	qsort(p, in, sizeof *p, by_place);
	if (!rc)
		rc = ends_meet(p, in, units, len, e);
	free(p);
	return rc;
}

/* ---- parts ---- */

static bool inside(const struct wire_part *p, uint64_t lo, uint64_t hi)
{
	return p->off >= lo && p->off + p->len <= hi;
}

bool body_holds(const struct body *b, size_t part, size_t i)
{
	return !b->held || inside(&b->part[part], b->held[i].keep_lo, b->held[i].keep_hi);
}

bool body_brings(const struct body *b, size_t part, size_t i)
{
	return !b->held || (b->held[i].unit != NO_UNIT && inside(&b->part[part], b->held[i].lo, b->held[i].hi));
}

/* Parts are in order and without holes: does one begin there, or the last end? */
static bool cut_at(const struct body *b, uint64_t at)
{
	size_t lo = 0, hi = b->parts;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (b->part[mid].off < at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return at == b->len || (lo < b->parts && b->part[lo].off == at);
}

int body_holders_check(const struct body *b, struct err *e)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct holding *h = &b->held[i];
		if (!cut_at(b, h->lo) || !cut_at(b, h->hi) || !cut_at(b, h->keep_lo) || !cut_at(b, h->keep_hi))
			return err_set(e, ERR_PROTOCOL, "a part crosses an end of what member %zu holds", i);
	}
	for (size_t p = 0; p < b->parts; p++)
		if (!body_holds(b, p, b->part[p].owner))
			return err_set(e, ERR_PROTOCOL, "part %zu: its owner %u does not hold it", p, b->part[p].owner);
	return 0;
}

/* ---- heads ---- */

size_t body_head(const struct body *b, size_t i)
{
	if (!b->held)
		return i;
	for (size_t k = 0; k < b->n && b->held[i].unit != NO_UNIT; k++)
		if (b->held[k].unit == b->held[i].unit && !b->held[k].lo)
			return k;
	return b->n;
}

void body_weights(const struct body *b, size_t n, const uint64_t *samples, uint64_t *ret_w)
{
	uint64_t *of = xcalloc(b->units + 1, sizeof *of);       /* by unit */
	for (size_t i = 0; b->held && i < n; i++)
		if (b->held[i].unit != NO_UNIT && !b->held[i].lo)
			of[b->held[i].unit] = samples[i];
	for (size_t i = 0; i < n; i++)
		ret_w[i] = !b->held ? samples[i] : b->held[i].unit != NO_UNIT ? of[b->held[i].unit] : 0;
	free(of);
}
