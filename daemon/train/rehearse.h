/* A run that does not run: what its strategy would have each of so many members do, all plans checked together as their
 * members would, and predicted. Without a swarm, without data, and without memory for what they would hold. */
#ifndef TRAIN_REHEARSE_H
#define TRAIN_REHEARSE_H
#include "plan/predict.h"
#include "train/spec/spec.h"

#define REHEARSE_COLUMNS 100            /* of the chart */

struct rehearse_conf {
	const struct spec *spec;
	int parts;                              /* of the train lane's team */
	double macs_per_us;                     /* speed of every member; 0: only sleep layers take time */
	const json_t *measured;                 /* or of every layer, as hivectl model profile has it; NULL: not known */
	uint32_t members;
	uint64_t memory_bytes;                  /* of every member; 0: not stated */
	struct predict_link link;               /* between any two */
	bool draw;                              /* the chart instead of the instructions */
};
/* Where epochs run on into each other, what is predicted is one in the middle of others, and first_us the first one.
 * {text, members, predicted, digest (what they would agree on), plans (not with draw)}; NULL and e: the strategy or the
 * checker refuses. Pure; some 10 ms for a thousand instructions. */
json_t *rehearse(const struct rehearse_conf *c, struct err *e);

#endif
