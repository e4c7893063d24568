/* Cuts a model into stages, each for one member or for several replicas of it. */
#ifndef TRAIN_STRATEGY_PARTITION_H
#define TRAIN_STRATEGY_PARTITION_H
#include "plan/planner.h"

#define STAGES_MAX 256

/* Ops a..b (both inclusive) on the members rank .. rank + replicas - 1. again: each micro-batch goes forward twice. */
struct stage { uint32_t a, b, rank, replicas; bool again; };

struct cutting {
	const struct view *v;
	uint32_t n; struct stage *stage;        /* rank, replicas and again are given */
	uint32_t units, members;                /* the same cuts are for so many pipelines, of so many members each */
	/* By stage: from which to which it holds the state, its own and what it keeps for others. NULL: its own alone. */
	const struct plan_range *keep;
	/* Bytes that a member of stage s needs for ops a..b: what they hold between them, which does not become less when
	 * ops are added (but for what is tied, of the first and the last stage), and what crosses x bytes in front of them
	 * and y behind. at: where the stages of keep[s] begin, and the one behind them; NULL: it keeps none. */
	uint64_t (*holds)(void *arg, uint32_t s, uint32_t a, uint32_t b, const struct piece_need *need,
		const uint32_t *at);
	uint64_t (*passes)(void *arg, uint32_t s, uint64_t x, uint64_t y);
	uint64_t (*least)(void *arg, uint32_t a, uint32_t b);   /* that whoever holds the state of ops a..b needs for it */
	void *arg;
	uint64_t epoch;                         /* micro-batches of a pipeline, from round to round; 0: nobody knows */
	uint64_t more;                          /* bytes that every member is thought to have beside what it says */
	/* How many bytes a member lacks at least, to a hundredth, when that is why there is none. NULL: nobody wants to
	 * know, which is sooner said. */
	uint64_t *lacks;
};
/* Finds a and b of all stages. The slowest stage is as fast as it can be, exactly: a stage takes the time of its ops on
 * the slowest of its members in any pipeline, or that of what it sends, whichever is longer, shared among its replicas;
 * every stage fits the memory of its members. Of equally fast ones, that which sends the fewest bytes. -1 and e: there
 * is none. Where more than three stages keep for each other, each is thought to keep for all of them.
 * GPT-2 medium (293 ops), 4 stages: 2 ms; with memory stated 40 ms, as it asks what some 600 pieces need. */
int partition(const struct cutting *c, struct err *e);
/* Are the cuts that somebody else has chosen (a and b are given) such that every stage can be held? */
int partition_fits(const struct cutting *c, struct err *e);
/* Of cuts that fit: what the member takes who has least beside it, and all that it has; *ret_has 0: nobody says. */
uint64_t partition_bytes(const struct cutting *c, uint64_t *ret_has);

#endif
