/* What a strategy is: a planner, from the profile of the model and the view of the cluster to a plan. Pure: equal views
 * and results give equal plans on every peer, so that anybody can plan for all. Strategies live in train/strategy/. */
#ifndef PLAN_PLANNER_H
#define PLAN_PLANNER_H
#include "plan/plan.h"

/* --- profile: what the model costs. Measured by the run, or stated (sleep layers, instrument T3). All figures are per
 * micro-batch of `batch` samples on a peer of speed 1. */
#define PROFILE_VARIANTS 4
#define PROFILE_PREDS 8
struct profile_variant { char name[16]; uint64_t fwd_us, bwd_us, work_bytes; };         /* [0] is the plain one */
struct profile_op {
	char name[PLAN_NAME];
	uint64_t out_bytes;             /* activation that leaves it */
	uint64_t saved_bytes;           /* what BWD needs of FWD beside input and output (F-e keeps it) */
	uint64_t param_bytes, param_lo; /* fp32 bytes of its parameters; first element in the flat vector */
	uint32_t nvariants; struct profile_variant variant[PROFILE_VARIANTS];
	uint32_t npreds, pred[PROFILE_PREDS];   /* ops whose outputs it reads; none: the batch */
	uint64_t stats_bytes;           /* of its running statistics */
	uint32_t shares;                /* 1 + the op whose parameters it uses; 0: it has its own, or none */
	uint32_t flows;                 /* values of before it that it or a later op reads; 0 is taken as 1 */
	bool goes_on;                   /* goes over memory in one pass with the op before it */
};
/* Bytes of a piece of the model: what flows in and out of it (their gradients have the same sizes), what BWD needs of
 * FWD beside its input when that keeps all, and scratch during each; work_eval: of a FWD that does not. */
struct piece_need { uint64_t x, y, saved, work_fwd, work_bwd, work_eval; };
struct profile_fn { char name[PLAN_NAME]; uint64_t us; double us_per_byte; };           /* of a VEC, per output byte */
struct profile {
	uint32_t batch;
	uint64_t batch_bytes, load_us;
	uint64_t label_bytes;           /* of batch_bytes: the labels, which only the loss reads */
	uint32_t nops; struct profile_op *op;   /* in topological order */
	uint32_t nfns; struct profile_fn *fn;   /* an unknown fn costs nothing */
	uint64_t params, state_bytes;   /* elements of the flat vector; bytes of the optimizer's vectors */
	uint32_t state_vectors;         /* of the optimizer, each as long as the parameters */
	bool scaled;                    /* the loss has a scale (kernels/scale.h), which goes with its gradient */
	uint64_t stats_bytes;           /* running statistics, which lie behind the parameters */
	/* Of the ops [a, b], as the kernels will take them. NULL: profile_need goes by what each op says. */
	void (*need)(void *arg, uint32_t batch, uint32_t a, uint32_t b, struct piece_need *ret); void *need_arg;
	/* With micro-batches of another size; state and functions are filled in by profile_at. NULL: all that a sample has
	 * is taken so many times. */
	void (*at)(void *need_arg, uint32_t batch, struct profile *ret);
};
/* The same model with micro-batches of that size, into *ret: profile_free it. */
void profile_at(const struct profile *m, uint32_t batch, struct profile *ret);
void profile_need(const struct profile *m, uint32_t a, uint32_t b, struct piece_need *ret);
uint64_t profile_fwd_us(const struct profile *m, const struct plan_instr *i);  /* sums over its piece and variant */
uint64_t profile_bwd_us(const struct profile *m, const struct plan_instr *i);
uint64_t profile_param_bytes(const struct profile *m, uint32_t a, uint32_t b);
void profile_free(struct profile *m);

/* --- results: named scalars that programs made: VEC outputs of class scalar, by buffer name. */
struct plan_result { char name[PLAN_NAME]; double value; };
struct plan_results { uint32_t n; const struct plan_result *v; };
/* The last one of that name, or otherwise when there is none. */
double plan_result(const struct plan_results *r, const char *name, double otherwise);

/* How a stretch of the model is gone through so that it fits: a policy of train/memory/ and its numbers. segments 0: as
 * many as the policy takes. mark: ops, ascending. */
struct memory_pass { const struct memory_ops *ops; uint32_t segments, nmarks; const uint32_t *mark; };

struct view_member { struct id id; double speed; uint64_t memory_bytes; bool worker; };/* speed 1: the profile's peer */
struct view {
	const struct profile *profile;
	uint32_t nmembers; const struct view_member *member;
	uint32_t me, slot;              /* for whom the plan is */
	uint64_t generation, first;     /* of the program that is asked for */
	uint64_t base;                  /* of crews: the generation that the last COMMIT came of; 0: there was none */
	uint32_t redundancy;
	const struct memory_pass *memory;       /* NULL: all that FWD makes for BWD is kept */
	/* the round, as data: nobody calls the averager but the executor */
	uint64_t epoch, samples, target_batch;  /* accumulated by this peer in this epoch; of the swarm */
	bool begun;                     /* a round has begun: contribute now */
	/* What this peer gave to the round is with the averager still, in a buffer that lives on (`sent`): rounds beside
	 * micro-batches. agreed: the mean has come; gave: something of this peer's is in `sent`. */
	bool sent, agreed, gave;
	/* What lives on from program to program is not there yet: working copies of the state; of crews whose epochs run on
	 * into each other, micro-batches of the next one that are under way. */
	bool fresh;
	bool granted;                   /* there are sample positions to load */
	/* Of crews whose data hold something out: micro-batches of that which a program of validation goes through at most,
	 * 0: there is none; and how many the program that is asked for goes through, 0: it is none. Such programs run
	 * between those of the step, on what is committed, change nothing, and are checked and agreed on with them. */
	uint32_t held, validates;
	uint64_t micro_batches;         /* how many the program may run before it asks again; 0: the planner chooses */
	struct plan_results settings;   /* the strategy's own numbers from the spec ("every" 2) */
	const json_t *values;           /* and what is more than a number: its "plan"; NULL: nothing */
	double us_per_byte;             /* between any two members, as the slowest link has it; 0: not known */
	uint64_t latency_us;            /* as that with the longest has it */
};
/* Of a member that reads samples, beside its arena: batches of a validation that are here at once, with the positions
 * of their samples. They are there as long as it has its seat. */
#define PLANNER_HELD_SLOTS 2
static inline uint64_t planner_held_bytes(const struct view *v)
{
	const struct profile *m = v->profile;

	return v->held ? PLANNER_HELD_SLOTS * (m->batch_bytes + m->batch * sizeof(uint64_t)) : 0;
}
/* plan_init with the view's members, and what else a plan says of the view that it was made from. */
void plan_begin(struct plan *ret, const char *strategy, const struct view *v);

/* A strategy's own numbers in a spec's "averaging", which may be changed while the run goes; they reach plan() as
 * view.settings. What it can be told beside them stands in the spec's "plan", in any form, for the life of the run:
 * planner_ops.values names the keys, check judges them, and they reach plan() as view.values. */
enum planner_kind { PLANNER_FLAG, PLANNER_COUNT, PLANNER_NUMBER };
struct planner_key { const char *name; enum planner_kind kind; double min, max, def; };
#define PLANNER_KEYS_MAX 8
#define PLANNER_STATE_MAX 2

/* What follows from the settings for those who carry a run and never ask which strategy it has. */
struct planner_mode {
	bool local;                     /* every micro-batch is a step of this peer's own: replicas part between commits */
	bool both;                      /* the optimizer's vectors are averaged, too */
	bool patient;                   /* a round that begins lets the micro-batch under way end */
	bool loose;                     /* parameters are averaged and taken as they come: means that differ in the last
	                                 * bits from member to member part nobody for good */
	bool any;                       /* a round begins as soon as anybody has something for it; nobody waits */
	uint32_t steps;                 /* micro-batches of every peer in an epoch; 0: the target batch says */
	double targets;                 /* target batches in an epoch; 0 is taken as 1 */
	uint32_t parts;                 /* fragments of the vector: epoch e is the round of e modulo parts; 0 is 1 */
	uint32_t overlap;               /* what a round has agreed is taken so many micro-batches after it was given */
	/* What is given to a round is made while that runs: parts of one gradient, in buffers "grad.ANYTHING". */
	bool grows;
	bool runs_on;                   /* of crews: an epoch begins before the round of the one before it has ended */
	/* Vectors of state beside the optimizer's, each as long as the parameters; the first nparams of them begin as a
	 * copy of these, the others as zeros. */
	uint32_t nstate, nparams; const char *state[PLANNER_STATE_MAX];
	const char *equality;           /* what is promised to be equal, and when */
	const char *under_way;          /* what a checkpoint or a death does to what is under way; NULL: nothing ever is */
};

/* What contributes as a whole: several members together, or one alone. Micro-batches first .. first + n - 1 of an epoch
 * are its unit's to make. unit PLAN_NO_UNIT: the member is a spare, and makes nothing. */
#define PLAN_NO_UNIT UINT32_MAX
struct planner_unit { uint32_t unit; uint64_t first, n; };

struct planner_ops {
	const char *name, *help;
	bool needs_swarm;               /* commits through the averager */
	bool crew;                      /* several members make one unit, each with a part of the model */
	uint32_t nkeys; const struct planner_key *key;
	const char *const *values;      /* its keys in the spec's "plan", NULL at the end; NULL: it has none */
	/* 0, or -1 and e. Nothing of the model or the members is known yet: what does not fit those, plan() refuses. */
	int (*check)(const json_t *values, struct err *e);
	/* What values leave open and takes its time to find (cuts of the model), found for this view, into *ret: a new
	 * reference, from which plan() makes the same plans, sooner. Once for a generation; me and the round do not matter.
	 * NULL: nothing is ever open. Where it had more to choose than cuts, PLANNER_CHOSEN is in it: an object with
	 * "text", a line for the operator, "ways", among how many, and what the strategy says beside them. */
#define PLANNER_CHOSEN "chosen"
	int (*settle)(const struct view *v, json_t **ret, struct err *e);
	/* 0, or -1 and e: settings that do not go together. values have been checked. NULL: all is as in a mode of
	 * zeros. */
	int (*mode)(const struct plan_results *settings, const json_t *values, struct planner_mode *ret, struct err *e);
	uint32_t redundancy;            /* default of the run's redundancy; 2 where state is sharded */
	/* Fills *ret (not initialised) with the next program; an empty one (no instructions) means: wait for news, then ask
	 * again. results: of the program before, n 0 at first. */
	int (*plan)(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e);
	/* Of crews: whose unit a member is, and that one's share of an epoch (v->target_batch, of all units). NULL: all are
	 * one unit. -1 and e as plan() has them. */
	int (*unit)(const struct view *v, uint32_t rank, struct planner_unit *ret, struct err *e);
	/* Samples of a micro-batch that settled values have chosen; 0: what the profile has. NULL: never another. */
	uint32_t (*batch)(const json_t *values);
	/* Member `rank` left (v is still the view with it). true: the running program is abandoned and plan() asked again
	 * at once, with a view without it; false: the program can end as it is. */
	bool (*lost)(const struct view *v, uint32_t rank);
};

/* The next programs of all members of the view, each as that member finds it; what is open is settled once. ret has
 * room for v->nmembers. ret_values (may be NULL): what was settled, a new reference, or NULL. -1 and e: nothing is in
 * either. */
int plan_members(const struct planner_ops *s, const struct view *v, struct plan *ret, json_t **ret_values,
	struct err *e);

#endif
