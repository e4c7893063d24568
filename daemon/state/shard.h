/* A shard: the part of a run's state that one peer holds, in one block of memory:
 *
 *     w: parameters, running statistics | optimizer vectors | clock | the strategy's vectors, each as long as w
 *
 * The whole state is the shard of all elements. Names of tensors are the same in every shard; of a tensor that is cut,
 * "NAME@LO" is the piece from its element LO on, flat. The plan's buffers are w, opt (optimizer vectors and clock) and
 * the strategy's vectors by name. */
#ifndef STATE_SHARD_H
#define STATE_SHARD_H
#include "ckpt/ckpt.h"
#include "state/digest.h"
#include "state/layout.h"

struct extent { uint64_t lo, hi; };             /* elements lo .. hi - 1 */
static inline uint64_t extent_len(struct extent x) { return x.hi - x.lo; }

/* Of the parameters, and of the running statistics (counted among these). */
struct shard_part { struct extent param, stat; };
static inline bool shard_part_same(const struct shard_part *a, const struct shard_part *b)
{
	return a->param.lo == b->param.lo && a->param.hi == b->param.hi && a->stat.lo == b->stat.lo &&
		a->stat.hi == b->stat.hi;
}

struct shard {
	const struct layout *l;                 /* must outlive it */
	struct extent param, stat;              /* stat: counted among the running statistics */
	void *block; size_t bytes;
	size_t w_bytes, opt_bytes;
	size_t ntensors; struct ckpt_tensor *tensor;    /* views into the block */
	const struct layout_tensor **of;        /* of each the one that it is, or is a piece of; NULL: the clock */
};

/* Elements of the parameters may be parted there. */
bool shard_may_cut(const struct layout *l, uint64_t at);
/* Memory, zeros not promised but for the clock, which is reset. param's ends are multiples of STATE_CUT, ends of
 * tensors, or those of the parameters. ERR_NOMEM says how much. */
int shard_new(struct shard *ret, const struct layout *l, struct extent param, struct extent stat, struct err *e);
void shard_free(struct shard *s);               /* leaves {0} */
/* Bytes of such a shard, without making it. */
size_t shard_bytes(const struct layout *l, struct extent param, struct extent stat);

static inline void *shard_w(const struct shard *s) { return s->block; }
static inline void *shard_stats(const struct shard *s)  /* behind the parameters; NULL: it has none */
{
	return extent_len(s->stat) ? (char *)s->block + extent_len(s->param) * s->l->unit : NULL;
}
static inline size_t shard_clock_bytes(const struct shard *s) { return layout_clock(s->l) * sizeof(double); }
static inline void *shard_opt(const struct shard *s) { return (char *)s->block + s->w_bytes; }
void *shard_clock(const struct shard *s);       /* layout_clock(s->l) doubles */
double shard_scale(const struct shard *s);      /* of the loss, as the clock has it; 0: it is not scaled */
void *shard_extra(const struct shard *s, uint32_t k);

void shard_clock_reset(struct shard *s);        /* no step was made yet */
void shard_begin(struct shard *s);              /* the strategy's vectors that begin as a copy of w */

/* Numbers of it that are not finite, or a clock that is none: ERR_NONFINITE or ERR_CORRUPT names the tensor. Its bytes
 * need not be in the block: at() says where those from off on lie, and how many; NULL: in the block. The first not
 * finite one of n at p is found by `bad` (n: there is none), which may be given a long time. */
typedef size_t shard_bad_fn(void *arg, size_t n, const void *p);
typedef const void *shard_at_fn(void *arg, size_t off, size_t *ret_len);
int shard_look(const struct shard *s, shard_bad_fn *bad, void *bad_arg, shard_at_fn *at, void *at_arg, struct err *e);
int shard_clock_look(const struct shard *s, struct err *e);     /* the clock alone, in the block */

/* What both have: of one layout, and of one epoch, which is the caller's business. True: something was. The clock, too,
 * when `from` has parameters. */
bool shard_copy(struct shard *to, const struct shard *from);

/* What everybody needs to know of this shard for the digest of w (digest.h): one or two parts. */
void shard_digest_parts(const struct shard *s, struct buf *ret_params, struct buf *ret_stats);
bool shard_is_whole(const struct shard *s);      /* then digest_of w is that digest */

#endif
