/* The inside of the averager. Nothing outside daemon/avg includes this.
 *
 * Calls go down: a file calls those below it, and of two with a slash between them each the other (tests/loops.py).
 * What has to go up is returned, or waits for the kick, or comes as a timer's or transfer's end (avg.silent).
 *
 *   avg.c       the face, the kick                   hub.c        one handler per kind for all runs
 *   join.c      JOIN answered                        progress.c   reports, the trigger
 *   leave.c     the goodbye                          apply.c      COMMIT to state
 *   member.c    BEGIN, ATTEMPT and COMMIT come       meet.c       rendezvous: DHT, probes
 *   join_ask.c  JOIN asked, redirects                shown.c      two histories: which one stays
 *   audit.c / accuse.c  a sum is made again          gone.c       who is gone, or leads badly
 *   recover.c   succession                           begin.c      leader: BEGIN, READY
 *   lead.c      leader: ATTEMPT, ACK                 commit.c     leader: COMMIT
 *   finish.c    ATTEMPT and COMMIT taken             grid_flow.c  parts on their way in a grid
 *   flow.c / sum.c / sent_check.c  parts on their way in a tree, sums, signatures under pieces
 *   reap.c      what is over is freed                ack.c        all parts are here
 *   told.c      a COMMIT on its way to the others    authority.c  who may say what about a round
 *   early.c     COMMITs before their time            follow.c     another leads, or another history
 *   round.c     a round begins and ends              missing.c    who keeps it from going on
 *   parts.c     what of it is here                   show.c       SHOW: what this peer stands on
 *   grant.c     positions to process                 claims.c     what is plausible
 *   proof.c     two COMMITs of one epoch             witness.c    who has signed for another history
 *   sent.c      what members signed that they sent   door.c       what must be the same on all
 *   shape.c     who sums what                        units.c      who holds parts
 *   signed.c    bodies, ACKs and terms, signed       room.c       leader: waiting for who lags
 *   leading.c   what a leader keeps of its round     complaint.c  leader: who is believed
 *   propose.c   hyperparameters                      fork.c / point.c  two histories compared
 *   grid_lines.c  a grid as it stands                grid_lead.c  leader: of a grid
 *   held.c      what was summed, to be shown         seen.c       who has been a member, from when to when
 *   roster.c    who is there, who leads              forger.c     naming who says what it may not
 *   spare.c     memory from round to round           share.c      what an epoch asks of each
 *   event.c     events, JSON, the kick's timer       times.c      deadlines
 *   tree.c, rows.c, near.c, grid.c, holding.c, topo/  shapes      here.c / find.c  who is in a round; who is who
 *
 * One epoch is one round object at most; a round that is over lives on as a tail until its last transfer and job end.
 * Everything that the owner calls only notes and arms `kick`, so that no callback re-enters its caller. */
#ifndef AVG_INT_H
#define AVG_INT_H
#include <string.h>
#include "avg/avg.h"
#include "avg/reduce.h"
#include "avg/signed.h"
#include "avg/spare.h"
#include "avg/times.h"
#include "avg/tree.h"
#include "avg/wire.h"
#include "common/jrpc.h"
#include "common/list.h"
#include "common/mem.h"
#include "common/planted.h"
#include "net/by_run.h"

#define MS 1000ull
#define SECOND 1000000ull
#define HISTORY 1024
/* Of the parameters, made in the way of state/digest.h. "params" was another, which peers of before send and expect:
 * two that are made differently are never compared. */
#define DIGEST_KEY "params_tree"
#define FEW 65536                               /* bytes: below it work stays on the loop */
#define HEARTBEAT_US (500 * MS)
#define MATES_MAX 1024
#define MARK(a, name) ((void)FAILPOINT((a)->env, name))    /* a fail point that can only kill or stop */
#define SPARES 96
#define SPENT 8
#define BELIEF_US SECOND
#define HEARD_US (300 * MS)                     /* a machine that dies is missed before, and news of it is everywhere */
#define SLEPT_US (400 * MS)                     /* between two ticks of 100 ms: this daemon was stopped, or starved */

/* A peer of the run. */
struct mate {
	struct list link; struct avg *owner; struct id id; struct endpoint at; uint8_t order[32]; uint8_t flags;
	bool live;                              /* not known to be dead or gone */
	bool member;                            /* of this history: in the last commit, or welcomed since */
	bool fresh;                             /* welcomed since the last commit: does not lead yet */
	bool awaited;                           /* contributed to the last commit or is new: BEGIN waits for it */
	bool counted;                           /* its samples are in a->sum */
	uint64_t epoch, samples; uint8_t prev[DIGEST];  /* its last report */
	double rate; uint64_t bandwidth; uint32_t micro; enum hashes hashes /* the newest that it knows */;
	uint64_t share, done_us;                /* of a head: its unit's of an epoch, 0 not known; since when it has that */
	uint8_t digest[16]; uint64_t digest_epoch;      /* of its parameters; epoch 0: none */
	struct ranges grant;                    /* promised to it and not committed */
	/* late for BEGIN so often: not waited for before that epoch */
	struct request *join_req;               /* to follow, asked in the middle of a round */
	struct call *join, *leave; void *join_arg; unsigned misses; uint64_t skip_epoch;
	uint64_t probe_us, asked_us, heard_us, gone_us, backoff_us, redirect_us;
	/* At the leader: its last report, none has come for long; the last epoch whose COMMIT it said that it holds. */
	uint64_t report_us, holds; bool silent;
	int cares; uint16_t row;                /* the last commit would have it in that one; NO_ROW: nobody knows */
	unsigned odd;                           /* rounds in a row out of line (sum.c) */
	uint32_t unfit;                         /* avg.gen when it was found not to lead well: not at this point again */
	uint32_t left;                          /* avg.gen when it left, and counts among the last commit's no more */
	unsigned unfits;                        /* so often since it led a commit */
	bool elsewhere;                         /* it goes on in another history: does not lead before it is in this */
	uint8_t began[DIGEST];                  /* the last BEGIN of its own that was not taken here */
	/* avg.gen when it began a round over one of its own, or led and was not there; at so many points since it led a
	 * commit without that, and when last */
	uint32_t over; unsigned overs; uint64_t over_us;
	unsigned idle;                          /* rounds in a row that it was in time for with no samples */
	unsigned unacked; uint64_t unacked_epoch; /* how late with its ACKs of late (here.c): not waited for before that */
	unsigned alone;                         /* rounds in a row that it was left out of, since it complained */
	unsigned seized; uint64_t seized_us;    /* follow.c: took the lead from one that lives; not again before */
	uint32_t heir;                          /* avg.gen when it did so last, as the next in order; 0: not so */
	/* room.c: how far behind it speaks; how long the last mean may be on its way to it (0: it is not); when it spoke so
	 * last (0: it has been given room since), no room before, given so often */
	uint64_t lag_us, fetch_us, late_us, room_us; unsigned rooms;
	/* shown.c: the first and last point that it was a member at in this history, newcomers too, and when (0: none); not
	 * heard before when it says that this state is not the swarm's; how often it was not believed */
	uint64_t stood_first, stood_last, stood_us, doubt_us; unsigned doubts;
	/* audit.c: audits in a row without an answer that fits, when the last was; of a round that is not here yet */
	unsigned unaudited; uint64_t unaudited_us, accused_us; struct stash *stash;
	char absent[48];
};

/* us: when it came, 0: others told of it; mark: the beginning of the COMMIT's digest. */
#define PAST_MARK 12
struct past { uint64_t epoch, us; uint8_t mark[PAST_MARK]; };
struct history { size_t n; struct past v[HISTORY]; };   /* a ring: n counts all that were ever put */

/* Who led this epoch as this peer saw it; a ring. */
#define LED 16
struct led { struct id id; uint32_t term; };
/* That `by` takes the term at this point of the history; sig is its own. */
struct term_claim { uint32_t term; struct id by; uint8_t sig[SIG_BYTES]; };

/* Who was refused what is not its to say, of late; since_us: the window that n counts in. */
#define FORGERS 16
struct forger { struct id id; unsigned n; uint64_t since_us, last_us, told_us; };

#define KEPT_COMMITS 32
struct kept_commit { uint64_t epoch; struct buf bytes; };
struct kept_commits { struct kept_commit v[KEPT_COMMITS]; size_t bytes; };      /* show.c; by epoch, a ring */
enum avg_state { AVG_OUT, AVG_JOINING, AVG_IN, AVG_LOST /* told to resync; waits for avg_enter */ };
struct avg {
	struct env *env; struct net *net; struct chunks *chunks; struct dht *dht;
	struct avg_conf conf; struct avg_cb cb; void *arg;
	struct by_run hub;
	char hex[ID_HEX], key[96];
	struct list mates; size_t nmates; struct mate *me;
	enum avg_state state; bool hold, freeing, follower /* wanted; me->flags has what is agreed */;
	void (*quiet)(void *arg); void *quiet_arg;      /* of avg_free */
	/* told when no job reads x */
	uint64_t forked, forked_last; bool forked_pending;
	bool lost_pending; enum avg_why lost_why; struct id lost_donor; uint64_t lost_epoch; struct past gave /* up */;
	unsigned unreachable; uint64_t heard_us;        /* who did not answer since avg_enter; when somebody did */
	struct avg_point point; struct history past, *was, *tail /* fork.h */; uint64_t tail_same;
	uint32_t expects; uint64_t expects_until_us, expects_told_us;   /* members that are waited for after a restart */
	uint32_t anew;                          /* gen at which a minority's round was begun anew */
	uint32_t term, n_last;                  /* members of the last commit that counted */
	struct term_claim claim; struct led led[LED]; unsigned nled; uint64_t point_us; /* since when it is at point */
	struct mate *leader; uint64_t lead_us;  /* NULL: none known; since when */
	uint64_t follower_left_us;              /* one who followed left, perhaps to ask anew; 0: nobody */
	bool apart;                             /* the last commit was in a grid: others have means that differ in bits */
	struct kept_commits kept;
	uint64_t life, signed_epoch;            /* since it entered; of its last COMMIT (proof.c) */
	struct proofs *proofs;
	struct forger forger[FORGERS];
	struct audits *audits;
	struct units *units;                    /* units.h; NULL: everybody holds all */
	struct buf last_commit;                 /* with signature; the one that made point */
	/* what the owner reported */
	uint64_t samples; double rate; struct ranges claimed; uint8_t digest[16]; uint64_t digest_epoch;
	uint64_t sum;                           /* leader: samples of everybody at this point */
	uint64_t idle_us; uint32_t idle_gen; unsigned idle_passed;      /* since when nothing is left but BEGIN */
	struct id granted_by; uint32_t granted_gen;     /* who has given more than the commit did, at that point */
	uint64_t told_samples, told_us, grant_us; bool tell; struct call *grant_call, *beat_call; struct id beat_to;
		unsigned beat_misses;
	uint64_t target;                        /* samples of an epoch now */
	uint64_t commit_us, epoch_us;           /* last commit; smoothed time between commits */
	uint64_t quick_us;                      /* a short one: who is slow now and then does not make it long */
	void (*silent)(struct timer *t);        /* member_silent: of a round's timer */
	struct times ready_times, data_times, round_times;
	struct timer kick, beat, meet; bool kicked; uint64_t awake_us /* when meet fired last */, woke_us;
	/* rendezvous */
	uint64_t enter_us, put_epoch, put_samples /* as the table was told last */;
	struct look *look; uint32_t gen /* grows with every new point */, looks;
		uint64_t put_us, look_us;
	unsigned hops, lonely;                  /* redirects in a row; looks that have found nobody */
	struct round *round; struct list tails, early /* early.c */;
	struct request *begin_req; struct buf begin_bytes; json_t *begin_json;  /* early.c */
	uint64_t due_us; uint32_t due_gen;      /* room.c: when the BEGIN of this point was due */
	uint8_t spent[SPENT][DIGEST]; unsigned nspent;  /* rounds that this peer has sent its part of and left */
	struct recover *recover;
	struct shown *shown; uint64_t shown_us; /* another history that is looked at; none before that */
	uint64_t begun_us;                      /* when it entered at epoch 0; 0: with a state */
	/* proposals: those in the chain, those accepted since by this leader, those of this peer that wait */
	struct wire_proposal *prop; size_t props; uint64_t prop_counter;
	struct list asks, commits /* COMMITs that are not answered */;
	avg_left_fn *left; void *left_arg; struct timer leave_timer; uint32_t leave_calls; uint64_t leave_by_us;
		bool leaving, leave_told, fresh_progress, grows /* avg_grows */;
	bool turned_away;                       /* at the door; over when it enters anew */
	uint64_t full_us;                       /* when the group had no place for it; 0: never since it entered */
	uint64_t violations, told_epoch;        /* of the ledger, by commits that this peer took; the last COMMIT it sent */
	uint64_t rounds_done, rounds_without, rounds_failed, last_round_us, short_told_us, wait_us, stay_us, ahead_epoch,
		heir_epoch; struct id heir;             /* who has taken over is at that epoch, one further; 0: nobody */
		uint32_t fails, untold /* COMMITs at this point that were only refused */; uint64_t bytes_out, bytes_in;
	struct { void *p; size_t bytes; } spare[SPARES];
	struct residual *res; size_t nres; uint64_t res_dropped /* elements */;
	unsigned x_jobs /* that read the owner's vector */; struct avg_roster roster; struct id *roster_ids /* as told */;
};

/* ---- one round ---- */
struct flow { struct round *r; uint16_t part, member; struct xfer *x; bool done; };
struct rpart {
	uint64_t off, len; uint16_t owner;
	uint16_t up; bool sums;                 /* where it goes from here; summed here, for the row or as owner (tree.h) */
	bool passed;                            /* the sum of the row is that of this attempt */
	size_t bytes; bool plain;               /* on the wire; they are the floats' own */
	void **raw; struct flow *in;            /* who sums: what the others sent, by member */
	uint8_t *p_enc;                         /* the sum of the row as it travels */
	uint8_t *x_enc, *r_enc, *in_enc;        /* encoded: this peer's piece, the mean, a result on its way */
	bool encoding, x_failed; struct residual was, now;
	struct flow x_out;                      /* this peer's piece, or its row's sum, on its way up */
	struct flow result_in, *result_out;
	bool ready;                             /* mean[part] is that of this attempt */
	/* summing: a job reads or writes its place in the mean; hash: tree256 of the mean's bytes */
	bool summing; uint8_t hash[TREE256];
};
struct round {
	struct list link; struct avg *a;
	struct body b; struct buf bytes;        /* BEGIN with signature */
	uint8_t id[DIGEST];                     /* SHA-256 of the BEGIN */
	bool applied;                           /* its COMMIT is this peer's state now */
	bool from_commit;                       /* made from a COMMIT: BEGIN never came */
	bool early;                             /* in avg.early: link is that list's */
	int me; uint32_t term, attempt, attempt_term /* its leader's */; bool attempted, closed, told_begin, memory_told;
	const float *x; bool contributed, told_x; uint64_t samples; struct ranges claimed;
	/* grow.h: x is still being made, and `there` of it is; something is since the last kick; of this attempt: the
	 * deadline has been cut in two, the first part is over, and x was not all there then */
	bool growing, grew, early_word, warned, own_late; struct ranges there;
	bool behind;                            /* its unit's share was not made when BEGIN came (avg_behind) */
	struct request *ready_req, *ack_req; bool acked; unsigned missing_told, lateness;
	bool *cared;                            /* whose death is watched for, by member */
	uint64_t *w, total;                     /* weights of this attempt by member */
	struct tree tree;                       /* of this attempt */
	struct sents *sent;                     /* sent.h; NULL: nobody signs what it sends */
	struct grid_flow *flow;                 /* in a grid: takes the place of tree and of what moves along it */
	struct rpart *part; float *mean; bool mean_is_x;
	/* mean and x are where element 0 would be; of the mean elements lo to hi - 1 are here */
	struct lease *mean_in; uint64_t lo, hi;
	struct coding coding; enum robust robust; bool feedback;
	uint64_t *came;                         /* by member: bytes that it had sent when the attempt began */
	bool *bad, *broken;                     /* by member: not finite what it brings, or what it summed of others' */
	unsigned *odd, judged;                  /* by member: parts far from the others */
	int jobs; uint64_t begun_us, data_us, attempt_us, bytes_out, bytes_in, counted_out, counted_in;
	struct timer late, silent;
	struct body *commit; struct buf commit_bytes;   /* decided, waits for parts or jobs */
	struct told *told;                      /* this peer's own COMMIT, which nobody else may hold yet (told.c) */
	struct err *fail;                       /* decided: given up */
	struct lead *lead;
};
enum lead_phase { LEAD_READY, LEAD_DATA, LEAD_WAIT /* minority */, LEAD_OVER };
struct lead_member { struct ready ready; bool is_ready, awaited, answered, refused, acked, gone, nonfinite;
	bool elsewhere;                         /* it lives, and says that it is in no round of this leader */
	bool behind;                            /* when BEGIN came its unit's share was not made yet */
	struct call *call;
	uint8_t *hash, sig[SIG_BYTES]; bool is_signed /* its ACK; not verified */; };
struct lead {
	enum lead_phase phase; struct round *r; struct lead_member *m; uint64_t *samples; struct tree tree;
	uint8_t *stand;                         /* in a grid, by member: of the next attempt */
	uint8_t *near;                          /* distances as the members say them (near.h), n * n; NULL: none */
	uint32_t attempts, epoch_members; uint64_t phase_us, acked_us /* the last ACK */;
		bool minority, again, missing_self, slept, measured, looked; struct timer timer;
		struct complaints *complaints;
		struct list calls;
};

static inline bool is_leader(const struct avg *a) { return a->leader == a->me && a->me; }
static inline bool same_point(const struct avg *a, uint64_t epoch,
	const uint8_t *prev) { return epoch == a->point.epoch && !memcmp(prev, a->point.prev, DIGEST); }
static inline uint64_t now_of(const struct avg *a) { return env_now(a->env); }

/* ---- hub.c, event.c ---- */
bool hub_overflows(const struct avg *a);         /* avg_cb.overflows */
int hub_enter(struct avg *a, struct err *e);
void hub_leave(struct avg *a);
json_t *hub_json(const struct avg *a);          /* {"run": hex} to be filled */
void hub_event(struct avg *a, enum log_level level, const char *code, const struct id *peer, const char *fmt,
	...) __attribute__((format(printf, 5, 6)));
json_t *json_endpoint(const struct endpoint *at);
bool endpoint_of(const json_t *o, const char *key, struct endpoint *ret);
bool id_of_json(const json_t *o, const char *key, struct id *ret);
void kick(struct avg *a);

/* ---- roster.c, gone.c ---- */
struct mate *mate_find(const struct avg *a, const struct id *id);
struct mate *mate_make(struct avg *a, const struct id *id);     /* NULL: the book is full */
void mate_free(struct avg *a, struct mate *m);
void mate_gone(struct avg *a, struct mate *m, const char *why);
bool believed(const struct avg *a, const struct mate *m);        /* when somebody says that it lives */
void roster_news(void *arg, const struct id *peer, enum net_news what);
void roster_tell(struct avg *a);                /* avg_cb.roster, when it has changed */
void roster_reorder(struct avg *a);             /* after point.prev changed */
void roster_elect(struct avg *a);               /* sets a->leader; acts on a change */
void roster_sum(struct avg *a);                 /* recounts a->sum */
struct mate *roster_first(const struct avg *a); /* who should lead */
struct mate *roster_heir(const struct avg *a);  /* and who, if the leader were gone */
void roster_care(struct avg *a, struct mate *m, int delta);
void roster_silent(struct avg *a, struct mate *m, bool silent);
size_t roster_others(const struct avg *a, bool followers);      /* live members but this peer */
void roster_lead(struct avg *a, struct mate *to /* NULL: nobody */);
bool roster_before(const struct avg *a, const struct mate *m);
/* At one point and in one term, should m lead rather than that one? m is heard now. */
bool roster_rather(const struct avg *a, const struct mate *m, const struct mate *than);
#define OVERS 3
#define OVERS_US (60 * SECOND)                   /* after so many: it does not lead for so long */
void roster_led_over(struct avg *a, struct mate *m);     /* one more point at which it has not led */
void roster_unfit(struct avg *a, struct mate *m, const char *why);      /* it does not lead at this point any more */
void roster_pass_over(struct avg *a, struct mate *m, const char *why); /* the same, and another leads already */
void roster_elsewhere(struct avg *a, struct mate *m);   /* nor at those behind it */
void roster_clear(struct avg *a);               /* nobody is a member */

/* ---- door.c ---- */
void door_put(const struct avg *a, json_t *join);       /* what must be the same on every member */
int door_check(const struct avg *a, const json_t *join, struct err *e); /* ERR_MISMATCH names the key */
uint32_t door_micro(const struct avg *a, uint64_t said);        /* micro-batch of one who joins */
struct mate **door_followers(const struct avg *a, size_t *ret_n);       /* of a leader; to be freed by the next: */
void door_take_along(struct avg *a, struct mate **v, size_t n); /* those that did not come are told whom it follows */
bool door_full(const struct avg *a);            /* there is a group, and it has its members: nobody leads beside it */
bool door_refused(struct avg *a, const struct mate *by, const struct err *e);   /* true: for that; the owner is told */

/* by says that this peer is behind: by what is on its way, so nothing is lost? */
bool door_passing(const struct avg *a, const struct mate *by);

/* ---- join.c, join_ask.c, meet.c, shown.c, follow.c (fork.c: fork.h) ---- */
void join_start(struct avg *a, struct mate *to);
void join_caught_up(struct avg *a);              /* a follower that has caught up: a full member from now on */
void join_on(struct avg *a, struct request *req);
void join_kept(struct avg *a);                  /* no round is under way: those who asked in the last one */
void join_drop(struct mate *m);
void redirect_on(struct avg *a, struct request *req);
void redirect_to(struct avg *a, struct mate *m, const char *why);
void become_leader_alone(struct avg *a);
void lost(struct avg *a, enum avg_why why, const struct id *donor, uint64_t epoch);
/* shown.c: by says that this peer's state is not the swarm's. At once, when this one has nothing to hold against it
 * (shown_needed), else when those who would have to know say so, too: lost(). */
bool shown_needed(const struct avg *a);
void shown_start(struct avg *a, struct mate *by, enum avg_why why, const struct id *donor, uint64_t epoch);
void shown_drop(struct avg *a);
void witness_leaves(struct avg *a);                /* the point is about to be another: who has stood at it */
void witness_forget(struct avg *a);                /* another history: nobody has stood in it yet */
void show_on(struct avg *a, struct request *req);
bool show_can(const struct avg *a);             /* it has a COMMIT to show */
void life_begin(struct avg *a);                  /* from now on it may lead any epoch (proof.c) */
const struct buf *commit_kept(const struct avg *a, uint64_t epoch);     /* NULL: not of late, or not this peer's */
void kept_put(struct avg *a);
void kept_forget(struct avg *a);
void meet_fire(struct timer *t);
bool meet_expects(struct avg *a);                /* after a restart: are others still waited for? */
bool meet_asks(const struct avg *a, const struct mate *but);       /* another than that one, having just come */
void meet_now(struct avg *a);
void meet_init(struct avg *a);                   /* says what the records of the run must look like */
void meet_stop(struct avg *a);

/* ---- progress.c, share.c, grant.c, claims.c ---- */
void progress_on(struct avg *a, struct request *req);
void progress_send(struct avg *a, bool now);
void progress_beat(struct timer *t);
void progress_trigger(struct avg *a);
bool progress_idle(const struct avg *a);        /* by the half of what would do, its leader does not lead well */
void grant_on(struct avg *a, struct request *req);
void grant_tell(struct avg *a);                 /* cb.grant with what this peer may process */
uint64_t grant_most(const struct avg *a);       /* positions that anybody holds at most, whatever a leader writes */
void grant_take(struct avg *a, struct mate *m, const struct ranges *grant);    /* promised to m; the rest is free */
void grant_need(struct avg *a);                 /* asks for more when it runs low */
void grant_top_up(struct avg *a, struct mate *m, uint64_t more);
uint64_t progress_goal(const struct avg *a);    /* samples of an epoch, as the members stand */
double share_of(const struct avg *a, const struct mate *m);     /* samples of an epoch that m will bring */
void taken_all(const struct avg *a, struct ranges *ret);        /* done and promised */

/* ---- begin.c, lead.c, leading.c, commit.c ---- */
void lead_begin(struct avg *a);
void lead_resume(struct avg *a, struct round *r, uint32_t attempt);      /* after RECOVER */
void lead_free(struct round *r);
void lead_ready(struct round *r, size_t member, const struct ready *ready);
/* leading.c: only notes it. ack: hashes and, of another than this peer, signature. */
void lead_acked(struct round *r, size_t member, const uint8_t *ack, size_t n);
/* The last `nonfinite` of the ids have sent what is no number: left out, but not gone. */
/* slow: how many times as long what some of them send would take that was on its way; 0: nothing was */
void lead_missing(struct round *r, size_t member, const uint8_t *list, size_t n, size_t nonfinite, uint64_t slow);
void lead_dead(struct round *r, const struct id *who);  /* gone.c */
void lead_step(struct round *r);
void lead_send_begin(struct round *r, size_t i);
void lead_give_up(struct round *r, const char *why);
void lead_fire(struct timer *t);
void lead_commit(struct round *r);
void body_put_member(const struct avg *a, const struct mate *m, struct wire_member *ret);

/* ---- authority.c (signed.c: signed.h) ---- */
int body_open(struct avg *a, struct body *ret, const void *p, size_t n, struct err *e); /* decodes and verifies */
/* May its author decide? on: the COMMIT that it stands on, when that is not this peer's state yet; else NULL. */
int commit_lawful(const struct avg *a, const struct body *c, const void *bytes, size_t n, const struct body *on,
	struct err *e);
int begin_lawful(const struct avg *a, const struct mate *from, const struct body *b, const json_t *j,
	struct term_claim *ret, struct err *e);
int begin_leaves_out(const struct avg *a, const struct body *b, struct err *e);
bool attempt_lawful(const struct avg *a, const struct round *r, const struct attempt *at, const struct id *from);
void led_note(struct avg *a);                   /* leader or term are others now */
bool led_by(const struct avg *a, const struct id *id, uint32_t term);

/* forger.c: refuses (a post: only notes it) with *e; who is refused ERR_AUTH or ERR_INVALID often is named. wrong: no
 * honest peer says that, a strike. Last in a handler. */
void refuse_forged(struct avg *a, struct request *req, const struct err *e, bool wrong);
void note_forged(struct avg *a, const struct id *who, const struct err *e);

/* ---- round.c, member.c, finish.c, ack.c, flow.c, parts.c, missing.c, sum.c ---- */
struct round *round_new(struct avg *a, struct body *b /* moved */, const void *bytes, size_t n, struct err *e);
void round_close(struct round *r);              /* cancels what is cancellable; frees when the rest is over */
void round_weights(struct round *r, const uint64_t *samples);    /* of this attempt; samples by head */
void round_count(struct round *r);              /* into bytes_in and bytes_out of a */
void round_touch(struct round *r);              /* the leader was heard */
int round_member(const struct round *r, const struct id *id);   /* -1 */
void round_refuse(struct request **req, const char *why);       /* NULL from then on */
void round_care(struct round *r);               /* again, after it has become this peer's to lead */
bool round_spent(const struct avg *a, const uint8_t id[DIGEST]);
void member_begin_on(struct avg *a, struct request *req);
void member_attempt_on(struct avg *a, struct request *req);
void member_commit_on(struct avg *a, struct request *req);
void member_missing_on(struct avg *a, struct request *req);
/* -1: who leads lies about the round, and req is answered so. */
int member_attempt(struct round *r, const struct attempt *at, struct request *req, struct err *e);
int member_commit(struct avg *a, struct body *c /* moved when 0 */, const void *bytes, size_t n, struct err *e);
void member_contributed(struct round *r);
void member_grown(struct round *r);             /* on with what has come since (grow.h) */
void member_check(struct round *r);             /* all parts here? ACK, or apply what is decided */
void member_fail(struct round *r, const struct err *e);
void member_silent(struct timer *t);             /* nothing is heard of the leader of a round */
bool flow_holds(const struct round *r, size_t part);     /* this peer, all of the part */
void flow_open(struct round *r);                /* the receivers of what this peer sums */
void flow_send_x(struct round *r);
void flow_attempt(struct round *r, const uint16_t *owner, const uint16_t *sub);
void flow_try(struct round *r, size_t part);
void flow_missing(struct round *r);             /* tells the leader who is missing, once an attempt */
bool flow_complete(const struct round *r);
bool flow_place(struct round *r, size_t part);
bool flow_lacks(const struct round *r, size_t part, size_t i);   /* of what it sums, member i's is not there */
bool flow_lives(const struct round *r, size_t i);
uint64_t flow_came(const struct round *r, size_t i);      /* bytes of contributions and means, ever */
void flow_stop(struct round *r, bool results_too);
bool flow_idle(const struct round *r);
bool flow_owes(const struct round *r, size_t member);   /* the mean is on its way to it */
void flow_free(struct round *r);
void flow_missing_self(struct round *r);
void flow_summed(struct round *r, size_t part); /* the mean is there, or the row's sum */
void flow_again(struct round *r, size_t part);  /* no job has its place in the mean any more */
void flow_pass_on(struct round *r, size_t part);        /* the mean is there: to those who sent this peer theirs */
unsigned flow_patience(const struct round *r);  /* deadlines that the last in the tree waits for a result */
void sum_encode(struct round *r, size_t part);  /* this peer's piece; flow_send_x again when it takes a while */
void sum_start(struct round *r, size_t part);
/* A result has come. */
void sum_take(struct round *r, size_t part);
void sum_hash(struct round *r, size_t part, bool own);
/* The same, never at once; done ends with sum_hashed, which says whether it was of this attempt. */
void sum_hash_later(struct round *r, size_t part, bool own, void (*done)(struct job *));
bool sum_hashed(struct job *j, struct round **ret_round, size_t *ret_part);
void sum_odd(struct round *r);

/* ---- room.c: the leader's, for who is late by what is on its way ---- */
void room_late(struct avg *a, struct mate *m, uint64_t epoch, const uint8_t *prev);     /* m speaks from that point */
bool room_wait(struct avg *a);                  /* BEGIN is due; true: not yet, the beat asks again */
void room_came(struct avg *a, struct mate *m);  /* m is at this point */

/* ---- early.c ---- */
const struct body *early_on(const struct avg *a, const struct body *c); /* decided here, not applied: c stands on it */
bool early_begin(struct avg *a, const struct body *b, struct request *req /* kept when true */);
void early_begin_drop(struct avg *a);
void forked_tell(struct avg *a);                /* event.c: the owner hears what it has lost, when it has */
void early_begun(struct avg *a);                /* member.c: no round is under way: the BEGIN that was kept */
void early_next(struct avg *a);                 /* apply.c: the point is another: the round that stands on it */
void early_drop(struct avg *a);
const struct buf *early_commit(const struct avg *a, uint64_t epoch, const uint8_t *prev);       /* NULL: none */

/* ---- apply.c, recover.c, follow.c, propose.c, leave.c, told.c, reap.c ---- */
void apply_commit(struct round *r);             /* r->commit is decided and its parts are here */
void apply_leader(struct avg *a);               /* the point is another: who leads from there */
void recover_start(struct avg *a);
/* A minority is about to commit: does anybody hold the COMMIT of this epoch? The leader's timer fires again when that
 * is known, unless one does. false: it cannot be asked now. */
bool recover_look(struct round *r);
void recover_contradicted(struct avg *a, const struct mate *m);
void recover_on(struct avg *a, struct request *req);
void recover_free(struct avg *a);
void recover_follow(struct avg *a, struct mate *m, const struct term_claim *t);
bool recover_seizes(const struct avg *a, const struct mate *m);         /* it takes the lead once too often */
void recover_led(const struct avg *a, struct mate *m);           /* m has ended the epoch; before the next point */
void recover_taken(struct avg *a, struct mate *m, const struct term_claim *t);  /* the term is this peer's, m leads */
void propose_on(struct avg *a, struct request *req);
void propose_send(struct avg *a);
void propose_into_begin(struct avg *a, struct body *b);
void propose_into_commit(struct round *r, struct body *c);
/* Do the hyperparameters follow from this point's and the body's changes, each signed by one who may? */
int propose_check(const struct avg *a, const struct body *b, struct err *e);
void propose_in_force(const struct avg *a, const struct body *c, json_t **ret_recent /* of the point that c makes */);
void propose_applied(struct avg *a, const struct body *b);
void propose_free(struct avg *a); void commits_forget(struct avg *a); size_t commits_missed(const struct avg *a);
void leave_on(struct avg *a, struct request *req); void leave_step(struct avg *a); void leave_post(struct avg *a);
bool commit_owed(const struct avg *a, const struct id *who);    /* one is on its way there, and not answered */
bool commit_missed(const struct avg *a, const struct mate *m);  /* m does not say that it holds what this one sent */
void avg_job_over(struct avg *a);

#endif
