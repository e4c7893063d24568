/* Contributions that are given in parts, while the rest is still being made. A member's samples count when all of it is
 * in the sums, or not at all: what is not there lacks in every attempt that counts it. */
#ifndef AVG_GROW_H
#define AVG_GROW_H
#include "avg/int.h"

void grow_begin(struct round *r);               /* the contribution has just been told, and nothing of it is there */
bool grow_by(struct round *r, uint64_t lo, uint64_t hi);        /* true: there is something to go on with */
void grow_inherit(struct round *r, const struct round *old);
/* This peer's own, of that part. */
bool grow_has(const struct round *r, size_t part);
/* Who is still at work knows it sooner than those who wait for it, and says so before any of them can take another for
 * the one that is late: when a quarter of the deadline is left. */
uint64_t grow_first_us(struct round *r, uint64_t deadline_us);    /* of an attempt that begins */
bool grow_fired(struct round *r);               /* true: that was it, and the rest of the deadline goes on */

#endif
