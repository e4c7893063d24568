/* Everybody sends to those of its line in a grid only, one dimension after the other (grid.h). Columns are what the
 * owners of a line share, in turn: so many that lines of every length share them about evenly. */
#include <stdlib.h>
#include "avg/topo.h"
#include "common/mem.h"

#define SHARES 4                                /* columns for each of a line at most */
#define UNEVEN 1.1                              /* the busiest sums so much more than its share */

static size_t columns(const struct grid *g)
{
	size_t longest = 2, c;
	for (size_t k = 0; k < g->dims; k++)
		longest = g->size[k] > longest ? g->size[k] : longest;
	for (c = longest; c < SHARES * longest; c++) {
		bool even = true;
		for (size_t k = 0; k < g->dims && even; k++)
			even = (double)((c + g->size[k] - 1u) / g->size[k] * g->size[k]) <= UNEVEN * (double)c;
		if (even)
			break;
	}
	return c;
}

static int plan(const struct topo_view *v, struct topo_plan *ret)
{
	struct topo_plan p = { .rows = 1 };
	size_t able = 0;
	for (size_t i = 0; i < v->n; i++)
		able += v->bw[i] != 0;
	if (!able)
		return -1;
	grid_make(v->n, v->group, &p.grid);
	for (size_t i = 0; i < v->n; i++)
		p.grid.stand[i] = v->bw[i] != 0 ? GRID_SUMS : GRID_PLAYS;
	size_t most = columns(&p.grid);
	p.cols = (size_t)(v->len / (v->min + !v->min));
	p.cols = p.cols < 1 ? 1 : p.cols > most ? most : p.cols;
	p.size = xcalloc(p.cols, sizeof *p.size);
	p.owner = xcalloc(p.cols, sizeof *p.owner);
	for (size_t c = 0; c < p.cols; c++)
		p.size[c] = v->len * (c + 1) / p.cols - v->len * c / p.cols;
	*ret = p;
	return 0;
}

const struct topo_ops topo_moshpit = { .name = "moshpit", .plan = plan, .apart = true };
