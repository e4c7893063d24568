/* Who holds what in a round of units: from the owner's word into BEGIN, and which units are whole (units.h). */
#include <stdlib.h>
#include <string.h>
#include "avg/lead.h"
#include "avg/topo.h"
#include "avg/units.h"

/* ---- the owner's word ---- */

static int by_id(const void *x, const void *y)
{
	return id_cmp(&((const struct avg_holder *)x)->id, &((const struct avg_holder *)y)->id);
}

static const struct avg_holder *holder(const struct avg *a, const struct id *id)
{
	const struct avg_holder key = { .id = *id };
	return a->units ? bsearch(&key, a->units->v, a->units->n, sizeof key, by_id) : NULL;
}

/* Is h followed by another of its unit, or the end? */
static bool goes_on(const struct avg_holder *v, size_t n, const struct avg_holder *h, uint64_t len)
{
	bool next = h->hi == len;
	for (size_t k = 0; k < n && !next; k++)
		next = v[k].unit == h->unit && v[k].lo == h->hi;
	return next && h->lo < h->hi && h->hi <= len;
}

static int check(const struct avg *a, const struct avg_holder *v, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t sum = 0;
		size_t heads = 0;
		for (size_t k = 0; k < n; k++) {
			if (k != i && id_eq(&v[k].id, &v[i].id))
				return err_set(e, ERR_INVALID, "units: %.8s is there twice", id_short(&v[i].id, (char[9]){ 0 }));
			heads += v[k].unit == v[i].unit && !v[k].lo;
			sum += v[k].unit == v[i].unit ? v[k].hi - v[k].lo : 0;
		}
		if (v[i].keep_lo > v[i].lo || v[i].keep_hi < v[i].hi || v[i].keep_hi > a->conf.len)
			return err_set(e, ERR_INVALID, "units: %.8s keeps %llu to %llu of the %zu elements, which are not its own "
				"%llu to %llu and more", id_short(&v[i].id, (char[9]){ 0 }), (unsigned long long)v[i].keep_lo,
				(unsigned long long)v[i].keep_hi, a->conf.len, (unsigned long long)v[i].lo,
				(unsigned long long)v[i].hi);
		if (v[i].unit >= n || !goes_on(v, n, &v[i], a->conf.len) || heads != 1 || sum != a->conf.len)
			return err_set(e, ERR_INVALID, "units: unit %u does not hold the %zu elements once, end to end (%.8s has "
				"%llu to %llu)", v[i].unit, a->conf.len, id_short(&v[i].id, (char[9]){ 0 }),
				(unsigned long long)v[i].lo, (unsigned long long)v[i].hi);
	}
	return 0;
}

/* Whoever is a head from now on is expected to bring something. */
static void await_heads(struct avg *a)
{
	for (size_t k = 0; k < a->units->n; k++) {
		struct mate *m = a->units->v[k].lo ? NULL : mate_find(a, &a->units->v[k].id);
		if (m && m->member)
			m->awaited = true;
	}
}

/* A round of another generation comes to nothing, unless it is decided. */
static void over(struct avg *a)
{
	struct round *r = a->round;
	struct err e;
	if (!r || r->closed || r->commit || r->fail || (r->b.held && r->b.generation == a->units->generation))
		return;
	err_set(&e, ERR_STATE, "another generation of the plan");
	if (r->lead && r->lead->phase != LEAD_OVER)
		lead_give_up(r, e.text);
	else
		member_fail(r, &e);
}

int avg_units(struct avg *a, uint64_t generation, const struct avg_holder *v, size_t n, struct err *e)
{
	if (n > WIRE_MEMBERS_MAX)
		return err_set(e, ERR_LIMIT, "units: %zu members, at most %d", n, WIRE_MEMBERS_MAX);
	if (a->conf.robust != ROBUST_NONE || (a->conf.topology && a->conf.topology->apart))
		return err_set(e, ERR_INVALID, "units: their members hold parts of the vector, which a robust mean and a grid "
			"cannot do with: robust none and a topology of one row are needed");
	if (check(a, v, n, e))
		return -1;
	units_free(a);
	a->units = xcalloc(1, sizeof *a->units);
	*a->units = (struct units){ .generation = generation, .n = n, .v = xmalloc(n * sizeof *v + 1) };
	memcpy(a->units->v, v, n * sizeof *v);
	qsort(a->units->v, n, sizeof *v, by_id);
	units_roles(a);
	await_heads(a);
	over(a);
	kick(a);
	return 0;
}

void units_free(struct avg *a)
{
	if (a->units)
		free(a->units->v);
	free(a->units);
	a->units = NULL;
}

void units_roles(struct avg *a)
{
	if (!a->units)
		return;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		const struct avg_holder *h = holder(a, &m->id);
		m->flags = (uint8_t)(h && !h->lo ? m->flags & ~MATE_AUX : m->flags | MATE_AUX);
	}
}

/* ---- in BEGIN ---- */

/* Of unit u, who is in b. */
static size_t present(const struct avg *a, const struct body *b, uint16_t u, bool all)
{
	size_t n = 0;
	for (size_t i = 0; !all && i < b->n; i++) {
		const struct avg_holder *h = holder(a, &b->m[i].id);
		n += h && h->unit == u && !(b->m[i].flags & (MATE_FOLLOWER | MATE_HOLD));
	}
	for (size_t k = 0; all && k < a->units->n; k++)
		n += a->units->v[k].unit == u;
	return n;
}

bool units_put(const struct avg *a, struct body *b)
{
	uint16_t *number;
	if (!a->units)
		return true;
	number = xmalloc((a->units->n + 1) * sizeof *number);
	b->generation = a->units->generation;
	b->held = xcalloc(b->n, sizeof *b->held);
	for (uint16_t u = 0; u < a->units->n; u++) {
		size_t n = present(a, b, u, true);
		number[u] = n && present(a, b, u, false) == n ? (uint16_t)b->units++ : NO_UNIT;
	}
	for (size_t i = 0; i < b->n; i++) {
		const struct avg_holder *h = holder(a, &b->m[i].id);
		bool whole = h && number[h->unit] != NO_UNIT;
		b->held[i] = (struct holding){ .unit = NO_UNIT };
		if (whole)
			b->held[i] = (struct holding){ number[h->unit], h->lo, h->hi };
		if (h) {
			b->held[i].keep_lo = h->keep_lo;
			b->held[i].keep_hi = h->keep_hi;
		}
	}
	free(number);
	return b->units > 0;
}

int units_same(const struct avg *a, const struct body *b, struct err *e)
{
	if (!a->units && !b->held)
		return 0;
	if (!a->units || !b->held || b->generation != a->units->generation)
		return err_set(e, ERR_STATE, "a round of generation %llu of the plan; this peer is in %llu",
			(unsigned long long)b->generation, (unsigned long long)(a->units ? a->units->generation : 0));
	for (size_t i = 0; i < b->n; i++) {
		const struct avg_holder *h = holder(a, &b->m[i].id);
		const struct holding *w = &b->held[i];
		if ((w->unit != NO_UNIT && (!h || h->lo != w->lo || h->hi != w->hi)) || w->keep_lo != (h ? h->keep_lo : 0) ||
				w->keep_hi != (h ? h->keep_hi : 0))
			return err_set(e, ERR_INVALID, "the round has member %zu hold %llu to %llu and keep %llu to %llu, the plan "
				"does not", i, (unsigned long long)w->lo, (unsigned long long)w->hi, (unsigned long long)w->keep_lo,
				(unsigned long long)w->keep_hi);
		for (size_t k = 0; k < i && h; k++) {
			const struct avg_holder *o = holder(a, &b->m[k].id);
			if (o && b->held[i].unit != NO_UNIT && b->held[k].unit != NO_UNIT &&
					(o->unit == h->unit) != (b->held[k].unit == b->held[i].unit))
				return err_set(e, ERR_INVALID, "the round has members %zu and %zu in other units than the plan", k, i);
		}
	}
	return 0;
}

/* ---- who sums what ---- */

static int by_value(const void *x, const void *y)
{
	uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
	return a < b ? -1 : a > b;
}

/* Elements lo to hi - 1, which lie in no or in one extent of each member: over those that bring them. */
static int shape_piece(const struct body *b, const struct topo_view *v, uint64_t lo, uint64_t hi, struct topo_plan *ret)
{
	uint16_t *who = xcalloc(b->n, sizeof *who), *hint = xcalloc(b->n, sizeof *hint);
	double *bw = xcalloc(b->n, sizeof *bw);
	struct topo_plan t = { 0 };
	size_t n = 0;
	bool able = false;
	for (size_t i = 0; i < b->n; i++) {
		const struct holding *h = &b->held[i];
		if (h->unit == NO_UNIT || h->lo > lo || h->hi < hi)
			continue;
		who[n] = (uint16_t)i;
		bw[n++] = v->bw[i];
		able = able || v->bw[i] != 0;
	}
	for (size_t k = 0; k < n && !able; k++)
		bw[k] = -1;                     /* nobody else has them: it must, whatever it is */
	struct topo_view piece = { .n = n, .bw = bw, .len = hi - lo, .min = v->min, .group = n, .row = hint };
	int rc = topo_flat.plan(&piece, &t);
	ret->size = xrealloc(ret->size, (ret->cols + t.cols + 1) * sizeof *ret->size);
	ret->owner = xrealloc(ret->owner, (ret->cols + t.cols + 1) * sizeof *ret->owner);
	for (size_t c = 0; !rc && c < t.cols; c++) {
		ret->size[ret->cols] = t.size[c];
		ret->owner[ret->cols++] = who[t.owner[c]];
	}
	topo_plan_free(&t);
	free(who);
	free(hint);
	free(bw);
	return rc;
}

int units_shape(const struct avg *a, const struct body *b, const struct topo_view *v, struct topo_plan *ret)
{
	uint64_t *cut = xcalloc(4 * b->n + 2, sizeof *cut);
	size_t n = 0;
	int rc = 0;
	cut[n++] = 0;
	cut[n++] = b->len;
	for (size_t i = 0; i < b->n; i++) {
		cut[n++] = b->held[i].lo;
		cut[n++] = b->held[i].hi;
		cut[n++] = b->held[i].keep_lo;
		cut[n++] = b->held[i].keep_hi;
	}
	qsort(cut, n, sizeof *cut, by_value);
	*ret = (struct topo_plan){ .rows = 1 };
	for (size_t k = 0; k + 1 < n && !rc; k++)
		if (cut[k + 1] > cut[k])
			rc = shape_piece(b, v, cut[k], cut[k + 1], ret);
	free(cut);
	return rc;
}

/* ---- the leader's ---- */

bool unit_awaited(const struct round *r, size_t i, bool own)
{
	size_t head = body_head(&r->b, i);
	const struct mate *m = head < r->b.n ? mate_find(r->a, &r->b.m[head].id) : NULL;
	if (!r->b.held)
		return own;
	return m && m->awaited;
}

bool unit_ready(const struct round *r, size_t i)
{
	size_t head = body_head(&r->b, i);
	for (size_t k = 0; r->b.held && head < r->b.n && k < r->b.n; k++) {
		const struct lead_member *m = &r->lead->m[k];
		if (r->b.held[k].unit == r->b.held[i].unit && (!m->is_ready || m->gone || m->nonfinite ||
				m->ready.samples != r->lead->m[head].ready.samples) && !PLANTED(HALF_UNIT))
			return false;
	}
	return head < r->b.n;
}

void units_settle(struct round *r)
{
	struct lead *l = r->lead;
	for (size_t i = 0; r->b.held && i < r->b.n; i++)
		if (r->b.held[i].unit == NO_UNIT || r->b.held[i].lo || (l->samples[i] && !unit_ready(r, i)))
			l->samples[i] = 0;
}
