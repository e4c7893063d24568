/* Inside of the executor of pieces: where values and gradients lie. All tables lie in the front of the caller's work
 * area; a walk that sizes and the walk that executes take the same decisions, so that what model_need says is what is
 * used. */
#ifndef KERNELS_PIECE_H
#define KERNELS_PIECE_H
#include "kernels/arena.h"
#include "kernels/model.h"

/* One block of a pool, alive from op `begin` to op `end`, both included. */
struct block { size_t offset, bytes; int begin, end, next, low; };        /* next, low: while it is placed */
/* Gives every block an offset such that blocks that live together do not overlap: largest first, each at the lowest
 * place that is free (greedy by size; Pisarchyk and Lee, arXiv:2001.03288, section 5.2). Blocks of 0 bytes are left
 * out. Returns the bytes of the pool. */
size_t pool_place(struct block *v, int n);

enum place { PLACE_NONE, PLACE_X, PLACE_Y, PLACE_SAVED, PLACE_POOL };

/* Where one tensor lies. Tensors that share memory (views, in-place layers) have the same root, and the root's place
 * counts. */
struct spot {
	int root;
	enum place place;
	size_t offset;                  /* from the start of that place */
	size_t extra;                   /* in the saved set: what the op that makes it left for backward */
	int last;                       /* roots: last reader of the current value; begin..end: ops that it lives */
	int begin, end, out;            /* out: first tensor of the group that leaves the piece; -1 */
	bool needed;                    /* backward reads the current value */
	bool inside;                    /* of a chain: it never lies in memory */
	bool want;                      /* backward: its gradient is wanted */
	int grad;                       /* backward: the buffer of its gradient; -1 */
};

struct values {                         /* the plan of a forward pass */
	const struct model *m;
	int a, b, lo;                   /* lo: lowest tensor of cut a */
	size_t batch;
	bool keep;                      /* training with a saved set */
	struct spot *t;                 /* of tensors lo..b */
	struct block *block;            /* of ops a..b-1 */
	size_t saved, pool;             /* bytes */
};
/* Ops that run in one pass: a head, then perhaps a sum with another branch, then perhaps a rectifier, each the only
 * reader of what is before it. */
struct chain { int head, n, plus; bool rectify; };      /* plus: tensor of the other branch; -1 */
struct chain chain_at(const struct model *m, int b, int i);             /* begun by op i; n = 1: it stands alone */
struct chain chain_with(const struct model *m, int a, int b, int i);    /* that op i is in */
void values_plan(struct values *v);     /* all but t, block, saved, pool is given; those point to zeroed memory */
int cut_low(const struct model *m, int cut);            /* lowest tensor of a cut */
static inline bool cut_has(const struct model *m, int cut, int t) { return t <= cut && m->tensor[t].last >= cut; }
size_t cut_offset(const struct model *m, int cut, int t, size_t batch);         /* bytes from the start of the cut */
size_t cut_bytes(const struct model *m, int cut, size_t batch);
static inline struct spot *spot_of(const struct values *v, int t) { return &v->t[t - v->lo]; }
size_t tensor_bytes(const struct model *m, int t, size_t batch);
size_t values_bytes(const struct model *m, int a, int b);       /* of t and block */
void values_in(struct values *v, void *memory);                 /* points them there and clears them */

#endif
