/* The state of one run on this peer: its layout, the shards that are held here, copies of them, and filling them anew.
 * Long work (copying, looking through hundreds of millions of numbers) is a job of the train lane; copies are made at
 * boundaries that the owner names, where nothing else touches the state.
 *
 *     owner                                     state
 *     state_snapshot(done)                 ->   waits;  <- cb.wanted: name a boundary soon
 *     state_copies() at a boundary         ->   true: some run, touch nothing until  <- cb.free
 *                                          <-   done(snapshot)
 *     state_fill(how, done)                ->   fresh values, what comes, a look  <- done(NULL or why not), cb.free
 *
 * Callbacks come from the loop. Units: bytes, elements. */
#ifndef STATE_STATE_H
#define STATE_STATE_H
#include "env.h"
#include "state/shard.h"

struct state;
struct state_cb {
	void (*wanted)(void *arg);              /* a copy is: state_copies at the next boundary */
	void (*free)(void *arg);                /* no copy and no fill runs any more */
	/* Fresh values of the parameters and running statistics of a shard, zeros before. In a job, or on the loop. */
	int (*init)(void *arg, struct shard *s, struct err *e);
	shard_bad_fn *bad;                      /* the first of n numbers that is not finite; n: all are. Likewise */
};
/* l is stolen. part: what is held here, n of them, 1 at least, each in memory of its own. NULL and e: no memory. */
struct state *state_new(struct env *env, struct layout *l, const struct shard_part *part, uint32_t n,
	const struct state_cb *cb, void *arg, struct err *e);
/* Copies that were asked for end with ERR_CANCELLED; cb is not called any more. gone: when no job touches it. */
void state_close(struct state *st);
void state_free(struct state *st, void (*gone)(void *arg), void *arg);  /* closes it, too */

/* The first of them; all. Touch a block only at a boundary, or before anything runs. */
struct shard *state_shard(struct state *st);
struct shard *state_shards(struct state *st, uint32_t *ret_n);
size_t state_bytes(const struct state *st);
bool state_busy(const struct state *st);        /* copies or a fill run */

/* --- copies */
struct snapshot {
	uint64_t epoch;
	void *data; size_t bytes;
	struct ckpt_tensor *tensor; size_t ntensors;    /* views into data */
	struct shard_part *part; uint32_t nparts;       /* what it is of; none of weights alone */
	uint8_t digest[STATE_DIGEST];           /* of w, when all of it is here */
	int refs;
};
/* s is the callee's; NULL: e says why. */
typedef void snapshot_fn(void *arg, struct snapshot *s, const struct err *e);
/* done comes once the copy is made. Of a state that is closed meanwhile nobody is told. */
void state_snapshot(struct state *st, snapshot_fn *done, void *arg);
/* Of parameters and running statistics of the first shard alone: no tensors, no digest. done comes in any case. */
void state_weights(struct state *st, snapshot_fn *done, void *arg);
/* The same into the caller's memory of w_bytes; epoch is that of the copy. Not when the state is closed. */
void state_copy(struct state *st, void *to, void (*done)(void *arg, uint64_t epoch), void *arg);
bool state_copies(struct state *st, uint64_t epoch);     /* whose outcome the state holds */
bool state_wants(const struct state *st);       /* copies wait for a boundary */
/* Another state takes the place of this one, of which no copies run: those that wait are made of that one, at its next
 * boundary. */
void state_hand_over(struct state *st, struct state *to);
void snapshot_unref(struct snapshot *s);

/* --- filling */
int state_init(struct state *st, struct err *e);        /* fresh values, zeros, clock: at once; 1 ms per million */
struct state_fill {
	const struct err *refused;              /* known before: nothing is done, and that is the answer */
	bool fresh;                             /* begin with fresh values */
	/* What puts values over them, in the job, once for every shard: 0, or -1 and why not. Then drop tells on the loop
	 * that it is over. */
	int (*fill)(void *arg, struct shard *s, struct err *e); void (*drop)(void *arg);
	/* All of what comes lies beside the state, which is one shard, the bytes from off on there, and is looked at first:
	 * when that says why not, the state is as it was. NULL: what lies in the blocks at the end is looked at. */
	shard_at_fn *at;
	void *arg;                              /* of the three */
	/* Where the digest of the first shard's block goes, of its bytes as they are at the end, made in the job when all
	 * went well; NULL: nobody wants it. It stays there until done. */
	uint8_t *digest;
};
/* done comes in any case, with ERR_CANCELLED when the state was closed. Nothing else may touch it until then. */
void state_fill(struct state *st, const struct state_fill *how, void (*done)(void *arg, const struct err *e),
	void *arg);
int state_look(struct state *st, struct err *e);        /* what lies in the block; at once */

#endif
