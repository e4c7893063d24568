/* Inside the executor: exec.c (the spine), end.c (what an end means), mem.c (memory of values), bind.c (that of the
 * owner), piece.c (what is kept, what both share), count.c (bytes of tiers), job.c (work in lanes), move.c (MOVE and
 * SAVE), net.c (what the owner does), log.c (the run log), check.c (what a program may contain). */
#ifndef EXEC_INT_H
#define EXEC_INT_H
#include "common/lease.h"
#include "common/list.h"
#include "kernels/cost.h"
#include "exec/exec.h"
#include "exec/spill.h"

#define EXEC_SCRATCH 4          /* work areas kept for the next instruction */
#define EXEC_SPARE 16            /* pieces of memory kept for the next value of that size */
#define EXEC_SPARE_BYTES ((size_t)8 << 20)      /* that much more than was ever in use */
#define EXEC_TIMES 32           /* kinds and functions that are timed */
#define EXEC_NEEDS 16            /* pieces whose needs are known */
#define EXEC_SHAPES 128         /* shapes of programs that are known to be right */

/* The memory of one slot of a ring. Abandoned jobs may still use it when the slot has moved on: it lives while refs. */
struct block {
	int refs;
	void *p; size_t bytes;
	bool bound;                             /* the owner's memory */
	/* What a SUM of an elastic group has brought: p is NULL until it has, then in the lease, or in another block. */
	bool lent; struct lease *lease; struct block *of;
	/* In the file of exec.spill, p is NULL. holds: something has been written there, else it reads as zeros. */
	bool filed, holds; uint64_t at;
	uint32_t reading, writing;              /* by abandoned jobs */
	struct batch *batch;                    /* class BATCH: the owner's, p is NULL */
};
/* p NULL: ours, it counts; parts: name is a stem */
struct bound { struct list link; char name[PLAN_NAME]; void *p; size_t bytes; bool parts; };

/* piece.c: a lease of room, or of a block that is kept. x NULL: it has gone. */
struct out { struct lease lease; struct list link; struct exec *x; struct block *block; };

struct exec_time { enum plan_kind kind; char fn[PLAN_NAME]; uint64_t n, us[EXEC_TIMES_KEPT], ran_ns, ran, train_ns; };

struct program {
	int refs;                               /* the executor, and abandoned jobs */
	struct plan plan;
	struct tokens *tokens;
	uint32_t *base;                         /* of a buffer in block[]: base + stream * depth + slot */
	uint32_t nblocks; struct block **block;
	uint64_t number;
};

struct op {
	struct list link;                       /* exec.ops, exec.parked or exec.abandoned */
	struct job job;
	struct exec_wait wait;
	struct exec *x;
	struct program *prog;
	struct token_run *run;                  /* NULL once abandoned */
	const struct plan_instr *i; struct plan_instr *own;     /* own: of an inserted one */
	int64_t index; uint32_t stream;
	struct block **in, **out;
	struct block **from; const char *how;   /* end.c: what is copied to stand for its outputs */
	const struct token_news *news;          /* at its end */
	void *work; size_t work_bytes; int scratch;     /* which of exec.scratch; -1: none */
	bool is_job, failed;                    /* failed: nobody works at it, and it waits to be abandoned */
	bool trains;                            /* of the lane of that name, which a brief VEC does without */
	void (*work_of)(struct op *o);          /* of FWD, BWD and VEC; sees only the op */
	uint64_t begin_us;
	uint32_t batch; uint64_t key;           /* FWD, BWD: samples; what their dropout is a function of */
	real *buffers;
	struct vec_call call; struct vec_arg *args;
	struct cost cost;                       /* that FWD or BWD took */
	uint64_t *ns; int nns;                  /* by op of its piece, where there is a clock; NULL */
	uint64_t ran_ns;                        /* in its lane, likewise */
	size_t x_bytes;                         /* what flows into FWD */
	struct par par;
	struct kerr kerr; int rc;
	const struct spill *spill; int fd; bool opens;  /* MOVE, SAVE, stand-ins; opens: it is the first to need the file */
	struct err io;                          /* what the disk said; code 0: nothing */
	const struct model *model; bool eval;
};

struct exec {
	struct exec_conf c;
	struct exec_cb cb; void *arg;
	struct program *prog;
	struct list ops, parked, abandoned;     /* running; started but waiting for memory of abandoned ones; those */
	struct list bounds;
	struct timer kick;
	uint32_t lent;                          /* exec_lend, exec_keep */
	struct list out; size_t out_bytes, lent_bytes;  /* piece.c: leases; bytes of room that is out; of lent blocks */
	bool over;                              /* the program was abandoned: nothing more of it may start */
	bool pumping, held, idle, stopped, interrupted, broken, dying, dead;  /* dead: the env completes work at once */
	struct op *starting;
	void (*quiet)(void *arg); void *quiet_arg;
	void (*gone)(void *arg); void *gone_arg;
	uint64_t programs;
	uint32_t nresults; struct plan_result result[EXEC_RESULTS_MAX];
	size_t used[PLAN_PLACES], peak[PLAN_PLACES], working;   /* working: the scratch in used */
	struct spill *spill;                    /* NULL: there is no folder for it */
	struct job close;                       /* of its file, at the end */
	struct { void *p; size_t bytes; bool busy; } scratch[EXEC_SCRATCH];
	struct { void *p; size_t bytes; } spare[EXEC_SPARE]; uint32_t nspare; size_t spare_bytes;
	struct exec_view v;
	uint32_t ntimes; struct exec_time time[EXEC_TIMES];
	struct exec_layer *layer;               /* of the model's ops; NULL: nobody has measured yet */
	uint64_t shape[EXEC_SHAPES];            /* 0: none */
	struct exec_need { int a, b, parts; uint32_t batch; struct model_need is; } need[EXEC_NEEDS]; uint32_t nneeds;
	uint64_t stall_us;                      /* since when a LOAD has been waiting with nothing else to do; 0: not */
};

/* mem.c */
/* Becomes exec.prog, with the values of the one before. -1: there is no memory for what it begins with. */
int program_new(struct exec *x, struct plan *stolen, struct program *before, struct err *e);
void program_unref(struct exec *x, struct program *p);
struct block *block_at(struct program *p, const struct token_bind *b);
/* Memory of outputs and scratch; 0, 1: must wait for an abandoned job, -1: over the budget or none left. */
int op_memory(struct op *o, struct err *e);
void op_blocks(struct op *o);                   /* looks them up, takes references */
void op_init(struct op *o, struct exec *x, struct token_run *r);
void op_free(struct op *o);
void op_uses(struct op *o, int by);             /* abandoned, until its job or its provider has ended: 1, then -1 */
void block_unref(struct exec *x, struct block *b);
void exec_mem_done(struct exec *x);
void batches_back(struct exec *x);

/* piece.c */
void *piece_take(struct exec *x, size_t bytes);         /* one of that size that was kept, or a new one */
void piece_put(struct exec *x, void *p, size_t bytes);
void pieces_trim(struct exec *x);
void pieces_done(struct exec *x);
/* bind.c */
bool bound_value(const struct exec *x, const char *name);      /* it lies in memory of the owner */
const struct bound *bound_find(const struct exec *x, const char *name);
/* Where the value of b lies in it, and for how many bytes there is room. */
void *bound_at(const struct bound *own, const struct plan_buf *b, size_t *ret_bytes);
bool binds_fit(const struct exec *x, const struct plan *p, struct err *e);     /* exec_bind's memory is enough for it */
bool op_counts(const struct op *o);             /* it writes what counts at once */
/* count.c */
size_t block_bytes(const struct plan_buf *b);   /* with its journal */
void block_count(struct exec *x, const struct plan *p, const struct plan_buf *b, bool taken);
void work_count(struct op *o, bool taken);     /* scratch, from the start to the end that the tokens see */
int budgets_hold(const struct exec *x, struct err *e);
/* move.c */
/* In a lane, or anywhere when both are in memory; o for what it says of the file. Then block_copied, on the loop. */
int block_copy(const struct op *o, struct block *to, const struct block *from, size_t bytes, struct err *e);
void block_copied(struct block *to, const struct block *from);
bool move_must_wait(const struct op *o);        /* the file is being opened */
void move_prepare(struct op *o);                /* fills in the job of MOVE or SAVE */
void move_done(struct op *o);                   /* first thing after it; failed: o->io says why */
/* job.c */
int op_prepare(struct op *o, struct err *e);    /* fills in job but done; -1: the plan asks for what cannot be done */
int op_worked(struct op *o, struct err *e);     /* first thing after its job; -1: it has failed, and e outlives o */
bool op_lacks(const struct op *o);              /* a VEC that has not the inputs that it cannot do without */
/* net.c */
void op_ask(struct op *o);
void op_loaded(struct op *o, struct batch *b);  /* takes b; NULL: it has failed */
/* end.c. Afterwards o may be gone, but where they say true; then the caller pumps. */
bool op_ended(struct op *o, const struct token_news *news, const struct err *e);        /* e: it has failed */
void op_finish(struct op *o, const struct token_news *news);    /* it has ended well and still counts */
/* Tokens say so; it has not begun. True, as of op_ended: what stands for its outputs is to be copied in a lane, its job
 * is filled in but done; then op_stood_in. */
bool op_pass_over(struct op *o);
void op_stood_in(struct op *o);
void exec_break(struct exec *x, const struct err *e);
/* log.c */
void log_program(struct exec *x, const struct program *p);
void log_op(struct exec *x, const struct op *o, const char *how);       /* start end passed without failed */
/* count.c; counted once for each piece and batch: there are few */
const struct model_need *exec_need(struct exec *x, const struct model *m, int a, int b, uint32_t batch, int parts);
/* times.c */
void op_took(struct op *o);
bool op_is_brief(const struct op *o);           /* a VEC that has taken microseconds until now */
/* check.c */
/* Can it run here, and is it right behind the program before it (NULL: the first)? */
bool plan_runnable(struct exec *x, const struct plan *p, const struct program *before, struct err *e);

#endif
