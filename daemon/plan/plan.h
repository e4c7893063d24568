/* A plan: what one peer does, as data. Three tables, buffers, groups and instructions,
 * which the executor runs, the predictor times, the checker refuses and a person reads.
 *
 * The meaning of a plan is the meaning of its list run strictly in order: prologue, `iterations` times the body,
 * epilogue. Lanes and windows only let an instruction start earlier when nobody can tell the difference; the one
 * exception is a reference `<=k`, which takes the newest complete value and so is asynchronous on purpose.
 * plan/tokens.h is that rule.
 *
 * Index. Every execution of an instruction has an index j, the micro-batch (or step) it works for:
 *   prologue: first + mb     body: first + mb + iteration * step     epilogue: first + mb + iterations * step
 * Key. A buffer is a ring of values; the value of index j has the key floor(j / per): per = 1 for what every
 *   micro-batch makes, m for what a batch of m shares (gradient sums, weights). A reference `=k` means key(j) - k, an
 *   output `'` writes key(j) + 1: an optimizer reads the weights of batch b and makes those of batch b + 1, so that
 *   plain training reads `=0` and a delay of one reads `=1`. Keys before the first one mean the value given at the
 *   start. A buffer shared between streams counts its writes instead, and is read as `<=*` only.
 *
 * References are written the same way in planners, on the terminal and in JSON:
 *   input   [role:]name[age][!]   age `=k` (absent: `=0`), `'` (the next key, made before for this very index),
 *                                 `<=k`, `<=*`, `~i` (the version that the producer of input i used: weight
 *                                 stashing); `!`: released when the instruction has ended
 *   output  [role:]name['][+]     `'` the next key; `+` adds to what is there (a key's first write starts from zero)
 *   role    save (what FWD keeps for BWD), route, data; otherwise the buffer's class says it
 * A name has letters, digits, . _ / - only. Equal names on two peers are the same value: a SEND and its RECV match by
 * buffer name, index and stream; collectives by group name, plan_label, index and stream; a REPLY carries the index and
 * stream of the message it answers. ALLTOALL "x route -> y" sends rows of x as the route says and receives
 * y from whoever sent; "x route ->" only sends (to servers), "route -> y" only receives what those servers answer.
 *
 * Missing. What is to come from elsewhere may not come: a deadline, a death. on_missing says what that means:
 *   fail      the instruction has failed, and who runs the plan decides (exec.h)
 *   without   there is no value. Who reads it is passed over: it does not run, what it adds (`+`) or writes over its
 *             own input is as it was, its other outputs are missing in turn, and a COMMIT commits nothing; DROP and `!`
 *             take place. Only a VEC that says `without` itself runs (its function sees which operand is not there),
 *             and a SUM of an elastic group, which gives nothing then. What leaves this peer, has nothing to send and
 *             says `fail` has failed.
 *   newest    its value is a copy of the newest complete one of that buffer
 * State is never without a value: of a buffer with an initial one the newest is copied in either case, also when its
 * writer is passed over. RECV of any, ALLTOALL and groups that go on with fewer make a value of what has come; it is
 * missing when nothing has.
 *
 * Tiers. Tier 0 is the arena, the tier "host" is memory as well, the tier "file" is a file that nobody else sees and
 * that is gone with the executor (exec.h); a buffer there that is `initial` begins with zeros. Kernels and the network
 * work on memory: only MOVE, DROP and SAVE touch a buffer of tier file.
 *   MOVE  writes over output k what input k is, whatever their tiers; with a file in it in lane copy, copy-in, copy-out
 *         or disk
 *   SAVE  makes the file named fn (letters, digits, _ - and . but not first) in the executor's folder of its inputs:
 *         their bytes, as buffers state them, one input behind the other, in this machine's order. When it ends well,
 *         that is safe on the disk in place of what had the name before; when it fails, what was there before is there
 *         still. In lane disk.
 *
 * COMMIT is the only point after which weights and optimizer state count as changed. Without inputs it waits for all
 * that stands before it; with inputs it commits these. What is changed locally right behind a COMMIT belongs to it
 * (data parallelism agrees, then steps); what must be changed before something that can fail is in a `journal` buffer.
 *
 * Units: bytes, us. Ownership: a plan owns everything in it. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "common/buf.h"
#include "common/err.h"
#include "common/id.h"

#define PLAN_NAME 48            /* of a buffer, group, lane, fn, with its NUL */
#define PLAN_NONE UINT32_MAX    /* no buffer, no group, no peer */
/* Limits of a plan that came from elsewhere. */
#define PLAN_BUFS_MAX 16384
#define PLAN_INSTRS_MAX 65536
#define PLAN_MEMBERS_MAX 4096
#define PLAN_REFS_MAX 1024
#define PLAN_LANES_MAX 32
#define PLAN_TIERS_MAX 8
#define PLAN_DEPTH_MAX 4096
#define PLAN_SLOTS_MAX 131072   /* of all rings in all streams */
#define PLAN_BYTES_MAX (1ull << 42)

/* The kinds are closed; what grows is fn of VEC. X(name, needs a peer or a group) */
#define PLAN_KINDS(X) X(LOAD, 0) X(FWD, 0) X(BWD, 0) X(VEC, 0) X(SUM, 1) X(GATHER, 1) X(SCATTER, 1) X(ALLTOALL, 1) \
	X(SEND, 1) X(RECV, 1) X(MOVE, 0) X(DROP, 0) X(COMMIT, 0) X(SAVE, 0)
enum plan_kind {
#define X(name, net) PLAN_##name,
	PLAN_KINDS(X)
#undef X
	PLAN_KINDS_COUNT
};
#define PLAN_CLASSES(X) X(ACTIVATION, "activation") X(ACTIVATION_GRAD, "activation-grad") X(WEIGHT, "weight") \
	X(WEIGHT_GRAD, "weight-grad") X(OPTIMIZER, "optimizer") X(BATCH, "batch") X(SCALAR, "scalar") X(ROUTE, "route")
enum plan_class {
#define X(name, text) PLAN_##name,
	PLAN_CLASSES(X)
#undef X
	PLAN_CLASSES_COUNT
};
enum plan_dtype { PLAN_F32, PLAN_F64, PLAN_F16, PLAN_BF16, PLAN_I8, PLAN_I32, PLAN_U8, PLAN_U64, PLAN_DTYPES_COUNT };
enum plan_op { PLAN_OP_SUM, PLAN_OP_MAX, PLAN_OP_MEAN, PLAN_OPS_COUNT };

/* Where a buffer's content lies in the global model. */
enum plan_extent_kind { PLAN_FLAT, PLAN_TENSOR, PLAN_GRAPH_OP };    /* elements: flat vector, tensor; numbers of ops */
struct plan_extent { enum plan_extent_kind kind; char name[PLAN_NAME]; uint64_t lo, hi; };

struct plan_buf {
	char name[PLAN_NAME];
	enum plan_class class;
	enum plan_dtype dtype;
	uint64_t bytes;                 /* of one value; an upper bound when `bounded` (sizes known at run time) */
	bool bounded;
	uint32_t tier;                  /* into plan.tier */
	uint32_t slot;                  /* which model replica of this peer */
	uint32_t depth;                 /* values the ring holds; 0 is taken as 1 */
	uint32_t per;                   /* indexes that share a key; 0 is taken as 1 */
	bool initial;                   /* has a value before the program starts, and keeps its newest after it: state */
	bool shared;                    /* one for all streams of the program */
	bool journal;                   /* the last committed value is kept beside it until COMMIT: D1.7; twice the bytes */
	int64_t offset;                 /* planned place of value 0 in its tier; -1: the executor finds one */
	uint32_t nextents; struct plan_extent *extent;
	uint32_t nholders; uint32_t *holder;    /* members (ranks) that hold the committed value; 0: this peer alone */
};

struct plan_member { uint32_t peer, slot; };    /* rank in plan.member; model replica there */
struct plan_group {
	char name[PLAN_NAME];
	bool elastic;                   /* whoever takes part in the round; the list is the expectation */
	bool strict;                    /* all members or the step fails; else weighted by samples */
	enum plan_op op;
	uint32_t n; struct plan_member *member; /* ordered */
};

enum plan_role { PLAN_AS_DATA, PLAN_AS_WEIGHT, PLAN_AS_SAVED, PLAN_AS_GRAD, PLAN_AS_ROUTE };
enum plan_age { PLAN_EXACT, PLAN_NEWEST, PLAN_SAME };
struct plan_ref {
	uint32_t buf;
	enum plan_role role;
	enum plan_age age;
	int32_t k;                      /* EXACT: keys back (-1: next); NEWEST: at most, INT32_MAX any; SAME: which input */
	bool drop, add;
};

enum plan_section { PLAN_PROLOGUE, PLAN_BODY, PLAN_EPILOGUE, PLAN_SECTIONS_COUNT };
enum plan_keep { PLAN_KEEP_NONE, PLAN_KEEP_INPUT, PLAN_KEEP_ALL };     /* F-none, F-c, F-e of rematerialization */
enum plan_missing { PLAN_FAIL, PLAN_WITHOUT, PLAN_USE_NEWEST };
/* What a COMMIT decides: a step of one's own, for whoever makes it; that what a round is to have lies apart from what
 * adds up next; or all that a round has agreed on. */
enum plan_scope { PLAN_SELF, PLAN_SHARD, PLAN_GROUP };
/* REPLY: a SEND of input 0 to whom the last input came from, each sender of a batch its part. */
enum plan_with { PLAN_ALONE, PLAN_PEER, PLAN_IN_GROUP, PLAN_ANY, PLAN_REPLY };
struct plan_range { uint32_t a, b; };           /* ops a..b, both inclusive */

struct plan_instr {
	enum plan_kind kind;
	enum plan_section section;
	char fn[PLAN_NAME];             /* VEC: what it computes ("opt", "axpy", "dot" ...); SAVE: the file; or a remark */
	uint32_t npiece; struct plan_range *piece;      /* ops of the local graph, in topological order */
	enum plan_keep keep;            /* FWD: what its saved output holds */
	bool replay;                    /* FWD again: statistics and counters do not advance */
	/* FWD, BWD: "" or "eval", an algorithm ("im2col"). LOAD: what of the batch is read, "" all, "x", "labels" or
	 * "positions": which samples they are, and nothing of them. */
	char variant[PLAN_NAME];
	uint32_t lane;                  /* into plan.lane */
	int64_t mb;                     /* see Index above */
	uint32_t nin; struct plan_ref *in;
	uint32_t nout; struct plan_ref *out;
	enum plan_with with;
	uint32_t peer;                  /* PLAN_PEER: rank */
	uint32_t group;                 /* PLAN_IN_GROUP; PLAN_ANY: whom a RECV accepts */
	uint32_t quorum, most;          /* PLAN_ANY: ends at once with `most` values, and with `quorum` when within_us */
	uint64_t within_us;             /* have passed since the first one came (0: at once with quorum) */
	bool unique;                    /* PLAN_ANY: of equal keys the first one counts (backup tasks) */
	uint32_t every, at;             /* only when index % every == at; every 0: always */
	uint32_t stream_lo, stream_hi;  /* only in streams lo..hi-1: roles of a server; hi 0: in all */
	int32_t priority;               /* among the ready ones of a lane's window the greatest, then the earliest */
	uint64_t deadline_us;           /* from its start; 0: none */
	enum plan_missing on_missing;   /* see Missing above; of what leaves this peer, and VEC */
	enum plan_scope scope;          /* COMMIT */
	uint64_t work_bytes;            /* scratch in tier 0 while it runs */
	/* VEC: when its first output has no memory yet, it gets that of the first input, which must be dropped here and
	 * have as many bytes; the function then sees one operand. */
	bool inplace;
	double scale;                   /* VEC: a constant (learning rate, step length); 0 when unused */
};

struct plan_lane { char name[PLAN_NAME]; uint32_t width, window; };     /* running at once (0: any number); D1.5 */
struct plan_tier { char name[PLAN_NAME]; uint64_t budget; };            /* 0: no limit stated */
enum plan_place { PLAN_ARENA, PLAN_HOST, PLAN_FILE, PLAN_ELSEWHERE, PLAN_PLACES };     /* what a tier is: Tiers above */

struct map;
struct plan {
	char strategy[PLAN_NAME];
	uint64_t generation;            /* agreed before it runs; frames of another one are refused */
	struct id author;               /* who planned it when it is a fragment for a worker; zero: this peer */
	uint32_t nmembers; struct id *member;   /* ranks used in this plan */
	uint32_t me;
	uint32_t redundancy;            /* the run's: copies every state buffer must have; 0 is taken as 1 */
	uint32_t streams;               /* instances of the program at once; 0 is taken as 1 */
	uint64_t first;                 /* index at which the program starts */
	uint64_t iterations;            /* of the body */
	uint32_t step;                  /* index advance of one iteration; 0 is taken as 1 */
	uint32_t nlanes; struct plan_lane *lane;
	uint32_t ntiers; struct plan_tier *tier;        /* 0 arena, 1 host, 2 file when made by plan_init */
	uint32_t nbufs, cbufs; struct plan_buf *buf;
	uint32_t ngroups; struct plan_group *group;
	uint32_t ninstrs, cinstrs; struct plan_instr *instr;   /* sections in order */
	enum plan_section building;
	struct map *index;              /* of buffer names, once there are many */
};

/* --- building. Misuse (an unknown name, a full table) is a programmer's error and asserts: planners are our own code.
 * Pointers to table entries are valid until the next call that adds to the same table. */
void plan_init(struct plan *p, const char *strategy, uint32_t me, uint32_t nmembers, const struct id *member);
void plan_free(struct plan *p);                                 /* {0} is fine; leaves {0} */
uint32_t plan_lane(struct plan *p, const char *name, uint32_t width, uint32_t window); /* makes it or changes it */
uint32_t plan_tier(struct plan *p, const char *name, uint64_t budget);                 /* likewise */
/* Copies *b (its name is replaced by the formatted one unless fmt is NULL). Not taken: extents, holders, an offset of 0
 * (set it afterwards where it is meant). */
uint32_t plan_buf(struct plan *p, const struct plan_buf *b, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void plan_extent(struct plan *p, uint32_t buf, enum plan_extent_kind kind, const char *name, uint64_t lo, uint64_t hi);
void plan_holder(struct plan *p, uint32_t buf, uint32_t rank);
uint32_t plan_group(struct plan *p, const char *name, enum plan_op op, bool strict, bool elastic);
void plan_join(struct plan *p, uint32_t group, uint32_t peer, uint32_t slot);
void plan_section(struct plan *p, enum plan_section s);         /* where the next instructions go; never backwards */
/* "in in -> out out", see above ("->": nothing at all). The lane follows from the kind: LOAD data, FWD BWD VEC train,
 * SUM GATHER SCATTER ALLTOALL SEND RECV net, MOVE copy, SAVE disk, DROP COMMIT loop; change i->lane afterwards. */
struct plan_instr *plan_do(struct plan *p, enum plan_kind kind, int64_t mb, const char *refs, ...)
	__attribute__((format(printf, 4, 5)));
struct plan_instr *plan_piece(struct plan_instr *i, uint32_t a, uint32_t b);            /* appends a..b; returns i */
struct plan_instr *plan_vec(struct plan *p, int64_t mb, const char *fn, const char *refs, ...)
	__attribute__((format(printf, 4, 5)));
struct plan_instr *plan_send(struct plan *p, int64_t mb, uint32_t peer, const char *refs, ...)
	__attribute__((format(printf, 4, 5)));                  /* "a3!" */
struct plan_instr *plan_recv(struct plan *p, int64_t mb, uint32_t peer, const char *refs, ...)
	__attribute__((format(printf, 4, 5)));                  /* "a3": an output */
/* SUM GATHER SCATTER ALLTOALL. SUM "g -> g": in place is written as in and out of one name. */
struct plan_instr *plan_coll(struct plan *p, enum plan_kind kind, int64_t mb, uint32_t group, const char *refs, ...)
	__attribute__((format(printf, 5, 6)));
struct plan_instr *plan_streams(struct plan_instr *i, uint32_t lo, uint32_t hi);         /* returns i */
struct plan_instr *plan_when(struct plan_instr *i, uint32_t every, uint32_t at);        /* returns i */

/* --- reading */
uint32_t plan_find(const struct plan *p, const char *buf);      /* PLAN_NONE when there is none */
uint32_t plan_find_group(const struct plan *p, const char *name);
uint32_t plan_find_lane(const struct plan *p, const char *name);
const char *plan_kind_name(enum plan_kind k);
const char *plan_class_name(enum plan_class c);
bool plan_leaves(enum plan_kind k);                             /* talks to other peers */
static inline bool plan_moves(enum plan_kind k) { return k == PLAN_MOVE || k == PLAN_SAVE; }   /* bytes, on this peer */
/* A SUM of an elastic group that brings another value than it takes: it may lie where the round has put it. */
bool plan_lent(const struct plan *p, const struct plan_instr *i);
uint32_t plan_depth(const struct plan_buf *b);                  /* at least 1 */
int64_t plan_key(const struct plan *p, const struct plan_buf *b, int64_t index);        /* floor(index / per) */
int64_t plan_index(const struct plan *p, const struct plan_instr *i, uint64_t iteration);
bool plan_due(const struct plan_instr *i, int64_t index);       /* its `when` holds */
bool plan_in_stream(const struct plan_instr *i, uint32_t stream);
/* The name that the other ends know an instruction's value by: of what RECV, GATHER and a two-sided ALLTOALL make, of
 * what the others take. NULL when it stays here. */
const char *plan_label(const struct plan *p, const struct plan_instr *i);
/* What is wrong with one instruction in itself, or NULL. Planners' instructions are asserted by plan_check. */
const char *plan_instr_wrong(const struct plan *p, const struct plan_instr *i);
/* Its part about tiers, MOVE and SAVE; also of plans that are not checked. */
const char *plan_place_wrong(const struct plan *p, const struct plan_instr *i);
enum plan_place plan_place(const struct plan *p, const struct plan_buf *b);
/* Do the values of o, a buffer of p, go on in b, a buffer of q with its name? Equal bytes, depth, sharing, and both in
 * memory or both in a file. */
bool plan_lives_on(const struct plan *p, const struct plan_buf *o, const struct plan *q, const struct plan_buf *b);
bool plan_is_state(const struct plan_buf *b);                   /* weight or optimizer with an initial value */
bool plan_writes_state(const struct plan *p, const struct plan_instr *i);       /* has such an output */

/* --- text and JSON. JSON both ways is exact: reading what was written gives an equal plan. */
json_t *plan_to_json(const struct plan *p);
/* Checks every name, range and limit (remote bytes may come here); on error *ret is {0} and e names the place. */
int plan_from_json(struct plan *ret, const json_t *j, struct err *e);
void plan_digest(const struct plan *p, uint8_t out[32]);        /* SHA-256 of the canonical JSON text */
/* Digest of the plans of all members, in their order: what a generation is agreed on (D1.9). */
void plan_digest_all(const struct plan *const *v, size_t n, uint8_t out[32]);
void plan_print(const struct plan *p, struct buf *out);         /* the tables, for a person */
void plan_print_instr(const struct plan *p, const struct plan_instr *i, struct buf *out); /* one line, no newline */
bool plan_equal(const struct plan *a, const struct plan *b);

#endif
