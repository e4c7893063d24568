/* `model export`: one folder with a run's weights, out of the checkpoints of all who hold parts of it. export.c is the
 * command, and says of which epoch; export_take.c takes the pieces; export_file.c writes the folder; export_next.c says
 * what follows. Never more than a few pieces are in memory: a model may fit on no single machine. */
#ifndef RUN_EXPORT_H
#define RUN_EXPORT_H
#include "kernels/real.h"
#include "run/saved.h"
#include "state/shard.h"

#define EXPORT_WINDOW 8                 /* pieces on their way or waiting to be written */
#define EXPORT_PIECE (NET_BLOB_MAX / sizeof(real))      /* elements */
#define EXPORT_OWNERS 256
#define EXPORT_WORDS 8                  /* of a piece: who gives it, and others who say what it must be */

struct export;
/* held: extents of all elements, running statistics behind the parameters. */
struct saved_epoch { uint64_t epoch; uint8_t prev[DIGEST]; uint32_t n; struct extent *held; };
/* Who may have checkpoints of the run; here: this peer. is: of the epoch that is taken, NULL: it is of no use. */
struct owner { struct export *x; struct id id; bool here, open, failed; struct call *call; uint64_t rest_us;
	enum hashes hashes; uint32_t n; struct saved_epoch *saved; const struct saved_epoch *is; };
/* What one owner says of a piece: its digest, or the piece. */
struct said { struct piece *p; struct owner *o; struct call *call; bool gives, open, over, told; unsigned busy;
	uint8_t digest[TREE256]; };
struct piece { struct export *x; bool used, ready; enum hashes hashes /* that all know who have it */; size_t tensor;
	uint64_t lo, n; struct buf bytes;
	uint32_t nsaid; struct said said[EXPORT_WORDS]; };

enum export_op { EXPORT_OPEN, EXPORT_PUT, EXPORT_END, EXPORT_DROP };
struct export_file { char dir[4096], part[4104]; struct files *files; struct ckpt_out *out; json_t *meta, *spec;
	bool made; uint64_t bytes; };
enum export_step { EXPORT_SAVES, EXPORT_ASKS, EXPORT_OPENS, EXPORT_TAKES, EXPORT_ENDS, EXPORT_DROPS };
struct export {
	struct list link;               /* of runs.exports */
	struct runs *rs; struct reply *reply, saves;
	struct id run; char hex[ID_HEX], name[SPEC_NAME];
	bool crew;                      /* members hold parts of it */
	enum export_step step; struct timer timer;
	struct ckpt_tensor *tensor; uint64_t *at; size_t ntensors;      /* at: among all elements, the statistics last */
	uint64_t params, stats;
	size_t nowners; struct owner owner[EXPORT_OWNERS];
	uint64_t epoch; uint8_t prev[DIGEST];
	struct piece piece[EXPORT_WINDOW]; size_t first;        /* the next to be written */
	size_t tensor_next; uint64_t lo_next;                   /* what is to be taken next */
	unsigned tries; bool again; struct err fail;            /* what became of a try */
	struct err why;                                         /* what an owner has said last */
	/* export_file.c */
	struct job job; enum export_op op; bool works; int rc; struct err e; struct export_file file;
};

/* ---- export_next.c ---- */
void export_soon(struct export *x);             /* its next step */
void export_fail(struct export *x, const struct err *e);        /* the folder goes first */
void export_again(struct export *x, const struct err *e);       /* others may have it, of another epoch perhaps */
/* How far somebody has everything from `at` on; or, *ret_next, where the next that somebody has begins. */
uint64_t export_reach(const struct saved_epoch *s, uint64_t at, uint64_t *ret_next);
void export_saved(struct reply *saves, json_t *result, const struct err *e);
bool export_covers(const struct saved_epoch *s, struct extent x);
/* ---- export_take.c ---- */
void export_take(struct export *x);             /* asks, and writes; then EXPORT_ENDS */
void export_put_done(struct export *x);          /* the first of them is written */
void export_take_stop(struct export *x);
/* ---- export_file.c ---- */
void export_work(struct export *x, enum export_op op);          /* then export_soon */
void export_drop_now(struct export_file *o);    /* blocking; no job runs */

#endif
