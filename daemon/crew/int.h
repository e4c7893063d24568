/* The inside of the crew. Nothing outside daemon/crew includes this.
 *
 *   crew.c     the face; what follows from a roster          work.c     what is done in a lane, one thing at a time
 *   hub.c      what comes goes to who handles it             guard.c    who says what it may not
 *   need.c     the leader: is one needed, can there be one   deal.c     generations that are known here
 *   lead.c     the leader: a proposal and its answers        bench.c    who is left out for a while
 *   ask.c      ASK, SHOW: what others know                   roster.c   who lives
 *   member.c   PROPOSE, GO: what a member promises           tell.c     what the owner is told; timers
 *   running.c  generations begin and end                     choose.c, plans.c, wire.c: nothing of a crew
 *
 * Each file calls those below it in its column, and the right one; none calls back.
 *
 * A deal is a generation that is proposed, promised or decided. What this peer runs is decided and was promised by it.
 * Promising stops what ran before; whoever has promised one promises none of a lower number. */
#ifndef CREW_INT_H
#define CREW_INT_H
#include <string.h>
#include "common/jrpc.h"
#include "common/list.h"
#include "common/map.h"
#include "common/mem.h"
#include "common/planted.h"
#include "crew/choose.h"
#include "net/by_run.h"

#define MS 1000ull
#define SECOND 1000000ull
#define MARK(c, name) ((void)FAILPOINT((c)->env, name))    /* a fail point that can only kill or stop */
#define PAST 4
#define AHEAD_MAX (1ull << 20)                  /* generations that may have passed unseen */
#define CLAIM_MAX (AHEAD_MAX / 8)               /* by which a leader goes ahead because some of its members say so */

struct deal {
	unsigned refs;
	struct offer o;
	struct buf bytes, go;                   /* the offer as its leader has signed it; the go, once it is asked for */
	uint8_t id[CREW_DIGEST];                /* of it, without the signature */
	bool computed, cannot;                  /* its plans, here: there are, or there can be none */
	struct found found;                     /* what they come to, once they are computed */
	uint8_t said[CREW_DIGEST], *sig;        /* decided: what all have signed; NULL: it is not */
};
struct deal *deal_hold(struct deal *d);         /* NULL is fine */
void deal_drop(struct deal **d);                /* sets NULL */
void deal_set(struct deal **at, struct deal *d);        /* holds d */
struct deal *deal_known(const struct crew *c, uint64_t number);        /* decided, or the base; NULL */
static inline uint64_t deal_number(const struct deal *d) { return d ? d->o.generation : 0; }
/* Of bytes that somebody has signed (not looked at here). NULL and e. */
struct deal *deal_read(const void *p, size_t n, struct err *e);
struct deal *deal_make(struct crew *c, const struct offer *o);  /* signs it */
struct deal *deal_read_go(const void *p, size_t n, struct err *e);
/* As they are sent: the deal's own bytes, which it keeps until they are no more needed. */
struct blob deal_blob(struct deal *d);
struct blob deal_blob_go(struct deal *d);
bool deal_same_go(const struct deal *a, const struct deal *b);
bool deal_signed(const struct deal *d);         /* by its leader; any thread */
bool deal_all_signed(const struct deal *d);     /* by all its members, under `said`; any thread */
void deal_promise(const struct crew *c, const struct deal *d, uint8_t ret[SIG_BYTES]);
bool deal_promised_by(const struct deal *d, uint32_t rank, const uint8_t digest[CREW_DIGEST],
	const uint8_t sig[SIG_BYTES]);
int deal_rank(const struct crew *c, const struct deal *d);      /* of this peer in this life, or -1 */
bool deal_whole(const struct crew *c, const struct deal *d);    /* all its members live, as far as is known here */
/* By rank, whose unit each of its members is (planner_ops.unit), PLAN_NO_UNIT: nobody's. d NULL: nothing. */
void deal_units(const struct crew *c, const struct deal *d, uint32_t unit[CREW_MEMBERS_MAX]);
/* Do all members of that unit live? Not of PLAN_NO_UNIT. */
bool deal_unit_whole(const struct crew *c, const struct deal *d, const uint32_t *unit, uint32_t which);
/* Does somebody go on in it: is there a unit of which all live? Of the unit of member `rank`. When its plans are not
 * known here, all must live. */
bool deal_goes_on(const struct crew *c, const struct deal *d);
bool deal_unit_of(const struct crew *c, const struct deal *d, uint32_t rank);
/* Does it live in the life in which it is a member, by the roster or its own word, and not by hearsay alone? */
bool deal_lives_on(const struct crew *c, const struct crew_member *x);
/* Bytes of the committed state that nobody holds who lives. False: not known here. */
bool deal_base_there(struct crew *c, uint64_t *ret_missing);

/* A peer of the roster. */
struct mate {
	struct list link; struct crew *c; struct id id; bool live, hearsay;     /* hearsay: by the leader's word alone */
	bool known; struct card card;           /* what it has said of itself, while this peer leads */
	uint64_t own_word;                      /* of hearsay: the life that it has said itself that it lives; 0: none */
	struct call *ask, *show; uint64_t asked_us, show_number, show_us;
	uint64_t adrift;                        /* the decided generation that it does not run, though it should */
	/* Late with an answer so often in a row; no candidate before so many COMMITs are over. */
	unsigned late; uint64_t bench;
	/* How often what it has said ended or kept back a generation, the last time after so many COMMITs, less one for
	 * every COMMIT after which it did not; no member before so many. */
	unsigned trouble; uint64_t troubled, shut;
	uint64_t wrong;                         /* the life in which it has found other plans, or none; 0: in none */
	double tokens; uint64_t tokens_us;      /* what it may ask for (guard.c) */
};
/* roster.c */
struct mate *mate_of(const struct crew *c, const struct id *id);        /* who lives, or NULL */
void roster_follow(struct crew *c);             /* what the owner has told */
void roster_hearsay(struct crew *c, const struct deal *d);      /* its leader says that its members live */
void roster_free(struct crew *c);

/* What is done in the lane. */
enum work_kind { WORK_VERIFY, WORK_VERIFY_OTHERS, WORK_ANSWER, WORK_CHOOSE, WORK_KNOW, WORKS };
struct work {
	struct job job; struct crew *c; enum work_kind kind; uint64_t begun_us;
	struct id from;                         /* whose word it is */
	struct deal *d; const struct planner_ops *strategy; struct view usual;
	struct choice choice;
	int rc; struct err why; struct found found;
	void (*gone)(void *arg); void *gone_arg;        /* the crew is, too; told when this ends */
};

/* Reasons of refusals, as they are counted. */
#define CREW_REFUSALS(X) X(shape) X(signature) X(leader) X(term) X(number) X(members) X(base) X(rate)
enum refusal_why {
#define X(n) REFUSED_##n,
	CREW_REFUSALS(X)
#undef X
	REFUSALS
};
#define FORGERS 16
struct crew_forger { struct id id; unsigned n; uint64_t since_us, last_us, told_us; };

struct crew {
	struct env *env; struct net *net; struct crew_conf conf; struct crew_cb cb; void *arg;
	struct by_run hub; char hex[ID_HEX];
	struct id me; uint64_t life; uint32_t redundancy;
	/* the roster */
	uint64_t epoch, target; uint32_t term; struct id leader; bool in;
	struct list mates; uint32_t nmates; struct map *by_id;
	/* its owner's word, not followed yet */
	struct { bool is; uint64_t epoch, target; uint32_t term; struct id leader; uint32_t n; struct id *live;
		uint32_t ngone; struct id *gone; } told;
	uint64_t told_commit, told_commit_epoch;
	uint64_t seen;                          /* the greatest number heard of that a leader may have given */
	uint64_t base_number;                   /* of the last COMMIT, by the owner's word */
	struct deal *base, *decided, *promised, *running;
	struct deal *past[PAST]; unsigned npast;        /* those decided of late: a COMMIT may come late */
	struct view view; struct view_member *members;  /* of running */
	uint64_t commits, decided_us, commit_us;
	/* member.c: a proposal that is being looked at, and who waits for it */
	struct { struct deal *d; struct request *req; bool trial; } answer;
	struct deal *computed;                  /* the last one whose plans were found here */
	/* work.c */
	struct work *busy, *waiting[WORKS]; uint64_t plan_us;
	void (*worked)(struct job *j);          /* hub.c: the end of one */
	/* lead.c, need.c */
	struct lead *lead; struct list gos;
	uint8_t doubted[CREW_DIGEST];
	struct { uint8_t set[CREW_DIGEST]; unsigned blind; } judged;   /* what the last choice was among; asked so often */
	uint64_t again_us; unsigned tries; bool committed, odd;        /* odd: most find other plans than this peer */
	unsigned overtaken, futile; uint64_t holds_us;         /* by COMMITs, in what it asked; holds_us: none shall come */
	uint64_t answer_us[16]; unsigned answers;
	uint64_t asked_us; unsigned asks; bool unsure;  /* a promise is void, or it is to stop for newcomers */
	bool doubts;                            /* what is committed lies with somebody known by hearsay */
	struct timer kick, tick; uint64_t tick_us;
	/* for people */
	bool waits; struct err why; uint64_t since_us;
	uint64_t replans, replan_us, replan_longest_us; uint64_t refused[REFUSALS];
	struct crew_forger forger[FORGERS];
};

static inline uint64_t now_of(const struct crew *c) { return env_now(c->env); }
static inline bool leads(const struct crew *c) { return id_eq(&c->leader, &c->me); }    /* it may be in no generation */
static inline json_t *crew_head(const struct crew *c) { return json_pack("{s:s}", "run", c->hex); }
/* tell.c */
void crew_kick(struct crew *c);
void crew_waits(struct crew *c, const struct err *why); /* NULL: no longer */
void crew_say(struct crew *c, enum log_level level, const char *code, const struct id *peer, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
void crew_tick_at(struct crew *c, uint64_t us);         /* step again in so long, or earlier */
void crew_since(struct crew *c);                        /* from now on there is no generation as it should be */

/* running.c */
void crew_stop_running(struct crew *c, const char *why);
void crew_begin_deal(struct crew *c, struct deal *d);
void crew_adopt(struct crew *c, struct deal *d);        /* it is decided; this peer need not be in it */
void running_free(struct crew *c);
/* bench.c */
void bench_late(struct crew *c, const struct id *id);
void bench_trouble(struct crew *c, struct mate *m, const char *what);
void bench_calmer(struct crew *c);              /* at a COMMIT */
bool benched(const struct crew *c, const struct mate *m);

/* member.c */
void crew_propose_on(struct crew *c, struct request *req);
void crew_go_on(struct crew *c, struct request *req);
void member_promise(struct crew *c, struct deal *d);
void member_computed(struct crew *c, struct work *w);
void member_verified(struct crew *c, struct work *w);
void member_take_go(struct crew *c, const void *p, size_t n, const struct id *from);
void member_drop(struct crew *c);
/* lead.c */
void crew_lead_propose(struct crew *c, struct deal *d, bool trial, bool blind);
void crew_lead_step(struct crew *c);                 /* what is under way: can it still be? */
void crew_lead_free(struct crew *c);
/* need.c */
void need_step(struct crew *c);
void need_chosen(struct crew *c, struct work *w);
/* ask.c */
void crew_ask_on(struct crew *c, struct request *req);
void crew_show_on(struct crew *c, struct request *req);
void crew_ask_step(struct crew *c);
void crew_ask_mate(struct crew *c, struct mate *m);
void crew_ask_show(struct crew *c, struct mate *m, uint64_t number);
/* To who leads: a number that its proposal must be above. 0: it has none, or one that cannot be. */
uint64_t crew_ask_number(struct crew *c, const struct id *from, const json_t *j, const char *name);
void card_of(const struct crew *c, struct card *ret);
/* work.c */
struct work *crew_work_new(struct crew *c, enum work_kind kind, struct deal *d);
void crew_work_start(struct crew *c, struct work *w);
struct crew *crew_work_over(struct work *w);    /* its job is; its crew. NULL: that is gone, and so is w */
void crew_work_next(struct crew *c, struct work *w);    /* then: it has been looked at, the next one */
bool crew_work_under_way(const struct crew *c, enum work_kind kind);
void crew_work_leave(struct crew *c, void (*gone)(void *arg), void *arg);
/* hub.c */
int crew_hub_enter(struct crew *c, struct err *e);
void crew_hub_leave(struct crew *c);
/* guard.c */
bool guard_pays(struct crew *c, struct mate *m);
/* Counts it, and names whoever goes on; strong: no honest peer says this. */
void guard_refused(struct crew *c, const struct id *from, enum refusal_why why, const struct err *e, bool strong);

#endif
