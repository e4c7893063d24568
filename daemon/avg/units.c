/* Who holds what in a round of units: from the owner's word into BEGIN, and which units are whole (units.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/holding.h"
#include "avg/lead.h"
#include "avg/share.h"
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

static bool is_head(const struct avg_holder *h) { return h->holds.unit != NO_UNIT && !h->holds.lo; }

/* v: by id. */
static int check(const struct avg *a, const struct avg_holder *v, size_t n, struct err *e)
{
	struct holding *h = xcalloc(n + 1, sizeof *h);
	size_t units = 0;
	for (size_t i = 0; i < n; i++) {
		h[i] = v[i].holds;
		units = h[i].unit != NO_UNIT && h[i].unit >= units ? h[i].unit + 1u : units;
	}
	int rc = holdings_check(h, n, units, a->conf.len, e);
	free(h);
	for (size_t i = 1; i < n && !rc; i++)
		if (id_eq(&v[i].id, &v[i - 1].id))
			rc = err_set(e, ERR_PROTOCOL, "%.8s is there twice", id_short(&v[i].id, (char[9]){ 0 }));
	if (rc) {
		e->code = ERR_INVALID;
		return err_wrap(e, "units");
	}
	return 0;
}

/* Whoever is a head from now on is expected to bring something. What those before have counted is over. */
static void await_heads(struct avg *a)
{
	list_each(it, &a->mates)
		list_entry(it, struct mate, link)->samples = 0;
	roster_sum(a);
	for (size_t k = 0; k < a->units->n; k++) {
		const struct avg_holder *h = &a->units->v[k];
		struct mate *m = is_head(h) ? mate_find(a, &h->id) : NULL;
		if (m && m->member)
			m->awaited = true;
	}
}

/* A round of another generation comes to nothing, unless it is decided. Who has said that it holds the mean cannot
 * know: that word may have been the last that the COMMIT needed. It hears so from whoever leads, and until then it has
 * what the COMMIT is of. */
static void over(struct avg *a)
{
	struct round *r = a->round;
	struct err e;
	if (!r || r->closed || r->commit || r->fail || (r->b.held && r->b.generation == a->units->generation))
		return;
	if (r->acked && !r->lead && !PLANTED(ACK_TAKEN_BACK))
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
	struct avg_holder *mine = xcalloc(n + 1, sizeof *mine);
	if (n)
		memcpy(mine, v, n * sizeof *mine);
	qsort(mine, n, sizeof *mine, by_id);
	if (check(a, mine, n, e)) {
		free(mine);
		return -1;
	}
	units_free(a);
	a->units = xcalloc(1, sizeof *a->units);
	*a->units = (struct units){ .generation = generation, .n = n, .v = mine, .told = a->gen - 1 };
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

static bool mine(const struct avg *a, const struct avg_holder *h)
{
	const struct avg_holder *me = holder(a, &a->me->id);
	return h && me && me->holds.unit != NO_UNIT && h->holds.unit == me->holds.unit;
}

void units_roles(struct avg *a)
{
	if (!a->units)
		return;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		const struct avg_holder *h = holder(a, &m->id);
		m->flags = (uint8_t)(h && is_head(h) ? m->flags & ~MATE_AUX : m->flags | MATE_AUX);
	}
}

/* Somebody of whom nothing was heard may have died long ago: who has no link to it hears that from nobody. */
static bool is_here(const struct avg *a, const struct id *id)
{
	const struct mate *m = mate_find(a, id);
	struct peer_info info;
	if (!m || !m->member || !m->live || m->flags & (MATE_FOLLOWER | MATE_HOLD))
		return false;
	return m == a->me || (net_peer(a->net, id, &info) && !info.maybe_dead &&
		now_of(a) - info.last_seen_us < 2 * HEARTBEAT_US);
}

bool units_mine(const struct avg *a)
{
	for (size_t k = 0; a->units && k < a->units->n; k++)
		if (mine(a, &a->units->v[k]) && !is_here(a, &a->units->v[k].id))
			return false;
	return true;
}

static bool lives(const struct avg *a, const struct id *id)
{
	const struct mate *m = mate_find(a, id);
	return m && m->member && m->live && !(m->flags & (MATE_FOLLOWER | MATE_HOLD));
}

static bool is_whole(const struct avg *a, uint16_t unit)
{
	for (size_t k = 0; k < a->units->n; k++)
		if (a->units->v[k].holds.unit == unit && !lives(a, &a->units->v[k].id))
			return false;
	return true;
}

bool units_needs(const struct avg *a, const struct id *id)
{
	const struct avg_holder *h = holder(a, id);
	return h && h->with && h->holds.unit == NO_UNIT && lives(a, id) && is_whole(a, (uint16_t)(h->with - 1));
}

bool units_whole(const struct avg *a, const struct mate *head)
{
	const struct avg_holder *h = holder(a, &head->id);
	if (!a->units || (h && h->holds.unit != NO_UNIT && is_whole(a, h->holds.unit)))
		return true;
	for (size_t k = 0; k < a->units->n; k++)
		if (is_head(&a->units->v[k]) && is_whole(a, a->units->v[k].holds.unit))
			return false;
	return true;
}

bool units_made(const struct avg *a, const struct id *id)
{
	const struct avg_holder *h = holder(a, id);
	unsigned unit = !h ? NO_UNIT : h->holds.unit == NO_UNIT && h->with ? h->with - 1u : h->holds.unit;
	const struct mate *head = NULL;
	for (size_t k = 0; unit != NO_UNIT && k < a->units->n && !head; k++)
		if (is_head(&a->units->v[k]) && a->units->v[k].holds.unit == unit)
			head = mate_find(a, &a->units->v[k].id);
	return !head || share_made(a, head);
}

const char *units_missing(const struct avg *a, char *buf, size_t n)
{
	size_t k = 0;
	while (k < a->units->n && (a->units->v[k].holds.unit == NO_UNIT || lives(a, &a->units->v[k].id)))
		k++;
	if (k == a->units->n)
		return "nobody is in one";
	const struct mate *m = mate_find(a, &a->units->v[k].id);
	const char *is = !m || !m->member || !m->live ? "is not here" : m->flags & MATE_HOLD ? "pauses" : "follows";
	snprintf(buf, n, "%.8s %s", id_short(&a->units->v[k].id, (char[9]){ 0 }), is);
	return buf;
}

/* ---- in BEGIN ---- */

bool units_put(const struct avg *a, struct body *b)
{
	if (!a->units)
		return true;
	size_t n = a->units->n;                 /* there are no more units than members */
	size_t *lacks = xcalloc(n + 1, sizeof *lacks);
	uint16_t *number = xcalloc(n + 1, sizeof *number);
	const struct avg_holder **of = xcalloc(b->n, sizeof *of);
	b->generation = a->units->generation;
	b->held = xcalloc(b->n, sizeof *b->held);
	for (size_t k = 0; k < n; k++)
		if (a->units->v[k].holds.unit != NO_UNIT)
			lacks[a->units->v[k].holds.unit]++;
	for (size_t i = 0; i < b->n; i++) {
		of[i] = holder(a, &b->m[i].id);
		if (of[i] && of[i]->holds.unit != NO_UNIT && !(b->m[i].flags & (MATE_FOLLOWER | MATE_HOLD)))
			lacks[of[i]->holds.unit]--;
	}
	for (size_t k = 0; k < n; k++)
		if (is_head(&a->units->v[k])) {
			uint16_t u = a->units->v[k].holds.unit;
			number[u] = lacks[u] ? NO_UNIT : (uint16_t)b->units++;
		}
	for (size_t i = 0; i < b->n; i++) {
		struct holding *h = &b->held[i];
		*h = of[i] ? of[i]->holds : (struct holding){ .unit = NO_UNIT };
		if (h->unit != NO_UNIT)
			h->unit = number[h->unit];
		if (h->unit == NO_UNIT)
			h->lo = h->hi = 0;
	}
	free(lacks);
	free(number);
	free(of);
	return b->units > 0;
}

/* Units have other numbers in a body than in the plan, one for one. */
static bool pairs(uint16_t *to, uint16_t *from, uint16_t plan, uint16_t body)
{
	if (to[plan] == NO_UNIT && from[body] == NO_UNIT) {
		to[plan] = body;
		from[body] = plan;
	}
	return to[plan] == body && from[body] == plan;
}

static bool same_holding(const struct holding *h, const struct holding *w, uint16_t *to, uint16_t *from)
{
	bool keeps = w->keep_lo == h->keep_lo && w->keep_hi == h->keep_hi;
	return keeps && (w->unit == NO_UNIT || (h->unit != NO_UNIT && h->lo == w->lo && h->hi == w->hi &&
		pairs(to, from, h->unit, w->unit)));
}

/* Whoever has not been told, and has no part in it, goes along. */
static bool has_nothing(const struct avg *a, const struct body *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (id_eq(&b->m[i].id, &a->me->id))
			return b->held[i].unit == NO_UNIT && b->held[i].keep_lo == b->held[i].keep_hi;
	return false;
}

int units_same(const struct avg *a, const struct body *b, struct err *e)
{
	const struct holding none = { .unit = NO_UNIT };
	if ((!a->units && !b->held) || (b->held && !(a->units && a->units->n) && has_nothing(a, b)))
		return 0;
	if (!a->units || !b->held || b->generation != a->units->generation)
		return err_set(e, ERR_STATE, "a round of generation %llu of the plan; this peer is in %llu",
			(unsigned long long)b->generation, (unsigned long long)(a->units ? a->units->generation : 0));
	uint16_t *to = xmalloc((a->units->n + 1) * sizeof *to), *from = xmalloc((b->units + 1) * sizeof *from);
	memset(to, 0xff, (a->units->n + 1) * sizeof *to);
	memset(from, 0xff, (b->units + 1) * sizeof *from);
	int rc = 0;
	for (size_t i = 0; i < b->n && !rc; i++) {
		const struct avg_holder *h = holder(a, &b->m[i].id);
		const struct holding *w = &b->held[i];
		if (!same_holding(h ? &h->holds : &none, w, to, from))
			rc = err_set(e, ERR_INVALID, "the round has member %zu in unit %u with %llu to %llu, keeping %llu to %llu, "
				"the plan does not", i, w->unit, (unsigned long long)w->lo, (unsigned long long)w->hi,
				(unsigned long long)w->keep_lo, (unsigned long long)w->keep_hi);
	}
	free(to);
	free(from);
	return rc;
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
