/* Who sums what for whom, and who hands results on: for every part of the vector a tree over the members of a round.
 *
 * Members stand in rows; with one row every part has its owner, and everybody sends it to that one. With several, a
 * part has one member in each row that sums it there (sub); of these one is its owner, who takes in the sums of the
 * others, each with the weight of its row, and makes the one mean whose bytes go back the same way: owner, subs, rows.
 * Every piece goes up once and comes down once, from everybody but the owner: 2 (n-1) times the vector in all, as flat.
 *
 * Members that hold parts of the vector only (rows 1) send and get nothing of the others.
 *
 * Indexes are those of the members in BEGIN. Whoever follows a tree knows no topology by name (topo.h makes them). */
#ifndef AVG_TREE_H
#define AVG_TREE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"

#define TREE_ROWS_MAX 256

struct tree {
	size_t n, parts, rows;          /* rows 1: flat, row and sub are NULL */
	uint16_t *row;                  /* of a member */
	uint16_t *owner;                /* of a part */
	uint16_t *sub;                  /* [part * rows + row]: a member of that row, or the owner itself */
	uint8_t *hold;                  /* [part * n + member]: HOLDS, BRINGS; NULL: everybody does both of all */
};
enum tree_hold { HOLDS = 1 /* gets the result, and may own it */, BRINGS = 2 /* has a piece of its own */ };
static inline bool tree_holds(const struct tree *t, size_t part, size_t i)
{
	return !t->hold || t->hold[part * t->n + i] & HOLDS;
}
static inline bool tree_brings(const struct tree *t, size_t part, size_t i)
{
	return !t->hold || t->hold[part * t->n + i] & BRINGS;
}
void tree_free(struct tree *t);
void tree_copy(struct tree *to, const struct tree *from);       /* to is empty or a tree */
/* Every index in its range, every sub in its row or the owner, the owner in its own row's place. For remote bytes. */
int tree_check(const struct tree *t, struct err *e);

size_t tree_up(const struct tree *t, size_t part, size_t i);    /* to whom i sends it; the owner: itself */
bool tree_sums(const struct tree *t, size_t part, size_t i);    /* for others, or as the owner */
unsigned tree_height(const struct tree *t);                     /* sums one after the other: 1 or 2 */
unsigned tree_depth(const struct tree *t, size_t part, size_t i);       /* of the owner: 0 */
/* Of what i sends of that part: its own, or of all that it sums. w: by member. */
uint64_t tree_weight(const struct tree *t, size_t part, size_t i, const uint64_t *w);
/* Does i sum anything that others send? */
bool tree_reduces(const struct tree *t, size_t i);
/* Are the two next to each other in any part? */
bool tree_touches(const struct tree *t, size_t i, size_t k);

/* Whoever is gone sums no more: its place goes to the able member with the least to sum, of the same row when there is
 * one, else the row sends straight to the owner; a new owner is one that already sums the part. Nobody able: last.
 * len: of the parts. Sets ret_lost of those whose own piece of a part is lost with them (never clears). */
void tree_mend(struct tree *t, const uint64_t *len, const bool *gone, const bool *able, size_t last, bool *ret_lost);

#endif
