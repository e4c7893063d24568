/* Peers without mathematics for the averager's scenarios: a trainer that is a timer, a model of a few hundred floats
 * whose gradient at a position is a hash of it, a state download that takes a few milliseconds. check.h watches all. */
#ifndef TESTS_SIM_AVG_WORLD_H
#define TESTS_SIM_AVG_WORLD_H
#include "avg/avg.h"
#include "sim.h"

#define SEC 1000000ull
#define MSEC 1000ull
#define WORLD_MAX 512

struct world;
struct apeer {
	struct env *env; struct net *net; struct chunks *chunks; struct avg *avg; struct world *w; int node;
	struct avg_point point; float *model, *x;
	struct ranges grant, claimed, flying; uint64_t samples, loaded;
	bool busy, in_round, contributed, syncing, follower, waiting_apply, held, dead;
	uint64_t begun_us, step_us, round_epoch;
	struct timer step, sync, grow, leave; struct id donor; uint64_t grown /* of x, from its end */;
	struct kept { uint64_t epoch, lo, hi; struct avg_point point; float *mean; } kept[32]; int nkept;
	uint64_t commits, fails, resyncs[4], my_total;
	/* What it held when it was lost, and keeps of it; when it took another state; how often it was lost before it was
	 * asked what it has discarded. */
	struct lease *lent; const void *mean; uint8_t mean_was[16];    /* of its last commit */
	struct avg_point gave_up; uint64_t forked, took_us, alone_us; bool judged; unsigned turns;
	uint64_t applied_us;
	char said[256];                         /* its latest event */
	unsigned begins; uint64_t deadline_us;  /* BEGINs of round_epoch; until when the last of them waits */
};
struct world {
	struct sim *s; struct check *check;
	struct avg_conf conf; uint32_t micro; uint64_t step_us[WORLD_MAX], start_us /* nobody trains before */,
		slow_contribute_us[WORLD_MAX];
	bool liar[WORLD_MAX];                   /* it may be said to have signed two COMMITs of one epoch; nobody else */
	int alone;                              /* a peer that may commit what nobody else adopts (stopped, cut off); -1 */
	bool client[WORLD_MAX], aux[WORLD_MAX], keep_state, forks_allowed, corrupt[WORLD_MAX];
	struct avg_point saved[WORLD_MAX]; float *saved_model[WORLD_MAX];
	struct apeer *(*donor)(struct world *w, int node);      /* of whom node gets a state, whatever it is told */
	bool takes_mean;                        /* the model is the mean, as where parameters are averaged */
	double apart;                           /* means of one commit may differ by so much; 0: not in a bit */
	uint64_t max_epoch;                     /* trainers stop there; 0 = never */
	uint64_t leave_at; bool left[WORLD_MAX];        /* whoever has that epoch leaves, as daemons do; 0 = nobody */
	bool left_behind[WORLD_MAX];                    /* it has ended the run for itself, after the others */
	bool given_up[WORLD_MAX];                       /* who led the run's last round has left, and took it for dead */
	uint64_t (*micro_of)(struct world *w, int node);
	/* Lossy means: so far from the samples' each element may be (0: 1e-4), or with `part` all elements together, as a
	 * part of what they should be: a mean of nothing is 1 away. twist: what a member sends instead of its gradient. */
	uint64_t brags[WORLD_MAX];              /* it says that it has processed so many samples, where nobody was sent */
	/* What a gradient is and what is done with a mean, where peers learn something; NULL: the hash, a decaying sum. */
	void (*gradient)(struct world *w, const struct ranges *claimed, const float *model, float *ret);
	void (*learn)(struct world *w, const float *mean, float *model);
	void *user; double slack, part; void (*twist)(struct world *w, int node, float *x);
	uint64_t overflow_until;                /* up to that epoch what is not finite is meant (avg_cb.overflows) */
	void (*saw)(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean);
	/* Instead of giving all of x, which is made, at once. Its timer grow is stopped when the peer dies. */
	void (*bring)(struct world *w, struct apeer *p);
	void (*claims)(struct world *w, int node, struct ranges *c, uint64_t *samples);        /* instead of its own */
	/* NULL: everybody may change anything. */
	int (*may)(struct world *w, const struct id *author, const json_t *patch, struct err *e);
	int lawless;                            /* to that one everybody may; -1 */
	void (*heard)(struct world *w, int node, const char *code, const struct id *peer);
	/* world_units: what each node holds; unit -1: nothing. NULL: everybody holds all. */
	struct whold { int unit; uint64_t lo, hi, keep_lo, keep_hi; struct id id; } *hold; uint64_t generation;
	struct id ids[WORLD_MAX];
	uint64_t totals[WORLD_MAX];             /* a scenario's own */
};
bool world_overflows(void *peer);
/* From now on, and for whoever comes later: every unit's head (lo 0) trains, its others bring their part of what it has
 * processed. hold: by node, of n nodes; copied. */
void world_units(struct world *w, const struct whold *hold, int n);
const struct whold *world_hold_of(const struct apeer *p);       /* NULL: nothing, or there are no units */
bool world_is_other(const struct apeer *p);     /* of a unit, and not its head; or of none */
struct apeer *world_head_of(const struct apeer *p);     /* of its unit, when it lives */
static inline void world_gone(void *arg) { (void)arg; }         /* for avg_leave, when nobody needs to know */
void world_tell_units(struct apeer *p);
extern const struct avg_cb world_callbacks;
void world_timers(struct apeer *p);
void world_drop_kept(struct apeer *p);       /* commits that came before the state */
void world_train(struct apeer *p);          /* when there is something to do, and it is not at it */
struct world *world_new(struct sim *s, size_t len, uint64_t target, uint32_t micro, uint64_t step_us);
void world_free(struct world *w);               /* call after the simulator is no longer run; frees its check too */
void world_add(struct world *w, int n);
struct apeer *world_peer(struct world *w, int node);    /* NULL while dead */
float world_gradient(uint64_t position, size_t k);
/* Every living peer is a full member and has applied at least this epoch. */
bool world_all_at(struct world *w, uint64_t epoch);
bool world_run_to(struct world *w, uint64_t epoch, uint64_t limit_us);  /* late, or failed, when not reached */
bool world_settled(struct world *w);            /* all living ones agree on members and leader */
void world_settle(struct world *w, uint64_t limit_us);  /* until they do; late, or failed */
/* More of the node's samples count than so many, now; late when they do within a minute, failed when they never do. */
void world_brings(struct world *w, int node, uint64_t had);
uint64_t world_newest(struct world *w);         /* the latest epoch that a living peer has applied */
/* Whoever comes to some point of a round, at one of its next forty passings. */
void world_strike(struct world *w, enum sim_fate fate);
void world_go_on(struct world *w, uint64_t more);       /* so many epochs within a minute, and all are the same */
/* Before the first n begin: some of them cannot be dialled, one brings no data. And after: they commit, the one brings
 * nothing, and one whose contribution is slow holds nobody up. */
void world_draw_roles(struct world *w, int n);
void world_roles_hold(struct world *w, int n);
/* Adds to every fifth of `truth` the mean gradient of the positions that commit c has taken beyond p's point. */
void world_truth(const struct apeer *p, const struct avg_commit *c, size_t len, double *truth);
/* Of a struct apeer: it gives up its place, fetches the state, and enters again. */
void world_resync(void *peer, enum avg_why why, const struct id *donor, uint64_t epoch);
void world_one(struct world *w, uint64_t limit_us);      /* until all living ones are in one history; late, or failed */
void world_same(struct world *w);               /* sim_fail unless all living ones hold the same digest and model */
void world_print(struct world *w);               /* to stderr */
/* The mean of its last commit is still what it was: sim_fail. Then that of c is kept (NULL: none is). */
void world_lent(struct apeer *p, const struct avg_commit *c, const float *mean);
/* p says so of somebody: sim_fail unless that one is a liar. */
void world_equivocation(struct apeer *p, const struct id *peer, const char *text);
int world_leader(struct world *w);              /* node that a living peer believes to lead; -1 */

#endif
