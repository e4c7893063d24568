/* The leader gives a round its shape: rows and columns from the topology (topo.h), columns in pieces, so that while
 * one is summed the next is on its way; or the shape of the last commit, while another would not gain 10 % (what
 * encoding left out stays with those who have it). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg/audit.h"
#include "avg/grid_flow.h"
#include "avg/lead.h"
#include "avg/topo.h"
#include "avg/units.h"
#include "common/mem.h"

#define PART_MIN 1024                           /* floats; smaller parts cost more messages than they save bytes */
#define GAIN 1.1

static bool can_reduce(const struct wire_member *m)
{
	return !(m->flags & (MATE_FOLLOWER | MATE_CLIENT | MATE_HOLD));
}

/* What the busiest link would need: what a member sends up of what it does not sum, and down to those it sums for. */
static double cost_of(const struct body *b, const double *bw)
{
	struct tree t;
	double worst = 0, *load = xcalloc(b->n, sizeof *load), sum = 0;
	size_t known = 0;
	body_tree(b, b->n, &t);
	for (size_t p = 0; p < b->parts; p++)
		for (size_t i = 0; i < b->n; i++) {
			if (t.owner[p] == i)
				continue;
			load[i] += (double)b->part[p].len;
			load[tree_up(&t, p, i)] += (double)b->part[p].len;
		}
	for (size_t i = 0; i < b->n; i++) {
		known += bw[i] > 0;
		sum += bw[i] > 0 ? bw[i] : 0;
	}
	for (size_t i = 0; i < b->n; i++)
		worst = fmax(worst, load[i] / fmax(bw[i] < 0 ? (known ? sum / (double)known : 1) : bw[i], 1e-9));
	tree_free(&t);
	free(load);
	return worst;
}

/* ---- the last commit's ---- */

static size_t find(const struct body *b, const struct id *id)
{
	size_t lo = 0, hi = b->n;               /* members of a BEGIN are in order */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (id_cmp(&b->m[mid].id, id) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < b->n && id_eq(&b->m[lo].id, id) ? lo : b->n;
}

/* Its parts and who sums them, as members of b, into b; false: somebody is not there or cannot any more. */
static bool map_parts(const struct body *old, struct body *b, const double *bw)
{
	size_t rows = b->rows > 1 ? b->rows : 0;
	b->part = xmemdup(old->part, (old->parts + 1) * sizeof *old->part);
	b->parts = old->parts;
	b->sub = rows ? xcalloc(b->parts * rows + 1, sizeof *b->sub) : NULL;
	for (size_t p = 0; p < b->parts; p++) {
		size_t owner = find(b, &old->m[old->part[p].owner].id);
		memset(b->part[p].hash, 0, sizeof b->part[p].hash);
		if (owner == b->n || bw[owner] == 0)
			return false;
		b->part[p].owner = (uint16_t)owner;
		for (size_t r = 0; r < rows; r++) {
			size_t s = find(b, &old->m[old->sub[p * rows + r]].id);
			if (s == b->n || bw[s] == 0 || (s != owner && b->row[s] != r))
				return false;
			b->sub[p * rows + r] = (uint16_t)s;
		}
		if (rows && b->sub[p * rows + b->row[owner]] != owner)
			return false;
	}
	return true;
}

static bool same_reducers(const struct body *x, const struct body *y)
{
	struct tree t, u;
	bool same = true;
	body_tree(x, x->n, &t);
	body_tree(y, y->n, &u);
	for (size_t i = 0; i < t.n && same; i++)
		same = tree_reduces(&t, i) == tree_reduces(&u, i);
	tree_free(&t);
	tree_free(&u);
	return same;
}

/* b has a shape; the last one takes its place when the same peers can do it and b's does not gain enough. */
static void keep(struct avg *a, struct body *b, const double *bw)
{
	struct body old, as = *b;
	struct err e;
	if (!a->last_commit.len || body_read(&old, a->last_commit.p, a->last_commit.len, &e))
		return;
	as.part = NULL;
	as.sub = NULL;
	bool rows = (old.rows > 1 ? old.rows : 1) == (b->rows > 1 ? b->rows : 1);
	if (rows && map_parts(&old, &as, bw) && same_reducers(b, &as) && cost_of(&as, bw) <= cost_of(b, bw) * GAIN) {
		free(b->part);
		free(b->sub);
		b->part = as.part;
		b->parts = as.parts;
		b->sub = as.sub;
	} else {
		free(as.part);
		free(as.sub);
	}
	body_free(&old);
}

/* ---- a new one ---- */

/* The columns in pieces: as many as a body may have, unless they are short already. */
static void slice(struct avg *a, struct body *b, const struct topo_plan *t)
{
	uint64_t most = a->conf.slice, at = 0;
	size_t limit = t->rows > 1 ? WIRE_SUBS_MAX / t->rows : WIRE_MEMBERS_MAX / 2;
	if (limit > WIRE_MEMBERS_MAX / 2)
		limit = WIRE_MEMBERS_MAX / 2;
	size_t cut = limit > t->cols ? limit - t->cols : 1;
	if (a->conf.len / cut >= most)
		most = a->conf.len / cut + 1;
	b->part = xcalloc(t->cols + cut, sizeof *b->part);
	b->rows = t->rows;
	b->sub = t->rows > 1 ? xcalloc((t->cols + cut) * t->rows, sizeof *b->sub) : NULL;
	for (size_t c = 0; c < t->cols; c++) {
		uint64_t pieces = (t->size[c] + most - 1) / most, end = at + t->size[c];
		for (uint64_t k = 0; k < pieces; k++) {
			uint64_t len = (end - at) / (pieces - k);
			if (b->sub)
				memcpy(b->sub + b->parts * t->rows, t->sub + c * t->rows, t->rows * sizeof *b->sub);
			b->part[b->parts++] = (struct wire_part){ .owner = t->owner[c], .off = at, .len = len };
			at += len;
		}
	}
}

/* Nobody can sum: the leader does, whatever it is. */
static void all_mine(const struct avg *a, const struct body *b, struct topo_plan *t)
{
	*t = (struct topo_plan){ .rows = 1, .cols = 1, .size = xcalloc(1, sizeof *t->size),
		.owner = xcalloc(1, sizeof *t->owner) };
	t->size[0] = a->conf.len;
	t->owner[0] = (uint16_t)find(b, &a->me->id);
}

static const struct topo_ops *topology(const struct avg *a, const struct body *b)
{
	const json_t *live = json_object_get(b->params, "robust");
	enum robust robust = a->conf.robust;
	struct err e;
	if (live && robust_parse(json_string_value(live), &robust, &e))
		robust = a->conf.robust;
	if (b->n <= a->conf.group_size)
		return &topo_flat;
	const struct topo_ops *t = a->conf.topology;
	bool may = t && (robust == ROBUST_NONE || t->robust) && (!t->apart || grid_lead_may(a, b));
	return may ? t : topo_auto(b->n, a->conf.group_size, robust != ROBUST_NONE);
}

void shape_make(struct avg *a, struct body *b)
{
	double *bw = xcalloc(b->n, sizeof *bw);
	uint16_t *hint = xcalloc(b->n, sizeof *hint);
	struct topo_plan t;
	for (size_t i = 0; i < b->n; i++) {
		const struct mate *m = mate_find(a, &b->m[i].id);
		bool may = can_reduce(&b->m[i]) && (!m || audit_owns(a, m));
		bw[i] = !may ? 0 : b->m[i].bandwidth ? (double)b->m[i].bandwidth : -1;
		hint[i] = m ? m->row : NO_ROW;
	}
	struct topo_view v = { .n = b->n, .bw = bw, .len = a->conf.len,
		.min = a->conf.part_min ? a->conf.part_min : PART_MIN, .group = a->conf.group_size, .row = hint };
	if (b->held ? units_shape(a, b, &v, &t) : topology(a, b)->plan(&v, &t))
		all_mine(a, b, &t);
	slice(a, b, &t);
	b->row = t.row;
	b->grid = t.grid;
	t.row = NULL;
	t.grid = (struct grid){ 0 };
	topo_plan_free(&t);
	if (!b->grid.dims && !b->held)
		keep(a, b, bw);
	free(bw);
	free(hint);
}
