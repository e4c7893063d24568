/* Inside the run room: one training job and the steps that its files lend each other. A file calls those of the lines
 * below its own, and of its own line those to the right; none calls back, but for those in () together. What a lower
 * one has to say to an upper one is what it returns (often an event), or comes by the lanes, the disk, the trainer, the
 * averager and the network to the function that the upper one gave with the question.
 *
 *   (runs draft)                                           all runs: operators, and what begins again with the daemon
 *   opened swarm crew_says                                 a run is built; averager, trainer and crew speak to it
 *   ctl set twin drain crew_follow crew                    words of authors and operators; the seat among members
 *   (sync fetch piece) differ (export export_take saved)   the state of others comes; what else is waited for
 *   run                                                    the life of a run: states and events
 *   enter ckpt restore again release open sync_kept drained publish      what its states begin, what comes of it
 *   show plan crew_holds rally* mover* donor discard       parts of a state: held, found, moved, given
 *   (dry memory) (serve revive) words crew_result crew_is crew_can fetch_ends differ_end export_file saved_lease
 *   trace history result ask find past json state place room point rules packed weights give export_next  what all ask
 */
#ifndef DAEMON_RUN_INT_H
#define DAEMON_RUN_INT_H
#include "avg/avg.h"
#include "ckpt/ckpt.h"
#include "common/list.h"
#include "common/map.h"
#include "exec/carry.h"
#include "exec/exec.h"
#include "run/run.h"
#include "train/trainer.h"

#define RUN_POINTS 80                   /* recent points: snapshots and steps that come late need them */
#define RUN_PEERS_SHOWN 64
#define RUNS_MAX 256

/* The life of a run: run.c has the table. */
enum run_state { RUN_OPEN, RUN_RESTORE, RUN_ENTER, RUN_SYNC, RUN_TRAIN, RUN_FINISH, RUN_LEAVE, RUN_AGAIN, RUN_DONE,
	RUN_LEFT, RUN_STOPPED, RUN_FAILED, RUN_STATES };
enum run_event { EV_NONE, EV_OPENED, EV_RESTORED, EV_GRANTED, EV_BEHIND, EV_SYNCED, EV_REACHED, EV_FINISHED, EV_LEAVE,
	EV_GONE, EV_AGAIN, EV_STOP, EV_BROKEN };

struct trace;                           /* trace.c: the run log on disk */
struct sync;                            /* sync.c: a state download under way */
struct fetch;                           /* fetch.c: its pieces */
struct donors;                          /* donor.c: those of others */
struct lends;                           /* saved.c: its checkpoints, for others */
struct differ;                          /* differ.c: where data begins to be another than the run's */
/* run.c begins what a state of a run needs, and hears itself what comes of it, but for these three: whoever hears them
 * makes the run go on (run_event), so that it stands above run.c, and runs.c, above all of them, says who it is. Nobody
 * of the room calls them: they are handed to a lane, to the trainer and to the DHT. */
struct run_calls {
	void (*opened)(struct job *j);                  /* opened.c: the data has been looked at; job of a struct opening */
	void (*quiet)(void *run);                       /* sync.c: the state may be fetched into */
	dht_got_fn *watched;                            /* ctl.c: of a struct ask, the last words on the run */
	dht_got_fn *ended;                              /* ctl.c: of a struct ask, the run's own record */
};
struct runs {
	struct runs_ctx ctx;
	const struct run_calls *calls;
	struct list list;               /* struct run, oldest first */
	struct list graves;             /* trainers that still have a job running */
	struct list asks;               /* operators' requests that wait for the network */
	struct donors *donors;
	struct list exports;            /* models being written into folders */
	struct list profiles;           /* models being measured: one at most */
	uint64_t measuring;             /* bytes that it takes, and no run may count on */
	struct lends *lends;            /* saved.c */
	struct list serving;            /* texts being continued, pictures being looked at */
	struct timer drain_timer;
	void (*drained)(void *arg); void *drained_arg;
	uint64_t drain_deadline_us;
	bool draining, closing;
	unsigned differs;               /* stretches of manifests being hashed for others */
};

struct run_commit { uint64_t epoch, weight, target /* 0: none decides */; uint32_t members; bool minority; };

struct run {
	struct list link;
	struct runs *rs;
	struct id id, author;
	char hex[ID_HEX], author_hex[ID_HEX], name[SPEC_NAME];
	struct spec *spec;
	enum run_state state;
	struct err error;
	bool paused, held, drain, mine, quick_leave;
	bool past;                      /* it was over before this daemon started (past.c) */
	uint64_t ctl_counter, created_ms, begun_ms;     /* begun_ms: its operator has begun it, here; 0: nobody has */
	uint64_t watched_us;            /* since when it asks for words on it */
	uint64_t ended_us;              /* since when its author is known to say that it has ended beyond this state; 0 */
	struct err ended;               /* then: where */

	struct data *data;
	struct trainer *trainer;
	char *restored_from;            /* the checkpoint that is being looked through */
	bool fetch;                     /* what the run begins with is not here */
	struct origin *weights;         /* weights.c: what the run begins with, until it has begun; NULL: none */
	struct carry *carry;            /* what the plans send to other members, and strict groups */
	struct rest *rest;              /* who waits for sleep layers; NULL: nobody */
	struct avg *avg;                /* NULL: the strategy needs no swarm */
	struct avg_point point;         /* after the last epoch that is applied here */
	struct avg_point recent[RUN_POINTS]; unsigned nrecent;
	struct run_commit commit, commits[RUN_POINTS];  /* the last one; recent ones, whose steps may come late */
	struct ranges walked;           /* of an order of this peer's own: positions that commits have taken */
	struct sync *sync; bool sync_whole;     /* before EV_BEHIND: what it has applied is its state, or will be */
	struct run_crew *crew;          /* NULL: its plans have one member */
	uint64_t val_epoch, val_at;     /* validation asked for; that val_loss and val_accuracy are of (0: none yet) */
	uint64_t val_took_us, val_done_us;      /* the last one; 0: none yet */
	bool saving, final_saved, validating, reached;
	uint64_t saved_epoch;           /* of the newest checkpoint of its own; 0: none that is known of */
	uint64_t lost_from;             /* checkpoints of it and later lost a fork, until one is saved; 0: none did */
	bool resumes;                   /* it has failed, and the daemon's next start tries again */
	uint64_t finish_us;             /* since when nothing but others keeps it from leaving; 0: not yet */
	/* again.c; halfway: what it holds is partly another's; 0: the size of micro-batches stays */
	bool again, halfway; uint32_t batch_next, batch_was;
	bool unsynced;                  /* leaves while it fetches: what is committed is not of the state that it holds */

	/* what `run watch` shows */
	double loss, accuracy, epoch_loss, val_loss, val_accuracy, best_accuracy;
	uint64_t was_epoch;             /* how far it was, as the store has it */
	uint32_t was_members;           /* of the last commit before the checkpoint that it comes from; 0: none */
	uint32_t made_last;             /* members of the last commit that it has heard of since; 0: none */
	uint64_t save_began_us, save_took_us;   /* the latest checkpoint; the longest of late */
	uint64_t saved_us, own_samples, started_us, train_us, epoch_started_us;
	uint64_t told_us; bool tell_again;
	struct timer tell, leave_timer, release_timer, ctl_timer; bool expects;
	struct opening *opening;
	struct differ *differ;          /* NULL: the data is the run's, or is being opened */
	struct trace *trace;            /* NULL: no run log is kept */
	struct { uint64_t bytes; bool ended; } traced;  /* what was kept, when the run is over */
	struct reply *start_reply;      /* run start waits for the data */
	struct list ckpt_waiters;       /* operators who asked for a checkpoint */
	uint8_t last_prev[DIGEST];
	uint64_t recorded;              /* the last commit whose step is made, as the store has it; 0: none */
	uint64_t unsettled;             /* the first epoch that a change is agreed for and has not come */
	uint64_t nepochs, epoch_took[EXEC_TIMES_KEPT];  /* us of the latest epochs */
};

/* ---- run.c ---- */
struct run *run_new(struct runs *rs, struct spec *spec, const struct id *author, const struct id *id /* NULL: made when
	the data is open (we are the author) */, struct reply *start_reply);
void run_supersede(const struct run *newer);    /* of this id, or refused under its name, those that are over go */
void run_free(struct run *r);
void run_event(struct run *r, enum run_event ev);
void run_fail(struct run *r, const struct err *e);
bool run_reach(struct run *r);                  /* has it come to its goal just now? Then it ends (EV_REACHED) */
void run_finish_more(struct run *r);             /* a step of FINISH is done */
void run_again_more(struct run *r);             /* something has been applied, or saved */
void run_drain_more(struct runs *rs);           /* likewise, while the daemon drains: who may leave leaves */
void run_save(struct run *r, struct reply *reply /* NULL */);           /* a checkpoint, now; reply is taken */
void run_effective_pause(struct run *r);        /* paused or held changed */
/* ---- state.c ---- */
const char *run_state_word(enum run_state s);
const char *run_state_name(const struct run *r);
bool run_over(const struct run *r);
void run_log(struct run *r, enum log_level level, const char *kind, const char *fmt, ...) __attribute__((format(printf,
	4, 5)));
void run_record(struct run *r);                 /* its row in the store */
enum run_event run_broken(struct run *r, const struct err *e);  /* says so; EV_BROKEN, or none when it is over */
/* ---- point.c ---- */
bool run_goal(const struct run *r);
void run_applied_point(struct run *r);          /* point is that of an applied epoch: remember it */
void run_take_point(struct run *r, const struct avg_point *p);
uint64_t run_target(const struct run *r);       /* target batch size that is in force */
const struct avg_point *run_point_at(const struct run *r, uint64_t epoch);
/* ---- release.c ---- */
void run_release(struct run *r, bool keep_spec);        /* trainer, averager and data go; the spec is read again */
void run_wake(struct run *r);                   /* its sleep layers wait no more: it is on its way out */
/* ---- again.c: what follows is returned ---- */
enum run_event run_again_check(struct run *r);  /* the point has changed: does the run still fit it? */
enum again_step { AGAIN_WAITS, AGAIN_SAVES /* now */, AGAIN_SAVED, AGAIN_UNSAVED /* and nothing more comes of that */ };
enum again_step run_again_step(struct run *r);  /* of its checkpoint, before it begins anew */
void run_again_ready(struct run *r);
int run_again_batch(struct run *r, uint64_t batch, enum run_event *ret, struct err *e);
enum run_event run_again_saved(struct run *r);  /* from its own checkpoint; its fetch and what came are dropped */
bool run_again_undo(struct run *r, const struct err *e);        /* what was asked for cannot be built */
/* ---- open.c, opened.c ---- */
enum run_event run_open(struct run *r);
void run_opened(struct job *j);                 /* calls.opened */
void run_open_orphan(struct run *r);
/* ---- enter.c ---- */
enum run_event run_enter(struct run *r, void (*filled)(void *run, const struct err *e));
enum run_event run_enter_ready(struct run *r);  /* it has what it begins with */
/* Without a ledger (strategies without a swarm, an order of this peer's own) it cuts its own positions. */
void run_grant_local(struct run *r, bool renew);
/* ---- place.c ---- */
void run_dir(const struct run *r, char *out, size_t cap);
void runs_dir(const struct runs *rs, const char *hex, char *out, size_t cap);   /* of a run that need not be here */
/* Where data lies that an operator or a spec names: KIND:PATH, a path, or a name of [data]. */
const char *run_place_path(const struct runs *rs, const char *of_kind, const char *name, char *out, size_t cap,
	struct err *e);
const char *run_data_path(const struct runs *rs, const struct spec *s, char *out, size_t cap, struct err *e);
/* ---- room.c ---- */
double run_macs_per_us(const struct compute *c);
/* ERR_LIMIT: with what other runs take there is no room for it. */
int run_admit(const struct runs *rs, struct trainer *t, const char *name, struct err *e);
uint64_t run_room(const struct runs *rs, const struct trainer *t);      /* bytes that others leave it; 0: not known */

/* ---- swarm.c: callbacks of the averager and of the trainer ---- */
int run_swarm_open(struct run *r, struct err *e);
extern const struct trainer_cb run_trainer_cb;

/* ---- crew_*.c: runs whose plans have many members; nothing happens in others ---- */
int run_crew_open(struct run *r, struct err *e);
void run_crew_close(struct run *r);
void run_crew_ready(struct run *r);              /* it trains now, or does no more */
void run_crew_roster(void *run, const struct avg_roster *x);    /* avg_cb.roster */
void run_crew_commit(struct run *r, uint64_t generation);       /* of which it was; the point has moved on */
void run_crew_cut(void *run, const struct err *e);       /* trainer_cb.unseated */
/* The daemon is to end: a checkpoint once nothing more can come of what this peer has begun with the others. */
void run_crew_drain(struct run *r);
bool run_crew_drains(const struct run *r);       /* not yet */
void run_crew_behind(struct run *r);             /* its point is not that of the others */
bool run_crew_followed(struct run *r, const struct avg_commit *c);      /* true: its point is taken, and no more */
/* true: a generation has made it that this peer has no part in, and what it holds is history. */
bool run_crew_passed(struct run *r, const struct avg_commit *c);
bool run_crew_placed(const struct run *r);       /* it has the values of its part of the generation; true in others */
bool run_crew_seated(const struct run *r);       /* true in other runs */
bool run_crew_validates(const struct run *r, uint64_t epoch);     /* is that due on its members? */
bool run_crew_looks(struct run *r);             /* is its last validation still to be waited for? true in other runs */
void run_crew_reached(struct run *r, double accuracy);           /* stop.accuracy, perhaps */
void run_crew_validated(struct run *r, const struct trainer_validated *v);       /* to those who have no stage */
void run_crew_hear_result(struct run *r, const struct id *from, const json_t *said);
void run_crew_take_result(struct run *r);        /* that was heard, and perhaps is due now */
bool run_crew_awaits_result(struct run *r);      /* the last one, of others */
/* May that peer say that it is? here: as this peer, which leads, knows who is in the generation. */
int run_crew_may_end(const struct run *r, const struct id *author, const json_t *patch, bool here, struct err *e);
uint64_t run_crew_share(const struct run *r);    /* samples that its unit brings to an epoch; 0: there are no units */
uint64_t run_crew_counted(const struct run *r, const struct avg_commit *c);     /* samples of its unit in a COMMIT */
bool run_crew_head(const struct run *r);         /* it counts its unit's samples; true in other runs */
int run_crew_change(const struct run *r, const json_t *patch, struct err *e);  /* may these values be in force? */
/* Could the members of the generation that was decided last make so many samples an epoch? -1 and e: they could not
 * share them out, or not hold what that takes. Who knows no generation refuses nothing. */
int run_crew_can_make(const struct run *r, uint64_t target, struct err *e);
uint64_t run_crew_life(const struct run *r);
/* It is at the point of its newest checkpoint: enters where all go on, once that is known. */
int run_crew_comes(struct run *r, struct err *e);
bool run_crew_due(const struct run *r, uint64_t epoch, uint64_t every /* 0: nobody has said */);    /* a checkpoint */
void run_crew_saved(struct run *r);              /* a checkpoint is on the disk */
/* Of its part, or of what was held before, which is more. Of a run without a crew: of all. */
void run_crew_snapshot(struct run *r, snapshot_fn *done, void *arg);
uint64_t run_crew_keeps(const struct run *r);    /* the epoch whose checkpoint must stay; 0: none */
/* All of it is on the disk. */
bool run_crew_has_saved(const struct run *r, const struct avg_point *p, const struct snapshot *s, uint64_t *ret_bytes);
struct mover *run_crew_mover(const struct run *r);
uint64_t run_crew_base(const struct run *r);
size_t run_crew_holders(const struct run *r, struct id *ret, size_t max);      /* members of that generation */
size_t run_crew_members(const struct run *r, struct id *ret, size_t max);      /* of the one that it is in */
bool run_crew_names(const struct run *r, const struct id *id);   /* a member of now, before, or soon */
bool run_crew_whole(const struct run *r);        /* what the trainer holds has the values of the run's point */
bool run_crew_stands(const struct run *r);       /* at a point, which is that of the others as far as it knows */
json_t *run_crew_json(const struct run *r);      /* for `run show`; null in other runs */

/* ---- result.c ---- */
void run_take_result(struct run *r, const struct trainer_validated *v);

/* ---- discard.c ---- */
void run_given(struct run *r, const struct avg_point *p);        /* its state takes the place of what is here */
void run_discard(struct run *r, uint64_t common, uint64_t last);         /* what came in between here has lost a fork */

/* ---- history.c ---- */
void run_remember(struct run *r);        /* tells the averager, before it enters, which commits led to the point */
/* Of a point that is given or saved: its JSON with what led to it; without, when that is longer than max. Owned by the
 * caller. */
char *run_point_text(const struct run *r, const struct avg_point *p, size_t max);
/* What after has that before has not, into the history of changes; author NULL or zeros: the run's. */
void run_record_params(struct run *r, const struct avg_point *before, const struct avg_point *after,
	const struct id *author);
void run_put_epoch(struct run *r, const struct trainer_applied *a, bool discarded);      /* its row in the store */
/* {epochs: [[lo, hi], ...], samples, positions: [[lo, hi], ...]} of commits here that have lost a fork. */
json_t *run_discarded_json(struct run *r);
void run_settle(struct run *r);          /* of changes whose epoch has come nothing is left open in the store */

/* ---- sync_kept.c, sync.c ---- */
struct pieces { void **v; size_t n, piece, bytes; };    /* of a state; NULL: not here */
enum run_event sync_start(struct run *r, bool whole /* what it has applied is its state, or will be */);
void sync_quiet(void *run);                     /* calls.quiet */
void sync_free(struct sync *s);
/* A commit while this peer has no parameters yet: kept for the replay. true: taken. */
bool sync_commit(struct run *r, const struct avg_commit *c, const float *mean);
bool sync_applied(struct run *r, const struct trainer_applied *a);      /* true: it was part of the replay */

bool sync_holds(const struct run *r);           /* the state here is not to be touched before another is whole */
void sync_let_go(struct run *r);                /* it is, there is no memory for both */
bool sync_follows(struct run *r, uint64_t *ret_from);   /* every commit after that epoch is kept, or will come */
/* Asked before every try: true when nobody is left to give the state, or has answered (sync_heard) for long, and the
 * run goes on with its own. */
bool sync_alone(struct run *r);
void sync_heard(struct run *r);
bool sync_fits(struct run *r, const struct avg_point *p);       /* is it of the history that is being followed? */
/* The state of that point is here: in place, or in its pieces, which it takes. */
void sync_fetched(struct run *r, const struct avg_point *p, unsigned donors, struct pieces *pieces);

/* ---- fetch.c, fetch_ends.c ---- */
void pieces_free(struct pieces *p);
void pieces_put(const struct pieces *p, struct shard *s);
const void *pieces_at(void *pieces, size_t off, size_t *ret_len);       /* off: where one begins */
/* Into the trainer's state, which must be quiet, or beside it (sync_holds); then sync_fetched. */
struct fetch *fetch_new(struct run *r);
void fetch_forget(struct fetch *f);     /* no piece is here any more */
void fetch_again(struct fetch *f, const char *why);     /* what has come is of no use; pieces of it may be */
uint64_t fetch_epoch(const struct fetch *f);    /* of the state that comes; UINT64_MAX: not agreed yet */
void fetch_free(struct fetch *f);               /* NULL is fine */

/* ---- donor.c ---- */
size_t state_piece(size_t bytes);               /* how many bytes a piece of a state of that size has */
struct donors *donors_new(struct runs *rs);     /* answers RUN_STATE */
void donors_forget(struct donors *d, const struct id *run);     /* its trainer is gone */
void donors_free(struct donors *d);
/* Is the state of a run that has reached its goal here still being fetched? */
bool donors_stay(struct run *r);

/* ---- differ.c, differ_end.c ---- */
/* e says that the data here is not the run's: asks members where it begins to differ, then the run fails with that. */
void differ_start(struct run *r, struct data_source *here /* taken */, const char *path, const struct err *e);
void differ_free(struct differ *d);                                     /* NULL is fine */
void differ_serve(struct runs *rs);             /* answers RUN_DATA */

/* ---- ckpt.c ---- */
/* By epochs when the spec or the configuration says so, by time otherwise. */
bool ckpt_due(struct run *r, uint64_t epoch);
/* run_save: what the trainer says to copied is for ckpt_copied, and what the disk says to written for ckpt_written.
 * Both return the run whose checkpoint is on the disk now, or not to be had; NULL: not yet, or the run has gone. */
struct saving;
void ckpt_begin(struct run *r, struct reply *reply /* NULL */, snapshot_fn *copied);
struct run *ckpt_copied(struct saving *s, struct snapshot *snap, const struct err *e, ckpt_done_fn *written);
struct run *ckpt_written(struct saving *s, const struct ckpt_result *res);
void ckpt_waiter_end(struct list *waiter, const struct err *e); /* the run is over: answers and frees */

/* ---- restore.c ---- */
/* The newest whole one older than `before`; EV_RESTORED in the end, also when there is none. What the disk says to
 * loaded is for restore_whose, once, then for restore_loaded; what the trainer says to looked is for restore_looked. */
struct restoring;
enum run_event restore_begin(struct run *r, uint64_t before /* CKPT_NONE: the newest */, ckpt_done_fn *loaded);
struct run *restore_whose(struct restoring *l); /* NULL: nobody waits for it any more */
enum run_event restore_loaded(struct run *r, const struct ckpt_result *res, ckpt_done_fn *loaded,
	void (*looked)(void *run, const struct err *e));
enum run_event restore_looked(struct run *r, const struct err *e, ckpt_done_fn *loaded);

/* ---- rules.c, publish.c, ctl.c: publishing, joining, and what the author tells the swarm ---- */
void ctl_serve(struct runs *rs);
void ctl_expect(struct run *r);                 /* rules for the records under its keys; idempotent */
void ctl_unexpect(struct run *r);
void ctl_publish(struct run *r);
/* A word of this peer's on it, signed and put into the DHT; and the bytes under the signature. */
json_t *ctl_word(const struct run *r, const char *op, uint64_t counter);
void ctl_signed(struct buf *b, const struct id *run, const char *op, uint64_t counter);
void ctl_unpublish(struct run *r);
void ctl_key(const char *what, const char *name, char out[160]);        /* of a record of a run */
void ctl_watch(struct run *r);                  /* asks the DHT for the author's last word, now and then */
void ctl_watched(void *ask, const struct record *rec, size_t n, const struct err *e);   /* calls.watched */
void ctl_ended(void *ask, const struct record *rec, size_t n, const struct err *e);     /* calls.ended */
/* ---- ended.c ---- */
json_t *ended_of(const struct run *r);          /* "ended" of its record */
/* Does that record say that the run has ended? Then why nobody is to begin it is in *e, and the epoch in *ret_epoch. */
bool ended_says(const struct record *rec, const char *name, uint64_t *ret_epoch, struct err *e);
bool run_has_others(const struct run *r);       /* members that live, and do not follow */
bool ended_for_all(const struct run *r);        /* as it ends here it does everywhere */
bool ended_given(const struct run *r);          /* others are here who are further, or go on */
bool ended_asks(const struct run *r, bool young);     /* of another's, new or alone, given nothing */
/* ---- ask.c ---- */
void runs_asks_free(struct runs *rs);
/* An operator who waits for the network; open: calls under way. */
struct ask {
	struct list link;
	struct runs *rs;
	struct reply *reply;
	struct id run;
	unsigned open, told;
	bool sending;
	struct timer late;                      /* start: it is answered, whatever the network says */
	char what[SPEC_NAME + 8], author[ID_HEX];       /* join: name and whose */
	json_t *local;
	json_t *patch; uint64_t at;             /* set: what, from which epoch on; 0: the next */
};
struct ask *ask_new(struct runs *rs, struct run *r, struct reply *reply);
void ask_free(struct ask *a);

/* ---- namesake.c ---- */
void run_answer_start(struct run *r);           /* what `run start` or `run join` has waited for, if anybody does */

/* ---- words.c ---- */
bool run_lawful(const struct run *r, const struct id *who);    /* the author, an admin, or with `open` everybody */
/* "the author (01234567) and the admin 89abcdef" */
const char *run_who_may(const struct run *r, char *out, size_t cap);
/* avg_cb's may_change: by whom, and what this run can do. */
int run_may_change(void *arg, const struct id *author, const json_t *patch, const json_t *params, struct err *e);
/* What all settings together come to: each by itself is good. */
/* here: what only this peer can tell, too, of its machine and of the members; else what is the same on all peers */
int run_mode_check(struct run *r, const json_t *patch, const json_t *params, bool here, struct err *e);
/* Answers what an operator has told a run to do when it is on the disk; is that not to be had, the answer says so
 * ("warning"). result is taken. */
void run_answer(struct runs *rs, struct reply *reply, json_t *result);

/* ---- weights.c ---- */
/* Parameters, then running statistics, in one vector at `at`, as a file's tensors. free(); NULL and e. */
struct ckpt_tensor *weights_tensors(const struct model *m, float *at, size_t *ret_n, struct err *e);
/* Blocking: reads local.weights, if the spec has one, and compares the spec's digest. *ret may stay NULL: there are
 * none, or a member must be asked for them (why says why this machine's file was of no use). */
int origin_read(struct files *f, const struct spec *s, struct origin **ret, struct err *ret_why, struct err *e);
const uint8_t *origin_digest(const struct origin *w);                 /* SHA-256 */
void origin_apply(const struct origin *w, struct shard *s);        /* into fresh parameters */
void origin_free(struct origin *w);                                   /* NULL is fine */

/* ---- trace.c ---- */
void trace_line(void *run, const char *line, size_t len);       /* trainer_cb.log */
void trace_state(struct run *r);
void trace_round(struct run *r, const struct avg_commit *c);
void trace_now(struct run *r);                  /* what has come goes to the disk at once */
void trace_open(struct run *r);                 /* r->trace, if the local part asks for one */
void trace_close(struct run *r);                /* what has come is written, then it frees itself */
json_t *trace_json(const struct run *r);        /* {path, bytes, bytes_max, ended}; null: none is, or was, kept */
void trace_past(struct run *r);                 /* what of it is still on the disk */

/* ---- revive.c ---- */
/* Both belong to the callee: data_free, snapshot_unref. Called once, perhaps at once. */
typedef void run_revived(void *arg, struct data *data, struct snapshot *weights, const struct err *e);
void run_revive(struct run *r, run_revived *done, void *arg);           /* r is over and has a spec */

/* ---- serve.c ---- */
void runs_serving_free(struct runs *rs);               /* the daemon ends: answers whoever waits */

/* ---- export.c ---- */
void runs_exports_free(struct runs *rs);               /* the daemon ends: answers whoever waits */

/* ---- profile.c ---- */
void runs_profiles_wake(struct runs *rs);              /* the daemon is to end: none is measured any more */
void runs_profiles_free(struct runs *rs);

/* ---- json.c ---- */
json_t *run_json(struct run *r);
void run_put_count(json_t *o, const char *key, uint64_t v);
void run_tell(struct run *r, bool now);         /* news to followers, at most ten a second */
/* ---- show.c ---- */
json_t *run_json_all(struct run *r);            /* and what is longer to say */
void run_put_ledger(struct run *r, json_t *o);  /* "ledger", for `run show --data` */

/* ---- runs.c, dry.c, draft.c ---- */
/* run start with a model instead of a spec: a look at the data, then runs_start with the spec that comes of it. */
void runs_draft(struct runs *rs, const json_t *params, struct reply *reply);
void runs_dry_run(struct runs *rs, struct spec *s, struct reply *reply);  /* takes s */
/* What is to be answered about a trainer that will never start; NULL and e. */
typedef json_t *dry_describe(struct runs *rs, const struct spec *s, const struct data *data, struct trainer *t,
	struct err *e);
void runs_dry(struct runs *rs, struct spec *s, dry_describe *how, struct reply *reply);   /* takes s */
/* memory.c: the whole spec out of {spec} or {model, with}, and batch, optimizer: a file's, or that of a model of the
 * zoo with the commonest surroundings, without a target batch; its data do not exist. New reference; NULL and e. */
json_t *runs_whole(const json_t *params, struct err *e);
/* ---- past.c ---- */
/* In no list, and nothing is begun. id NULL: made later. */
struct run *run_bare(struct runs *rs, struct spec *spec, const struct id *author, const struct id *id);
struct spec *run_spec_of_row(const json_t *row, struct id *ret_id, struct id *ret_author, struct err *e);
/* A row of the store becomes a run that is over, of this peer's list. NULL and e: it cannot be read. */
struct run *run_past(struct runs *rs, const json_t *row, struct err *e);
/* ---- find.c ---- */
struct run *runs_by_id(struct runs *rs, const struct id *id);
struct run *runs_find(struct runs *rs, const json_t *params, struct reply *reply);      /* NULL: it has been answered */
/* likewise, and when the run is over */
struct run *runs_find_open(struct runs *rs, const json_t *params, struct reply *reply);
/* `check`: what could be done is only said, and has been answered. */
bool run_checked(const struct run *r, const json_t *params, struct reply *reply);
/* answers, logs, and records the event */
void runs_refuse(struct runs *rs, const char *what, const char *name, struct reply *reply, const struct err *e);
json_t *runs_local(const json_t *of_spec, const json_t *params);
/* ---- twin.c, drained.c ---- */
bool runs_closed(const struct runs *rs, struct err *e);         /* it takes no new ones */
/* The run that has nothing more to save and is to leave, after `told`; when all have left it says so to who drains. */
struct run *drain_next(struct runs *rs, const struct run *told);

#endif
