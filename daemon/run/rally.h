/* Which epoch of a run whose members hold parts all go on from when its state is in nobody's memory any more: the
 * newest whose parts together, in memory and in checkpoints of those who are here, are whole. rally.c asks and judges,
 * rally_say.c speaks, rally_files.c knows this peer's own checkpoints and which epoch is whole on the disks,
 * rally_claim.c how that is said.
 *
 *   RUN_SHARD {run}                     ->  anybody  <- {"stands", "runs", "generation", "members", "epoch", "prev",
 *                                                       "have"}, blob: who stands, the point there as JSON
 *   RUN_SHARD {run, epoch, prev, point} ->  who has a checkpoint of it  <- {}, blob: its point
 *   RUN_SHARD {run, saved}              ->  members, not answered: a checkpoint is on the disk
 *
 * "have" and "saved" are of claims: {"epoch", "prev" (digest of the COMMIT), "file", "parts": [[lo, hi, stat lo, stat
 * hi], ...]}. */
#ifndef RUN_RALLY_H
#define RUN_RALLY_H
#include "net/net.h"
#include "run/int.h"
#include "state/shard.h"

#define RALLY_FILES 32                  /* checkpoints of one's own that are looked at */
#define RALLY_PEERS 64                  /* that are asked */
#define RALLY_CLAIMS 40                 /* of one peer */
#define RALLY_TOLD 8                    /* epochs of which is known who has saved what */
#define RALLY_TEXT 240

struct claim { uint64_t epoch; uint8_t prev[DIGEST]; bool file; uint32_t n; struct shard_part *v; };
/* A checkpoint of this peer. */
struct kept { struct claim is; uint64_t life, bytes; char path[512]; char *point; };
/* What somebody says when it is asked. */
struct said { struct rally *w; struct id id; struct call *call; bool heard, stands, runs; uint64_t generation, members,
	epoch; uint8_t prev[DIGEST]; struct avg_point point; bool has_point; struct claim *v; size_t n; };
struct rally_sum { uint64_t epoch; uint8_t prev[DIGEST]; struct shard_part *v; size_t n; };

/* THERE: all go on there, or do already. BACK: and this peer stands beyond. */
enum rally_way { RALLY_STAY, RALLY_THERE, RALLY_BACK };
/* point: valid until the next round; generation: of the last COMMIT as those say who stand there, 0: nobody knows */
struct rally_verdict { enum rally_way way; const struct avg_point *point; uint64_t generation; };

struct rally {
	struct run *r; struct env *env; struct net *net;
	/* rally_files.c */
	struct kept *file; size_t nfiles; bool reading, again, dead;
	struct timer *then;                     /* who waits for that */
	struct rally_sum told[RALLY_TOLD];
	uint64_t bad;                           /* the checkpoint of that epoch cannot be read; 0: none */
	uint64_t on_disks;                      /* the newest epoch that is whole there, as far as is known here; 0: none */
	/* rally.c */
	struct said said[RALLY_PEERS]; size_t nsaid;
	bool asks; net_done_fn *fetched;        /* a round is under way; hears the point of what is taken */
	struct rally_verdict verdict; struct avg_point at; bool has_at;
	uint64_t since_us, told_us, back; unsigned backs;       /* so many rounds in a row have said so */
	char lacks[RALLY_TEXT];                 /* what is missing; empty: nothing that is known of */
	struct { struct call *call; uint64_t epoch, generation; uint8_t prev[DIGEST]; } fetch;
};

struct rally *rally_new(struct run *r);
void rally_free(struct rally *w);               /* NULL is fine */
void rally_calm(struct rally *w);               /* the run goes on: nothing is missing */
/* The others are elsewhere: what they have said so far of where they stand counts no more. */
void rally_anew(struct rally *w);
/* From now on it is waited for those who were there at the last COMMIT. */
void rally_since(struct rally *w);
/* One round of questions; nothing while one is under way. What net says to answered and fetched is for rally_answered
 * and rally_fetched. The verdict is returned by the last of the three, NULL: not yet. */
const struct rally_verdict *rally_ask(struct rally *w, net_done_fn *answered, net_done_fn *fetched);
const struct rally_verdict *rally_answered(struct said *x, const struct frame *f, const struct err *e);
const struct rally_verdict *rally_fetched(struct rally *w, const struct frame *f, const struct err *e);
/* What is on the disk here is read (again); then: fires after that, if the run follows still. NULL: nobody waits. */
void rally_read(struct rally *w, struct timer *then);
/* The checkpoint of that point here; NULL: there is none. */
const struct kept *rally_file(const struct rally *w, uint64_t epoch, const uint8_t prev[DIGEST]);
/* One that has at least these parts. */
const struct kept *rally_has(const struct rally *w, uint64_t epoch, const uint8_t prev[DIGEST],
	const struct shard_part *v, uint32_t n);
uint64_t rally_on_disks(const struct rally *w);
const char *rally_lacks(const struct rally *w);        /* why nobody goes on, in words; NULL: they do, or soon will */
void rally_bad(struct rally *w, uint64_t epoch);        /* the checkpoint of that epoch cannot be read after all */
void rally_hand(struct rally *w, struct request *req);  /* RUN_SHARD that is about this */

/* --- inside */
static inline const struct layout *rally_layout(const struct rally *w) { return trainer_shard(w->r->trainer)->l; }
/* Bytes of the state that none of them has. */
uint64_t rally_missing(const struct layout *l, const struct shard_part *v, size_t n);
void rally_found(struct rally *w, uint64_t epoch);      /* it is whole on the disks */
void rally_hear(struct rally *w, const json_t *saved);
json_t *claim_pack(uint64_t epoch, const uint8_t prev[DIGEST], bool file, json_t *parts /* taken */);
json_t *claim_json(const struct claim *c);
json_t *rally_have(const struct rally *w);              /* claims: memory and disk */
int claim_read(struct claim *ret, const struct layout *l, const json_t *j, struct err *e);
void claim_free(struct claim *c);
/* Of an answer; what is wrong in it is left out. */
void rally_hear_said(struct said *x, const struct frame *f);
void rally_files_free(struct rally *w);

#endif
