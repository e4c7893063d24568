/* A model: a graph of layers (ops) over ONE flat parameter vector with an offset table, and one of buffers (running
 * statistics) beside it. Immutable after model_new, so any number of instances, streams and micro-batches can run
 * through it at once; all memory comes from the caller, sized by model_need(). Weights, gradients and optimizer state
 * are vectors of model->nparam reals, buffers one of model->nbuffer.
 *
 * Ops are in topological order. Tensor 0 is the model's input, tensor i + 1 the output of op i; an op may read any
 * tensors before it. In a chain every op reads the one right before it.
 *
 * A piece [a, b) is a set of consecutive ops. What flows into it is the cut a: all tensors made before op a that op a
 * or a later one reads, in order of their numbers, each begun at a multiple of 64 bytes (in a chain: one tensor). What
 * passes a piece by is copied through. Plan instructions map directly:
 *   FWD keep none, input    model_forward with saved = NULL: nothing is kept (the caller keeps x for "input")
 *   FWD keep all            model_forward with saved: all that BWD needs, except x
 *   BWD                     model_backward with x and that saved; after keep "input", first FWD again with replay
 */
#ifndef KERNELS_MODEL_H
#define KERNELS_MODEL_H
#include "kernels/layer.h"

#define MODEL_OPS_MAX 4096

struct layer_desc {                     /* one element of a spec's "model" array; all strings are copied */
	const char *type;               /* "linear" */
	const char *name;               /* instance name; NULL: its index, as in PyTorch's Sequential */
	int nattrs;
	const char *const *attr;        /* names and values of the attributes given */
	const double *value;
	int ninputs;                    /* 0: the layer before (the model's input for the first) */
	const char *const *input;       /* names of earlier layers, or "input" */
	const char *share;              /* name of an earlier layer whose parameters it uses; NULL: its own */
};

struct model_param { char name[96]; struct shape shape; size_t offset, count; int op; };   /* "fc1.weight" */

struct model_node {                     /* how an op hangs in the graph */
	int nin, from[LAYER_INPUTS_MAX];        /* tensors it reads */
	int owner;                              /* op whose parameters it uses: itself, or the one it shares with */
	size_t param, buffer;                   /* where they start in the flat vectors */
	int edges;                              /* inputs of all ops before it */
	bool shared_later;                      /* an op behind it uses the same parameters */
};
struct model_tensor {
	int last;                               /* last op that reads it; nops: it is the model's output */
	int first_x;                            /* first op whose backward reads it; INT_MAX: none */
	int low;                                /* lowest tensor that flows through the cut of this number */
};

struct model {
	int nops;
	struct layer *op;
	struct model_node *node;        /* nops */
	struct model_tensor *tensor;    /* nops + 1 */
	size_t *offset;                 /* nops + 1: where op i's own parameters start; pieces are contiguous */
	int nparams, nbuffers;
	struct model_param *param;      /* the offset table, in order of offset; shared tensors stand in it once */
	struct model_param *buffer;     /* the same of the buffers: "bn1.running_mean" */
	size_t nparam, nbuffer;         /* reals in the flat vectors */
	struct shape in, out;
	struct layer_host host;
	bool apart;                     /* runs op by op, nothing fused: for comparisons. Set before anything is sized */
};

/* Infers all shapes. On error e names the layers that do not fit and what would. host may be NULL when no layer
 * waits. */
struct model *model_new(const struct shape *in, const struct layer_desc *desc, int n, const struct layer_host *host,
	struct kerr *e);
/* Of the layers that multiply; PRECISION_FP32 to begin with. Before anything is sized. */
void model_precision(struct model *m, enum precision p);
struct model *model_free(struct model *m);                              /* NULL is fine; returns NULL */

void model_init(const struct model *m, uint64_t seed, real *ret_param); /* same bytes for a seed on every machine */
/* Parameters lo to hi - 1 of those alone: the same bytes. -1: no memory for the layer that is cut. */
int model_init_part(const struct model *m, uint64_t seed, size_t lo, size_t hi, real *ret_param);
void model_init_buffers(const struct model *m, real *ret_buffer);
uint64_t model_macs(const struct model *m, int a, int b);       /* multiply-adds forward, per sample */
size_t model_param_count(const struct model *m, int a, int b);
const struct model_param *model_param_find(const struct model *m, const char *name);
const struct shape *model_shape(const struct model *m, int t);          /* of tensor t; t = nops: the output */
/* Does the piece use only parameters that its own ops hold? Not when a shared one lies outside. */
bool model_closed(const struct model *m, int a, int b);
/* Values that flow in at a cut: 1 where the model can be parted and nothing goes past. */
int model_cut_values(const struct model *m, int cut);

/* Whose forward pass op i of piece [a, b) runs in: an earlier op's when both go over memory at once, else its own. */
int model_runs_in(const struct model *m, int a, int b, int i);

/* Bytes for a piece, exact: the predictor and the arena use the same numbers. */
struct model_need {
	size_t x, y;            /* what flows in at cut a and out at cut b (dx and dy have the same sizes) */
	size_t saved;           /* from FWD keep all to BWD */
	size_t work_fwd;        /* scratch during FWD with saved */
	size_t work_eval;       /* scratch during FWD without saved */
	size_t work_bwd;        /* scratch during BWD */
};
void model_need(const struct model *m, int a, int b, size_t batch, int parts, struct model_need *ret_need);

struct model_call {
	size_t batch;
	const real *param;      /* the WHOLE flat vector (any version of it: the caller names its weight buffer) */
	/* Of a vector that is cut in two: the first n parameters lie apart, and so do their gradients (grad NULL: they lie
	 * with the others). */
	struct { size_t n; const real *param; real *grad; } head;
	real *buffer;           /* the WHOLE flat vector of buffers; forward with train and not replay updates it. NULL
				 * when the model has none */
	uint64_t key;           /* of what is random in this micro-batch (dropout): the same at replay and backward */
	void *saved;            /* need.saved bytes, 64-byte aligned; forward: NULL keeps nothing */
	void *work;             /* need.work_* bytes, 64-byte aligned */
	bool train, replay;
	/* backward: grad holds nothing yet of the piece's parameters, whatever lies there; but of those that an op behind
	 * it shares it holds what that op's piece, which went first, has written */
	bool fresh;
	bool apart;             /* with fresh: what ops of other pieces make for what they share lies elsewhere */
	struct cost *count;     /* what is executed is added here (kernels/cost.h); NULL: nobody counts */
	/* b - a of them: what op a + i took on par's clock is added to ns[i]. What runs in the pass of another op is there
	 * (model_runs_in). NULL: nobody asks. */
	uint64_t *ns;
};
/* x -> y. y never overlaps x. */
void model_forward(const struct par *par, const struct model *m, int a, int b, const struct model_call *c,
	const real *x, real *y);
/* dy -> dx (NULL: not wanted), and ADDS to grad, the whole flat gradient vector; with fresh it writes all elements of
 * the parameters that the piece holds instead. dy is left unchanged. */
void model_backward(const struct par *par, const struct model *m, int a, int b, const struct model_call *c,
	const real *x, const real *dy, real *dx, real *grad);

#endif
