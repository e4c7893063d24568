/* What must hold after every event, whatever dies. Each rule has a planted bug that breaks it. */
#ifndef TESTS_SIM_CHECK_H
#define TESTS_SIM_CHECK_H
#include "avg_world.h"

struct check;
struct check *check_new(struct world *w);
void check_free(struct check *c);
/* A peer applies a commit: one mean and one state per digest, an unbroken chain, every position once, weights that
 * equal the samples, the mean of exactly those positions. before: the point that the peer held. */
void check_commit(struct check *c, struct apeer *p, const struct avg_point *before, const struct avg_commit *commit,
	const float *mean);
void check_begin(struct check *c, struct apeer *p, uint64_t epoch);
/* A peer has taken over a state: of what led to the point that it held before it has been told to discard what came
 * after epoch `kept`, UINT64_MAX: nothing. Right is what the new point's history does not have, all of it, no more. */
void check_taken(struct check *c, const struct apeer *p, const struct avg_point *before, uint64_t kept);
/* The commits that have led to the point, in ascending order. */
void check_history(const struct check *c, const struct avg_point *at,
	void (*each)(void *arg, uint64_t epoch, const uint8_t *digest), void *arg);
uint64_t check_commits(const struct check *c);          /* different digests seen */
uint64_t check_weight(const struct check *c, uint64_t epoch);   /* of the first digest of that epoch; 0 = none */

#endif
