/* The shapes a round may have: a topology is topo/NAME.c and a line in topo/list.h. Given who is there, what they can
 * carry and how far they are from each other, it puts members in rows and cuts the vector in columns: a column has one
 * member of every row that sums it there, and one of these owns it (tree.h says what that means). Pure, and of equal
 * questions equal answers: the leader asks, and what it got is in BEGIN. */
#ifndef AVG_TOPO_H
#define AVG_TOPO_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "avg/grid.h"
#include "common/err.h"

struct topo_view {
	size_t n;                       /* members, in the order of BEGIN */
	const double *bw;               /* bytes/s; 0: sums nothing for others; < 0: not known */
	uint64_t len, min;              /* floats; of the smallest column */
	size_t group;                   /* members of a row at most */
	const uint16_t *row;            /* NULL, or which row the last round would have each in; NO_ROW: nobody knows */
};
#define NO_ROW 0xffffu
#define AVG_AGREE_EVERY 16                      /* epochs, where means are apart (topo_ops) */

struct topo_plan {
	size_t rows, cols;
	uint16_t *row;                  /* of a member; NULL with one row */
	uint64_t *size;                 /* of a column, floats, 0: none; together len */
	uint16_t *owner;                /* of a column */
	uint16_t *sub;                  /* [col * rows + row]; NULL with one row */
	struct grid grid;               /* dims 0: none; else one row, and owners are the lines' own */
};
void topo_plan_free(struct topo_plan *p);

struct topo_ops {
	const char *name;
	/* -1: nobody can sum (ret untouched). */
	int (*plan)(const struct topo_view *v, struct topo_plan *ret);
	bool robust;                    /* every owner sees what every member sent */
	bool apart;                     /* members end with means that may differ in the last bits */
};
#define TOPO(x) extern const struct topo_ops topo_##x;
#include "avg/topo/list.h"
#undef TOPO
/* "flat two_level ..."; NULL: none of that name. */
const struct topo_ops *topo_find(const char *name);
/* For error texts: "auto flat two_level ...". */
const char *topo_names(char *out, size_t max);
/* What "auto" is for so many members. */
const struct topo_ops *topo_auto(size_t n, size_t group, bool robust);

#endif
