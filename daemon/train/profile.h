/* What a model costs, as planners want to know it (plan/planner.h): bytes exactly as the kernels state them, times only
 * where they are modelled (sleep layers, a stated speed), because virtual time needs them. */
#ifndef TRAIN_PROFILE_H
#define TRAIN_PROFILE_H
#include "kernels/model.h"
#include "plan/planner.h"

struct profile_source {
	const struct model *model;
	int parts;                              /* of the train lane's team */
	double macs_per_us;                     /* 0: only sleep layers take time */
	uint64_t x_bytes, y_bytes;              /* of a sample */
	uint32_t batch; struct piece_need whole;        /* profile_model's: what is asked for most */
};
/* from must outlive *ret. What the optimizer holds is set afterwards, by who knows it. */
void profile_model(struct profile *ret, struct profile_source *from, uint32_t batch);

#endif
