/* The face of this room for run: one model of one run on this peer: parameters, optimizer, data, and the executor that
 * runs the strategy's plans. It knows no other peer: `run` moves words between it and the averager.
 *
 *   run                                 trainer
 *   trainer_grant(ranges)        ->     micro-batches: LOAD FWD BWD accumulate
 *                                <-     progress(samples, claimed, loss, rate)         -> avg_progress
 *   avg.begin -> trainer_begin(e) ->    the micro-batch under way is abandoned without a trace
 *                                <-     contribute(e, mean gradient, samples, claimed) -> avg_contribute
 *   avg.commit -> trainer_commit ->     OPT, digest
 *                                <-     applied(e + 1, digest)                         -> avg_applied
 *   avg.failed -> trainer_failed ->     the accumulated gradient is kept, micro-batches go on
 *
 * A strategy without the averager ("single") needs only the grant and calls applied by itself. All callbacks come from
 * the loop, never from inside a trainer_* call. Units: bytes, samples, us. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H
#include "avg/ranges.h"
#include "env.h"
#include "exec/ops.h"
#include "kernels/par.h"
#include "state/state.h"
#include "train/data/data.h"
#include "train/spec/spec.h"

#define TRAINER_DIGEST STATE_DIGEST
/* In runs whose plans have many members: scratch that all of them plan with is for so many. */
#define TRAINER_THREADS_MAX 16

struct planner_ops;
struct trainer;
struct view;

struct trainer_progress {
	uint64_t epoch, samples;                /* accumulated in this epoch */
	const struct ranges *claimed;           /* where they came from */
	double loss;                            /* mean over the micro-batch that just ended */
	/* of that micro-batch, or of all that count at once; a sample with several answers counts with its share of right
	 * ones; correct 0 for losses without the notion, negative: this peer is not told */
	double correct; uint32_t batch;
	double rate;                            /* samples/s of this peer, smoothed over 16 micro-batches */
	bool grows;                             /* what is given of it comes in parts */
};
struct trainer_applied {
	uint64_t epoch;                         /* the epoch that is reached */
	uint64_t samples; const struct ranges *claimed;         /* this peer's part of it (0: left out) */
	const uint8_t *digest;                  /* TRAINER_DIGEST bytes: of the parameters after OPT (state/digest.h) */
	double loss;                            /* mean over this peer's samples of the epoch; NAN when there were none */
	double lr;
	bool skipped;                           /* the mean was not finite: counted, nothing changed */
};
struct trainer_validated { uint64_t epoch, samples; double loss,
	accuracy /* NAN: no such notion */; uint64_t took_us; };

struct trainer_cb {
	void (*progress)(void *arg, const struct trainer_progress *p);
	/* x: trainer_contribution_len() reals, this peer's mean, until commit or failed; NULL with 0 samples. */
	void (*contribute)(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed);
	/* Of strategies that give while they compute, instead: elements lo .. hi - 1 of x are there now, none when they are
	 * equal; the others come until the round is over. */
	void (*contribute_part)(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed,
		size_t lo, size_t hi);
	void (*applied)(void *arg, const struct trainer_applied *a);
	void (*validated)(void *arg, const struct trainer_validated *v);
	void (*idle)(void *arg);                /* the grant is exhausted; training waits for trainer_grant */
	/* The run cannot go on (NaN steps in a row, unreadable data, memory): training has stopped by itself. */
	void (*broken)(void *arg, const struct err *e);
	void (*event)(void *arg, enum log_level level, const char *code, const char *text);
	/* The run log, one JSON object a line without newline; NULL: none is kept. */
	void (*log)(void *arg, const char *line, size_t len);
	/* More files are broken than the spec allows, or so many losses or steps in a row were not finite (ERR_NONFINITE;
	 * e names the layer where it began): nothing is computed any more until trainer_start, which allows as many again.
	 * The owner pauses. NULL: broken is called instead. */
	void (*halted)(void *arg, const struct err *e);
	/* What was under way with other members is cut short here: nothing more of this generation runs, until
	 * trainer_join. NULL in runs of strategies without a crew. */
	void (*unseated)(void *arg, const struct err *e);
};

struct trainer_conf {
	struct env *env;
	const struct spec *spec;                /* must outlive the trainer */
	struct data *data;                      /* likewise; opened with data_open */
	const struct par *par;                  /* the train lane's team; spec.local.deterministic replaces its blas */
	const struct layer_host *host;          /* who waits for sleep layers; NULL: nobody (virtual time) */
	/* modelled speed, for the simulator's job costs; 0: only sleep layers cost */
	double macs_per_us;
	const struct exec_ops *ops; void *ops_arg;      /* strict groups and transfers; NULL: the strategy must need none */
	struct id self;                         /* this peer, in plans */
	const struct planner_ops *strategy;     /* instead of the spec's; NULL: the spec's */
};

struct trainer *trainer_new(const struct trainer_conf *conf, const struct trainer_cb *cb, void *arg, struct err *e);
/* Stops, and frees once no job touches its memory; done (may be NULL) is called then. data, spec and par may go
 * after it. */
void trainer_free(struct trainer *t, void (*done)(void *arg), void *arg);
/* Somebody else's jobs read what it has contributed: that stays, after trainer_free too, until trainer_returned. */
void trainer_lend(struct trainer *t);
void trainer_returned(struct trainer *t);
const struct model *trainer_model(const struct trainer *t);
struct avg_tensor *trainer_roles(const struct trainer *t, size_t *ret_n);      /* of it, in order; free() */
size_t trainer_contribution_len(const struct trainer *t);       /* reals that are averaged: avg_conf.len; a unit's */
bool trainer_has_crew(const struct trainer *t);         /* its plans have many members */
bool trainer_needs_swarm(const struct trainer *t);              /* the strategy commits through the averager */

/* --- state: parameters, optimizer vectors and clock in one contiguous block. Only touch it while the trainer is quiet:
 * before trainer_start, or between trainer_quiet's callback and the next trainer_start. */
void trainer_init_params(struct trainer *t);                    /* fresh parameters from the seed; 1 ms per million */
struct shard *trainer_shard(const struct trainer *t);           /* the first, or only one */
struct shard *trainer_shards(const struct trainer *t, uint32_t *ret_n);
void *trainer_state(struct trainer *t, size_t *ret_bytes);      /* the block: same layout on every peer of the run */
/* Shards beside what it holds, without values, of the same layout. NULL and e: no memory. */
struct state *trainer_state_of(struct trainer *t, const struct shard_part *part, uint32_t n, struct err *e);
bool trainer_lies_still(const struct trainer *t);       /* nothing decided is to be applied: its state stays as it is */
size_t trainer_tensors(struct trainer *t, const struct ckpt_tensor **ret_v);   /* views into the block */
/* After the block was filled from elsewhere: checks that it is finite and takes the clock. live: hyperparameters. */
int trainer_loaded(struct trainer *t, uint64_t epoch, const json_t *live, struct err *e);

/* The same without holding the loop (state/state.h), then it is the state of an epoch with these hyperparameters,
 * which are looked at first where all of what comes is (values.at). done: on the loop, e NULL or why not; it is not
 * called when the trainer is freed or made quiet before. Until then nothing else may touch the state. */
struct trainer_fill { struct state_fill values; uint64_t epoch; const json_t *live; };
void trainer_fill(struct trainer *t, const struct trainer_fill *how, void (*done)(void *arg, const struct err *e),
	void *arg);

/* Copies of the state at a boundary between micro-batches: state/state.h. */
void trainer_snapshot(struct trainer *t, snapshot_fn *done, void *arg);
void trainer_weights(struct trainer *t, snapshot_fn *done, void *arg);

/* --- generations, for strategies whose plans have many members (planner_ops.crew): nothing runs but in one. Every
 * member is told the same view and the same grant, and what follows from those is the same everywhere. */
struct trainer_part {
	/* Of a unit's contribution, whose parts lie in the order of the parameters, each with its running statistics behind
	 * it, perhaps from one in the middle to the last and then from the first on: what it brings, and of what it gets
	 * the mean, which is what it holds. */
	bool brings; uint32_t unit; uint64_t lo, hi, keep_lo, keep_hi;
	struct shard_part own;                  /* what it computes, of that; others step it, too */
	uint32_t nheld; struct shard_part *held; uint64_t *at;  /* in order of the parameters, and where each is there */
};
void trainer_parts_free(struct trainer_part *part, uint32_t n);         /* what they point to */
/* What a view is before it has members (crew_conf.view). What it points to stays, after trainer_free too, until
 * trainer_read_over. */
struct view trainer_crew_view(struct trainer *t);
/* A job that is not its own reads its state's numbers: it stays, after trainer_free too, until trainer_read_over. */
void trainer_read(struct trainer *t);
void trainer_read_over(void *trainer);
/* Of every member of the view; trainer_parts_free. */
int trainer_parts(const struct trainer *t, const struct view *v, struct trainer_part *ret, struct err *e);
/* This peer is member v->me from now on; the trainer must be quiet. *ret_fresh: it holds other parts than before, and
 * memory for them is there, whose values the owner fills (trainer_fill). What it held goes to ret_was (NULL: is let
 * go), to be freed with state_free. v is copied. */
int trainer_join(struct trainer *t, const struct view *v, bool *ret_fresh, struct state **ret_was, struct err *e);
/* That is over: what was decided is applied still, nothing else runs; then trainer_quiet, and the next. */
void trainer_part_ways(struct trainer *t);
/* quiet: it holds nothing any more; ret_was as above */
int trainer_stand_up(struct trainer *t, struct state **ret_was, struct err *e);
/* Paused, it has nothing under way with the others, and no round waits for what it has. */
bool trainer_at_rest(const struct trainer *t);
bool trainer_seated(const struct trainer *t);
/* From quiet on, until its part has values: no copy is made of it meanwhile. */
bool trainer_unfilled(const struct trainer *t);
/* quiet: it goes on with nothing, and what it holds has its values still */
void trainer_stay(struct trainer *t);
uint64_t trainer_share(const struct trainer *t);        /* samples that its unit makes of an epoch; seated */
bool trainer_share_made(const struct trainer *t);       /* they are made, here */
const struct trainer_part *trainer_part(const struct trainer *t);
/* Is what a COMMIT of that generation brings to this peer, elements lo to hi - 1 of a contribution, what it holds? */
bool trainer_takes(const struct trainer *t, uint64_t generation, uint64_t lo, uint64_t hi);
size_t trainer_round_len(const struct trainer *t);      /* reals that trainer_commit takes: of what is held here */

/* --- life */
void trainer_start(struct trainer *t);                          /* begins or goes on; needs a grant to do anything */
/* ends the micro-batch under way, then waits; rounds go on */
void trainer_pause(struct trainer *t);
/* Abandons everything, accumulated gradients too; done when no job touches the state. */
void trainer_quiet(struct trainer *t, void (*done)(void *arg), void *arg);
/* Positions that a seat wants to be granted, in epochs; where these run on into each other one more. */
#define AHEAD_EPOCHS 2
#define AHEAD_LATE (AHEAD_EPOCHS + 1)
/* replaces; claimed positions must not be in it */
void trainer_grant(struct trainer *t, const struct ranges *grant);

/* --- rounds (strategies that need the swarm) */
void trainer_begin(struct trainer *t, uint64_t epoch);
/* The round made epoch. mean: trainer_contribution_len() reals, which are read there while the trainer keeps `lent`;
 * NULL: during the call, unless it is what this peer has contributed. live: the hyperparameters of this step.
 * my_samples 0: this peer's contribution was left out and is dropped. counted: samples of all whose mean it is; 0: not
 * said, the target. A follower calls it without begin. */
int trainer_commit(struct trainer *t, uint64_t epoch, const float *mean, struct lease *lent, uint64_t my_samples,
	uint64_t counted, const json_t *live, struct err *e);
/* Room for a mean, out of what a plan has reserved for it; NULL: there is no memory. */
struct lease *trainer_room(struct trainer *t, size_t bytes);
void trainer_failed(struct trainer *t, uint64_t epoch);
/* strategies without a swarm: next OPT */
int trainer_set_live(struct trainer *t, const json_t *live, struct err *e);

/* --- validation: a program of its own that takes turns with training; the result comes through cb.validated, with 0
 * samples where nothing has come of it. In runs whose plans have many members: of the epoch that has just been applied,
 * or that a seat begins with, before anything of the next one is done, and on every member of the unit; dropped when
 * the next one comes first or the generation ends. though_paused: there, even then. */
void trainer_validate(struct trainer *t, bool though_paused);
/* The most that its program took, with the copy of the weights. */
uint64_t trainer_valid_bytes(const struct trainer *t);

struct trainer_view {
	/* samples and micro-batches of this epoch; positions granted and not loaded */
	uint64_t epoch, samples, batches, left;
	/* "quiet" "waiting" "training" "round" "applying" "paused" "broken" */
	double rate, loss, lr; const char *state;
	uint64_t arena_bytes, arena_peak_bytes, arena_predicted_bytes, state_bytes, loader_bytes;
	uint64_t held_bytes;                    /* of batches held out, which a seat has beside these; or will have */
	uint64_t skipped, abandoned;            /* steps with a non-finite mean; micro-batches thrown away by rounds */
	double loss_scale;                      /* 0: losses have none */
	uint64_t generation;                    /* of the plans that run now: one for each commit */
	uint64_t programs, checks;              /* that ran; shapes of them that were checked */
	uint64_t instructions;                  /* that ended */
	uint64_t busy_us, load_wait_us;         /* train lane at work; waiting for data */
	uint64_t flops;                         /* forward and backward so far (kernels/cost.h) */
	/* this peer's contributions that were gradients of older parameters than those they changed; how many epochs older
	 * at most */
	uint64_t stale, stale_most;
};
void trainer_view(const struct trainer *t, struct trainer_view *ret);
/* A gradient in a round that is not finite may have overflowed, by a scale of the loss that can still be halved: the
 * step that all members leave out halves it (avg_cb.overflows). */
bool trainer_overflows(const struct trainer *t);
/* {text, plans: [micro-batch, round], predicted: [{us, peak_bytes, stuck}], peak_bytes}, for `run plan`; the last is
 * of the whole run (0 of a crew), the others count what each program finds the first time. */
json_t *trainer_plan_json(struct trainer *t, bool draw, struct err *e);
/* The largest local.batch with which the trainer would hold at most so many bytes, by the same prediction; 0: none. For
 * a local.batch that is known not to fit, before trainer_start. */
uint32_t trainer_fits(struct trainer *t, uint64_t bytes);
/* In words, and whether computing twice (local.remat) would do. */
#define TRAINER_FITS 160
const char *trainer_fits_text(struct trainer *t, uint64_t bytes, char *out, size_t cap);
uint64_t trainer_kept_bytes(const struct trainer *t);      /* of a micro-batch, for its way back */
struct trainer_times {
	bool measured;                          /* predictions rest on medians of this run, else on the stated speed */
	uint64_t micro_batch_us, step_us;       /* predicted: one of many micro-batches; the program that ends an epoch */
	uint64_t took_us;                       /* median of the latest micro-batches; 0: too few */
};
void trainer_times(struct trainer *t, struct trainer_times *ret);
/* data_json and {wait_us, workers, prefetch, bottleneck: "data" or "compute"}: data, when more than a fifth of the time
 * of training went by waiting for batches. */
json_t *trainer_data_json(const struct trainer *t);
/* {batch, samples, layers_us, layers: [{name, type, forward_us, backward_us, share, gflops_per_s, forward_in?}],
 * micro_batch_us: {loss, ...}, step_us: {optimizer, ...}, text}, for `run layers`: times of this peer's
 * micro-batches by layer, us. forward_in: the layer whose pass over memory this one's forward is part of. */
json_t *trainer_layers_json(const struct trainer *t, struct err *e);
json_t *trainer_traffic_json(const struct trainer *t);          /* bytes by class */

#endif
