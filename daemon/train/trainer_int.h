/* Inside the trainer. Calls go down this list (trainer_gone.c alone frees what trainer_valid.c has):
 *   trainer_life.c                     what it is built of, and its end
 *   trainer.c                          programs: what is planned next, what came of it
 *   trainer_load.c, trainer_trouble.c  LOADs; instructions of the network that fail
 *   trainer_round.c                    rounds, from begin to the applied step
 *   trainer_crew.c, trainer_parts.c    a seat in a generation, and what of the state is whose
 *   trainer_eval.c, trainer_valid.c    validation of a seat; of a peer that has the whole model
 *   trainer_state.c, trainer_flight.c  what the state is made of; rounds beside micro-batches
 *   trainer_grow.c, trainer_loader.c   gradients given in parts; the next batch
 *   trainer_check.c, trainer_gone.c    who made the NaN; what goes with the last who keeps the trainer
 *   trainer_epoch.c, trainer_rest.c    what an epoch has gathered, what waits; a rest after a failure
 *   trainer_positions.c, _late.c       where a seat's micro-batches lie
 *   trainer_seat.c, trainer_ask.c      questions
 *   trainer_tell.c                     what the owner hears
 * Beside them, called by nobody above but life: trainer_model.c (profile), trainer_memory.c (bytes), trainer_view.c,
 * trainer_layers.c, trainer_measure.c, trainer_wire.c, trainer_eval_plan.c (what a validation takes). */
#ifndef TRAIN_TRAINER_INT_H
#define TRAIN_TRAINER_INT_H
#include "exec/exec.h"
#include "plan/planner.h"
#include "train/profile.h"
#include "train/strategy.h"
#include "train/trainer.h"

#define COMMITS_MAX 64
/* Plans of many members are the same on all of them, whatever their machines: scratch is for TRAINER_THREADS_MAX
 * threads (of which a member may have fewer), times are those of a peer of speed 1. */
#define TRAINER_CREW_MACS 10000.0       /* multiply-adds per us */

struct commit {                                 /* a commit that is to be applied */
	struct list link;
	uint64_t epoch, samples;                /* samples: this peer's part */
	struct ranges claimed;
	bool flew; uint64_t version;            /* it decides what is in trainer.flight, with that version */
	double loss;                            /* sum over them */
	double hyper[OPTIM_KEYS_MAX], clip_norm; uint64_t target, batch;        /* batch: what the rate is scaled with */
	/* Where mean lies, until the SUMs have it. NULL: it has, or there is none. */
	float *mean; size_t bytes; struct lease *lease;
};
#define VALID_SLOTS PLANNER_HELD_SLOTS  /* batches of a validation that are here at once */
struct valid_batch;
/* Of a seat (trainer_eval.c): a program of it runs, of n micro-batches from index first on. */
struct evaluation {
	bool runs, last;                        /* last: no other program has begun since */
	uint64_t first, resume /* index that training goes on with */, cut /* as in seat */, index /* the next */;
	uint32_t n, ntold; double (*told)[TALLY];        /* by replica of the last stage */
};
struct valid {
	struct trainer *t;
	struct exec *x;
	real *w; size_t w_bytes;                /* copy of the parameters and of the running statistics behind them */
	uint64_t epoch, next, count; uint32_t batch;
	double loss; double correct;
	bool wanted, running, planned; uint64_t begun_us;
	bool though_paused, lost;               /* of a seat: it must not wait; it came to nothing, which is to be told */
	struct evaluation eval;
	struct valid_batch *slot[VALID_SLOTS];
	/* LOADs for which no slot is free yet: jobs that nobody waits for any more may be in them. */
	struct { struct exec_wait *w; uint64_t from; uint32_t n; } more[VALID_SLOTS]; uint32_t nmore;
};

/* What was given to a round that goes on beside micro-batches: it lies in the plan's buffer `sent` until a commit
 * decides it. A round that fails leaves it there for the next one. */
struct flight {
	bool out;                               /* there is something */
	bool taken;                             /* its commit has come, and waits in trainer.commits */
	uint64_t samples, version; double loss_sum;    /* version: the epoch whose parameters it is a gradient of */
	struct ranges claimed;
};

/* The SUMs of the elastic groups of a program: of all that is held the mean, of one part at most what is brought. They
 * are one round, which begins when all of them wait. */
struct sums {
	uint32_t n, wanted;                     /* that wait; of the program */
	/* at, len: of the mean, in reals; to NULL: it is read where the round has put it */
	struct sum { struct exec_wait *w; void *to; const void *from; size_t at, len; } *v; uint32_t max;
};
static inline bool sums_wait(const struct sums *s) { return s->n && s->n >= s->wanted; }
static inline void sums_cut(struct sums *s) { s->n = 0; }

/* Of a seat whose epochs run on into each other (trainer_late.c). */
struct late {
	/* Positions of epochs `of` and those behind it, of all units: not committed yet. laid: they have been. */
	struct ranges set[AHEAD_LATE]; uint64_t of; bool laid;
	bool ahead;                             /* micro-batches of the next epoch are under way */
	bool steps, cuts;                       /* the state is being stepped: nothing parts that; then all else ends */
	uint64_t next;                          /* index of the next epoch's first micro-batch */
};

/* trainer_grow.c */
struct grow {
	real *x; size_t bytes;                  /* where parts of gradients lie; NULL: the strategy gives none */
	bool planned;                           /* the program gives its micro-batch while it makes it */
	bool on;                                /* that counts, and no commit has decided it */
	bool told;                              /* to the round that has begun */
	struct batch *batch; uint32_t n; double loss; struct ranges claimed;   /* batch NULL: it is back at the loader */
};

/* What a generation makes of this peer, for strategies whose plans have many members (trainer_crew.c). */
struct seat {
	bool is, over;                          /* in one; it is over, and only what was decided is applied still */
	struct view v; struct view_member *member; json_t *values;
	struct trainer_part part;               /* what of the state it holds, and brings to a round */
	bool reads;                             /* its LOADs want samples, not only which ones these are */
	uint32_t ring;                          /* batches that its plans hold at once */
	/* Indices are the same on all members: `start` is where the epoch begins for everybody, however many programs of
	 * rounds that came to nothing some of them have had; base: where its first micro-batch is. */
	uint64_t start, base;
	uint32_t flush; uint64_t first, cut;    /* micro-batches of what runs, from first on; programs cut short before */
	/* Positions of its unit's micro-batches from there on: of this epoch, and of the next one. loads: some of these are
	 * lower; they are loaded, as `later`, when so many more of this one are handed out. */
	struct ranges at[2]; uint32_t loads; struct ranges later;
	struct late late;
	double correct; uint32_t corrects;      /* of its micro-batches since then: right ones; of how many that is known */
	struct planner_unit share;              /* what its unit makes of the epoch that the flush is of */
};

struct trainer {
	struct trainer_conf c;
	struct trainer_cb cb; void *arg;
	const struct spec *s;
	struct env *env;
	struct model *model;
	const struct planner_ops *strategy;
	struct par par;
	struct profile profile;
	struct profile_source source;           /* of that profile */
	struct state *state;
	real *stats; size_t stats_bytes;        /* running statistics as micro-batches move them, on the train lane */
	bool used[OPTIM_STATES_MAX]; int nused;
	double hyper[OPTIM_KEYS_MAX], clip_norm; bool counts;
	uint64_t target;                        /* target batch that is being worked for */
	uint64_t batch;                         /* the last commit's, where the rate follows who was in it */
	uint64_t epoch;
	/* execution */
	struct exec *x;
	struct loader *loader;
	struct exec_wait *load_wait;            /* the LOAD that gets the next batch; then those behind it, in order */
	struct exec_wait **load_more; uint32_t nmore;
	bool halted; struct err halt_error; struct timer halt;  /* too many broken files: it is told from the loop */
	uint64_t broken_told;
	uint32_t troubles; bool resting; struct timer rest;     /* trainer_trouble.c: in a row; no program until it fires */
	struct ranges grant, claimed, out;      /* out: batches that were handed out and not counted */
	uint64_t samples, batches, hold_at; double unit, loss_sum;
	double batch_loss, batch_correct, skipped;
	double loss_scale;                      /* as of the last step that ended; 0: losses have none */
	bool started, paused, broken, dying, round_prog, idle_told;
	uint32_t bad_in_row, bad_steps;         /* micro-batches; steps */
	bool sick;                              /* too many of them: it is paused until somebody says go on */
	uint64_t skipped_steps;
	double rate; uint64_t last_us;
	uint64_t ntook, took[EXEC_TIMES_KEPT];  /* us of the latest micro-batches */
	/* rounds */
	bool in_begin; uint64_t begin_epoch;
	bool given;                             /* the flight was contributed to the round that has begun */
	bool passed;                            /* nothing was */
	struct flight flight;
	bool splits;                            /* the program's SUM ends it; what follows the commit is another program */
	bool agreed, gave;                      /* that other program is to come; this peer's flight was in the round */
	bool stepping;                          /* what follows a commit is being done: no interrupt may part it */
	bool break_later;                       /* one was asked for meanwhile */
	bool winding;                           /* the body is to end: it must not wait for data */
	bool tell;                              /* progress is to be told anew: the averager has begun to count again */
	bool renewed;                           /* working copies are there */
	uint64_t work_epoch, oldest;            /* of the working copy; of the oldest gradient in the sum */
	uint64_t stale, stale_most;             /* trainer_view */
	struct sums sums;
	struct grow grow;
	struct list commits; struct commit *applying;
	struct timer later; bool contribute_again;
	/* copies */
	struct valid v;
	void (*quiet)(void *arg); void *quiet_arg;     /* quiet: asked for, and not yet so */
	bool lent;                              /* the state is somebody else's, from quiet to loaded or start */
	struct exec *lender;                    /* trainer_lend; NULL: nothing is lent */
	uint32_t parts;                         /* still alive after trainer_free */
	void (*gone)(void *arg); void *gone_arg;
	struct check *check;
	struct ranges last;                     /* positions of the latest micro-batch, for the search of NaN */
	size_t predicted_bytes;
	struct memory_pass pass;
	struct seat seat;
	uint32_t readers;                       /* jobs that are not its own read its profile */
	uint32_t loader_depth, loaders;         /* of the loader; those that are going */
};

/* trainer.c */
void trainer_now(struct timer *tm);
uint64_t trainer_generation(const struct trainer *t);
struct view trainer_plan_view(struct trainer *t, const struct view_member *me, uint64_t first);

struct exec *trainer_exec(struct trainer *t, struct exec_conf *conf);   /* behind which t is; fills in conf's ops */

/* trainer_tell.c */
void trainer_break(struct trainer *t, const struct err *e);
void trainer_event(struct trainer *t, enum log_level level, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void trainer_later(struct trainer *t);          /* calls trainer_now from the loop */
void trainer_line(struct trainer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The optimizer's hyperparameters for a line, numbers as they are and not as they look. */
#define TRAINER_HYPER (OPTIM_KEYS_MAX * 28)
const char *trainer_hyper_text(const struct trainer *t, const double hyper[OPTIM_KEYS_MAX], char out[TRAINER_HYPER]);

/* trainer_gone.c */
void trainer_part_gone(void *arg);              /* one of trainer.parts */
/* trainer_nobody.c */
extern const struct trainer_cb trainer_nobody;  /* who listens after trainer_free */

/* trainer_parts.c */
/* Where the value of a buffer of this plan lies in what the round brings back; false: it is no part of it. */
bool part_at(const struct trainer_part *part, const struct plan_buf *b, size_t *ret_at, size_t *ret_len);
/* What a SUM of an elastic group takes and brings: values that lie one behind the other. ERR_INVALID: it is not what
 * this peer holds. */
int sum_of(const struct trainer *t, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout, struct sum *ret, struct err *e);

/* trainer_seat.c */
/* What its unit makes of this epoch, and that in samples. */
struct planner_unit seat_share(const struct trainer *t);
struct planner_unit seat_share_of(const struct trainer *t, const struct view *v, uint32_t rank);
uint64_t seat_goal(const struct trainer *t);
static inline bool runs_on(const struct trainer *t) { return t->s->mode.runs_on; }
/* Samples of an epoch; where epochs run on those that the generation v began with. */
static inline uint64_t goal_of(const struct trainer *t, const struct view *v)
{
	return runs_on(t) ? v->target_batch : spec_epoch_samples(t->s, t->target);
}
static inline uint64_t epoch_goal(const struct trainer *t)
{
	return t->seat.is ? goal_of(t, &t->seat.v) : spec_epoch_samples(t->s, t->target);
}
static inline uint64_t batches_of(const struct trainer *t, uint64_t samples)
{
	return (samples + t->profile.batch - 1) / t->profile.batch;
}
/* Micro-batches of an epoch, of all units. */
static inline uint64_t seat_batches(const struct trainer *t) { return batches_of(t, epoch_goal(t)); }

void seat_view(const struct trainer *t, struct view *v);
/* v for the program of a round (begun), or of a flush from index 0 on. */
struct view seat_view_at(const struct trainer *t, const struct view *v, bool begun);
void seat_free(struct trainer *t);

/* trainer_crew.c */
/* Before a program is planned. Samples of the flush that has ended as a whole, which count now; 0: there is none. */
uint32_t seat_flushed(struct trainer *t);
/* Then: what has become of the program before. false: nothing can be planned. */
bool seat_ask(struct trainer *t, uint64_t first /* its first index, as far as the executor goes */);
bool seat_cut(struct trainer *t);               /* a validation was: true, nothing can be planned */
void seat_planned(struct trainer *t, const struct plan *p);
/* mine: with what its unit has made. */
void seat_committed(struct trainer *t, const struct commit *c, bool mine);
void seat_applied(struct trainer *t, uint64_t target, bool mine);       /* target: that the epoch was worked for */
void trainer_unseat(struct trainer *t, const struct err *e);    /* what was under way is cut short */

/* trainer_positions.c */
/* Those of a program of micro-batches; ret: what the loader is to be granted for it. */
void seat_find(struct trainer *t, const struct plan *p, struct ranges *ret);
/* Of the k-th micro-batch from its first on, and every `every`th behind it, n of them (0: all that are known). */
void seat_positions(const struct trainer *t, uint64_t k, uint64_t n, uint64_t every, struct ranges *ret);
struct batch *seat_batch(const struct trainer *t, uint64_t index);      /* positions alone; free() it */
const struct ranges *seat_loaded(struct trainer *t);   /* a batch was handed out: granted next; NULL: nothing else */

/* trainer_late.c: of epochs that run on */
void late_free(struct late *l);
void late_grant(struct trainer *t);             /* lays down positions from trainer.grant */
const struct ranges *late_set(const struct trainer *t, uint64_t epoch);
void late_committed(struct late *l, uint64_t epoch);    /* the commit of epoch - 1 has come */
void late_counted(struct seat *s);              /* a program of micro-batches has ended */
bool late_applied(struct seat *s, bool mine);   /* true: late_cut was asked for meanwhile */

/* trainer_rest.c */
void trouble_init(struct trainer *t);
void trouble_over(struct trainer *t);           /* all is well again */
/* trainer_trouble.c */
enum exec_outcome trainer_failing(void *arg, const struct plan *p, const struct plan_instr *i, enum exec_outcome meant,
	const struct err *e);                   /* exec_cb.failed */

/* trainer_measure.c */
bool measured_profile(struct trainer *t, struct profile *ret);  /* profile_free it; false: too little has run */

/* trainer_model.c */
void model_profile(struct trainer *t);
void model_profile_at(struct trainer *t, uint32_t batch);       /* of micro-batches of another size */

/* trainer_memory.c */
/* What the spec leaves open of the memory pass, and the prediction with it. */
int memory_settle(struct trainer *t, struct err *e);

/* trainer_state.c */
/* Memory for these parts of the state, instead of what was held, which goes to ret_was (NULL: is freed). */
int trainer_hold_parts(struct trainer *t, const struct shard_part *part, uint32_t n, struct state **ret_was,
	struct err *e);
/* Of a run with such a model; ret_used: which of the optimizer's vectors are in it. layout_free it. */
int trainer_layout(const struct spec *s, const struct model *m, bool ret_used[OPTIM_STATES_MAX], struct layout *ret,
	struct err *e);
bool trainer_copies(struct trainer *t);         /* a copy that was wanted is being made; nothing may write to it */
int trainer_hold(struct trainer *t, struct err *e); /* the state, and what micro-batches move beside it */
static inline real *trainer_w(const struct trainer *t) { return shard_w(trainer_shard(t)); }

/* trainer_ask.c */
bool round_waits(const struct trainer *t);      /* a begin or a commit wants a program of its own */
bool round_carries(const struct trainer *t);    /* there is a flight that no commit has decided */
double round_lr(const struct trainer *t);
/* Elements that the round is for, or that whose commit is being applied. */
void round_part(const struct trainer *t, size_t *ret_lo, size_t *ret_n);
/* The same of a run at an epoch, whoever asks: the replay does what the trainer did. nused: the optimizer's vectors. */
size_t round_len_of(const struct spec *s, const struct model *m, uint32_t nused);       /* of a contribution */
void round_part_of(const struct spec *s, const struct model *m, uint64_t epoch, size_t *ret_lo, size_t *ret_n);
double round_lr_of(const struct spec *s, double lr, uint64_t target, uint64_t epoch);   /* lr: as it was set */

/* trainer_epoch.c */
uint64_t trainer_goal(const struct trainer *t); /* samples of this peer in an epoch before it waits */
void trainer_reset_epoch(struct trainer *t);
void commit_free(struct commit *c);
bool round_cancel(struct trainer *t, const struct exec_wait *w);        /* false: it is no SUM */
/* The program is being abandoned, its SUMs with it: a commit that comes before that is done neither ends them nor is
 * put where they want it. */
void round_cut(struct trainer *t);
void round_drop(struct trainer *t);
void round_give_back(struct trainer *t);        /* means of commits that are never applied */

/* trainer_flight.c */
/* Fills in what a round means for the next program; then what the program says of it. */
void round_view(struct trainer *t, struct view *v);
void round_planned(struct trainer *t, const struct view *v, const struct plan *p);
void round_parcel(struct trainer *t);           /* the sum of this epoch lies in `sent`, and the next one begins */
void round_renewed(struct trainer *t);          /* the working copy is that of this epoch */
/* The program ends as soon as nothing is lost by it: what follows a commit is never parted. */
void round_break(struct trainer *t);
void round_wind_down(struct trainer *t);
/* The body ends; a SUM beside it goes on in the next program. */
void round_boundary(struct trainer *t);
void flight_decide(struct trainer *t, struct commit *c, bool mine);
void flight_land(struct trainer *t);
/* May what was agreed be taken now? begun: the next round has begun. */
bool flight_due(const struct trainer *t, bool begun);
/* As round_cut, of a program in which micro-batches go on: what was decided is all that is done still, in a program of
 * its own. */
void late_cut(struct trainer *t);

/* trainer_round.c */
void round_sum(struct trainer *t, const struct sum *s);
void round_go_on(struct trainer *t);            /* COMMIT of a part without parameters: on with the others */
void round_applied(struct trainer *t, const uint8_t digest[TRAINER_DIGEST]);
void round_own_commit(struct trainer *t);       /* COMMIT of a strategy without a swarm */
void round_again(struct trainer *t);

/* trainer_grow.c */
int grow_new(struct trainer *t, struct err *e);         /* when there is an executor that has run nothing */
void grow_planned(struct trainer *t, const struct plan *p, uint32_t sums);
void grow_counted(struct trainer *t, struct batch *b);  /* b counts, and what comes of it is still to be made */
void grow_back(struct trainer *t, const struct batch *b);       /* nobody reads b any more */
void grow_begun(struct trainer *t);             /* to the round that has begun: all that is there */
void grow_sum(struct trainer *t, const struct sum *s);  /* one more is there */
void grow_decided(struct trainer *t, bool mine);        /* a commit has come */
bool grow_undo(struct trainer *t);              /* the program is over, and none has: nothing was given */

/* trainer_loader.c */
void load_next(void *trainer);                  /* LOADs that wait get what is there */
void load_halt_fire(struct timer *tm);
void load_resume(struct trainer *t);            /* after a halt */
int load_new(struct trainer *t, struct err *e);
/* For plans that hold so many batches at once. */
int load_deep(struct trainer *t, uint32_t ring, struct err *e);
uint64_t load_left(const struct trainer *t);    /* granted and not handed out */
uint32_t load_depth(const struct trainer *t, uint32_t batch);    /* batches that the loader holds */
void load_regrant(struct trainer *t);
bool load_cancel(struct trainer *t, struct exec_wait *w);       /* false: it is none of a LOAD */
void load_told_idle(struct trainer *t);

/* trainer_load.c */
void load_op(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index);
void load_back(void *arg, struct batch *b);

/* trainer_valid.c */
int valid_new(struct trainer *t, struct err *e);
void valid_begin(struct trainer *t);            /* not of a seat */
uint32_t valid_parts(const struct trainer *t);
void valid_stop(struct trainer *t);
void valid_free(struct trainer *t);

void valid_told(struct trainer *t);             /* all of it has been looked at: the result */
/* Of a seat: two batches at most are read at once. */
int valid_room(struct trainer *t, struct err *e);
uint64_t valid_room_bytes(const struct trainer *t);                    /* that they take */
void valid_no_room(struct trainer *t);                 /* it reads none; unless jobs are in them still */
void valid_load(struct trainer *t, struct exec_wait *w, uint64_t from, uint32_t n);
bool valid_cancel(struct trainer *t, const struct exec_wait *w);       /* false: it is none of a validation's */
bool valid_back(struct trainer *t, const struct batch *b);             /* likewise */

/* trainer_eval.c */
uint32_t eval_most(const struct trainer *t);    /* view.held */
uint64_t eval_bytes(const struct trainer *t);   /* of the batches that a seat has room for, or may come to need */
void eval_begin(struct trainer *t);             /* a seat is taken */
void eval_drop(struct trainer *t);              /* what was wanted, and is not over */
bool eval_due(const struct trainer *t);         /* the next program is one of it */
bool eval_exhausted(const struct trainer *t);   /* the generation has no indices for more */
void eval_view(struct trainer *t, struct view *v);
void eval_planned(struct trainer *t, const struct plan *p, uint64_t first);
void eval_passed(struct trainer *t, const struct plan *p);      /* the next program is another one */
/* Before a program is planned: what has become of the one before. false: it was cut short. *first: where training goes
 * on. */
bool eval_ended(struct trainer *t, uint64_t *first);
void eval_told(struct trainer *t, const char *name, const void *p, size_t bytes);
bool eval_load(struct trainer *t, struct exec_wait *w, int64_t index);         /* false: the LOAD is one of training */

/* trainer_eval_plan.c */
/* For `run plan`: the program of a validation and its cost, into text and *ret; NULL: there is none. */
int eval_plan_json(struct trainer *t, bool draw, struct buf *text, json_t **ret, struct err *e);

/* trainer_check.c */
void check_batch(struct trainer *t, double loss);       /* after each micro-batch's loss */
void check_step(struct trainer *t, double skipped);
void check_scale(struct trainer *t);            /* a step has ended, made or not; what halved the scale is no fault */
void check_resume(struct trainer *t);           /* after a halt */

#endif
