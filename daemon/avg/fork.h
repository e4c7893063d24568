/* What led to a point: this peer's history, those that others tell, and where two of them part (fork.c). */
#ifndef AVG_FORK_H
#define AVG_FORK_H
#include "avg/int.h"

/* avg.past leads to avg.point. avg.was is what led to the state that the owner holds, when that is another history: it
 * follows, or has entered where its own does not lead, and nobody has told yet what does. NULL: it is avg.past.
 * avg.tail is its own history when it has gone back to an earlier point of that: what it has made since is lost when
 * another COMMIT comes in its place; up to tail_same none has. */

void past_add(struct avg *a);                    /* the point */
const struct past *past_of(const struct avg *a, uint64_t epoch);        /* NULL: not known (any more) */
void past_put(const struct avg *a, struct buf *b);
bool past_deeper(const struct avg *a, const void *past, size_t n);      /* mine reaches further back than that */
/* The point was set, given with what led to it or not: of what is known, that which leads to it stays. */
void past_enter(struct avg *a);
/* Taken in at the point by one who tells this of what led to it. Is this peer's history not all in it, its owner hears
 * so. */
void past_welcomed(struct avg *a, const void *past, size_t n);
/* APART: so old that it is behind, or of another history. */
enum relation { REL_SAME, REL_BEHIND, REL_APART, REL_AHEAD, REL_FORK_WON, REL_FORK_LOST };
/* The other's history against this peer's: BEHIND = the other is behind. */
enum relation past_compare(const struct avg *a, uint64_t epoch, const uint8_t *prev, uint64_t samples,
	const void *past, size_t n);
uint64_t past_common(const struct avg *a, const void *past, size_t n);  /* the last epoch of both, as theirs says */
bool past_leads_here(const struct avg *a, const void *past, size_t n);  /* theirs has a point of this one's in it */
/* Is this what may lead to the point, all of it, newest first? */
bool past_fits(const struct avg_point *at, const void *past, size_t n);

#endif
