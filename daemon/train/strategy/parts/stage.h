/* One member of a pipeline: its buffers, and a flush of micro-batches in the order of its schedule. */
#ifndef TRAIN_STRATEGY_STAGE_H
#define TRAIN_STRATEGY_STAGE_H
#include "train/strategy/parts/partition.h"
#include "train/strategy/parts/schedule.h"

#define STAGE_BEFORE "before"   /* state of schedules that run on: the weights from before the last step */
/* As the number of a stage: the shard of what the first stage and the last one have in common (tied.h). */
#define STAGE_TIED (STAGES_MAX + 1)
#define TIED_TAG ".tied"

/* Micro-batch of index j is made by replica j modulo the number of replicas, in every stage. */
struct pipe {
	const struct view *v;
	const struct turns_ops *schedule;
	uint32_t n; struct stage stage[STAGES_MAX];
	uint32_t members;               /* of all stages together: ranks base .. base + members - 1 of the view */
	uint32_t units, base;           /* pipelines side by side (units.h); of the one that this is about */
	uint32_t widest;                /* most replicas of a stage, in one pipeline */
	uint32_t most;                  /* micro-batches of a flush */
	bool remat;                     /* what a stage needs for its way back is made again, and only inputs are kept */
	uint32_t copies;                /* holders that a stage must have in each pipeline, for the run's redundancy */
	bool cut;                       /* a and b of all stages are known */
	uint64_t tied;                  /* elements of STAGE_TIED then, of the first of the flat vector; 0: there is none */
	bool quiet; uint64_t more, lacks;       /* of cutting.lacks and more */
	struct plan_range keep[STAGES_MAX];     /* by stage: whose state a member holds (keep.h) */
};

/* The stage of a rank of the view; NULL: it has none in this pipeline. */
const struct stage *stage_of(const struct pipe *x, uint32_t rank);
/* Bytes that a member of stage s needs for ops a..b: every value of every ring, the largest scratch, and what it keeps
 * of other stages; of micro-batches and of the round, if that waits for them, the more; those of what it takes from
 * its neighbours and gives them are apart (x in front, y behind). at: where the stages of keep[s] begin, and the one
 * behind them; NULL: it keeps none. */
uint64_t stage_holds(const struct pipe *x, uint32_t s, uint32_t a, uint32_t b, const struct piece_need *need,
	const uint32_t *at);
uint64_t stage_least(const struct pipe *x, uint32_t a, uint32_t b);     /* the state of these ops, and its mean */
uint64_t stage_passes(const struct pipe *x, uint32_t s, uint64_t bytes_x, uint64_t bytes_y);
bool stage_learns(const struct pipe *x, uint32_t s);            /* it has parameters, beside those in common */
bool stage_gives(const struct pipe *x, uint32_t s);             /* it brings a gradient to the round */
/* Does it go forward twice: with pipe.remat, where more than one micro-batch waits for its way back. */
bool stage_again(const struct pipe *x, uint32_t s);
const char *stage_tag(uint32_t s, char out[12]);                /* behind the names of what it alone has */
/* State is with all that hold it, and there is room for the gradient of what it keeps. */
void stage_buffers(struct plan *p, const struct pipe *x, uint32_t rank);
void stage_state(struct plan *p, const struct pipe *x, uint32_t rank);         /* the state alone */
/* The body: micro-batches first .. first + n - 1 of the plan; ends: they are the last of the epoch. */
void stage_flush(struct plan *p, const struct pipe *x, uint32_t rank, uint32_t n, bool ends);
/* The same of a schedule that runs on. fresh: none of them is under way. step (NULL: there is none): what is put in
 * front of the first pass that must see what it makes of the weights, or at the end. */
struct run_on { bool fresh; void (*step)(struct plan *p, const struct pipe *x); };
void stage_run_on(struct plan *p, const struct pipe *x, uint32_t rank, uint32_t n, const struct run_on *how);

/* The body of a validation: x->v->validates micro-batches go forward, with the weights as they are. Of schedules that
 * run on all buffers of the step are there, too, since micro-batches are under way in them. */
void stage_validate(struct plan *p, const struct pipe *x, uint32_t rank);

#endif
