/* Moshpit's grid (Ryabinin et al., Moshpit SGD, NeurIPS 2021, section 3.2): members stand in a grid of `dims`
 * dimensions and average in as many phases, each with those of its line along one dimension; when every cell is held,
 * all have the mean after the last. The paper's average is only near the mean when somebody is missing. Here it is
 * not: a cell without a member is played, from the second phase on, by a member that holds the same numbers, and every
 * number carries the samples that are in it. So any number of members will do, and the dead of an attempt leave no
 * gap.
 *
 * A cell is a number: its coordinate in dimension 0 counts ones, in dimension 1 size[0]s, and so on. Before phase k
 * all members of a box (cells that differ in dimensions below k only) hold the mean of that box.
 *
 * The lines of one phase sum in different orders, and a line has bytes of its own: members of one line of the last
 * phase are equal, others within the rounding of `dims` sums. Pure; members are indexes of BEGIN. */
#ifndef AVG_GRID_H
#define AVG_GRID_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"

#define GRID_DIMS_MAX 10
#define GRID_SIZE_MAX 256
#define GRID_CELLS_MAX 4096
#define GRID_NOBODY 0xffffu

/* What a member does in an attempt: nothing; gets the last phase's mean; takes part; sums for others, too. */
enum grid_stand { GRID_GONE, GRID_TAKES, GRID_PLAYS, GRID_SUMS };

struct grid {
	size_t n, dims;                 /* dims 0: no grid, and nothing allocated */
	uint16_t size[GRID_DIMS_MAX];   /* members of a line at most, 2 or more */
	uint16_t *cell;                 /* of a member; no two have the same */
	uint8_t *stand;                 /* enum grid_stand of a member */
};
/* The fewest dimensions that hold n members in lines of at most group (2 or more), as even as can be; gaps are spread.
 * Everybody sums. */
void grid_make(size_t n, size_t group, struct grid *ret);
void grid_free(struct grid *g);
void grid_copy(struct grid *to, const struct grid *from);       /* to is empty or a grid */
bool grid_same(const struct grid *x, const struct grid *y);     /* sizes and cells */
/* Of remote bytes: every size and cell in its range, no cell twice, somebody sums; with w (samples by member, NULL:
 * not known) whoever counts takes part. */
int grid_check(const struct grid *g, const uint64_t *w, struct err *e);
size_t grid_cells(const struct grid *g);
size_t grid_lines(const struct grid *g, unsigned k);            /* of phase k */

/* An attempt: the boxes' samples and who plays for them. */
struct grid_plan {
	const struct grid *g; size_t cells, able_n;
	size_t stride[GRID_DIMS_MAX + 1];
	uint16_t *at, *able;                    /* the member of a cell; those who sum */
	uint64_t *weight[GRID_DIMS_MAX + 1];    /* [k][box] */
	uint16_t *first[GRID_DIMS_MAX + 1];     /* who plays for cells of that box that nobody holds */
};
void grid_plan_make(struct grid_plan *ret, const struct grid *g, const uint64_t *w);   /* g: lent */
void grid_plan_free(struct grid_plan *p);

/* One line in phase k. Part p is summed by owner[p % owners], who gets it from every player and sends the mean to
 * every native; a line whose natives cannot sum has an owner from elsewhere. */
struct grid_line {
	unsigned k; size_t line;
	size_t players, natives, owners; uint64_t total;
	uint16_t player[GRID_SIZE_MAX], native[GRID_SIZE_MAX], owner[GRID_SIZE_MAX];
	uint64_t weight[GRID_SIZE_MAX]; /* of what a player brings */
};
/* false: there is nothing to sum or nobody to have it. */
bool grid_line(const struct grid_plan *p, unsigned k, size_t line, struct grid_line *ret);
size_t grid_line_of(const struct grid_plan *p, unsigned k, size_t member);
#endif
