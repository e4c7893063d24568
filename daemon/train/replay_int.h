/* Inside the replay: replay_scan.c (what the logs say before anything is computed), replay.c (who goes on, and the
 * rounds), replay_line.c (what a line of a log means), replay_step.c (the arithmetic of an instruction). Every peer's
 * log is walked by itself, up to where it takes a mean that others have yet to give to. */
#ifndef TRAIN_REPLAY_INT_H
#define TRAIN_REPLAY_INT_H
#include <jansson.h>
#include "common/list.h"
#include "exec/vec.h"
#include "state/shard.h"
#include "train/replay.h"
#include "train/strategy.h"

#define REPLAY_LOADS 64                 /* micro-batches of a peer that are under way */
#define REPLAY_OPS 64                   /* instructions, likewise */
#define REPLAY_REFS 8
#define REPLAY_AREAS 6
#define REPLAY_SHARES 1024              /* members of a round */
#define REPLAY_TOLD 256                 /* rounds whose commits a peer has yet to take */

/* The plan's buffers that are vectors. */
enum place { PLACE_w, PLACE_opt, PLACE_anchor, PLACE_momentum, PLACE_acc, PLACE_sent, PLACE_mean, PLACE_work,
	PLACE_stats, PLACE_g, PLACE_grad, PLACES };
struct value {
	real *p; size_t bytes; bool own;        /* own: not part of the shard */
	uint64_t epoch;                         /* of weights: how many commits are in them */
	uint64_t writes;                        /* how often it was written */
	int64_t key; uint64_t program;          /* as the log has it; program 0: it was not written by one */
	int64_t index;                          /* of grad: which micro-batch's it is */
};
struct micro {
	uint32_t n; uint64_t *position;
	int64_t index;
	bool begun, summed, counted;            /* FWD has read the weights; the gradient is in a sum, or in them */
	enum place from; uint64_t writes;       /* those weights, as they were */
	char loss[32];                          /* as the log has it */
	double scale;                           /* of its loss; 0: it has none */
};
/* parts: inputs that are parts of a gradient, which are one of in */
struct begun { uint64_t op; bool there, batch, vec; struct vec_env v; uint32_t nin, parts; char in[REPLAY_REFS][24]; };
/* to: the round that its commit names, which may have counted it; NULL: that did not come. past: what is given to that
 * epoch from now on is another's. */
struct gift { struct list link; uint64_t epoch, samples; struct round *to; bool counted, past; real *x; };
struct told { struct list link; struct round *round; uint64_t epoch, samples, target, batch, version; bool flew;
	double hyper[OPTIM_KEYS_MAX], clip_norm; };
/* of a state */
struct image { struct list link; uint64_t epoch; uint8_t digest[STATE_DIGEST]; void *block; size_t bytes; };

struct peer {
	const struct replay_log *log;
	const char *at; size_t line;
	bool over;                              /* the end of the log */
	bool begins;                            /* it waits for the state of epoch `taken` */
	char id[17];                            /* "": it does not say */
	struct shard shard;
	struct value v[PLACES];
	struct micro micro[REPLAY_LOADS];
	struct begun op[REPLAY_OPS];
	uint64_t program;
	/* what the trainer has in its fields of these names */
	uint64_t epoch, samples, target, work_epoch, oldest;
	double unit, scale, hyper[OPTIM_KEYS_MAX], clip_norm;  /* scale: loss_scale */
	bool renewed;
	uint64_t growing;                       /* of samples: they count, and what is given of them is not decided */
	uint32_t made, agreed;                  /* parts of a gradient that the program has made; whose mean has come */
	struct { bool out; uint64_t samples, version; } flight;
	struct list commits; struct told *applying;
	struct list gifts;                      /* what it gave to rounds that are not summed yet */
	char sum[24];                           /* what the latest SUM takes; "": nothing */
	uint64_t committed, taken;              /* commits that it has heard of; whose mean it has */
	struct round *in[REPLAY_TOLD];          /* what it was told of rounds of late, by their epochs */
	uint64_t *adopts; size_t nadopts, adopted;      /* epochs whose states it begins with; how many it has begun with */
	uint8_t digest[STATE_DIGEST];           /* the latest */
};

/* A round as those say who were in it: contributions in the order in which they are summed. Histories of a run that
 * have not met yet have rounds of their own for one epoch. */
struct share { char id[17]; uint64_t samples; };
struct round { struct round *next; uint64_t epoch; char id[17]; uint32_t n; struct share *share; real *mean;
	bool applied; };

struct replayer {
	const struct spec *s; struct data *d; const struct par *par;
	const struct planner_ops *strategy;
	struct model *model;
	struct layout layout;
	bool used[OPTIM_STATES_MAX];
	size_t n, given;                        /* elements of w with the statistics behind them; of a contribution */
	struct peer *peer; size_t npeers;
	struct round **round; size_t nrounds, freed;    /* the k-th make epoch k + 1; those whose mean all have */
	struct list images;                     /* states that somebody begins with */
	struct { void *p; size_t bytes; } area[REPLAY_AREAS];  /* for a micro-batch, as large as any has needed */
	struct replay_result *ret;
	uint64_t last;                          /* epoch that a log tells of */
	void (*progress)(void *arg, uint64_t epochs, uint64_t of); void *progress_arg;
};

enum { REPLAY_WAITS = 1 };
/* Takes one line. 0, -1 and e, or REPLAY_WAITS: others have to go on first, and the line comes again. Nothing was done;
 * but who waits for the state that it begins with wants no round before it any more, nor gives to one. */
int replay_line(struct replayer *r, struct peer *p, const json_t *j, struct err *e);

/* replay_scan.c */
/* Every peer's id and adopts, and r->last. ERR_NOT_FOUND: somebody was counted and has no log. */
int replay_scan(struct replayer *r, struct err *e);
int replay_can(const struct spec *s, struct err *e);    /* ERR_INVALID: no log has enough of such runs */

/* replay.c */
/* id: "" where the log does not say which. NULL and e: no epoch that a log could have. */
struct round *replay_round(struct replayer *r, uint64_t epoch, const char *id, struct err *e);
/* Its mean: 0, -1, or REPLAY_WAITS. */
int replay_mean(struct replayer *r, struct round *round, const real **ret, struct err *e);
/* Keeps a state for who begins with it, once, however many have it. */
int replay_keep(struct replayer *r, const struct shard *s, uint64_t epoch, struct err *e);

/* replay_step.c */
/* Of a VEC that made the loss of a micro-batch. */
int replay_loss(struct micro *m, const struct begun *op, const json_t *j, struct err *e);
/* Of another VEC that has ended. What the line says of scalars has to be the same here. */
int replay_vec(struct replayer *r, struct peer *p, const struct begun *op, const json_t *j, struct err *e);
int replay_place(const char *name);             /* -1: no vector */
const char *replay_name(const char *name);      /* parts of a gradient, "grad.N", are one vector here */
/* Is that what strategies do with vectors? ERR_CORRUPT: none does; a function trusts in what it is given. */
int replay_known(const char *fn, const char *const *in, uint32_t nin, const char *const *out, uint32_t nout,
	struct err *e);

static inline const char *replay_text(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "";
}
static inline uint64_t replay_number(const json_t *j, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(j, key));

	return v < 0 ? 0 : (uint64_t)v;
}
static inline struct gift *gift_to(const struct peer *p, uint64_t epoch)        /* the latest; NULL: it gave nothing */
{
	struct gift *latest = NULL;

	list_each(it, &p->gifts)
		if (list_entry(it, struct gift, link)->epoch == epoch)
			latest = list_entry(it, struct gift, link);
	return latest;
}
static inline struct told *replay_told(struct list *l) { return list_entry(l->next, struct told, link); }

#endif
