/* The executor: runs any plan (plan/plan.h) on this peer. It knows kinds, not strategies: which instruction may
 * start is plan/tokens.c's word; what it does is a job of a lane (FWD BWD VEC MOVE SAVE), a request to the owner (LOAD,
 * everything that leaves the peer) or a mark (DROP COMMIT).
 *
 * A program ends, plan() is asked for the next one; an empty program means: wait until exec_wake. Values stay in
 * their buffers from program to program (same name, bytes, depth; in memory or in a file as before).
 *
 * Values of tier file lie in one file of conf.folder, made with the first of them; it has no name, so that nothing of
 * it is left however this ends. What the disk refuses (no room, an error) is a failure of the MOVE or SAVE: cb.failed.
 */
#ifndef EXEC_H
#define EXEC_H
#include "common/buf.h"
#include "common/lease.h"
#include "env.h"
#include "plan/planner.h"
#include "plan/tokens.h"
#include "exec/ops.h"
#include "exec/vec.h"

#define EXEC_RESULTS_MAX 64

struct exec;
/* What becomes of an instruction that has failed: it goes on without what it was to bring (plan.h, Missing); the
 * program is abandoned, as by exec_interrupt, and plan() asked; likewise, but later, when the owner interrupts: what
 * does not wait for it goes on; nothing runs any more. */
enum exec_outcome { EXEC_WITHOUT, EXEC_REPLAN, EXEC_LATER, EXEC_BREAK };
struct exec_cb {
	/* The next program, into *ret (not initialised); results of the one before. first: index at which it must start.
	 * -1 and e: the executor breaks. */
	int (*plan)(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret, struct err *e);
	/* COMMIT has come: i says its scope, b is its batch input (NULL: none). */
	void (*commit)(void *arg, const struct plan_instr *i, int64_t index, const struct batch *b);
	/* A VEC has made a value of class scalar, or a RECV has brought one. May be NULL. */
	void (*scalar)(void *arg, const char *name, int64_t index, const void *p, size_t bytes);
	/* What VEC functions may know, asked at the start of each. NULL: nothing. */
	void (*env)(void *arg, struct vec_env *ret);
	/* An instruction of p has failed. meant: WITHOUT where its on_missing says so, else REPLAN. The answer holds, but
	 * WITHOUT can only be where it is meant. NULL: as it is meant, but BREAK for REPLAN. */
	enum exec_outcome (*failed)(void *arg, const struct plan *p, const struct plan_instr *i, enum exec_outcome meant,
		const struct err *e);
	void (*broken)(void *arg, const struct err *e);
	/* One line of the run log, without newline. NULL: none is made. */
	void (*log)(void *arg, const char *line, size_t len);
};
struct exec_conf {
	struct env *env;
	const struct model *model;              /* NULL: nothing is computed; instructions only take their time */
	const struct par *par;                  /* for lane train; other lanes run serially */
	const struct profile *profile;          /* what jobs cost in virtual time; NULL: nothing */
	double speed;                           /* of this peer, divides the costs; 0 is taken as 1 */
	uint64_t (*cost_us)(void *arg, const struct plan *p, const struct token_run *r);       /* instead; may be NULL */
	const struct exec_ops *ops; void *ops_arg;
	const struct token_hooks *hooks;        /* miss, pressure, lost; memory is the executor's own. May be NULL */
	uint64_t budget_bytes;                  /* of tier arena, over all plans; 0 = no limit */
	uint64_t host_bytes, file_bytes;        /* likewise of those two */
	/* For tier file and SAVE, this executor's alone; made when it is needed, in a folder that is there. Copied. NULL:
	 * plans with either are refused. */
	const char *folder;
	bool eval;                              /* forward passes only */
	real *buffers;                          /* of the model (running statistics), the owner's; NULL: it has none */
	uint64_t seed;                          /* of what is random in a micro-batch, with its first position */
	/* plan/check.h before a program of a new shape runs: what it refuses breaks the executor. Off: plans that only time
	 * is told of (sleep layers, emulators) or that somebody has checked with all the others. */
	bool check;
};

struct exec *exec_new(const struct exec_conf *conf, const struct exec_cb *cb, void *arg);
/* Starts nothing more; gone (may be NULL) is called when no job touches its memory, at once or later. */
void exec_free(struct exec *x, void (*gone)(void *arg), void *arg);
/* Somebody else's jobs read values of it: after exec_free, too, all stay until as many exec_returned. */
void exec_lend(struct exec *x);
void exec_returned(struct exec *x);
/* Room for what is to become a value (exec_done_with): a piece that it has kept, or a new one; counted with its own
 * until it is given back, which may be after exec_free. NULL: there is no memory. */
struct lease *exec_room(struct exec *x, size_t bytes);
/* The one value of this buffer lives in memory of the owner; a plan that wants a ring of it, or more bytes, is refused.
 * Before the first program. What is written there counts at once: an interrupt waits for a running instruction that
 * writes it. */
void exec_bind(struct exec *x, const char *buffer, void *p, size_t bytes);
/* The same of all buffers "STEM.ANYTHING" that are parts of one vector: each lies there where its first extent begins,
 * so that parts that follow each other lie end to end. */
void exec_bind_parts(struct exec *x, const char *stem, void *p, size_t bytes);
/* Nothing is bound and nothing counts any more; after exec_reset. */
void exec_unbind(struct exec *x);
/* The executor's memory, but what is written there counts at once, too. */
void exec_count(struct exec *x, const char *buffer);
void exec_wake(struct exec *x);                 /* something has changed: ask plan() again, if nothing runs. Later. */
/* Abandons the program without a trace in bound buffers, then asks plan(). An instruction that is writing a bound
 * buffer ends first, with the COMMIT behind it. Jobs that run end unheard; what needs their memory waits for them. */
void exec_interrupt(struct exec *x);
void exec_wind_down(struct exec *x);            /* the body ends with the iteration that runs, then plan() is asked */
void exec_stop(struct exec *x);                 /* like interrupt, but asks no more, until exec_wake */
/* forgets the program and every value but the bound ones; must be quiet */
void exec_reset(struct exec *x);
/* For virtual time: while held, what ends is noted and nothing starts; letting go starts what has become ready. */
void exec_hold(struct exec *x, bool hold);
bool exec_quiet(const struct exec *x);          /* no job of it runs */
void exec_on_quiet(struct exec *x, void (*quiet)(void *arg), void *arg);        /* once, later, when it is */
void exec_lost(struct exec *x, uint32_t rank);  /* a member of the plan has left */

struct exec_view {
	uint64_t arena_bytes, arena_peak_bytes; /* T5: handed out now, and at most, rounded as plans state them */
	uint64_t tokens_peak_bytes;             /* tier 0 of the program that runs, as the predictor counts */
	struct { uint64_t bytes, peak_bytes; } tier[PLAN_FILE + 1];    /* the same of arena, host and file */
	uint64_t flops;                         /* of FWD and BWD (kernels/cost.h) */
	uint64_t instructions, abandoned, programs, checks, busy_us, load_wait_us;
	uint64_t brief;                         /* VECs that have run on the loop: they take microseconds */
	uint64_t begun_us;                      /* when the first job of the train lane began; 0: none has */
	uint64_t train_ns, eval_ns;             /* its instructions since, if par has a clock; those that evaluate */
	uint64_t cut_short;                     /* programs that were abandoned before their end */
	uint64_t failed, passed;                /* instructions; those passed over because of what has not come */
	uint64_t bytes[PLAN_CLASSES_COUNT];     /* T4: by class, of what was loaded, sent, received or reduced */
};
void exec_view(const struct exec *x, struct exec_view *ret);
#define EXEC_TIMES_KEPT 15              /* durations that a median is made of, and how few will do */
#define EXEC_TIMES_FEWEST 5
/* Median time of an instruction, us; fn: of VEC, else "". UINT64_MAX: it has not run often enough. */
uint64_t exec_took_us(struct exec *x, enum plan_kind kind, const char *fn);
/* Where training passes have spent their time since the beginning, by op of the model. NULL: nothing was measured, or
 * par has no clock. */
struct exec_layer { struct { uint64_t ns, samples; } fwd, bwd; };
const struct exec_layer *exec_layers(const struct exec *x);
/* Mean time of an instruction in its lane, without the wait for it, us; likewise from the beginning. 0: not measured */
double exec_ran_us(struct exec *x, enum plan_kind kind, const char *fn);
uint64_t exec_train_ns(struct exec *x, enum plan_kind kind, const char *fn);    /* all that was in the train lane */
uint64_t exec_median(uint64_t n, const uint64_t *us);   /* of the last KEPT of n; likewise */

#endif
