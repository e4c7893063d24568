/* What a model costs, as planners want to know it (plan/planner.h): bytes exactly as the kernels state them; times
 * where they are modelled (sleep layers, a stated speed), because virtual time needs them, or as they were measured. */
#ifndef TRAIN_PROFILE_H
#define TRAIN_PROFILE_H
#include <jansson.h>
#include <stdatomic.h>
#include "common/err.h"
#include "kernels/model.h"
#include "plan/planner.h"

#define PROFILE_ASKED 64

/* Of `hivectl model profile`: us of each op for a sample. */
struct profile_times { double fwd_us, bwd_us; };
/* file: the reply, {batch, layers: [{name, forward_us, backward_us}], ...}; its layers must be the model's, one by one.
 * free() it; NULL and e. */
struct profile_times *profile_times_read(const json_t *file, const struct model *m, struct err *e);

struct profile_source {
	const struct model *model;
	int parts;                              /* of the train lane's team */
	double macs_per_us;                     /* 0: only sleep layers take time */
	const struct profile_times *times;      /* NULL, or of each op: then nothing else counts */
	uint64_t x_bytes, y_bytes;              /* of a sample */
	/* asked before, by first op: a strategy asks for the same again each time it plans, in whatever lane */
	struct profile_asked { uint32_t batch, a, b; struct piece_need need; } asked[PROFILE_ASKED];
	atomic_flag asking;                     /* zeros: clear */
};
/* from must outlive *ret. What the optimizer holds is set afterwards, by who knows it. */
void profile_model(struct profile *ret, struct profile_source *from, uint32_t batch);

#endif
