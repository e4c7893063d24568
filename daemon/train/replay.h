/* Re-runs a run in one process from the run logs (instrument T10) of all its peers, and compares the parameters after
 * every epoch with the digests that were logged, and the loss of every micro-batch. With local.deterministic they are
 * the same bits, whatever the order in which the peers worked, and however late what they gave was taken. */
#ifndef TRAIN_REPLAY_H
#define TRAIN_REPLAY_H
#include "kernels/par.h"
#include "train/data/data.h"
#include "train/spec/spec.h"

struct replay_log { const char *text; size_t len; };    /* lines of one life of a peer, from its first on */
struct replay_result {
	uint64_t epochs, samples;               /* compared and equal; counted in them */
	uint64_t contributions;                 /* of peers, over all epochs */
	/* of these, of older parameters than those that they changed; by how many epochs at most */
	uint64_t stale, stale_most;
};
/* log: of everybody who gave something to a round. Who that was, and in which order it was summed, the logs say
 * ("round"); where none does it is the order of the logs. The parameters begin with the spec's seed, those of who came
 * later with a copy that another has made. -1 and e: a log that cannot be read or contradicts itself or another
 * (ERR_CORRUPT), bits that differ (ERR_MISMATCH), or a run that is not replayed (ERR_INVALID): a strategy with a crew,
 * a codec, robust means. ret: as far as it went. Blocking. */
int replay(const struct spec *s, struct data *d, const struct par *par, const struct replay_log *log, size_t n,
	struct replay_result *ret, struct err *e);

#endif
