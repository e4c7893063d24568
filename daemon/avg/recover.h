/* Inside of a succession: what recover.c finds out, and follow.c gives up. */
#ifndef AVG_RECOVER_H
#define AVG_RECOVER_H
#include "avg/int.h"

enum holds { HOLDS_NOTHING, HOLDS_ROUND, HOLDS_COMMIT };
struct recover_call { struct list link; struct recover *v; struct id who; struct call *call; };
struct recover {
	struct avg *a; struct list calls; struct timer timer;
	enum holds best; struct buf bytes;      /* the best that was found */
	uint32_t attempt, begin_term; bool done;
	unsigned answers, strangers;            /* those to whom this peer is no member */
	bool looks;                             /* takes nothing over: does anybody hold a COMMIT? */
};

/* Another leads the round now than began the attempt: this peer's word that it holds that one's mean might be the last
 * that it needs for a commit of which the other knows nothing. Instead it hears of the new term. */
void recover_promised(struct round *r);

#endif
