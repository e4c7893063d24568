/* What the averager's peers say to each other in blobs: little-endian, canonical, so that the SHA-256 of a body names
 * it. BEGIN and COMMIT carry their author's Ed25519 signature behind the body and may be passed on verbatim. */
#ifndef AVG_WIRE_H
#define AVG_WIRE_H
#include "avg/avg.h"
#include "avg/grid.h"
#include "avg/tree.h"
#include "common/buf.h"
#include "common/hash.h"

#define WIRE_MEMBERS_MAX 1024
#define WIRE_PROPOSALS_MAX 64           /* in a body, of PATCHES_MAX bytes together */
#define WIRE_PATCHES_MAX 32768
#define WIRE_SUBS_MAX 16384             /* parts times rows, so that a body fits in a frame */
#define WIRE_DEADLINE_US 86400000000ull
#define WIRE_PATCH_MAX 4096             /* bytes of JSON in a change of hyperparameters */

enum mate_flag { MATE_FOLLOWER = 1, MATE_CLIENT = 2, MATE_AUX = 4, MATE_HOLD = 8, MATE_IN = 16 /* in C */,
	MATE_GONE = 32 /* not live */, MATE_NEW = 64 /* BEGIN, welcome: has joined since the last commit */,
	MATE_READY = 128 /* COMMIT: has answered BEGIN, perhaps without a sample */ };

/* floats; owner: index of a member */
struct wire_part { uint16_t owner; uint64_t off, len; uint8_t hash[TREE256]; };
struct wire_member {
	struct id id; struct endpoint at; uint8_t flags;
	uint64_t samples;               /* contributed (COMMIT) */
	double rate; uint64_t bandwidth; uint32_t micro;
	struct ranges claimed, grant;
};
/* A change of hyperparameters that was asked for and is not in force yet. */
struct wire_proposal {
	struct id author; uint64_t nonce;
	uint64_t asked, epoch;          /* from which epoch on, as its author has signed; in force from */
	uint64_t counter; uint8_t sig[SIG_BYTES]; json_t *patch;
};

/* BEGIN (epoch = the one under way) and COMMIT (epoch = the one it makes) share their shape. */
enum body_what { BODY_BEGIN = 1, BODY_COMMIT = 2 };
struct body {
	enum body_what what;
	struct id run, leader; uint64_t epoch; uint8_t prev[DIGEST];
	uint32_t term, attempt; bool minority;
	uint64_t life;                  /* its leader's, since it entered the run (proof.c) */
	uint8_t round[DIGEST];          /* COMMIT: digest of the BEGIN that it ends; BEGIN: random */
	uint64_t len, weight, params_version; json_t *params;
	uint64_t ready_us, data_us;     /* BEGIN: deadlines from its arrival, for READY and for the data */
	enum hashes hashes;             /* of parts: what all members of BEGIN know */
	struct wire_member *m; size_t n;
	struct wire_part *part; size_t parts;
	struct wire_proposal *prop; size_t props;
	/* In rows (rows > 1; else all NULL and the body is of version 1): of every member the row, and in COMMIT the one it
	 * would be in next time (NO_ROW: nobody knows); sub as in tree.h. */
	size_t rows; uint16_t *row, *next, *sub;
	/* In a grid (dims > 0, rows 1; version 3) of its first grid.n members; owners of parts mean nothing then. COMMIT:
	 * of every line of the last phase the SHA-256 of its part hashes; zeros: it has no members. */
	struct grid grid; uint8_t *line_hash; size_t lines;
	/* Of units (rows 1, no grid; version 7; else held is NULL): what each member holds. Others hold all. */
	uint64_t generation; struct holding *held; size_t units;
};
bool body_holds(const struct body *b, size_t part, size_t i);
bool body_brings(const struct body *b, size_t part, size_t i);
size_t body_head(const struct body *b, size_t i);       /* who counts its samples: i without units; n: nobody */
/* Weights by member from samples by head. */
void body_weights(const struct body *b, size_t n, const uint64_t *samples, uint64_t *ret_w);
/* What a body's signature covers, beside the run. */
struct body_head { enum body_what what; struct id leader; uint64_t epoch, life; uint32_t term; uint8_t round[DIGEST],
	digest[DIGEST], sig[SIG_BYTES]; };
/* The tree of a body's parts over its first n members. */
void body_tree(const struct body *b, size_t n, struct tree *ret);
void body_free(struct body *b);
void body_encode(const struct body *b, struct buf *ret);
int body_decode(struct body *ret, const void *p, size_t n, struct err *e);      /* checks every bound and index */

/* ATTEMPT: who is in C and who owns which part now, or the end of the round. */
struct attempt { uint8_t round[DIGEST]; uint32_t term, no; bool give_up; char why[160]; uint64_t data_us;
	uint64_t *samples /* by member; 0 = not in C */; uint16_t *owner; size_t n, parts;
	size_t rows; uint16_t *sub /* as in tree.h; NULL: one row */;
	uint8_t *stand /* by member, as in grid.h; NULL: no grid */; };
void attempt_free(struct attempt *a);
void attempt_encode(const struct attempt *a, struct buf *ret);
int attempt_decode(struct attempt *ret, const void *p, size_t n, struct err *e);

/* READY: what a member brings into the round. */
struct ready { uint64_t samples; double rate; uint64_t bandwidth; struct ranges claimed; };
void ready_encode(const struct ready *r, struct buf *ret);
int ready_decode(struct ready *ret, const void *p, size_t n, struct err *e);

void wire_put_point(struct buf *b, const struct avg_point *p);
int wire_get_point(struct rd *r, struct avg_point *ret, struct err *e);
void wire_put_json(struct buf *b, const json_t *j);
int wire_get_json(struct rd *r, json_t **ret, struct err *e);
void wire_put_ranges(struct buf *b, const struct ranges *r);
int wire_get_ranges(struct rd *r, struct ranges *ret, struct err *e);
void wire_put_member(struct buf *b, const struct wire_member *m);
int wire_get_member(struct rd *r, struct wire_member *ret, struct err *e);

#endif
