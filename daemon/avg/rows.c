/* Rows of neighbours: the tree of shortest round trips that holds all members (Prim 1957) is cut where its edges are
 * much longer than the rest; what hangs together is a row, or several of equal length. Pure. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg/rows.h"
#include "avg/topo.h"
#include "avg/tree.h"
#include "common/mem.h"

#define FAR_US 2000                             /* shorter edges are one place, whatever their ratio */
#define BETTER 1.25                             /* rows change for so much shorter ways */
#define FAR_TIMES 3                             /* so much longer than the next shorter one: another place */
#define THIRDS 16                               /* members that unknown round trips are guessed through */

static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

size_t rows_in_order(size_t n, size_t group, uint16_t *ret_row)
{
	size_t rows = ceil_div(n, group);
	if (rows > TREE_ROWS_MAX)
		rows = TREE_ROWS_MAX;
	for (size_t i = 0; i < n; i++)
		ret_row[i] = (uint16_t)(i * rows / n);
	return rows;
}

/* Numbers rows by their first member, without gaps. */
static size_t renumber(size_t n, uint16_t *row)
{
	uint16_t *name = xcalloc(n + 1, sizeof *name);
	size_t rows = 0;
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;
		while (k < rows && name[k] != row[i])
			k++;
		if (k == rows)
			name[rows++] = row[i];
		row[i] = (uint16_t)k;
	}
	free(name);
	return rows;
}

static size_t count(size_t n, const uint16_t *row, size_t of)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		k += row[i] == of;
	return k;
}

size_t rows_kept(size_t n, size_t group, const uint16_t *hint, uint16_t *ret_row)
{
	size_t *len = xcalloc((size_t)NO_ROW + 1, sizeof *len), known = 0, rows = 0, most = 2 * ceil_div(n, group) + 1;
	if (most > TREE_ROWS_MAX)
		most = TREE_ROWS_MAX;
	for (size_t i = 0; i < n; i++) {
		ret_row[i] = hint[i] != NO_ROW && len[hint[i]] < group ? hint[i] : NO_ROW;
		if (ret_row[i] == NO_ROW)
			continue;
		known++;
		rows += len[hint[i]]++ == 0;
		most = hint[i] < TREE_ROWS_MAX ? most : 0;
	}
	for (size_t i = 0; i < n && rows <= most; i++) {        /* newcomers: the shortest row, or one of their own */
		size_t best = NO_ROW, empty = NO_ROW;
		if (ret_row[i] != NO_ROW)
			continue;
		for (size_t r = TREE_ROWS_MAX; r-- > 0;) {
			if (!len[r])
				empty = r;
			else if (len[r] < group && (best == NO_ROW || len[r] <= len[best]))
				best = r;
		}
		rows += best == NO_ROW;
		best = best == NO_ROW ? empty : best;
		if (best == NO_ROW)
			break;
		ret_row[i] = (uint16_t)best;
		len[best]++;
		known++;
	}
	bool fits = known == n && rows <= most;
	free(len);
	return fits ? renumber(n, ret_row) : rows_in_order(n, group, ret_row);
}

/* ---- by round trips ---- */

struct places { size_t n; uint32_t *d; uint32_t *edge; uint16_t *from, *order; };

static uint32_t known(const uint32_t *rtt, size_t n, size_t i, size_t k)
{
	uint32_t a = rtt[i * n + k], b = rtt[k * n + i];
	return !a || (b && b < a) ? b : a;
}

/* What nobody has measured lies between the difference and the sum of the ways to a third; without one it is long. */
static uint32_t guess(const uint32_t *rtt, size_t n, size_t i, size_t j, const size_t *third, size_t thirds)
{
	double least = 0, most = UINT32_MAX / 4;
	for (size_t k = 0; k < thirds; k++) {
		double x = known(rtt, n, i, third[k]), y = known(rtt, n, third[k], j);
		if (x <= 0 || y <= 0)
			continue;
		least = fmax(least, fabs(x - y));
		most = fmin(most, x + y);
	}
	return (uint32_t)(most < UINT32_MAX / 4 ? sqrt(fmax(least, 1) * most) : most);
}

/* Symmetric. */
static void distances(struct places *p, const uint32_t *rtt)
{
	size_t n = p->n, *best = xcalloc(THIRDS, sizeof *best), thirds = 0;
	bool *taken = xcalloc(n, sizeof *taken);
	size_t limit = n > 512 ? THIRDS / 4 : THIRDS;
	for (; thirds < limit && thirds < n; thirds++) {       /* those who know the most */
		size_t most = 0, to = n;
		for (size_t i = 0; i < n; i++) {
			size_t k = 0;
			for (size_t j = 0; j < n; j++)
				k += known(rtt, n, i, j) > 0;
			if (!taken[i] && (to == n || k > most)) {
				most = k;
				to = i;
			}
		}
		taken[to] = true;
		best[thirds] = to;
	}
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++) {
			uint32_t d = known(rtt, n, i, j);
			p->d[i * n + j] = i == j ? 0 : d ? d : guess(rtt, n, i, j, best, thirds);
		}
	free(best);
	free(taken);
}

static void prim(struct places *p)
{
	size_t n = p->n;
	bool *in = xcalloc(n, sizeof *in);
	for (size_t i = 0; i < n; i++)
		p->edge[i] = UINT32_MAX;
	p->edge[0] = 0;
	for (size_t k = 0; k < n; k++) {
		size_t to = n;
		for (size_t i = 0; i < n; i++)
			if (!in[i] && (to == n || p->edge[i] < p->edge[to]))
				to = i;
		in[to] = true;
		p->order[k] = (uint16_t)to;
		for (size_t i = 0; i < n; i++)
			if (!in[i] && p->d[to * n + i] < p->edge[i]) {
				p->edge[i] = p->d[to * n + i];
				p->from[i] = (uint16_t)to;
			}
	}
	free(in);
}

static int ascending(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
	return a < b ? -1 : a > b;
}

/* Edges of at least so many us are cut: above the last jump, since what was guessed makes some below it. */
static uint32_t threshold(const struct places *p)
{
	uint32_t *v = xmemdup(p->edge, p->n * sizeof *v), at = UINT32_MAX;
	qsort(v, p->n, sizeof *v, ascending);
	for (size_t i = 2; i < p->n; i++) {
		double jump = (double)v[i] / (v[i - 1] ? v[i - 1] : 1);
		if (v[i] >= FAR_US && jump >= FAR_TIMES)
			at = v[i];
	}
	free(v);
	return at;
}

/* Places longer than a row are cut in rows of equal length, in the order in which Prim's tree reached them. */
static size_t split(const struct places *p, size_t group, const uint16_t *place, uint16_t *ret_row)
{
	size_t rows = 0, n = p->n;
	for (size_t first = 0; first < n; first++) {
		size_t of = p->order[first], size = count(n, place, place[of]), parts = ceil_div(size, group), at = 0;
		if (place[of] != of)
			continue;
		for (size_t k = 0; k < n; k++)
			if (place[p->order[k]] == of)
				ret_row[p->order[k]] = (uint16_t)(rows + at++ * parts / size);
		rows += parts;
	}
	return rows;
}

static size_t cut_at(const struct places *p, size_t group, uint32_t cut, uint16_t *ret_row)
{
	uint16_t *place = xcalloc(p->n, sizeof *place);
	for (size_t k = 0; k < p->n; k++) {
		size_t i = p->order[k];
		place[i] = k == 0 || p->edge[i] >= cut ? (uint16_t)i : place[p->from[i]];
	}
	size_t rows = split(p, group, place, ret_row);
	free(place);
	return rows;
}

/* The next longer edge. */
static uint32_t longer(const struct places *p, uint32_t than)
{
	uint32_t next = UINT32_MAX;
	for (size_t i = 0; i < p->n; i++)
		if (p->edge[i] > than && p->edge[i] < next)
			next = p->edge[i];
	return next;
}

static size_t make_rows(struct places *p, size_t group, uint16_t *ret_row)
{
	size_t rows, most = 2 * ceil_div(p->n, group);
	prim(p);
	uint32_t cut = threshold(p);
	while ((rows = cut_at(p, group, cut, ret_row)) > most && cut < UINT32_MAX)
		cut = longer(p, cut);           /* many places of few: those nearest to each other are one */
	return rows <= TREE_ROWS_MAX ? renumber(p->n, ret_row) : rows_in_order(p->n, group, ret_row);
}

static void open_places(struct places *p, size_t n, const uint32_t *rtt)
{
	*p = (struct places){ .n = n, .d = xcalloc(n * n, sizeof *p->d), .edge = xcalloc(n, sizeof *p->edge),
		.from = xcalloc(n, sizeof *p->from), .order = xcalloc(n, sizeof *p->order) };
	distances(p, rtt);
}

static void close_places(struct places *p)
{
	free(p->d);
	free(p->edge);
	free(p->from);
	free(p->order);
}

size_t rows_of(size_t n, size_t group, const uint32_t *rtt, uint16_t *ret_row)
{
	struct places p;
	open_places(&p, n, rtt);
	size_t rows = make_rows(&p, group, ret_row);
	close_places(&p);
	return rows;
}

static double mean_way(const struct places *p, const uint16_t *row)
{
	double sum = 0, pairs = 0;
	for (size_t i = 0; i < p->n; i++)
		for (size_t k = 0; k < p->n; k++)
			if (row[i] == row[k] && i != k) {
				sum += p->d[i * p->n + k];
				pairs++;
			}
	return pairs > 0 ? sum / pairs : 0;
}

bool rows_better(size_t n, size_t group, const uint32_t *rtt, const uint16_t *now, uint16_t *ret_row)
{
	struct places p;
	open_places(&p, n, rtt);
	double was = mean_way(&p, now), then;
	size_t rows = 0, fewer = make_rows(&p, group, ret_row);
	for (size_t i = 0; i < n; i++)
		rows = now[i] >= rows ? now[i] + 1u : rows;
	then = mean_way(&p, ret_row);
	bool better = (was >= FAR_US && then * BETTER < was) || (fewer < rows && then < was * BETTER);
	close_places(&p);
	return better;
}
