/* What the files of a run whose plans have many members share: crew_says.c (what is said to it), crew_follow.c (where
 * others are), crew.c (its seat in a generation), crew_holds.c (what it holds), crew_result.c (what those hear who have
 * no stage), crew_is.c (what the room asks of it), crew_can.c (which target batches members can share out). Nobody
 * calls a file that stands before it. */
#ifndef RUN_CREW_INT_H
#define RUN_CREW_INT_H
#include "crew/crew.h"
#include "run/mover.h"
#include "run/rally.h"

#define LOOK_US 2000                    /* while a round ends, or a step is made */
#define CREW_LOST_US 500000             /* without a COMMIT; then others are asked where they are */

enum seat_step { SEAT_NONE, SEAT_WAITS, SEAT_QUIET, SEAT_FILLS, SEAT_RUNS };
/* What members have said that a validation has come to; no samples: nothing. */
struct result { struct trainer_validated v; uint8_t prev[DIGEST]; };
struct run_crew {
	struct run *r;
	struct crew *crew;
	enum seat_step step;
	uint64_t generation;            /* that is decided; its view: */
	struct view v; struct view_member *member; json_t *values;
	struct id head; bool headed;    /* who counts the samples of this peer's unit there; there is one */
	bool in, out, told;             /* this peer is in it; it is not; the averager knows its units */
	bool whole;                     /* its part of the state has the values of the point */
	bool drains, saves;             /* the daemon is to end; it takes no seat any more, its last checkpoint is made */
	bool follows;                   /* it knows no point yet that others are at */
	uint64_t failed;                /* the generation that was cut short here */
	struct mover *mover;
	struct rally *finds;                   /* the epoch that all go on from */
	uint64_t loads;                 /* the epoch of the checkpoint that is read */
	uint64_t calm_us, calm_epoch;   /* it went on then, at that epoch; or nothing was to */
	struct avg_roster roster; struct id *ids;       /* as the averager has it */
	struct timer timer, lost;
	uint64_t looked, looked_us;             /* instructions that had ended by then; 0: nobody looks yet */
	struct result heard;            /* of an epoch that is not applied here yet */
	uint64_t awaits_us;             /* since when that of the last epoch is waited for; 0: it is not yet */
	struct settles *settles;        /* cuts of a generation of others are looked for; or NULL */
};

void run_crew_look(struct run_crew *s);          /* soon */
void run_crew_grant(struct run *r);              /* positions of the next epochs */
/* The averager hears of the generation: at once, or it could go on with a round of the one before. */
void run_crew_tell(struct run_crew *s);
void run_crew_is_quiet(void *run);
uint64_t run_crew_still_us(struct run_crew *s);  /* so long no instruction has ended, and somebody looks */
void run_crew_step(struct timer *t);
void run_crew_lost(struct timer *t);             /* is it where it should be? */
/* Of a generation of others the view has what the spec says; what its members have settled is found, in a lane. */
void run_crew_settle(struct run_crew *s);
void run_crew_unsettle(struct run_crew *s);      /* nobody waits for that any more */

#endif
