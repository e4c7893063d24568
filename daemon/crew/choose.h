/* Who is to be in the next generation: the leader's choice, made in a lane. */
#ifndef CREW_CHOOSE_H
#define CREW_CHOOSE_H
#include "crew/plans.h"

struct choice {
	const struct planner_ops *strategy; struct view usual; uint32_t redundancy;    /* as wished */
	/* Everybody who could be in it, with number, epoch and base of the offer that it will be. */
	struct offer all;
	bool *kept, *whole;             /* by rank: was in the generation before; in a unit of it that lives as a whole */
	uint32_t running;               /* redundancy of the generation that runs on while nothing is better; 0: none */
	/* Found: 0, or -1 and why there can be none. */
	int rc; struct err why, fewer;  /* fewer: why not with as many copies as are wished, if so */
	bool stays;                     /* what runs is as good */
	struct offer best; struct found found;
};
void crew_choose(struct choice *c);
void choice_free(struct choice *c);

#endif
