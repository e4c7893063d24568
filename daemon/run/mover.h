/* Parts of a state on their way between the members of a generation: who gets a part of the model that it does not hold
 * takes it from those who do, from memory, as it was at the last COMMIT. mover.c fills; mover_give.c gives;
 * mover_take.c asks and takes, mover_pick.c says what is asked of whom, mover_look.c what it must be; mover_aside.c
 * keeps what may be needed, mover_source.c knows who has what, mover_where.c who there is, mover_part.c how parts are
 * said. Each calls those named after it, and none calls back. Which epoch it is, rally.h finds.
 *
 *   RUN_SHARD {run, epoch, prev}            ->  members     <- {"held": [[lo, hi, stat lo, stat hi], ...], hashes}
 *   RUN_SHARD {run, epoch, prev, part, look, hashes} -> who has it  <- {"digest"}: tree256 of that shard's block
 *   RUN_SHARD {run, epoch, prev, part, tag} ->  who has it  <- {}, then a transfer of that shard's block
 *
 * What was held before a generation began stays until a COMMIT says that all have what they need. */
#ifndef RUN_MOVER_H
#define RUN_MOVER_H
#include "common/hash.h"
#include "net/by_run.h"
#include "run/int.h"
#include "state/gather.h"

#define MOVER_PIECE (256u * STATE_CUT)  /* elements of one request */
#define MOVER_SOURCES 256
#define MOVER_PARTS 4096                 /* that one peer has, in what it holds, has held, or has saved at one epoch */
#define MOVER_BAD 16

/* Shards of one epoch that lie beside the trainer's. */
struct loading { struct mover *m; struct aside *a; struct files *files; struct trainer *trainer; char path[4096];
	struct shard *shard; uint32_t shards; const struct shard **here; uint32_t nhere /* it comes from these */; };
struct aside { struct list link; struct mover *m; uint64_t epoch; struct state *state; bool ready;
	struct loading *from; };        /* it comes from a file; NULL: it is here */
enum mover_step { MOVER_IDLE, MOVER_ASKS, MOVER_TAKES, MOVER_FILLS };
struct source { struct mover *m; struct id id; struct call *call; bool out, busy; unsigned flying, asked;
	/* It was busy: not asked before, then for one thing at a time; and how long that was, until it is not. */
	uint64_t rest_us, pause_us; unsigned refused;   /* words, one after the other */
	uint32_t n; struct shard_part *held; enum hashes hashes; };
/* Where in a block numbers lie that must be finite: the first so many bytes, and from extra to the end. */
struct numbers { size_t bytes, extra; uint32_t unit; };
/* A piece that is missing here, parameters or running statistics: in a shard of its own until it has come. */
struct morsel { struct list link; struct mover *m; struct shard_part is; struct shard s; struct source *from;
	struct call *call; struct xfer *x; bool here;
	struct job job; bool looking, over;     /* a job looks through it; and nobody waits for that */
	struct numbers numbers; const char *bad;  /* what is wrong with it; NULL: nothing */
	struct word *word; uint32_t nwords, open;       /* of all who have it; so many are to come */
	bool agreed, differs; enum hashes hashes;       /* that all of them know */
	uint8_t want[TREE256];    /* its digest, when most have said so; they do not agree */
};
/* What somebody who has a piece says that its digest is. */
struct word { struct morsel *x; struct source *s; struct call *call; bool over, told;
	uint8_t digest[TREE256]; };
/* Has given what cannot be the state's. */
struct bad_peer { struct id id; uint64_t until_us; };
struct mover {
	struct run *r; struct env *env; struct net *net; struct by_run hub; uint64_t given_bytes, taken_bytes,
	busy /* so often it had no place for a piece */;
	struct list asides; uint64_t epoch;     /* of what is being filled */
	/* mover_take.c */
	enum mover_step step; void (*done)(void *run, const struct err *e); struct state_fill values;
	struct source source[MOVER_SOURCES]; size_t nsources, nknown /* of before, too */, nsure;
	struct list morsels; size_t left; unsigned flying;
	double clock[STATE_CLOCK_MAX]; bool has_clock;      /* of what has come */
	struct bad_peer bad[MOVER_BAD]; unsigned nbad;  /* the latest of them */
	uint64_t begun_us, said_us, differed_us, pause_us, fills, fill_us, fill_longest_us;
	struct timer timer;
	bool gathered;                          /* or nothing was to */
	bool stopped, dead, forget;             /* the job that fills reads all of this: what is to go then */
	/* mover_give.c */
	struct list gifts, looks; size_t ngifts, nlooks;
};

/* Of the running statistics, or of the parameters. */
static inline struct extent mover_extent(const struct shard *s, bool stat) { return stat ? s->stat : s->param; }
static inline struct extent mover_part_extent(const struct shard_part *p, bool stat)
{
	return stat ? p->stat : p->param;
}
/* The next of pauses that grow, after `us`; 0: the first. */
static inline uint64_t mover_longer(uint64_t us, uint64_t first, uint64_t most)
{
	return !us ? first : us < most / 2 ? 2 * us : most;
}
/* So long may a piece take of which so many are on their way, over the slowest link. */
static inline uint64_t mover_patience(size_t bytes, unsigned at_once)
{
	return 5000000 + (uint64_t)((double)bytes * at_once / 30000.0 * 1e6);
}

/* hand gets RUN_SHARD of the run, with the mover; what is about one state is for mover_hand. */
struct mover *mover_new(struct run *r, by_run_fn *hand, struct err *e);
void mover_free(struct mover *m);
/* Nobody needs any more what was kept: a COMMIT has come. */
void mover_forget(struct mover *m);
/* What this peer held, all of it with the values of that epoch, unless all of that is kept already. Stolen; NULL is
 * fine. */
void mover_keep(struct mover *m, struct state *was, uint64_t epoch);
/* The n parts that are in a checkpoint of that epoch; over says whether they could be read, and calls mover_loaded. */
int mover_load(struct mover *m, const char *path, uint64_t epoch, const struct shard_part *part, uint32_t n,
	void (*over)(void *loading, const struct err *e), struct err *e);
struct run *mover_loaded(void *loading, const struct err *e);   /* whose it is; NULL: nobody wants it any more */
/* What was moved since the run began here, for `run show`: {"taken_bytes", "given_bytes", "busy" (pieces that were
 * asked for when there was no place for more), "fills", "fill_us" (the last one), "fill_us_longest"}. */
json_t *mover_json(const struct mover *m);
/* Fills what the trainer holds with the values of the run's point, from here or from others: as long as it takes, until
 * mover_stop. done: once, and calls mover_filled; e: they can not be this state's. */
void mover_fill(struct mover *m, void (*done)(void *run, const struct err *e));
bool mover_filled(struct mover *m);             /* does anybody still wait for that? NULL is fine */
void mover_stop(struct mover *m);
/* What was held before, beside the trainer's, with the values of the run's point: the most that is in one place. NULL:
 * the trainer's has more, or nothing is. ret_most: elements of that, or of the trainer's; or NULL. */
struct state *mover_kept(const struct mover *m, uint64_t *ret_most);
/* For whoever saves it: all that is here with the values of the run's point is put into one, beside the trainer's,
 * which must lie still. true: that is not over yet, ask again. Once: for want of memory it stays in pieces. */
bool mover_gathers(struct mover *m);
/* The parts that are here with the values of the run's point, as others are told of them. */
json_t *mover_held(const struct mover *m);
const struct shard **mover_here(const struct mover *m, uint32_t *ret_n);        /* as shards; a list to be freed */

/* --- inside */
void mover_take(struct mover *m);
void mover_take_stop(struct mover *m);
/* Asks all who have it, those that rested again; false: nobody has it, or their words are there. What net says to
 * `said` is for mover_look_heard; then it goes on with all that is missing. */
bool mover_look_ask(struct morsel *x, net_done_fn *said);
struct mover *mover_look_heard(void *word, const struct frame *a, const struct err *e);
void mover_look_stop(struct morsel *x);
bool mover_look_fits(const struct morsel *x, const struct source *s);  /* it has said what most have */
void mover_look_through(struct morsel *x, void (*looked)(struct job *j));       /* in its job */
bool mover_looked(struct morsel *x);            /* that has ended: x->bad says what is wrong; false: x is gone */
struct numbers mover_numbers(const struct shard *s);
bool mover_sound(const struct shard *s, const struct numbers *x);       /* in any thread; the layout may be gone */
bool mover_source_has(const struct source *s, const struct shard_part *p);
const char *mover_words(const struct morsel *x, char *out, size_t cap);        /* "parameters 0 to 1024" */
/* MOVER_SOURCES at most, first so many who hold some of it for sure, and live. */
size_t mover_whom(const struct run *r, struct id *ret, size_t *ret_sure);
/* Morsels of what is wanted and neither here nor come; false: nobody has some of it. */
bool mover_cut(struct mover *m, bool stat, struct extent want);
struct source *mover_source_of(struct mover *m, const struct morsel *x, bool *ret_none);
void mover_rest(struct source *s);              /* it is busy: the others first, and then after a pause that grows */
/* Until somebody has rested who could be asked for something; 0: that is nobody. */
uint64_t mover_rests(const struct mover *m);
/* What it has given of x is not what it should be: it is said, and it is not asked any more. */
void mover_blame(struct mover *m, struct source *s, const struct morsel *x, const char *what);
bool mover_blamed(const struct mover *m, const struct id *id);
void mover_hand(struct mover *m, struct request *req);
void mover_aside_free(struct aside *a);
/* Is to be filled: then over, which calls mover_loaded. NULL and e: no memory. */
struct loading *mover_aside_new(struct mover *m, uint64_t epoch, const struct shard_part *part, uint32_t n,
	struct err *e);
void mover_give_stop(struct mover *m);
json_t *mover_part_json(struct extent param, struct extent stat);      /* [lo, hi, stat lo, stat hi] */
json_t *mover_parts_json(const struct shard_part *v, uint32_t n);
/* Of remote or stored bytes: within so many parameters and statistics; and cut where shards may be. */
int mover_part_within(struct shard_part *ret, uint64_t params, uint64_t stats, const json_t *j, struct err *e);
int mover_part_read(struct shard_part *ret, const struct layout *l, const json_t *j, struct err *e);
/* A list of them, MOVER_PARTS at most, in new memory; NULL and e. */
struct shard_part *mover_parts_read(uint32_t *ret_n, const struct layout *l, const json_t *list, struct err *e);
/* A shard here, of the run's point, that has these elements: of the parameters, or the running statistics. */
const struct shard *mover_shard_at(const struct mover *m, bool stat, uint64_t at, bool trainers);
bool mover_has(const struct mover *m, struct extent x, bool stat);      /* all of it, beside the trainer's */

#endif
