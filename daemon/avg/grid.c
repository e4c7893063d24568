/* The arithmetic of the grid: cells, boxes, lines. A box before phase k is a run of stride[k] cells. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid.h"
#include "common/mem.h"
#include "common/planted.h"

void grid_free(struct grid *g)
{
	free(g->cell);
	free(g->stand);
	*g = (struct grid){ 0 };
}

void grid_copy(struct grid *to, const struct grid *from)
{
	struct grid g = *from;
	if (g.dims) {
		g.cell = xmemdup(from->cell, g.n * sizeof *g.cell);
		g.stand = xmemdup(from->stand, g.n);
	}
	grid_free(to);
	*to = g;
}

bool grid_same(const struct grid *x, const struct grid *y)
{
	return x->n == y->n && x->dims == y->dims && !memcmp(x->size, y->size, x->dims * sizeof *x->size) &&
		(!x->dims || !memcmp(x->cell, y->cell, x->n * sizeof *x->cell));
}

size_t grid_cells(const struct grid *g)
{
	size_t cells = g->dims > 0;
	for (size_t k = 0; k < g->dims; k++)
		cells *= g->size[k];
	return cells;
}

size_t grid_lines(const struct grid *g, unsigned k)
{
	return grid_cells(g) / g->size[k];
}

/* The longest dimension becomes shorter as long as all still have a cell. */
static bool shorten(struct grid *g, size_t *cells)
{
	size_t k = 0;
	for (size_t i = 1; i < g->dims; i++)
		if (g->size[i] >= g->size[k])
			k = i;
	size_t less = *cells / g->size[k] * (g->size[k] - 1u);
	if (g->size[k] == 2 || less < g->n)
		return false;
	g->size[k]--;
	*cells = less;
	return true;
}

void grid_make(size_t n, size_t group, struct grid *ret)
{
	struct grid g = { .n = n };
	size_t cells = 1;
	while (cells < n || !g.dims) {
		g.size[g.dims++] = (uint16_t)group;
		cells *= group;
	}
	while (shorten(&g, &cells))
		;
	g.cell = xcalloc(n + 1, sizeof *g.cell);
	g.stand = xcalloc(n + 1, sizeof *g.stand);
	for (size_t i = 0; i < n; i++) {
		g.cell[i] = (uint16_t)(i * cells / n);
		g.stand[i] = GRID_SUMS;
	}
	*ret = g;
}

static int check_sizes(const struct grid *g, struct err *e)
{
	size_t cells = 1;
	if (!g->dims || g->dims > GRID_DIMS_MAX)
		return err_set(e, ERR_PROTOCOL, "a grid of %zu dimensions, expected 1 to %d", g->dims, GRID_DIMS_MAX);
	for (size_t k = 0; k < g->dims; k++) {
		if (g->size[k] < 2 || g->size[k] > GRID_SIZE_MAX)
			return err_set(e, ERR_PROTOCOL, "a line of the grid has %u cells, expected 2 to %d", g->size[k],
				GRID_SIZE_MAX);
		cells *= g->size[k];
		if (cells > GRID_CELLS_MAX)
			return err_set(e, ERR_PROTOCOL, "a grid of more than %d cells", GRID_CELLS_MAX);
	}
	return 0;
}

int grid_check(const struct grid *g, const uint64_t *w, struct err *e)
{
	size_t sums = 0;
	if (check_sizes(g, e))
		return -1;
	size_t cells = grid_cells(g);
	bool *held = xcalloc(cells, sizeof *held);
	int rc = 0;
	for (size_t i = 0; i < g->n && !rc; i++) {
		if (g->cell[i] >= cells || held[g->cell[i]])
			rc = err_set(e, ERR_PROTOCOL, "member %zu has cell %u of %zu, which is not there or another's", i,
				g->cell[i], cells);
		else if (g->stand[i] > GRID_SUMS || (w && w[i] && g->stand[i] < GRID_PLAYS))
			rc = err_set(e, ERR_PROTOCOL, "member %zu counts in the grid, but takes no part (%u)", i, g->stand[i]);
		else
			held[g->cell[i]] = true;
		sums += g->stand[i] == GRID_SUMS;
	}
	free(held);
	if (!rc && !sums)
		rc = err_set(e, ERR_PROTOCOL, "nobody in the grid sums");
	return rc;
}

/* ---- an attempt ---- */

static void boxes(struct grid_plan *p, size_t k)
{
	size_t n = p->cells / p->stride[k], below = k ? p->g->size[k - 1] : 0;
	p->weight[k] = xcalloc(n, sizeof *p->weight[k]);
	p->first[k] = xcalloc(n, sizeof *p->first[k]);
	for (size_t b = 0; b < n && k; b++) {
		p->first[k][b] = GRID_NOBODY;
		for (size_t j = 0; j < below; j++) {
			size_t inner = b * below + j;
			p->weight[k][b] += p->weight[k - 1][inner];
			if (p->first[k][b] == GRID_NOBODY)
				p->first[k][b] = p->first[k - 1][inner];
		}
	}
}

void grid_plan_make(struct grid_plan *ret, const struct grid *g, const uint64_t *w)
{
	struct grid_plan p = { .g = g, .cells = grid_cells(g), .stride = { 1 } };
	for (size_t k = 0; k < g->dims; k++)
		p.stride[k + 1] = p.stride[k] * g->size[k];
	p.at = xcalloc(p.cells, sizeof *p.at);
	p.able = xcalloc(g->n + 1, sizeof *p.able);
	boxes(&p, 0);
	for (size_t c = 0; c < p.cells; c++)
		p.at[c] = p.first[0][c] = GRID_NOBODY;
	for (size_t i = 0; i < g->n; i++) {
		size_t c = g->cell[i];
		p.at[c] = (uint16_t)i;
		p.weight[0][c] = w[i];
		if (g->stand[i] >= GRID_PLAYS)
			p.first[0][c] = (uint16_t)i;
		if (g->stand[i] == GRID_SUMS)
			p.able[p.able_n++] = (uint16_t)i;
	}
	for (size_t k = 1; k <= g->dims; k++)
		boxes(&p, k);
	*ret = p;
}

void grid_plan_free(struct grid_plan *p)
{
	for (size_t k = 0; k <= GRID_DIMS_MAX; k++) {
		free(p->weight[k]);
		free(p->first[k]);
	}
	free(p->at);
	free(p->able);
	*p = (struct grid_plan){ 0 };
}

size_t grid_line_of(const struct grid_plan *p, unsigned k, size_t member)
{
	size_t c = p->g->cell[member];
	return c / p->stride[k + 1] * p->stride[k] + c % p->stride[k];
}

static unsigned stand_of(const struct grid_plan *p, size_t cell)
{
	return p->at[cell] == GRID_NOBODY ? GRID_GONE : p->g->stand[p->at[cell]];
}

bool grid_line(const struct grid_plan *p, unsigned k, size_t line, struct grid_line *ret)
{
	const struct grid *g = p->g;
	size_t base = line / p->stride[k] * p->stride[k + 1] + line % p->stride[k];
	unsigned least = k + 1 == g->dims ? GRID_TAKES : GRID_PLAYS;
	ret->k = k;
	ret->line = line;
	ret->players = ret->natives = ret->owners = 0;
	ret->total = 0;
	for (size_t j = 0; j < g->size[k]; j++) {
		size_t cell = base + j * p->stride[k], box = cell / p->stride[k];
		unsigned stand = stand_of(p, cell);
		uint64_t w = p->weight[k][box];
		if (stand >= least)
			ret->native[ret->natives++] = p->at[cell];
		if (stand == GRID_SUMS)
			ret->owner[ret->owners++] = p->at[cell];
		if (!w || (PLANTED(GRID_GAP) && stand < GRID_PLAYS))
			continue;
		ret->weight[ret->players] = w;
		ret->player[ret->players++] = stand >= GRID_PLAYS ? p->at[cell] : p->first[k][box];
		ret->total += w;
	}
	if (!ret->owners && p->able_n)
		ret->owner[ret->owners++] = p->able[line % p->able_n];
	return ret->natives && ret->owners && ret->total;
}
