/* Inside the stages: stage.c (what a member has), stage_pass.c (what it does). */
#ifndef TRAIN_STRATEGY_STAGE_INT_H
#define TRAIN_STRATEGY_STAGE_INT_H
#include "train/strategy/parts/stage.h"

/* What a stage learns: elements of the flat vector; bytes of running statistics. */
struct part { uint64_t lo, hi, stat_lo, stats; };
struct member {
	const struct pipe *x; uint32_t s; const struct stage *at;
	bool first, last, again;                /* again: goes forward twice */
	/* What it makes the gradient of and gives to the round; what it alone holds of that; what it has in common with the
	 * other end of the pipeline, which the first stage gives to the round for both. */
	struct part part, own, tied;
	uint32_t stash, n;                      /* micro-batches under way at most; of a flush at most */
	/* Of a schedule that runs on: micro-batches of the next epoch that are forward at the end of a program, its own;
	 * and those that have come from the stage before by then, of all replicas. */
	uint32_t ahead, come;
	struct piece_need need;
};

void stage_member(struct member *r, const struct pipe *x, uint32_t s, uint32_t a, uint32_t b);
/* The operands that are the weights of a pass; w: the name of the version that it is made with. */
#define WEIGHTS_TEXT 48
const char *stage_weights(const struct member *r, const char *w, char out[WEIGHTS_TEXT]);
bool stage_part_learns(const struct part *o);
void stage_held(struct plan *p, const struct member *r);        /* buffers of a validation */
/* What stage s has to have under way: all members from it on, shared among its own; n: micro-batches of this member. */
struct turns_at stage_load(const struct pipe *x, uint32_t s, uint32_t n);

#endif
