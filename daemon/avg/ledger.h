/* The sample ledger: which positions are done, whose are promised, and what is cut next. A position is
 * processed iff it is in a commit of the winning chain; everything else returns to the pool by not being recorded. */
#ifndef AVG_LEDGER_H
#define AVG_LEDGER_H
#include "avg/ranges.h"

/* How many positions a member should hold: twice what it will need in an epoch of `share` samples and at least four
 * micro-batches, in whole micro-batches. */
uint64_t ledger_want(double share, uint32_t micro);
/* Cuts n positions, the lowest that are not in taken and below limit (0 = endless), into ret and marks them taken;
 * fewer when they are in more than so many pieces. */
uint64_t ledger_cut(struct ranges *taken, uint64_t limit, uint64_t n, size_t pieces, struct ranges *ret);
/* May this claim count? samples positions, none of them done or claimed before, all below limit. Adds it to claimed. */
bool ledger_claim(const struct ranges *done, struct ranges *claimed, const struct ranges *claim, uint64_t samples,
	uint64_t limit);

/* What the commits prove: {samples: the sum of their weights, positions: how many different ones they name,
 * exactly_once: both are equal, data_epochs: {complete, open: [{data_epoch, committed, of, missing: [[lo, hi], ...]},
 * ...]}}. Epochs of the data have per_epoch positions; the first OPEN_SHOWN that are not complete are shown, with up to
 * as many holes each. per_epoch 0: no data_epochs. */
#define OPEN_SHOWN 16
json_t *ledger_proof(const struct ranges *done, uint64_t samples, uint64_t per_epoch);

#endif
