/* Re-runs a run in one process from the run logs (instrument T10) of all its peers, and compares the parameters after
 * every epoch with the digests that were logged, and the loss of every micro-batch. With local.deterministic they are
 * the same bits, whatever the order in which the peers worked, and however late what they gave was taken. */
#ifndef TRAIN_REPLAY_H
#define TRAIN_REPLAY_H
#include "kernels/par.h"
#include "train/data/data.h"
#include "train/spec/spec.h"

/* Lines of one life of a peer, from its first on. name: what errors call it; NULL: its number. */
struct replay_log { const char *text; size_t len; const char *name; };
struct replay_conf {
	const struct spec *spec; struct data *data; const struct par *par;
	const struct replay_log *log; size_t n;
	/* So many epochs are compared and equal, of those that the logs tell of. May be NULL. */
	void (*progress)(void *arg, uint64_t epochs, uint64_t of);
	void *arg;
};
struct replay_result {
	uint64_t epochs, samples;               /* compared and equal; counted in them */
	uint64_t contributions;                 /* of peers, over all epochs */
	/* of these, of older parameters than those that they changed; by how many epochs at most */
	uint64_t stale, stale_most;
	size_t peers;                           /* whose logs these are; who does not say counts as one */
	/* -1: where, if that is a line of a log (line 0: it is none), and the epoch that was under way there */
	size_t log, line; uint64_t epoch;
};
/* log: of everybody who gave something to a round. Who that was, and in which order it was summed, the logs say
 * ("round"); where none does it is the order of the logs. The parameters begin with the spec's seed, those of who came
 * later with a copy that another has made. -1 and e: a log that cannot be read or contradicts itself or another
 * (ERR_CORRUPT), peers without a log (ERR_NOT_FOUND, before anything is computed), bits that differ (ERR_MISMATCH), or
 * a run that is not replayed (ERR_INVALID): a strategy with a crew, a codec, robust means, sums in rows, weights from
 * a file. ret: as far as it went. Blocking. */
int replay(const struct replay_conf *c, struct replay_result *ret, struct err *e);

/* The spec as the first log of somebody who computes has it, with that peer's local part. ERR_INVALID: they are of
 * several runs, of one that is not replayed, or a peer had not local.deterministic. ERR_CORRUPT: one does not say of
 * which run it is. */
struct spec *replay_spec(const struct replay_log *log, size_t n, struct err *e);

#endif
