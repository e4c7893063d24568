/* Who is in this generation of a run whose plans have many members, and agreement on their plans.
 *
 * A generation is a view (members in order, with what they are) and the plans of all of them. Who leads proposes it at
 * a COMMIT or when a member has died; every member computes the plans of all, checks them together, and signs their
 * digest; when all have signed the same one the leader says go, and only then does anybody begin
 * (hivemind-protocol(7), "Crews"). Who lives and who leads is the owner's word (the averager's roster): this room
 * elects nobody. It knows no strategy by name, only plans and a planner's errors.
 *
 * Everything that the owner calls only notes and arms a timer: no callback re-enters its caller. */
#ifndef CREW_H
#define CREW_H
#include "env.h"
#include "net/net.h"
#include "plan/planner.h"

#define CREW_MEMBERS_MAX 256
/* A generation's number grows; its lower bits only keep apart those that two leaders have made at once. */
#define CREW_TAG_BITS 23
#define CREW_COUNT(generation) ((generation) >> CREW_TAG_BITS)         /* for people: 1, 2, 3 ... */

struct crew_conf {
	struct id run;
	const struct planner_ops *strategy;
	/* What plans depend on beside the members, the same on all peers: profile, settings, target_batch, redundancy (0:
	 * the strategy's). Plans are agreed on as they are when a program begins and there is something to load. Copied,
	 * but what it points to is read in a lane, and stays until crew_free's gone. */
	struct view view;
	double speed; uint64_t memory_bytes;    /* this peer's; 0: 1, and no limit */
	uint64_t floor_us;                      /* smallest deadline; 0 = 200 ms */
	/* Plans do not go by links: nothing must move because one was measured again. */
	bool stays;
};

struct crew_roster {
	uint64_t epoch; uint32_t term;
	uint64_t target;                        /* batch that is in force since that epoch's COMMIT; 0: as in crew_conf */
	struct id leader;                       /* zeros: nobody leads */
	uint32_t n; const struct id *live;      /* members that live; this peer takes part when it is among them */
	/* Of whom is known that they do not. Of those who are in neither list nothing is: newcomers, until the next COMMIT
	 * names them; that they live is the leader's word then. */
	uint32_t ngone; const struct id *gone;
};

struct crew_cb {
	/* All have promised it: from now on this peer is member `rank` of v, which stays until stop of that generation is
	 * over; its epoch is that of the COMMIT on which it stands, its values are settled. */
	void (*begin)(void *arg, uint64_t generation, const struct view *v, uint32_t rank);
	/* Others have begun it, of whom this peer is none; v as above, to be looked at during the call. Or NULL. */
	void (*others)(void *arg, uint64_t generation, const struct view *v);
	/* It is over: nothing new of it starts, frames of it are refused from now on. */
	void (*stop)(void *arg, uint64_t generation);
	/* There can be no generation now: nobody leads, or those who live cannot hold the model. Told when that begins, and
	 * when the reason changes; over with begin, or when another one runs without this peer. */
	void (*waits)(void *arg, const struct err *why);
	/* This peer leads, and asks others of a generation that has come to nothing before, because a COMMIT came first: no
	 * round shall begin before that moment; 0: it may. Or NULL. */
	void (*holds)(void *arg, uint64_t until_us);
	/* Is the COMMIT decided that ends this epoch? A go would come too late. NULL: never. */
	bool (*commits)(void *arg);
	void (*event)(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text);
};

struct crew;
/* A peer that has lost what it held, or has taken over another history, makes a new crew. */
struct crew *crew_new(struct env *env, struct net *net, const struct crew_conf *conf, const struct crew_cb *cb,
	void *arg, struct err *e);
/* Not in one of its callbacks. None comes any more; gone (may be NULL), once, perhaps at once: no lane reads conf's
 * view. */
void crew_free(struct crew *c, void (*gone)(void *arg), void *arg);
/* Before the first roster: this peer holds again what it held in that life, by a checkpoint at the point of the others.
 * 0, at any time: it holds nothing any more, in a new life; what it was in is over. */
void crew_live_on(struct crew *c, uint64_t life);
uint64_t crew_life(const struct crew *c);
uint64_t crew_base(const struct crew *c);               /* generation of the last COMMIT: its members hold the state */
size_t crew_base_members(const struct crew *c, struct id *ret, size_t max);    /* as far as they are known here */
/* Is it in a generation that runs, that is to come, or whose members hold the state? */
bool crew_names(const struct crew *c, const struct id *id);
void crew_roster(struct crew *c, const struct crew_roster *r);         /* whenever it has changed; copied */
/* The COMMIT of that epoch came of what that generation has computed: its members hold the state as their plans say. A
 * later generation, made on an earlier epoch, comes to nothing: it was agreed on while this one's last round ended. */
void crew_commit(struct crew *c, uint64_t generation, uint64_t epoch);
/* This peer cannot go on in that generation: it is over here, and who leads brings the next one about. */
void crew_fail(struct crew *c, uint64_t generation);
/* For `run show`: {"generation", "members": [{"peer", "rank", "unit", "speed", "memory_bytes"}], "rank", "redundancy",
 * "spares", "replans", "replan_us" (from the death or the COMMIT to the go), "replan_us_longest", "plan_us", "waits",
 * "refused": {reason: how many}}. */
json_t *crew_json(const struct crew *c);

#endif
