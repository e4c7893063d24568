/* The predictor: the plans of all peers, a profile and links in; a timeline out. Pure and deterministic: the same input
 * gives the same events in the same order. It drives plan/tokens.h exactly as the executor does; only time is modelled:
 * local work takes what the profile says, divided by the peer's speed; a peer's link carries one transfer at a time in
 * each direction (bytes * us_per_byte) and adds latency; a collective of n waits for all and takes one latency per
 * phase plus its bytes (SUM 2(n-1)/n, GATHER and SCATTER (n-1)/n of the whole). MOVE, SAVE, LOAD: profile functions
 * "MOVE", "SAVE" (us + us_per_byte), profile.load_us. Not modelled: deadlines of collectives (they wait for the
 * living), lost frames, jitter, copies of what stands for a missing value. Units: us, bytes. */
#ifndef PLAN_PREDICT_H
#define PLAN_PREDICT_H
#include "plan/planner.h"
#include "plan/tokens.h"

struct predict_link { uint64_t latency_us; double us_per_byte; };
struct predict_conf {
	const struct profile *profile;
	const double *speed;                    /* by rank; NULL: all 1 */
	struct predict_link link;               /* between any two, unless links */
	const struct predict_link *links;       /* [from * nmembers + to], or NULL */
	uint64_t iterations;                    /* replaces the plans' own; 0: as planned */
	/* Bytes that an ALLTOALL sends from one rank to another; NULL: equal shares of the buffer among the group. */
	uint64_t (*route)(void *arg, uint32_t from, uint32_t to, int64_t index, const char *buf, uint64_t bytes);
	void *arg;
	const uint64_t *dies_at_us;             /* by rank; 0: lives; NULL: all live */
	const struct token_hooks *hooks;        /* by rank, or NULL */
	/* of the programs before, by plan, nothing running: what they left is there */
	const struct tokens *const *before;
	/* Programs that follow, [r * n + k], nthen for each of the n plans: it begins one as soon as the one before has
	 * ended, whatever others do. It has the first one's lanes, and more behind these. */
	uint32_t nthen; const struct plan *const *then;
	uint64_t horizon_us;                    /* stop looking then; 0: to the end */
	uint64_t events_max;                    /* 0: 50 million */
	bool spans;                             /* keep the timeline */
};

struct predict_span {                           /* one instruction, from its start to its end */
	uint64_t start_us, end_us;
	uint32_t peer, lane, stream, number;    /* number in the plan; PLAN_NONE: inserted by a hook */
	enum plan_kind kind;
	int64_t index, version;                 /* version: key of the weights it used, -1 none */
	uint32_t from;                          /* RECV: the (first) sender; else PLAN_NONE */
};
struct predict_peer {
	uint64_t finish_us, busy_us[PLAN_LANES_MAX], peak[PLAN_TIERS_MAX];
	uint64_t sent[PLAN_CLASSES_COUNT], received[PLAN_CLASSES_COUNT];        /* bytes, by class */
	uint64_t ran[PLAN_KINDS_COUNT];
	uint32_t nbufs, *values;                /* most values of a buffer held at once: versions, stashes */
	double bubble;                          /* 1 - busy time of lane train / time of the whole */
	uint32_t nended; struct predict_peer *ended;    /* these figures at the end of each program but the last */
	bool finished, died, idle;      /* idle: a server that waits for requests (RECV any) when all is over */
};
struct prediction {
	uint64_t us;
	uint32_t npeers; struct predict_peer *peer;     /* in the order of the plans */
	uint32_t nmembers; uint64_t *link_bytes;        /* [from rank * nmembers + to rank] */
	size_t nspans; struct predict_span *span;       /* by end */
	uint64_t unread;                                /* messages that nobody received */
	bool stuck;                                     /* somebody waits for ever (idle servers do not count) */
	bool lost, memory;                              /* ... for a value never made; ... for bytes in a tier */
	struct buf why;                                 /* then: who for what; text with NUL */
};

/* n plans of one generation, of different members. Errors: plans that do not belong together, too many events. Being
 * stuck is a result, not an error. */
int predict(const struct plan *const *v, uint32_t n, const struct predict_conf *conf, struct prediction *ret,
	struct err *e);
void prediction_free(struct prediction *p);
/* Share of [from, to) in which the lane of plan k did nothing; needs spans. */
double prediction_idle(const struct prediction *p, uint32_t k, uint32_t lane, uint64_t from_us, uint64_t to_us);
/* What program `at` (1 to nthen - 1, of `then` the one before) takes in the middle of the others, as if there were no
 * others: us until the next one of the member that is longest at it, what was sent and run in it, idle shares and spans
 * of that time; peaks and values are those of all, and links are not told apart. Needs spans. false: it was never
 * reached (ret untouched). */
bool prediction_of(const struct prediction *p, const struct plan *const *v, uint32_t at, struct prediction *ret);
json_t *prediction_json(const struct prediction *p, const struct plan *const *v);
/* One line per peer and lane, `columns` wide: digits are micro-batches, upper half F, lower half B. Needs spans. */
void plan_gantt(const struct prediction *p, const struct plan *const *v, uint32_t columns, struct buf *out);

#endif
