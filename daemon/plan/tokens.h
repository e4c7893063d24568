/* When an instruction may start: the one truth that the executor and the predictor share. Pure: no clock, no memory but
 * its own. It walks the plan's list in order, binds every reference to a slot of a ring, and hands out instructions in
 * an order that nobody can tell from the list's own.
 *
 *	while ((r = tokens_start(t))) run it; later, when it has ended: tokens_end(t, r, NULL);
 *
 * An instruction is ready when (1) no earlier unfinished one of its stream touches a slot that it touches, one of both
 * writing (drops write too; COMMIT without inputs waits for everything before it, and what changes state for such a
 * COMMIT before it); (2) its inputs are complete, and a `<=k` finds a value young enough; (3) the slots it overwrites
 * have no reader and no pin (a pin: some saved value was made with this version, and `~` will ask for it) and do not
 * hold the newest complete value of a buffer that is read as `<=k`, unless it is an input of the writer itself; (4) its
 * outputs and scratch fit into their tiers, and everything before it in the list still would; (5) its lane has room and
 * it is among the lane's next `window`. */
#ifndef PLAN_TOKENS_H
#define PLAN_TOKENS_H
#include "common/list.h"
#include "plan/plan.h"

#define TOKENS_AHEAD 256        /* unfinished instructions of a stream that are looked at */

/* MISSING: the value of this key will not come (plan.h, Missing), or its writer was abandoned. */
enum slot_state { SLOT_EMPTY, SLOT_WRITING, SLOT_FULL, SLOT_EVICTED, SLOT_MISSING };
/* Who sent it (rank), and for what; how many bytes, of how many that there was room for (0: nobody has said). */
struct token_from { uint32_t peer, stream; int64_t index; uint64_t bytes, room; };
/* Where a reference leads; slot PLAN_NONE: not bound yet. Outputs: fresh when the slot has no memory yet, blank when it
 * holds no value of this key, so that `+` starts from zero. Inputs: missing when there is no value. */
struct token_bind { uint32_t buf, slot, stream; int64_t key; bool fresh, blank, missing; };
struct token_slot {
	enum slot_state state;
	int64_t key, version;           /* version: key of the weights it was made with, inherited from input 0; -1 none */
	bool bytes, remote;             /* its memory is taken; it came from another peer */
	uint32_t readers, pins;         /* running ones; saved values that will ask for this version */
	uint32_t npins; struct token_bind *pin; /* what this value pins */
	uint32_t nfrom; struct token_from *from; uint32_t parts;/* senders; most senders a batch can have */
	uint64_t used;                  /* logical clock of the last access */
	bool claimed; int64_t claim;    /* the key it will hold once everything fetched so far has run */
	uint64_t freed;                 /* when, in list order, it became free */
	uint64_t mark; bool marked;     /* scratch of the rehearsal of memory */
};

/* One execution of one instruction. Valid from tokens_start until tokens_end returns. */
struct token_run {
	struct list link;
	const struct plan_instr *instr;
	uint32_t stream, number;        /* number: of the instruction in the plan; PLAN_NONE: inserted */
	uint64_t iteration;
	int64_t index;
	bool running, inserted, asked;
	bool moved;                     /* its first input's memory is its first output's (plan_instr.inplace) */
	bool passed;                    /* passed over: end it, once what stands for its outputs is there */
	uint64_t seq;
	int64_t version;                /* key of the weights it reads; of input 0 when it reads none */
	struct token_bind *in, *out;    /* as many as instr has */
	struct token_bind *stands;      /* tokens_stand; NULL: not asked */
	void *user;                     /* the caller's */
	struct plan_instr *own;
};
/* What came with the values of a RECV or ALLTOALL; missing: they have not come, and never will. */
struct token_news { int64_t version; uint32_t nfrom; const struct token_from *from; bool missing; };

struct tokens;
/* May insert instructions before the one that waits (tokens_insert). Each may be NULL. */
struct token_hooks {
	void *arg;
	void (*miss)(void *arg, struct tokens *t, struct token_run *waits, uint32_t input);     /* its value is evicted */
	void (*pressure)(void *arg, struct tokens *t, struct token_run *waits, uint32_t tier, uint64_t bytes);
	void (*lost)(void *arg, struct tokens *t, uint32_t rank);
	/* Memory of a slot is taken or given back. */
	void (*memory)(void *arg, uint32_t stream, uint32_t buf, uint32_t slot, bool taken);
	/* Or it goes from one to the other; NULL: memory is called, given back first. */
	void (*moved)(void *arg, const struct token_bind *from, const struct token_bind *to);
};

/* The plan must outlive it and not change. before (may be NULL): the tokens of the program before, nothing running; the
 * values that it left in buffers of equal name, bytes and depth are there again, in the same slots, the newest of a
 * state buffer as key(first). */
struct tokens *tokens_new(const struct plan *p, const struct token_hooks *hooks, const struct tokens *before);
void tokens_free(struct tokens *t);
/* The next instruction that may start, marked as running; NULL when none may now. */
struct token_run *tokens_start(struct tokens *t);
void tokens_end(struct tokens *t, struct token_run *r, const struct token_news *news);
/* Before the end of one whose values have not come, once; begun ones that are passed over have it behind them. Those
 * outputs whose r->stands[k] has a slot become copies of the value there, which the caller makes; the others are
 * missing, or stay as they are. false: there is nothing to copy. */
bool tokens_stand(struct tokens *t, struct token_run *r);
/* It has ended and nobody waits for what it makes: values that it writes over are as they were (once it has begun, only
 * those that it reads, too), its other outputs are missing; they keep their memory, which may still be written to. What
 * it was to drop is gone, but for a SUM of an elastic group: that has taken nothing, and is asked again. */
void tokens_abandon(struct tokens *t, struct token_run *r, bool begun);
/* The body ends with the iteration that is being fetched (at most the deepest ring + 1 later), then the epilogue
 * runs. */
void tokens_stop(struct tokens *t);
bool tokens_finished(const struct tokens *t);                   /* everything has ended */
uint64_t tokens_running(const struct tokens *t);
int64_t tokens_next_index(const struct tokens *t);              /* `first` of the program after this one */
/* For hooks: *i is copied; its references must name values that are there or evicted. fn "evict" makes a DROP keep the
 * value's name, so that a later reader misses it. Returns -1 when a reference finds nothing. */
int tokens_insert(struct tokens *t, struct token_run *before, const struct plan_instr *i, int64_t index);
void tokens_lost(struct tokens *t, uint32_t rank);              /* calls the hook */

const struct plan *tokens_plan(const struct tokens *t);
const struct token_slot *tokens_slot(const struct tokens *t, uint32_t stream, uint32_t buf, uint32_t slot);
/* The slot that holds key (complete), or PLAN_NONE. */
uint32_t tokens_find(const struct tokens *t, uint32_t stream, uint32_t buf, int64_t key);
uint32_t tokens_newest(const struct tokens *t, uint32_t stream, uint32_t buf);
uint64_t tokens_used(const struct tokens *t, uint32_t tier);    /* bytes now */
uint64_t tokens_peak(const struct tokens *t, uint32_t tier);
uint32_t tokens_peak_values(const struct tokens *t, uint32_t buf);     /* most values of it held at once, per stream */
/* What the first unfinished instruction of each stream waits for, as text; empty when nothing waits. */
void tokens_why(struct tokens *t, struct buf *out);
/* The oldest instruction of a stream that is not running, and what hinders it (ret_which: input, output or tier).
 * LOST is for ever: the list reads what nothing before has made. */
enum token_wait { WAIT_NOTHING, WAIT_LANE, WAIT_EARLIER, WAIT_VALUE, WAIT_AGE, WAIT_SLOT, WAIT_MEMORY, WAIT_LOST };
enum token_wait tokens_blocked(struct tokens *t, uint32_t stream, const struct token_run **ret_run,
	uint32_t *ret_which);

#endif
