/* What a model costs, as planners want to know it (plan/planner.h): bytes exactly as the kernels state them, times only
 * where they are modelled (sleep layers, a stated speed), because virtual time needs them. */
#ifndef TRAIN_PROFILE_H
#define TRAIN_PROFILE_H
#include <stdatomic.h>
#include "kernels/model.h"
#include "plan/planner.h"

#define PROFILE_ASKED 64

struct profile_source {
	const struct model *model;
	int parts;                              /* of the train lane's team */
	double macs_per_us;                     /* 0: only sleep layers take time */
	uint64_t x_bytes, y_bytes;              /* of a sample */
	/* asked before, by first op: a strategy asks for the same again each time it plans, in whatever lane */
	struct profile_asked { uint32_t batch, a, b; struct piece_need need; } asked[PROFILE_ASKED];
	atomic_flag asking;                     /* zeros: clear */
};
/* from must outlive *ret. What the optimizer holds is set afterwards, by who knows it. */
void profile_model(struct profile *ret, struct profile_source *from, uint32_t batch);

#endif
