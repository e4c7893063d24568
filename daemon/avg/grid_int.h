/* Inside of a round in a grid: what grid_flow.c moves along, and grid_lines.c knows of it. */
#ifndef AVG_GRID_INT_H
#define AVG_GRID_INT_H
#include "avg/grid_flow.h"

struct pass { struct piece *c; uint16_t who /* a member */; struct xfer *x; bool done, failed; };

/* One part in one line. */
struct piece {
	struct round *r; struct line *l; size_t part; uint16_t owner;
	struct pass up, down, *in /* by player */, *out /* by native */; float **raw;
	float *mean;                            /* of this line; NULL where it comes straight into the round's */
	bool summing, summed;
};
struct line { struct grid_line is; bool player, native; struct piece *piece; };

struct grid_flow {
	struct grid grid; struct grid_plan plan; bool planned;
	struct line *line; size_t lines; struct grid_flow *old /* of other attempts, while jobs may read them */;
	const float **val;                      /* [k * parts + p]: what this peer holds before phase k; NULL: not yet */
	bool late;                              /* an attempt that waits for the jobs of the one before */
	size_t left;                            /* sums to make and means to get; SIZE_MAX: no place for this peer */
};

static inline size_t last_phase(const struct round *r) { return r->flow->grid.dims - 1; }
static inline size_t bytes_of(const struct piece *c) { return c->r->part[c->part].bytes; }

size_t grid_index_of(const uint16_t *v, size_t n, size_t x);     /* n: it is not there */
void grid_retire(struct round *r);              /* the lines of this attempt are over */

#endif
