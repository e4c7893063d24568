/* Re-runs a run in one process from the run logs (instrument T10) of all its peers, and compares the parameters after
 * every epoch with the digests that were logged. With local.deterministic they are the same bytes. */
#ifndef TRAIN_REPLAY_H
#define TRAIN_REPLAY_H
#include "kernels/par.h"
#include "train/data/data.h"
#include "train/spec/spec.h"

struct replay_log { const char *text; size_t len; };    /* lines of one peer, from epoch 0 on */
struct replay_result {
	uint64_t epochs, samples;               /* compared and equal */
	uint64_t contributions;                 /* of peers, over all epochs */
};
/* log: in the order in which the round sums its members. The parameters begin with the spec's seed. -1 and e: a log
 * that cannot be read, or the first epoch whose parameters differ (ERR_MISMATCH). Not for local_updates. Blocking. */
int replay(const struct spec *s, struct data *d, const struct par *par, const struct replay_log *log, size_t n,
	struct replay_result *ret, struct err *e);

#endif
