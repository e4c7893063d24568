/* Who stands in a row with whom: pure, of equal questions equal answers. Rows are numbered by their first member. */
#ifndef AVG_ROWS_H
#define AVG_ROWS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* rtt: [n * n] us, 0: not known (then through a third); no row longer than group, no more rows than TREE_ROWS_MAX.
 * Members that are far from each other, which is 3 times as far as those of one row at least, are in different rows
 * as long as there are not more rows than twice those needed. Returns rows, by first member. */
size_t rows_of(size_t n, size_t group, const uint32_t *rtt, uint16_t *ret_row);
/* The same; true when the mean way between two of one row becomes shorter than in rows now by a fourth, and is one that
 * is worth it; or when fewer rows do. */
bool rows_better(size_t n, size_t group, const uint32_t *rtt, const uint16_t *now, uint16_t *ret_row);
/* Rows of equal length in the members' order. */
size_t rows_in_order(size_t n, size_t group, uint16_t *ret_row);
/* Those of before, newcomers where there is room: hint as in topo_view. */
size_t rows_kept(size_t n, size_t group, const uint16_t *hint, uint16_t *ret_row);

#endif
