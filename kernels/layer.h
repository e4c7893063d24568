/* Layers: one file layer/NAME.c with `const struct layer_ops layer_NAME`, one line in layer/list.h. Losses the same
 * way in loss/. The lists feed the model spec, the gradient checks and the shape tests.
 *
 * Tensors are dense, batch outermost, then the per-sample shape (images NCHW). Weights have PyTorch's layouts and
 * default initialisation. Nothing here allocates, waits or fails after creation. */
#ifndef KERNELS_LAYER_H
#define KERNELS_LAYER_H
#include <stdbool.h>
#include "kernels/par.h"

#define LAYER_ATTRS_MAX 12
#define LAYER_PARAMS_MAX 4
#define LAYER_INPUTS_MAX 8

/* One attribute of a layer in a spec; values are numbers (flags 0 or 1). Required when def is NAN. */
struct layer_attr { const char *name; double def, min, max; bool integer; const char *help; };

/* A layer's own parameter tensor; offset counts elements from the layer's first. */
struct layer_param { const char *name; struct shape shape; size_t offset, count; };

/* The modelled wait of sleep layers, given at creation of the model: kernels have no clock. */
struct layer_host { void (*wait)(void *arg, uint64_t us, bool backward); void *arg; };

/* Of the operands of products (kernels/mixed.h). */
enum precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16 };

/* An instance: attributes filled in, shapes inferred. Immutable after model_new. Buffers are what a layer keeps beside
 * its parameters and no gradient flows into: running statistics. */
struct layer {
	const struct layer_ops *ops;
	char name[64];                          /* instance name; the parameters' prefix */
	double attr[LAYER_ATTRS_MAX];
	int nin;
	struct shape ins[LAYER_INPUTS_MAX];     /* of all inputs */
	struct shape in, out;                   /* in = ins[0] */
	struct layer_param param[LAYER_PARAMS_MAX], buffer[LAYER_PARAMS_MAX];
	int nparams, nbuffers;
	size_t nparam, nbuffer;                 /* elements of all of them */
	enum precision precision;               /* of what it multiplies */
	const struct layer_host *host;
};

/* One call, forward or backward, over a batch. x, y, dy, dx: [batch, shape]. param, dparam, buffer: this layer's slice
 * of the flat vectors. Backward adds to dparam and writes dx. */
struct layer_call {
	const struct layer *l;
	size_t batch;
	const real *param;
	const real *xs[LAYER_INPUTS_MAX];       /* of all inputs; x = xs[0] */
	real *dxs[LAYER_INPUTS_MAX];            /* each NULL when not wanted; dx = dxs[0] */
	const real *x;                          /* backward: valid only if ops->needs_x */
	real *y;                                /* backward: valid only if ops->needs_y */
	const real *dy;
	real *dx;                               /* NULL: not wanted (the first layer) */
	real *dparam;                           /* NULL: not wanted (frozen) */
	bool fresh;                             /* only with ops->stores: dparam holds nothing, and is written */
	real *buffer;                           /* NULL: the layer has none */
	uint64_t key;                           /* of this layer in this micro-batch: what is random is a function of it */
	void *extra;                            /* forward to backward: ops->extra bytes; NULL: not kept */
	void *work;                             /* scratch of this call: ops->work bytes, 64-byte aligned */
	bool train;                             /* training or evaluation behaviour */
	bool replay;                            /* recomputation: running statistics must not advance again */
	/* For ops with FUSE_HEAD: y = max(own result + plus, 0). backward: dy is of max(own result, 0). */
	const real *plus;                       /* NULL: nothing; may be y */
	bool rectify;                           /* false: no maximum */
};

/* What goes in one pass over memory: a head takes the sum with another branch and the rectifier right behind it along
 * (layer_call.plus and rectify), with the same bits. */
enum fuse { FUSE_NONE, FUSE_HEAD, FUSE_PLUS, FUSE_RECTIFY };

struct layer_ops {
	const char *name, *help;
	int nattrs;
	struct layer_attr attr[LAYER_ATTRS_MAX];
	bool needs_x, needs_y;                  /* what backward reads besides dy and extra */
	bool in_place;                          /* y may be x (not while backward needs x), and dx may be dy */
	enum fuse fuse;
	bool stores;                            /* backward can write dparam instead of adding to it */
	bool spread;                            /* the gradient of every input is dy itself: no backward code */
	int inputs_min, inputs_max;             /* 0: exactly one */
	bool multiplies;                        /* matrix products of x and the first parameter tensor, or of inputs */
	bool packs;                             /* of bf16 with par->dot: it rounds x and parameters itself, as it packs */
	bool view;                              /* y is x with another shape: no code runs, no memory */
	/* in and attr -> out, and what layer_param_add and layer_buffer_add add. e names what does not fit. */
	int (*shape)(struct layer *l, struct kerr *e);
	void (*init)(const struct layer *l, uint64_t key, real *param);         /* NULL: no parameters */
	void (*init_buffer)(const struct layer *l, real *buffer);               /* NULL: zeros */
	void (*forward)(const struct par *par, const struct layer_call *c);
	void (*backward)(const struct par *par, const struct layer_call *c);
	uint64_t (*macs)(const struct layer *l);        /* multiply-adds forward, one sample; NULL: 0 */
	uint64_t (*inner)(const struct layer *l);       /* of those: with its own state, whose gradient is always made */
	/* Operations forward of one sample beside the two of each multiply-add (kernels/cost.h): `each` per value of the
	 * output, or as other says. */
	unsigned each;
	uint64_t (*other)(const struct layer *l);
	size_t (*extra)(const struct layer *l, size_t batch);                   /* bytes; NULL: 0 */
	size_t (*work)(const struct layer *l, size_t batch, int parts, bool backward);  /* bytes; NULL: 0 */
};

const struct layer_ops *layer_find(const char *type);           /* NULL: unknown */
const struct layer_ops *layer_at(int i);                        /* i-th of the list; NULL past the end */
const char *layer_names(char *out, size_t cap);
/* For ops->shape: appends a parameter tensor; name must be a constant. */
void layer_param_add(struct layer *l, const char *name, int nd, const size_t *d);
void layer_buffer_add(struct layer *l, const char *name, int nd, const size_t *d);
/* For ops->init: std 0: all tensors uniform in [-bound, bound); else the first normal with that deviation, others 0. */
void layer_init(const struct layer *l, uint64_t key, double bound, double std, real *ret_param);
double layer_attr(const struct layer *l, const char *name);     /* asserts that it exists */

/* Counter-based randomness: a pure function of key and index, so that initialisation does not depend on order.
 * Bit-exact everywhere. rand_key derives a key for a part of something. */
uint64_t rand_key(uint64_t key, uint64_t part);
uint64_t rand_bits(uint64_t key, uint64_t index);
double rand_unit(uint64_t key, uint64_t index);                 /* in [0, 1) */
void rand_uniform(uint64_t key, double bound, size_t n, real *ret_x);   /* in [-bound, bound) */
/* Normal with mean 0: Marsaglia's polar method. */
void rand_normal(uint64_t key, double std, size_t n, real *ret_x);

/* Losses. The output of one sample is `rows` rows of n scores, its target one label a row (TARGET_CLASS) or one number
 * a score (TARGET_REAL, rows = 1). One sample's loss is PyTorch's with reduction "mean" over its own outputs; for rows
 * of scores: the mean over its own rows that count. Calls return sums over samples, so that micro-batches, peers and
 * weights add up; where all samples have equally many rows that count, sum / batch is PyTorch's mean over all rows. A
 * sample without a row that counts has loss 0 and no gradient. */
enum target { TARGET_CLASS, TARGET_REAL };      /* int32_t[batch][rows] class indices; real[batch][n] */
#define LOSS_PARTS_MAX 8
struct loss_ops;
struct loss {                                   /* a loss with its options, for one shape of outputs */
	const struct loss_ops *ops;
	size_t rows, n;
	double smoothing;                       /* classes: this share of the target is spread evenly over all of them */
	bool ignores; int32_t ignore;           /* classes: rows with this label do not count */
	/* Consecutive rows of a sample, len each, together all of them: its loss is sum(weight * mean of the part) /
	 * sum(weight). None: one part. */
	int nparts; struct { size_t len; double weight; } part[LOSS_PARTS_MAX];
};
struct loss_call {
	const struct loss *loss;
	enum cpu cpu;
	const real *out;                        /* [batch][rows][n] */
	const void *target;
	double scale;
	real *dout;                             /* NULL: evaluation only; else scale * d(sum of losses)/d(out) */
};
struct loss_ops {
	const char *name, *help;
	enum target target;
	bool counts;                            /* knows right answers */
	int (*check)(const struct shape *out, struct kerr *e);  /* does this output fit? NULL: any */
	/* Adds the losses of rows [lo, hi) of the batch to *sum, and to *right the share of its sample that each row is
	 * that was answered right: a sample with half of its rows right counts 1/2. */
	void (*rows)(const struct loss_call *c, size_t lo, size_t hi, double *sum, double *right);
};
const struct loss_ops *loss_find(const char *name);
const struct loss_ops *loss_at(int i);
const char *loss_names(char *out, size_t cap);
/* Without options, for an output of this shape: [n] one row, [rows, n] for classes; others of all their numbers. */
struct loss loss_plain(const struct loss_ops *ops, const struct shape *out);
/* Split over par, summed in an order that does not depend on it. scale = 1 / batch gives the gradient of the mean.
 * Labels must be in 0..n-1 or ignored: loss_check_labels says which is not (data is checked when it is read, not
 * here). ret_right may be NULL; dout may be out itself, or NULL. */
double loss_sum(const struct par *par, const struct loss *loss, size_t batch, const real *out, const void *target,
	double scale, real *dout, double *ret_right);
int loss_check_labels(const struct loss *loss, size_t batch, const int32_t *target, struct kerr *e);
/* The same without options, one row of n scores a sample. */
double loss_run(const struct par *par, const struct loss_ops *loss, size_t batch, size_t n, const real *out,
	const void *target, double scale, real *dout, size_t *ret_correct);
int loss_check_targets(const struct loss_ops *loss, size_t batch, size_t n, const void *target, struct kerr *e);

#endif
