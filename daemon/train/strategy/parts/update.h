/* What follows when an epoch's gradient is there: the round that agrees on its mean, the COMMIT, the optimizer's step.
 * For whoever holds parameters: a peer with all of them, or a member of a unit with those of its stage. */
#ifndef TRAIN_STRATEGY_UPDATE_H
#define TRAIN_STRATEGY_UPDATE_H
#include "plan/planner.h"

/* Buffers are acc, mean, w and opt, each with the tag behind its name. */
struct update {
	const char *tag;
	uint32_t group;                         /* elastic: all units, for what this tag names */
	bool some;                              /* there is a gradient; else only the mean is taken */
	/* What is given lies apart, in `sum` + tag: the next epoch's gradient adds up in acc meanwhile. */
	bool apart;
	/* Replicas of this member inside its unit, which have seen the micro-batches between them: their sums become one,
	 * in `sum` + tag, which the one that speaks for them gives to the round (avg/units.h: one holder of each part in a
	 * unit) and the others only take from it. n of 0 or 1: there are none. */
	struct { uint32_t n, group; bool speaks; } replicas;
	const char *state;                      /* tag of mean, w and opt, where that is another; NULL: as above */
};
void update_round(struct plan *p, const struct update *u);
/* The same in pieces, for who holds what several tags name, as one round: the sums of all, one COMMIT, the steps. */
void update_gather(struct plan *p, const struct update *u);     /* the epoch's gradient is put where it is given from */
void update_give(struct plan *p, const struct update *u);       /* that, if there is some, for the mean */
void update_sum(struct plan *p, const struct update *u);        /* both */
void update_commit(struct plan *p, const struct update *u);     /* u NULL: nothing of its own was given */
void update_own(struct plan *p, const struct update *u);        /* update_step with what update_sum has brought */
void update_step(struct plan *p, const char *tag, const char *gradient);       /* optimizer, digest */
/* The scalar that says whether the step was left out is "skipped" + skipped: each of a program has one of its own. */
void update_optimizer(struct plan *p, const char *tag, const char *gradient, const char *skipped);
void update_digest(struct plan *p, const char *tag);            /* the last of a round, and once */

#endif
