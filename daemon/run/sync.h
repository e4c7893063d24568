/* Inside of a state download: sync_kept.c begins it and keeps what it needs, sync.c hears what comes of it. */
#ifndef RUN_SYNC_H
#define RUN_SYNC_H
#include "run/int.h"

struct kept_commit {
	struct list link; uint64_t epoch; struct avg_point point; const float *mean;
	struct lease *lease;            /* where that is */
};
enum sync_step { SYNC_FETCH, SYNC_CHECK, SYNC_REPLAY, SYNC_BACK };
struct sync {
	struct run *r;
	enum sync_step step;
	struct fetch *fetch;            /* NULL: a job may still use the state */
	struct avg_point point;         /* of the state that came */
	unsigned donors;
	struct list kept; size_t nkept;
	uint64_t begun_us;
	uint64_t heard_us;              /* somebody who may give it has said something, or a piece has come */
	uint64_t alone_us; bool told;   /* since when nobody is there who could give it; 0: somebody is */
	bool holds;                     /* the state is that of the run's point, as it was */
	struct timer still; uint64_t still_by_us;       /* until the last commit is applied */
};

const struct kept_commit *sync_first(const struct sync *s);     /* NULL: none */
void sync_drop(struct sync *s, struct kept_commit *k);
void sync_drop_to(struct sync *s, uint64_t epoch);              /* those up to it */
bool sync_make_room(struct sync *s, size_t bytes);

#endif
