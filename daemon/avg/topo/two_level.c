/* Rows of at most `group` members, and as many columns as the row with the most who can sum has of them. The fastest of
 * every row sum the first column, and so on: a column is as wide as its slowest member can carry. Columns are owned by
 * the rows in turn. A row where nobody can sum sends straight to the owners. */
#include <stdlib.h>
#include "avg/part.h"
#include "avg/rows.h"
#include "avg/topo.h"
#include "common/mem.h"

struct who { double bw; uint16_t member; };

/* Those who can sum, by row, fastest first. */
struct able { struct who *v; size_t *at /* of a row; rows + 1 */, most; };

static int faster(const void *x, const void *y)
{
	const struct who *a = x, *b = y;
	if (a->bw != b->bw)
		return a->bw < b->bw ? 1 : -1;
	return a->member < b->member ? -1 : a->member > b->member;
}

static double mean_of(const double *bw, size_t n)
{
	double sum = 0;
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		if (bw[i] > 0) {
			sum += bw[i];
			k++;
		}
	return k ? sum / (double)k : 1;
}

static void able_of(const struct topo_view *v, const struct topo_plan *p, struct able *ret)
{
	double mean = mean_of(v->bw, v->n);
	size_t n = 0;
	*ret = (struct able){ .v = xcalloc(v->n, sizeof *ret->v), .at = xcalloc(p->rows + 1, sizeof *ret->at) };
	for (size_t r = 0; r < p->rows; r++) {
		for (size_t i = 0; i < v->n; i++)
			if (p->row[i] == r && v->bw[i] != 0)
				ret->v[n++] = (struct who){ v->bw[i] > 0 ? v->bw[i] : mean, (uint16_t)i };
		ret->at[r + 1] = n;
		qsort(ret->v + ret->at[r], n - ret->at[r], sizeof *ret->v, faster);
		if (n - ret->at[r] > ret->most)
			ret->most = n - ret->at[r];
	}
}

/* A row with fewer than there are columns has several for one member. */
static const struct who *in_row(const struct able *a, size_t row, size_t col)
{
	size_t n = a->at[row + 1] - a->at[row];
	return n ? &a->v[a->at[row] + col % n] : NULL;
}

static void column(const struct able *a, struct topo_plan *p, size_t c, double *ret_bw)
{
	double least = 0;
	uint16_t owner = NO_ROW;
	for (size_t k = 0; k < p->rows; k++) {
		size_t r = (c + k) % p->rows, n = a->at[r + 1] - a->at[r];
		const struct who *w = in_row(a, r, c);
		if (!w)
			continue;
		double bw = w->bw / (double)((a->most - c % n + n - 1) / n);
		if (owner == NO_ROW)
			owner = w->member;
		if (least == 0 || bw < least)
			least = bw;
	}
	p->owner[c] = owner;
	for (size_t r = 0; r < p->rows; r++) {
		const struct who *w = in_row(a, r, c);
		p->sub[c * p->rows + r] = w ? w->member : owner;
	}
	*ret_bw = least;
}

static int plan(const struct topo_view *v, struct topo_plan *ret)
{
	struct topo_plan p = { .row = xcalloc(v->n, sizeof *p.row) };
	struct able a;
	p.rows = v->row ? rows_kept(v->n, v->group, v->row, p.row) : rows_in_order(v->n, v->group, p.row);
	able_of(v, &p, &a);
	p.cols = a.most;
	p.size = xcalloc(p.cols + 1, sizeof *p.size);
	p.owner = xcalloc(p.cols + 1, sizeof *p.owner);
	p.sub = xcalloc(p.cols * p.rows + 1, sizeof *p.sub);
	double *bw = xcalloc(p.cols + 1, sizeof *bw), *w = xcalloc(p.cols + 1, sizeof *w);
	for (size_t c = 0; c < p.cols; c++)
		column(&a, &p, c, &bw[c]);
	int rc = p.cols && !part_shares(bw, p.cols, w) ? 0 : -1;
	if (!rc) {
		part_sizes(w, p.cols, v->len, v->min, p.size);
		*ret = p;
	} else {
		topo_plan_free(&p);
	}
	free(bw);
	free(w);
	free(a.v);
	free(a.at);
	return rc;
}

const struct topo_ops topo_two_level = { .name = "two_level", .plan = plan };
