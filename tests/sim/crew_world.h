/* Crews for their scenarios. What the averager would tell them says a hall: who lives on a side of the network, who
 * leads in which term, which COMMITs come; each peer hears it late, and others hear it at other times. What must hold
 * is looked at whenever a peer begins or stops. */
#ifndef TESTS_SIM_CREW_WORLD_H
#define TESTS_SIM_CREW_WORLD_H
#include "crew/crew.h"
#include "crew_plan.h"
#include "sim.h"

#define SEC 1000000ull
#define MSEC 1000ull
#define CREW_MAX 12
#define GENS_MAX 4096

struct cworld;
struct cpeer {
	struct cworld *w; int node; struct env *env; struct net *net; struct crew *crew; struct profile profile;
	uint64_t heard, epoch; bool live[CREW_MAX];     /* the newest word of the hall, its epoch, who lives by it */
	bool gone[CREW_MAX];                    /* who lived by a word before it, of that epoch */
	uint64_t running, newest, stops;
	uint64_t generation[8]; uint32_t made[8], of[8];        /* whose plans it has computed, of the last generations */
	unsigned at;
	uint64_t holds_us;                      /* as the leader: no COMMIT before */
	char waits[320];                        /* the last reason; empty since it has begun */
	unsigned named[CREW_MAX], odd[CREW_MAX];        /* events about a peer; that it finds other plans, or none */
};
/* A generation that somebody has begun. */
struct cgen { uint64_t number; uint8_t digest[32]; uint32_t n; int node[CREW_MAX]; uint64_t life[CREW_MAX]; };
struct cside { bool is; uint64_t epoch, base, word; uint32_t term; int leader; bool live[CREW_MAX], fresh[CREW_MAX]; };
struct cworld {
	struct sim *s; struct id id[CREW_MAX];
	const struct planner_ops *strategy[CREW_MAX]; double speed[CREW_MAX]; uint64_t memory[CREW_MAX];
	uint64_t layer_us, layer_bytes, act_bytes; uint32_t layers, redundancy;
	uint64_t commit_us;                     /* about so often, while a generation runs; 0: no COMMITs */
	int side[CREW_MAX]; struct cside sides[2];
	uint64_t lives[CREW_MAX], crews[CREW_MAX], born_us[CREW_MAX];
	struct cgen gen[GENS_MAX]; unsigned gens;
	int liar;                               /* it may promise what it does not do; -1 */
	bool newcomers; uint64_t since;         /* until the COMMIT behind `since` only who leads knows all of them */
	int prefer;                             /* it leads whenever it lives; -1 */
	uint64_t commits;
	struct list on_their_way;               /* what has been said in the hall and not been heard */
};

struct cworld *cworld_new(struct sim *s);
void cworld_free(struct cworld *w);             /* when the simulator is */
void cworld_add(struct cworld *w, int n);
struct cpeer *cworld_peer(struct cworld *w, int node);  /* NULL while it is dead */
void cworld_kill(struct cworld *w, int node);
void cworld_restart(struct cworld *w, int node);
void cworld_gone(struct cworld *w, int node);           /* something has killed it */
void cworld_split(struct cworld *w, const int *side);
void cworld_heal(struct cworld *w);
int cworld_leader(struct cworld *w, int side);
void cworld_forget(struct cworld *w);           /* until the next COMMIT only who leads knows all of them */
void cworld_commit(struct cworld *w, uint64_t number);  /* of that generation, whatever runs */
void cworld_new_term(struct cworld *w);         /* who leads has taken the lead again */
/* All that live on a side are in one generation, or know that they are spare in it; or all wait. */
bool cworld_settled(struct cworld *w);
void cworld_settle(struct cworld *w, uint64_t limit_us);        /* late, or failed */
/* What was committed last is held by as many as wished, and they run on. */
bool cworld_safe(struct sim *s, void *arg);
bool cworld_waits(struct cworld *w, const char *text);          /* all that live say so, and nobody runs */
const struct cgen *cworld_gen(struct cworld *w, uint64_t number);
uint64_t cworld_running(struct cworld *w);      /* that all run who are in one; 0: there is none, or several */
bool cworld_has(struct cworld *w, int node);    /* is it a member of that one? */

/* crew_world_see.c */
extern const struct crew_cb cworld_cb;
void cworld_made(void *who, uint64_t generation, uint32_t rank, uint32_t n);

#endif
