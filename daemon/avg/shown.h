/* Inside of looking at another history: what shown.c asks, and follow.c gives up. */
#ifndef AVG_SHOWN_H
#define AVG_SHOWN_H
#include "avg/int.h"

#define PAUSE_US (50 * MS)                      /* between two: 256 signatures take 15 ms */
struct poll { struct list link; struct shown *s; struct call *call; };
struct shown {
	struct avg *a; struct id by; uint32_t gen; enum avg_why why;
	struct call *call; struct list polls; size_t waiting;
	uint64_t epoch; size_t theirs, mine, of;        /* witnesses; members of the point; in a fork, what they weigh */
};

#endif
