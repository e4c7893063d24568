/* The averager's elastic face: one swarm of peers that commit epochs of one run together.
 *
 * Protocol (hivemind-protocol(7)): the leader of epoch e is the live member with the smallest
 * SHA-256(prev || id), prev = digest of commit e-1. Members report samples to it; when their sum reaches the target
 * batch it sends BEGIN (term, ordered members with their sample counts, part owners, parameter version and values,
 * ranges). Members exchange parts (butterfly), reducers sum alpha_i x_i over one contributor set C in member order,
 * everybody decodes the same bytes, ACKs part hashes, and only COMMIT lets anyone apply. A dead sender is left out, a
 * dead reducer's part re-reduced (ATTEMPT n+1), a dead leader succeeded (term+1, RECOVER). Samples are processed iff
 * they are in a commit of the winning chain (ledger, C6).
 *
 * The owner (run) supplies a contribution and applies the mean; this room decides who, when and with which weights. */
#ifndef AVG_AVG_H
#define AVG_AVG_H
#include "avg/reduce.h"
#include "avg/topo.h"
#include "avg/ranges.h"
#include "common/hash.h"
#include "common/lease.h"
#include "dht/dht.h"
#include "net/chunk.h"

#define DIGEST 32
struct avg_conf {
	struct id run;                          /* names the group; peers of another run never meet */
	uint64_t target_batch;                  /* samples per epoch, until avg_target */
	/* Instead of the target: every member brings so many micro-batches of its own size. Who is much later than the
	 * others are used to (three epochs' time, 2 s at least) is not waited for. 0: the target says. */
	uint32_t each;
	bool any;                               /* instead of both: a round begins as soon as anybody has a sample */
	size_t len;                             /* floats of a contribution (gradients, then averaged buffers) */
	uint64_t data_samples;                  /* size of the data set: pool positions are (data epoch * n + i) */
	uint64_t data_limit;                    /* the pool ends at this position; 0 = endless */
	bool dealt;                             /* the owner deals positions out: nobody is given any */
	bool unordered;                         /* no pool: who contributes names no positions, nobody is given any */
	uint32_t group_max;                     /* members of the run's swarm at most; 0 = 1024 */
	/* Members that send each other everything: a larger round is in rows of so many at most. 0 = 64. */
	uint32_t group_size; const struct topo_ops *topology;   /* NULL: auto */
	uint32_t agree_every;                   /* with a topology whose means are apart: such epochs are not; 0: default */
	double minority_wait_rounds;            /* C3; default 3 */
	uint64_t round_floor_us;                /* smallest deadline; 0 = 200 ms (a death shows sooner by itself) */
	uint32_t part_min;                      /* smallest part, floats; 0 = 1024 */
	bool client, aux;                       /* no part to reduce / no samples */
	enum hashes hashes;                     /* of parts, the newest that it knows; 0: the first. All do what all know */
	uint32_t micro_batch;                   /* ranges are cut in multiples of it */
	/* How the vector travels, unless the live hyperparameters say otherwise ("codec", "robust", "error_feedback"). */
	const struct avg_tensor *tensors; size_t ntensors;      /* the vector's, in order; copied */
	json_t *codec;                          /* as coding_check takes it; NULL: none; a reference is taken */
	enum robust robust; bool error_feedback;
	uint32_t slice;                         /* a part is cut into pieces of at most so many floats; 0 = 128 Ki */
};

/* A member of the history: the first and the last point (by epoch) that it stood at, by COMMITs that it answered; was,
 * back: the last time that it was away for long, it stood at was before and at back again (0: it never was). */
struct avg_seen { struct id id; uint64_t first, last, was, back; };
/* Where in the history a peer stands: all that must travel with a checkpoint or a state download. */
struct avg_point {
	uint64_t epoch;                         /* commits so far */
	uint8_t prev[DIGEST];                   /* digest of the last commit; zeros = none yet */
	uint64_t samples;                       /* committed on this chain */
	uint64_t params_version; json_t *params;/* live hyperparameters: {"lr":0.01,...}; owned by the point */
	struct ranges done;                     /* committed positions */
	struct avg_seen *seen; size_t nseen;    /* by id, ascending; the members of late, at most 256 */
	json_t *recent;                         /* {"author:nonce": epoch} of changes in force for less than 1024 epochs */
	/* Of one that is given: what led to it, as whoever gave it knew (avg_past_of). Owned; NULL: not told. */
	uint8_t *past; size_t npast;
};
void avg_point_init(struct avg_point *p);
void avg_point_copy(struct avg_point *to, const struct avg_point *from);
void avg_point_done(struct avg_point *p);
json_t *avg_point_json(const struct avg_point *p);
int avg_point_parse(struct avg_point *ret, const json_t *j, struct err *e);

/* Of the vector elements lo .. hi - 1 are a member's part of what its unit contributes (units.h; NO_UNIT: nothing is);
 * of keep_lo .. keep_hi - 1, which are these and perhaps neighbours', for when one dies, it gets the means. */
#define NO_UNIT 0xffff
struct holding { uint16_t unit; uint64_t lo, hi, keep_lo, keep_hi; };
/* with: 1 + the unit in which a member works that brings nothing itself; 0: in none. */
struct avg_holder { struct id id; struct holding holds; uint16_t with; };

struct avg_begin { uint64_t epoch; uint32_t term, members; uint64_t deadline_us; };
struct avg_share { struct id id; uint64_t samples; };
struct avg_commit {
	uint64_t epoch;                         /* the epoch that this commit made: old + 1 */
	const struct avg_point *point;          /* the state after it */
	uint32_t members, contributors; uint64_t weight; /* sum of samples */
	uint64_t my_samples;                    /* of these, its unit's; 0 = left out (samples went back to the pool) */
	bool changed_params;                    /* point->params differs from before */
	struct id params_author;                /* of the newest change among them; zeros: none */
	uint32_t attempts, term; bool minority; struct id leader;      /* who wrote it */
	uint64_t begin_us, end_us, bytes_out, bytes_in;
	const struct id *left_out; size_t left_out_n;   /* members of BEGIN that are not in C */
	const struct avg_share *share; size_t shares;   /* C, in the order of the sum */
	const struct ranges *grant;             /* positions that are this peer's to process next */
	uint64_t generation, lo, hi;            /* what this peer keeps by it (avg_units): all that `mean` has */
	struct lease *lease;                    /* mean stays while it is kept; NULL: mean is what was contributed */
};
enum avg_why { AVG_FORK /* lost to a longer chain */, AVG_BEHIND /* the others are ahead */,
	AVG_DIVERGED /* my digest differs */, AVG_MISSED /* committed without my hearing the mean */ };

/* Members that live, do not follow, and are not held; this peer too. leader: zeros when nobody is known to lead. */
struct avg_roster { uint64_t epoch; uint32_t term; struct id leader; uint32_t n; const struct id *live;
	uint32_t ngone; const struct id *gone;  /* members that do not live, or cannot do anything */
	bool in;                                /* this peer is one of them, though it may pause */
};

struct avg_cb {
	/* BEGIN reached this peer: stop adding, call avg_contribute now or soon. */
	void (*begin)(void *arg, const struct avg_begin *b);
	/* mean: len floats (or hi - lo of them), the owner's to read during the call only. Apply, then avg_applied (now or
	 * later). */
	void (*commit)(void *arg, const struct avg_commit *c, const float *mean);
	/* The round was given up; the contribution was not used and is the owner's again; keep accumulating. */
	void (*failed)(void *arg, uint64_t epoch, const struct err *e);
	/* This peer's state is not the swarm's: fetch state from donor (run's business), then avg_enter again. */
	void (*resync)(void *arg, enum avg_why why, const struct id *donor, uint64_t epoch);
	/* More (or first) positions to process. */
	void (*grant)(void *arg, const struct ranges *grant);
	void (*event)(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text);
	/* Or NULL. This peer has entered with a state whose donor did not tell what led to it (avg_given), and others have:
	 * that has what this peer made up to epoch common, and nothing of what came after it here, up to last. Exact up to
	 * 1024 epochs back; when the two part before that: the one before those. */
	void (*forked)(void *arg, uint64_t common, uint64_t last);
	/* Or NULL: everybody may change anything. 0, or why not (ERR_AUTH, ERR_INVALID). Asked by the leader when a change
	 * is brought to it (params NULL), and by every member when it would come into force over `params`: then the answer
	 * depends on nothing but what is given and the run's spec, so that all say the same. */
	int (*may_change)(void *arg, const struct id *author, const json_t *patch, const json_t *params, struct err *e);
	/* Or NULL. Memory for a mean of so many bytes, which is kept until its round is over; NULL: the room's own. */
	struct lease *(*room)(void *arg, size_t bytes);
	/* Or NULL: never. Is a contribution that is not finite meant to be so, and to be found in everybody's mean (a
	 * scaled loss whose gradient overflowed)? Members at one point say the same. Else, and with a robust mean, and in a
	 * grid, its member is left out. */
	bool (*overflows)(void *arg);
	/* Or NULL. Who could do something for the run, as this peer sees it, has changed, or who leads, or the epoch. */
	void (*roster)(void *arg, const struct avg_roster *r);
};

struct avg;
struct avg *avg_new(struct env *env, struct net *net, struct chunks *chunks, struct dht *dht /* NULL in tests */,
	const struct avg_conf *conf, const struct avg_cb *cb, void *arg, struct err *e);
/* Without goodbye; see avg_leave. A sum in the reduce lane may still read the vector given to avg_contribute: it must
 * stay until quiet (may be NULL) is called, once, perhaps at once. Callbacks that give the vector back wait for that
 * by themselves. */
void avg_free(struct avg *a, void (*quiet)(void *arg), void *arg);
/* Enters at a point. follower: knows no parameters yet; is taken along with weight 0, gets commits (which its owner
 * queues) while it downloads state; call avg_enter again with follower = false and the caught-up point. */
int avg_enter(struct avg *a, const struct avg_point *at, bool follower, struct err *e);
/* Before the first avg_enter, in ascending order: the digests of the commits that have led to its point. */
void avg_remember(struct avg *a, uint64_t epoch, const uint8_t digest[DIGEST]);
/* Whoever gives a state away, or writes it down, gives what led to its point with it: sets at->past as far as a knows;
 * NULL when the point is not of its history any more. */
void avg_past_of(const struct avg *a, struct avg_point *at);
/* The owner takes a state over that was given at that point, in place of its own; avg_enter comes when it has caught
 * up. true: of what it held before the history of the new one has nothing after *ret_common (as forked says it). */
bool avg_given(struct avg *a, const struct avg_point *at, uint64_t *ret_common);
/* After avg_enter at a point that a checkpoint gave: so many members (this peer among them) made its last commit. A
 * leader begins no round before as many are there again, followers too, or 10 s have passed: of a swarm that starts
 * anew the newest checkpoint counts, whoever comes first. Over with the first commit. */
void avg_expect(struct avg *a, uint32_t members);
void avg_meet(struct avg *a, const struct id *peer);    /* a peer that may be in the run (found by other means) */
/* Without an averager: the owner of a record under run:<hex>:peers, whose address net learns. false: it is none. */
bool avg_peer_of(struct net *net, const struct record *r, struct id *ret);
/* samples accumulated in this epoch so far and the positions they came from (copied); rate in samples/s. Call after
 * every micro-batch. */
void avg_progress(struct avg *a, uint64_t samples, double rate, const struct ranges *claimed);
/* Of a head (avg_units): so many samples its unit brings to each epoch from now on; 0: it is none any more. A round
 * begins when every unit whose members live has its share, or whoever has not is far too late (as avg_conf.each). */
void avg_share(struct avg *a, uint64_t samples);
/* x: len floats, the MEAN over the peer's samples; stays the caller's and unchanged until commit, failed or resync.
 * NULL with 0 samples = nothing. */
void avg_contribute(struct avg *a, uint64_t epoch, const float *x, uint64_t samples, const struct ranges *claimed);
/* The same of a vector that is still being made: of it elements lo .. hi - 1 are there now, none when they are equal.
 * The first call says the rest, once for a round; who has not made all of it in time is left out as a whole. */
void avg_contribute_part(struct avg *a, uint64_t epoch, const float *x, uint64_t samples, const struct ranges *claimed,
	uint64_t lo, uint64_t hi);
/* In begin, of units: what this peer will contribute is still being made. How long that takes is not the time of an
 * answer, and makes no deadline longer. */
void avg_behind(struct avg *a);
/* What this peer has told of comes in parts: a round that it begins leaves time for a micro-batch. */
void avg_grows(struct avg *a, bool grows);
/* Runs whose peers hold parts of the vector: from now on rounds are of units. Every member is told the same of one
 * generation; a BEGIN of another is refused. Extents of each unit lie end to end, from 0 to len. x of avg_contribute is
 * then this peer's extent, samples and claimed are the unit's and every member of it says the same; avg_progress is for
 * heads (who hold element 0). n 0: nobody holds anything, and no round begins. ERR_INVALID: which unit has what wrong.
 * Copied. Not in a grid, not in rows, not with a robust mean. */
int avg_units(struct avg *a, uint64_t generation, const struct avg_holder *v, size_t n, struct err *e);
/* compared with the others' (design 9) */
void avg_applied(struct avg *a, uint64_t epoch, const uint8_t params_digest[16]);
/* this peer pauses: stays a member, contributes nothing, does not delay others */
void avg_hold(struct avg *a, bool hold);
typedef void avg_left_fn(void *arg);
void avg_leave(struct avg *a, avg_left_fn *done, void *arg);    /* hands back ranges, says goodbye, then done */
/* A signed change of hyperparameters, from epoch on (0 = the next BEGIN). done: agreed epoch, or why not. Steals
 * patch. */
typedef void avg_proposed_fn(void *arg, uint64_t epoch, uint64_t version, const struct err *e);
void avg_propose(struct avg *a, json_t *patch, uint64_t from_epoch, avg_proposed_fn *done, void *arg);

/* As a leader it begins no round before that moment; 0: it may. Is the COMMIT written that ends this epoch? */
void avg_stay(struct avg *a, uint64_t until_us);
bool avg_commits(const struct avg *a);

/* Samples per epoch from now on. Every member says so when it takes the COMMIT that changes it, from inside the commit
 * callback, and before it enters at a point behind that. */
void avg_target(struct avg *a, uint64_t samples);

struct avg_member { struct id id; uint64_t samples, epoch; double rate; bool leader, live, follower, hold, client, aux;
	bool gone; /* known to be; else one that is not live may be there, and only the leader has heard of it */
	unsigned odd; /* rounds in a row with a contribution far from all others, as this peer has seen it */
	char absent[48]; };
struct avg_view {
	uint64_t epoch; uint32_t term; bool in_round, alone, following; struct id leader; uint64_t total_samples, target;
	/* "joining" "accumulating" "averaging" "recovering" "following" */
	double rate_total; uint64_t eta_us; const char *state;
	uint32_t last_members;                  /* of the last commit; 0: none since avg_enter */
	uint32_t followers;                     /* live ones besides this peer, and one who left 5 s ago */
	uint32_t behind;                        /* live members that do not say that they hold the COMMIT this peer sent */
	uint64_t rounds_done, rounds_without, rounds_failed, last_round_us, bytes_out, bytes_in;
	uint64_t residuals_dropped;             /* elements whose error feedback was lost with their reducer */
};
void avg_view(struct avg *a, struct avg_view *ret);
size_t avg_members(struct avg *a, struct avg_member *out, size_t max);
bool avg_lives(const struct avg *a, const struct id *id);      /* it is a member, and lives */
/* How the last committed round was put together, for `run show`: {"topology", "group_size", "rows": [{"peers": [short
 * ids], "bridges": [{"peer", "sums", "owns"}]}]}, shares of the vector; with one row there are no bridges. In a grid
 * rows are the lines of the last phase, without bridges, and "grid" is the lengths of its lines by phase. Null before
 * the first commit here. */
json_t *avg_shape(const struct avg *a);
json_t *avg_ledger(struct avg *a);              /* for `run show --data` */
/* Of a run that is over: what was committed and its proof. data_samples 0: not known. */
json_t *avg_point_ledger(const struct avg_point *p, uint64_t data_samples);

#endif
